//! Key and bucket listings, and counts of keys, on the vnodes of a coverage plan.
//!
//! Vnodes are read one after the other, each in parts of bounded length in the order of keys, each
//! part on a snapshot of its own: a key that exists throughout the listing is in it, and no key is
//! in it twice. A count does the same with numbers in place of names.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use kvorum_backend::{FoldClock, FoldRange, Lease};
use kvorum_encoding::{Address, Bucket, Key, StorageKey, bucket_prefix, type_prefix};
use kvorum_ring::CoverageVnode;
use kvorum_runtime::{Moment, Runtime, TaskGuard};
use kvorum_vnode::wire::PeerRequest;
use kvorum_vnode::{CountPage, Page, PageFailure, PageKind, PageRequest, ReplicaReply, Vnode};
use parking_lot::Mutex;

use crate::coverage::{Coverage, CoverageRun, in_place_of, owners_of};
use crate::error::RequestError;
use crate::gate::{Gate, OwnPass};
use crate::part_reading::{PartForm, PartRead, read_part};
use crate::replicas::no_reply;
use crate::request::BucketOrType;
use crate::trace::RequestKind;

/// The most names that one call of `next` returns.
const NAMES_PER_CHUNK: usize = 1_000;
/// Names that a vnode reads for one part: a listing holds as many in memory.
const NAMES_PER_PART: u32 = 10_000;
/// Keys that a vnode reads for one part of a count, on one snapshot.
const COUNTED_PER_PART: u32 = 100_000;

const FORM: PartForm<PageRequest, Answer> = PartForm {
    message: PeerRequest::Page,
    answer: |reply| match reply {
        ReplicaReply::Listed(page) => Ok(Answer::Names(page)),
        ReplicaReply::Counted(page) => Ok(Answer::Count(page)),
        ReplicaReply::Failed(failure) => Err(failure.into()),
        _ => Err(no_reply().into()),
    },
    read: answer_of,
};

/// A listing of one bucket's keys, in chunks.
pub struct KeyListing {
    run: Listing,
}

/// A listing of the buckets of one type.
pub struct BucketListing {
    run: Listing,
    seen: BTreeSet<Bucket>,
}

/// A count of one bucket's keys, in steps.
pub struct KeyCount {
    run: Listing,
}

struct Listing {
    run: CoverageRun,
    kind: PageKind,
    /// Keys counted so far.
    counted: u64,
    parts: VecDeque<Part>,
    ready: VecDeque<Address>,
    _counted: Counted,
}

/// Counts a listing as in progress, until its deadline at most. So a client that stopped reading
/// cannot block other listings for longer.
struct Counted {
    pass: Arc<Mutex<Option<OwnPass>>>,
    _deadline: TaskGuard<()>,
}

/// The answer of a vnode to one part.
enum Answer {
    Names(Page),
    Count(CountPage),
}

/// The rest to be read of one vnode.
#[derive(Clone)]
struct Part {
    vnode: CoverageVnode,
    range: FoldRange,
}

impl KeyListing {
    /// Begins to list the keys of a bucket.
    pub(crate) fn begin(
        coverage: &Arc<Coverage>,
        gate: &Arc<Gate>,
        place: BucketOrType,
        timeout: Duration,
    ) -> Result<Self, RequestError> {
        let run = Listing::begin(coverage, gate, PageKind::Keys, place, timeout);
        run.map(|run| Self { run })
    }

    /// The next keys, never an empty chunk; `None` when all have been listed.
    pub async fn next(&mut self) -> Option<Result<Vec<Key>, RequestError>> {
        if let Err(error) = self.run.fill().await {
            return Some(Err(error));
        }
        let keys: Vec<Key> = self.run.chunk().map(|address| address.key).collect();
        (!keys.is_empty()).then_some(Ok(keys))
    }
}

impl BucketListing {
    /// Begins to list the buckets of a type.
    pub(crate) fn begin(
        coverage: &Arc<Coverage>,
        gate: &Arc<Gate>,
        place: BucketOrType,
        timeout: Duration,
    ) -> Result<Self, RequestError> {
        Ok(Self {
            run: Listing::begin(coverage, gate, PageKind::Buckets, place, timeout)?,
            seen: BTreeSet::new(),
        })
    }

    /// The next buckets, each once, never an empty chunk; `None` when all have been listed.
    pub async fn next(&mut self) -> Option<Result<Vec<Bucket>, RequestError>> {
        loop {
            if let Err(error) = self.run.fill().await {
                return Some(Err(error));
            }
            if self.run.ready.is_empty() {
                return None;
            }
            let found = self.run.chunk().map(|address| address.bucket);
            let new: Vec<Bucket> = found
                .filter(|bucket| self.seen.insert(bucket.clone()))
                .collect();
            if !new.is_empty() {
                return Some(Ok(new));
            }
        }
    }
}

impl KeyCount {
    /// Begins to count the keys of a bucket.
    pub(crate) fn begin(
        coverage: &Arc<Coverage>,
        gate: &Arc<Gate>,
        place: BucketOrType,
        timeout: Duration,
    ) -> Result<Self, RequestError> {
        let run = Listing::begin(coverage, gate, PageKind::Count, place, timeout);
        run.map(|run| Self { run })
    }

