//! Coverage: key and bucket listings, asked of the fewest vnodes that together hold everything.
//!
//! A plan names vnodes and, for each, the owner partitions that it answers for, so that a key with
//! several replicas is reported once. Vnodes are read one after the other, each in parts of bounded
//! length in the order of keys, each part on a snapshot of its own: a key that exists from the
//! beginning of the listing to its end is in it, and none is in it twice.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kvorum_backend::{Flow, FoldEnd, FoldRange, Lease, Timestamp};
use kvorum_encoding::{Address, Bucket, BucketType, Key, StorageKey, bucket_prefix, type_prefix};
use kvorum_ring::{CoverageVnode, KeyHash, Partition, RingSize, position};
use kvorum_vnode::{FoldRequest, Vnode};

use crate::coordinator::{Coordinator, Progress};
use crate::error::RequestError;
use crate::plan::key_hash;
use crate::replicas::request_error;
use crate::trace::RequestKind;

/// Names that one call of `next` gives at most.
const NAMES_PER_CHUNK: usize = 1_000;
/// Names that a vnode reads for one part: what a listing holds in memory.
const NAMES_PER_PART: usize = 10_000;

/// A listing of one bucket's keys, in chunks.
pub struct KeyListing {
    run: Listing,
}

/// A listing of the buckets of one type.
pub struct BucketListing {
    run: Listing,
    seen: BTreeSet<Bucket>,
}

struct Listing {
    counted: Counted,
    kind: RequestKind,
    place: Place,
    progress: Progress,
    hash: KeyHash,
    size: RingSize,
    parts: VecDeque<Part>,
    ready: VecDeque<Address>,
    /// How it ended; the meter is told when the listing is dropped.
    error: Option<RequestError>,
}

/// A listing counted as in progress.
struct Counted(Arc<Coordinator>);

/// What is listed, for the log.
struct Place {
    bucket_type: BucketType,
    bucket: Option<Bucket>,
}

/// What is left to be read of one vnode.
#[derive(Clone)]
struct Part {
    vnode: CoverageVnode,
    range: FoldRange,
}

impl Coordinator {
    /// Starts a listing of a bucket's keys.
    pub fn list_keys(
        self: &Arc<Self>,
        bucket_type: &BucketType,
        bucket: &Bucket,
        timeout: Duration,
    ) -> Result<KeyListing, RequestError> {
        let place = Place {
            bucket_type: bucket_type.clone(),
            bucket: Some(bucket.clone()),
        };
        let run = Listing::begin(self, RequestKind::ListKeys, place, timeout)?;
        Ok(KeyListing { run })
    }

    /// Starts a listing of a type's buckets.
    pub fn list_buckets(
        self: &Arc<Self>,
        bucket_type: &BucketType,
        timeout: Duration,
    ) -> Result<BucketListing, RequestError> {
        let place = Place {
            bucket_type: bucket_type.clone(),
            bucket: None,
        };
        let run = Listing::begin(self, RequestKind::ListBuckets, place, timeout)?;
        Ok(BucketListing {
            run,
            seen: BTreeSet::new(),
        })
    }
}

impl KeyListing {
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

impl Listing {
    fn begin(
        coordinator: &Arc<Coordinator>,
        kind: RequestKind,
        place: Place,
        timeout: Duration,
    ) -> Result<Self, RequestError> {
        let arrived = coordinator.runtime().now();
        let progress = coordinator.begin(arrived, Some(timeout));
        let planned = Counted::new(coordinator).and_then(|it| Ok((it, coordinator.cover(&place)?)));
        match planned {
            Ok((counted, cover)) => Ok(Self {
                counted,
                kind,
                place,
                progress,
                hash: cover.hash,
                size: cover.size,
                parts: cover.parts,
                ready: VecDeque::new(),
                error: None,
            }),
            Err(error) => {
                coordinator.finish(kind, &place, Some(&error), None, &progress);
                Err(error)
            }
        }
    }

    /// Reads until something is ready or nothing is left.
    async fn fill(&mut self) -> Result<(), RequestError> {
        while self.ready.is_empty()
            && let Some(part) = self.parts.pop_front()
        {
            if let Err(error) = self.read_part(part).await {
                self.parts.clear();
                self.error = Some(error.clone());
                return Err(error);
            }
        }
        Ok(())
    }

    /// Some of what is ready.
    fn chunk(&mut self) -> impl Iterator<Item = Address> {
        let count = self.ready.len().min(NAMES_PER_CHUNK);
        self.ready.drain(..count)
    }

