//! Index queries: coverage as for listings, with the entries of all vnodes in one order if asked for.
//!
//! Each vnode is read in parts of bounded length, each on a snapshot of its own. The vnodes of this
//! node are read in one go on one thread, those of other nodes at the same time. Where order matters,
//! the parts are merged and nothing is read that is not needed for the next result; where it does not,
//! parts are passed on as they come.
//!
//! An object whose entry moves while the query runs may be found at both terms, or at neither, as in
//! Riak: what is there throughout is found once.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{join, join_all};
use kvorum_backend::Lease;
use kvorum_encoding::{Bucket, BucketType, Key};
use kvorum_ring::{CoverageVnode, KeyHash, RingSize};
use kvorum_vnode::wire::PeerRequest;
use kvorum_vnode::{
    IndexPage, IndexPageRequest, IndexPosition, PageFailure, ReplicaFailure, ReplicaReply,
    fold_clock,
};

use crate::attempts::{Progress, REPLAN_PAUSE_MIN};
use crate::coordinator::Coordinator;
use crate::coverage::{DamagedVnodes, PageError, instead_of};
use crate::error::RequestError;
use crate::index_query::{Continuation, IndexOptions, IndexQuery};
use crate::peers::PeerFailure;
use crate::replicas::no_reply;
use crate::service::later;
use crate::trace::RequestKind;

/// Results that one call of `next` gives at most.
const RESULTS_PER_CHUNK: usize = 1_000;
/// Entries that a vnode reads for one part.
const ENTRIES_PER_PART: u32 = 1_000;
/// Vnodes that are read at once when order does not matter.
const VNODES_AT_ONCE: usize = 8;
/// What a part of a query for few results holds beyond its share of them: keys are not spread evenly.
const ENTRIES_BEYOND_SHARE: u32 = 16;
/// The patience of a query without a timeout.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// A result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexMatch {
    /// The value by which the object was found; empty when keys were looked through.
    pub value: Bytes,
    /// The object's key.
    pub key: Key,
}

/// The results of an index query, in chunks.
pub struct IndexResults {
    counted: Counted,
    query: IndexQuery,
    place: Place,
    progress: Progress,
    hash: KeyHash,
    size: RingSize,
    sources: Vec<Source>,
    entries_max: u32,
    /// Results that may still come.
    left: Option<u32>,
    /// The last result, of a query that counts.
    last: Option<IndexPosition>,
    damaged: DamagedVnodes,
    replan_pause: Duration,
    /// How it ended; the meter is told when the results are dropped.
    error: Option<RequestError>,
}

/// A query counted as in progress.
struct Counted(Arc<Coordinator>);

/// What is asked, for the log.
struct Place {
    bucket_type: BucketType,
    bucket: Bucket,
}

/// One vnode's entries.
struct Source {
    vnode: CoverageVnode,
    /// Read, and not passed on.
    ready: VecDeque<IndexPosition>,
    /// Up to where it was read.
    after: Option<IndexPosition>,
    is_done: bool,
}

impl Source {
    fn is_to_be_read(&self) -> bool {
        self.ready.is_empty() && !self.is_done
    }
}

impl Coordinator {
    /// Starts an index query.
    pub fn query_index(self: &Arc<Self>, query: IndexQuery) -> Result<IndexResults, RequestError> {
        let arrived = self.runtime().now();
        let timeout = query.options.timeout.unwrap_or(FOR_EVER).min(FOR_EVER);
        let progress = self.begin(arrived, Some(timeout));
        let place = Place {
            bucket_type: query.bucket_type.clone(),
            bucket: query.bucket.clone(),
        };
        let planned = Counted::new(self).and_then(|counted| {
            let damaged = DamagedVnodes::default();
            let cover = self.cover_bucket(&place.bucket_type, &place.bucket, &damaged)?;
            Ok((counted, cover))
        });
        let (counted, cover) = match planned {
            Ok(planned) => planned,
            Err(error) => {
                let kind = RequestKind::IndexQuery;
                self.finish(kind, &place, Some(&error), None, &progress);
                return Err(error);
            }
        };
        let IndexOptions {
            results_max, after, ..
        } = &query.options;
        let left = results_max.map(std::num::NonZeroU32::get);
        let after = after.as_ref().map(|after| after.0.clone());
        let source = |vnode| Source {
            vnode,
            ready: VecDeque::new(),
            after: after.clone(),
            is_done: query.selection.is_empty(),
        };
        let sources: Vec<Source> = cover.vnodes.into_iter().map(source).collect();
        Ok(IndexResults {
            counted,
            place,
            progress,
            hash: cover.hash,
            size: cover.size,
            entries_max: entries_per_part(left, sources.len()),
            sources,
            left,
            last: None,
            damaged: DamagedVnodes::default(),
            replan_pause: REPLAN_PAUSE_MIN,
            error: None,
            query,
        })
    }
}