    /// The number of keys counted so far, after the next step; `None` when all have been counted.
    pub async fn next(&mut self) -> Option<Result<u64, RequestError>> {
        let read = self.run.read_next().await?;
        Some(read.map(|()| self.run.counted))
    }
}

impl Listing {
    fn begin(
        coverage: &Arc<Coverage>,
        gate: &Arc<Gate>,
        kind: PageKind,
        place: BucketOrType,
        timeout: Duration,
    ) -> Result<Self, RequestError> {
        let request = match kind {
            PageKind::Buckets => RequestKind::ListBuckets,
            PageKind::Keys | PageKind::Count => RequestKind::ListKeys,
        };
        let (run, pass, cover) = CoverageRun::begin(coverage, gate, request, place, timeout)?;
        let range = FoldRange::prefix(&match &run.place.bucket {
            Some(bucket) => bucket_prefix(&run.place.bucket_type, bucket),
            None => type_prefix(&run.place.bucket_type),
        });
        let part = |vnode| Part {
            vnode,
            range: range.clone(),
        };
        let runtime = &coverage.replicas.parts.runtime;
        Ok(Self {
            parts: cover.into_iter().map(part).collect(),
            ready: VecDeque::new(),
            _counted: Counted::until(run.progress.deadline, pass, runtime),
            kind,
            counted: 0,
            run,
        })
    }

    /// Reads until something is ready or nothing is left.
    async fn fill(&mut self) -> Result<(), RequestError> {
        while self.ready.is_empty()
            && let Some(read) = self.read_next().await
        {
            read?;
        }
        Ok(())
    }

    /// Reads one part; `None` when nothing is left.
    async fn read_next(&mut self) -> Option<Result<(), RequestError>> {
        let part = self.parts.pop_front()?;
        let read = self.read_part(part).await;
        if let Err(error) = &read {
            self.parts.clear();
            self.run.error = Some(error.clone());
        }
        Some(read)
    }

    /// Some of the ready names.
    fn chunk(&mut self) -> impl Iterator<Item = Address> {
        let count = self.ready.len().min(NAMES_PER_CHUNK);
        self.ready.drain(..count)
    }

    async fn read_part(&mut self, part: Part) -> Result<(), RequestError> {
        let request = self.request(&part);
        match read_part(&mut self.run, &part.vnode, request, &FORM).await? {
            PartRead::Answer(answer) => self.take_answer(part, answer)?,
            PartRead::Instead(cover) => self.take_over(&part, cover),
        }
        Ok(())
    }

    fn request(&self, part: &Part) -> PageRequest {
        let (run, vnode) = (&self.run, &part.vnode);
        PageRequest {
            partition: vnode.partition,
            epoch: vnode.epoch,
            kind: self.kind,
            hash: run.hash,
            size: run.size,
            owners: owners_of(vnode),
            range: part.range.clone(),
            names_max: match self.kind {
                PageKind::Keys | PageKind::Buckets => NAMES_PER_PART,
                PageKind::Count => COUNTED_PER_PART,
            },
        }
    }

    fn take_answer(&mut self, part: Part, answer: Answer) -> Result<(), RequestError> {
        let next = match answer {
            Answer::Names(page) => {
                let names = page.keys.iter().map(StorageKey::decode);
                let names = names.collect::<Result<VecDeque<_>, _>>();
                self.ready = names.map_err(|error| RequestError::Storage(error.to_string()))?;
                page.next
            }
            Answer::Count(page) => {
                self.counted += page.keys;
                page.next
            }
        };
        if let Some(next) = next {
            self.parts.push_front(Part {
                range: part.range.resumed_at(&next),
                vnode: part.vnode,
            });
        }
        Ok(())
    }

    /// Assigns the rest of a part to the vnodes of another cover: the same owner partitions in the
    /// same range.
    fn take_over(&mut self, part: &Part, cover: Vec<CoverageVnode>) {
        for vnode in in_place_of(&part.vnode, cover).rev() {
            let range = part.range.clone();
            self.parts.push_front(Part { vnode, range });
        }
    }
}

fn answer_of(
    vnode: &Vnode,
    request: &PageRequest,
    clock: &FoldClock,
    lease: Lease,
) -> Result<Answer, PageFailure> {
    match request.kind {
        PageKind::Count => vnode.count_page(request, clock, lease).map(Answer::Count),
        PageKind::Keys | PageKind::Buckets => vnode.page(request, clock, lease).map(Answer::Names),
    }
}

impl Counted {
    fn until(deadline: Moment, pass: OwnPass, runtime: &Runtime) -> Self {
        let pass = Arc::new(Mutex::new(Some(pass)));
        let (late, clock) = (pass.clone(), runtime.clone());
        let watch = runtime.spawn("deadline of a listing", async move {
            clock.sleep_until(deadline).await;
            drop(late.lock().take());
        });
        Self {
            pass,
            _deadline: watch.abort_on_drop(),
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        drop(self.pass.lock().take());
    }
}