    async fn read_part(&mut self, part: Part) -> Result<(), RequestError> {
        let coordinator = &self.counted.0;
        let runtime = coordinator.runtime();
        let vnode = coordinator.parts.vnodes.vnode(part.vnode.partition);
        let vnode = vnode.ok_or(RequestError::VnodeNotReady)?;
        let (asked, now) = (runtime.now(), coordinator.wall_time());
        let remaining = self.progress.deadline.since(asked);
        if remaining.is_zero() {
            return Err(RequestError::Timeout);
        }
        let reader = PartReader {
            part: part.clone(),
            kind: self.kind,
            hash: self.hash,
            size: self.size,
            now,
            lease: Lease::Until(later(now, remaining)),
        };
        let clock = runtime.clock();
        let work = runtime.blocking(move || {
            let queued = clock.now().since(asked);
            (reader.read(&vnode), queued)
        });
        let done = runtime.timeout(remaining, work).await;
        let (read, queued) = done.map_err(|_| RequestError::Timeout)?;
        self.progress.trace.queue += queued;
        let (found, end) = read?;
        match end {
            FoldEnd::Complete => {}
            FoldEnd::Stopped(next) => self.parts.push_front(Part {
                range: part.range.resumed_at(&next),
                vnode: part.vnode,
            }),
            // It ran to the deadline.
            FoldEnd::LeaseExpired(_) => return Err(RequestError::Timeout),
        }
        self.ready = found.into();
        Ok(())
    }
}

impl Drop for Listing {
    fn drop(&mut self) {
        let (coordinator, error) = (&self.counted.0, self.error.as_ref());
        coordinator.finish(self.kind, &self.place, error, None, &self.progress);
    }
}

impl Counted {
    fn new(coordinator: &Arc<Coordinator>) -> Result<Self, RequestError> {
        if coordinator.listings.count_in() {
            Ok(Self(coordinator.clone()))
        } else {
            Err(RequestError::Overload)
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.listings.count_out();
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.bucket {
            Some(bucket) => write!(f, "{}/{bucket}", self.bucket_type),
            None => self.bucket_type.fmt(f),
        }
    }
}

/// Where a listing's names are, by the ring of this moment.
struct Cover {
    parts: VecDeque<Part>,
    hash: KeyHash,
    size: RingSize,
}

impl Coordinator {
    fn cover(&self, place: &Place) -> Result<Cover, RequestError> {
        let state = self.state();
        let unknown_type = |_| RequestError::UnknownBucketType;
        let (n_val, keys, range) = match &place.bucket {
            Some(bucket) => {
                let properties = state.properties(&place.bucket_type, bucket);
                let properties = properties.map_err(unknown_type)?;
                let prefix = bucket_prefix(&place.bucket_type, bucket);
                (properties.n_val, &properties.chash_keyfun, prefix)
            }
            None => {
                let properties = state.type_properties(&place.bucket_type);
                let properties = properties.map_err(unknown_type)?;
                // Buckets of a type may have fewer replicas than the type says: one is what all have.
                (1, &properties.chash_keyfun, type_prefix(&place.bucket_type))
            }
        };
        let random = self.runtime().random_u64().to_le_bytes();
        let offset = u16::from_le_bytes([random[0], random[1]]);
        let colocated = self.settings.colocated_replicas;
        let plan = state
            .ring()
            .coverage_plan(n_val, colocated, offset, |node| self.is_up(node))
            .map_err(|error| RequestError::InsufficientVnodes {
                wanted: error.missing.len(),
                got: 0,
            })?;
        let range = FoldRange::prefix(&range);
        let part = |vnode| Part {
            vnode,
            range: range.clone(),
        };
        Ok(Cover {
            parts: plan.vnodes.into_iter().map(part).collect(),
            hash: key_hash(keys),
            size: state.ring().size(),
        })
    }
}

/// Reads one part, on a thread that may block.
struct PartReader {
    part: Part,
    kind: RequestKind,
    hash: KeyHash,
    size: RingSize,
    now: Timestamp,
    lease: Lease,
}

impl PartReader {
    fn read(&self, vnode: &Vnode) -> Result<(Vec<Address>, FoldEnd), RequestError> {
        let request = FoldRequest {
            epoch: self.part.vnode.epoch,
            range: self.part.range.clone(),
            now: self.now,
            lease: self.lease,
        };
        let mut found = Vec::new();
        let mut malformed = None;
        let visitor = &mut |key: &StorageKey| {
            match key.decode() {
                Ok(address) if self.admits(&address) => found.push(address),
                Ok(_) => {}
                Err(error) => malformed = Some(error),
            }
            if found.len() < NAMES_PER_PART {
                Flow::Continue
            } else {
                Flow::Stop
            }
        };
        let end = match self.kind {
            RequestKind::ListBuckets => vnode.fold_buckets(&request, visitor),
            _ => vnode.fold_keys(&request, visitor),
        };
        let end = end.map_err(request_error)?;
        match malformed {
            Some(error) => Err(RequestError::Storage(error.to_string())),
            None => Ok((found, end)),
        }
    }

    /// True for what the vnode is to answer for. A bucket is reported by whoever has it.
    fn admits(&self, address: &Address) -> bool {
        if self.part.vnode.whole || self.kind == RequestKind::ListBuckets {
            return true;
        }
        let Address {
            bucket_type,
            bucket,
            key,
        } = address;
        let place = position(bucket_type, bucket, key, self.hash);
        let owner: Partition = place.owner(self.size);
        self.part.vnode.owners.contains(&owner)
    }
}

fn later(now: Timestamp, by: Duration) -> Timestamp {
    let micros = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
    Timestamp(now.0.saturating_add(micros))
}