/// Twice the share that each vnode has of the results, for some have more.
fn entries_per_part(results_max: Option<u32>, vnodes: usize) -> u32 {
    let Some(results_max) = results_max else {
        return ENTRIES_PER_PART;
    };
    let vnodes = u32::try_from(vnodes).unwrap_or(u32::MAX).max(1);
    let share = (results_max / vnodes).saturating_mul(2) + ENTRIES_BEYOND_SHARE;
    share.min(results_max).min(ENTRIES_PER_PART)
}

impl IndexResults {
    /// The next results, never an empty chunk; `None` when there are no more.
    pub async fn next(&mut self) -> Option<Result<Vec<IndexMatch>, RequestError>> {
        let found = match self.read().await {
            Ok(found) => found,
            Err(error) => {
                self.sources.clear();
                self.left = None;
                self.error = Some(error.clone());
                return Some(Err(error));
            }
        };
        let selection = &self.query.selection;
        let result = |IndexPosition { term, key }| IndexMatch {
            value: selection.value_of(&term),
            key,
        };
        let results: Vec<_> = found.into_iter().map(result).collect();
        (!results.is_empty()).then_some(Ok(results))
    }

    /// Where the next page begins, once all results of this one have come: there may be a next one
    /// when as many came as were asked for.
    pub fn continuation(&self) -> Option<Continuation> {
        let last = self.last.as_ref().filter(|_| self.left == Some(0));
        last.cloned().map(Continuation)
    }

    async fn read(&mut self) -> Result<Vec<IndexPosition>, RequestError> {
        let options = &self.query.options;
        if options.is_sorted || options.results_max.is_some() || options.after.is_some() {
            self.read_sorted().await
        } else {
            self.read_unsorted().await
        }
    }

    async fn read_unsorted(&mut self) -> Result<Vec<IndexPosition>, RequestError> {
        loop {
            let ready = self.sources.iter_mut().find(|it| !it.ready.is_empty());
            if let Some(source) = ready {
                let count = source.ready.len().min(RESULTS_PER_CHUNK);
                return Ok(source.ready.drain(..count).collect());
            }
            self.sources.retain(|it| !it.is_done);
            let some: Vec<usize> = (0..self.sources.len().min(VNODES_AT_ONCE)).collect();
            if some.is_empty() {
                return Ok(Vec::new());
            }
            self.fetch(&some).await?;
        }
    }

    async fn read_sorted(&mut self) -> Result<Vec<IndexPosition>, RequestError> {
        let wanted = match self.left {
            Some(left) => RESULTS_PER_CHUNK.min(usize::try_from(left).unwrap_or(usize::MAX)),
            None => RESULTS_PER_CHUNK,
        };
        if wanted == 0 {
            return Ok(Vec::new());
        }
        let mut merged = Vec::new();
        // Parts may be empty and have a next one.
        while merged.is_empty() {
            self.fetch_what_is_missing().await?;
            self.merge(wanted, &mut merged);
            if self
                .sources
                .iter()
                .all(|it| it.ready.is_empty() && it.is_done)
            {
                break;
            }
        }
        if let Some(left) = &mut self.left {
            *left -= u32::try_from(merged.len()).unwrap_or(*left);
            self.last = merged.last().cloned().or_else(|| self.last.take());
        }
        Ok(merged)
    }

    async fn fetch_what_is_missing(&mut self) -> Result<(), RequestError> {
        loop {
            let missing = self.sources.iter().enumerate();
            let missing = missing.filter(|(_, source)| source.is_to_be_read());
            let missing: Vec<usize> = missing.map(|(index, _)| index).collect();
            if missing.is_empty() {
                return Ok(());
            }
            self.fetch(&missing).await?;
        }
    }

    /// Passes on what is least, until a vnode has to be read again to tell.
    fn merge(&mut self, wanted: usize, merged: &mut Vec<IndexPosition>) {
        let mut first = BinaryHeap::new();
        for (index, source) in self.sources.iter_mut().enumerate() {
            first.extend(source.ready.pop_front().map(|it| Reverse((it, index))));
        }
        while merged.len() < wanted
            && let Some(Reverse((least, index))) = first.pop()
        {
            merged.push(least);
            let source = &mut self.sources[index];
            match source.ready.pop_front() {
                Some(next) => first.push(Reverse((next, index))),
                None if source.is_done => {}
                None => break,
            }
        }
        for Reverse((position, index)) in first {
            self.sources[index].ready.push_front(position);
        }
    }

    /// Reads the next part of some of the vnodes.
    async fn fetch(&mut self, sources: &[usize]) -> Result<(), RequestError> {
        let coordinator = self.counted.0.clone();
        let now = coordinator.runtime().now();
        let remaining = self.progress.deadline.since(now);
        if remaining.is_zero() {
            return Err(RequestError::Timeout);
        }
        let (mut here, mut there) = (Vec::new(), Vec::new());
        for index in sources {
            let source = &self.sources[*index];
            let request = self.part_of(source);
            if source.vnode.node == coordinator.node() {
                here.push((*index, request));
            } else {
                there.push((*index, source.vnode.node, request));
            }
        }
        let deadline = self.progress.deadline;
        let there = join_all(there.into_iter().map(|(index, node, request)| {
            let asked = PeerRequest::IndexPage(request);
            let asked = coordinator.replicas.ask_peer(node, asked, deadline);
            async move { (index, page_of(asked.await)) }
        }));
        let here = coordinator.index_pages_here(here, remaining);
        let ((here, queued), there) = join(here, there).await;
        self.progress.trace.queue += queued;
        let (mut elsewhere, mut unopened) = (Vec::new(), None);
        for (index, page) in here?.into_iter().chain(there) {
            let source = &mut self.sources[index];
            match page {
                Ok(IndexPage { entries, next }) => {
                    source.is_done = next.is_none();
                    source.after = next;
                    source.ready = entries.into();
                }
                Err(PageError::OtherRing) => elsewhere.push(index),
                Err(PageError::Incomplete) => {
                    coordinator.leave_out(source.vnode.node);
                    elsewhere.push(index);
                }
                Err(PageError::NotOpen(error)) => {
                    let CoverageVnode {
                        node, partition, ..
                    } = source.vnode;
                    coordinator.replicas.unopened.pass_over(node, partition);
                    unopened = Some(error);
                    elsewhere.push(index);
                }
                Err(PageError::Damaged(error)) => {
                    self.damaged.note(&source.vnode, error);
                    elsewhere.push(index);
                }
                Err(PageError::Failed(error)) => return Err(error),
            }
        }
        let covered = self.cover_anew(elsewhere).await;
        covered.map_err(|other| match unopened {
            Some(error) => instead_of(other, error),
            None => other,
        })
    }

    fn part_of(&self, source: &Source) -> IndexPageRequest {
        let vnode = &source.vnode;
        IndexPageRequest {
            partition: vnode.partition,
            epoch: vnode.epoch,
            hash: self.hash,
            size: self.size,
            owners: (!vnode.whole).then(|| vnode.owners.clone()),
            bucket_type: self.place.bucket_type.clone(),
            bucket: self.place.bucket.clone(),
            scan: self.query.selection.scan.clone(),
            pattern: self.query.options.pattern.clone(),
            after: source.after.clone(),
            entries_max: self.entries_max,
        }
    }

    /// What is left of vnodes that are elsewhere by now: the same owner partitions behind the same
    /// position, as the ring of this moment has them.
    async fn cover_anew(&mut self, mut elsewhere: Vec<usize>) -> Result<(), RequestError> {
        if elsewhere.is_empty() {
            self.replan_pause = REPLAN_PAUSE_MIN;
            return Ok(());
        }
        let coordinator = self.counted.0.clone();
        let is_in_time = coordinator
            .attempts
            .pause_before_replanning(&mut self.replan_pause, &self.progress)
            .await;
        if !is_in_time {
            return Err(RequestError::VnodeNotReady);
        }
        let Place {
            bucket_type,
            bucket,
        } = &self.place;
        let cover = coordinator.cover_bucket(bucket_type, bucket, &self.damaged)?;
        elsewhere.sort_unstable();
        for index in elsewhere.into_iter().rev() {
            let gone = self.sources.swap_remove(index);
            for vnode in &cover.vnodes {
                let mut vnode = vnode.clone();
                let before = vnode.owners.len();
                vnode.owners.retain(|it| gone.vnode.owners.contains(it));
                vnode.whole &= vnode.owners.len() == before;
                if !vnode.owners.is_empty() {
                    self.sources.push(Source {
                        vnode,
                        ready: VecDeque::new(),
                        after: gone.after.clone(),
                        is_done: false,
                    });
                }
            }
        }
        Ok(())
    }
}

type Pages = Vec<(usize, Result<IndexPage, PageError>)>;

impl Coordinator {
    /// Parts of vnodes of this node, and how long they waited for a thread.
    async fn index_pages_here(
        &self,
        requests: Vec<(usize, IndexPageRequest)>,
        remaining: Duration,
    ) -> (Result<Pages, RequestError>, Duration) {
        let (runtime, none) = (self.runtime(), Duration::ZERO);
        if requests.is_empty() {
            return (Ok(Vec::new()), none);
        }
        let mut work = Vec::with_capacity(requests.len());
        let mut pages: Pages = Vec::with_capacity(requests.len());
        for (index, request) in requests {
            match self.replicas.parts.vnodes.vnode(request.partition) {
                Some(vnode) => work.push((index, vnode, request)),
                None => pages.push((index, Err(self.replicas.not_open(request.partition)))),
            }
        }
        let (asked, now) = (runtime.now(), self.wall_time());
        let lease = Lease::Until(later(now, remaining));
        let clock = runtime.clock();
        let fold_clock = fold_clock(clock.clone());
        let work = runtime.blocking(move || {
            let queued = clock.now().since(asked);
            for (index, vnode, request) in work {
                match vnode.index_page(&request, &fold_clock, lease) {
                    Ok(page) => pages.push((index, Ok(page))),
                    Err(PageFailure::Failed(failure)) => pages.push((index, Err(failure.into()))),
                    Err(PageFailure::OutOfTime) => return (Err(RequestError::Timeout), queued),
                }
            }
            (Ok(pages), queued)
        });
        let done = runtime.timeout(remaining, work).await;
        done.unwrap_or((Err(RequestError::Timeout), none))
    }
}

fn page_of(answer: Result<ReplicaReply, PeerFailure>) -> Result<IndexPage, PageError> {
    match answer {
        Ok(ReplicaReply::IndexListed(page)) => Ok(page),
        Ok(ReplicaReply::Failed(failure)) => Err(ReplicaFailure::into(failure)),
        Ok(_) => Err(no_reply().into()),
        Err(failure) => Err(failure.into()),
    }
}

impl Drop for IndexResults {
    fn drop(&mut self) {
        let (coordinator, error) = (&self.counted.0, self.error.as_ref());
        let kind = RequestKind::IndexQuery;
        coordinator.finish(kind, &self.place, error, None, &self.progress);
    }
}

impl Counted {
    fn new(coordinator: &Arc<Coordinator>) -> Result<Self, RequestError> {
        if coordinator.index_queries.count_in() {
            Ok(Self(coordinator.clone()))
        } else {
            Err(RequestError::Overload)
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.index_queries.count_out();
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.bucket_type, self.bucket)
    }
}
