//! Coverage: key and bucket listings, asked of the fewest vnodes that together hold everything.
//!
//! A plan names vnodes and, for each, the owner partitions that it answers for, so that a key with
//! several replicas is reported once. Vnodes are read one after the other, each on one snapshot: a
//! key that exists from the beginning of the listing to its end is in it.

use std::collections::BTreeSet;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use kvorum_backend::{Flow, FoldRange, Lease};
use kvorum_encoding::{Address, Bucket, BucketType, Key, StorageKey, bucket_prefix, type_prefix};
use kvorum_properties::KeyFunction;
use kvorum_ring::{CoverageVnode, KeyHash, Partition, RingSize, position};
use kvorum_runtime::Moment;
use kvorum_vnode::Vnode;

use crate::coordinator::{Coordinator, request_error};
use crate::error::RequestError;

/// Keys that a vnode reports before the listing hands them on.
const KEYS_PER_CHUNK: usize = 1_000;

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
    coordinator: Arc<Coordinator>,
    vnodes: VecDeque<CoverageVnode>,
    range: FoldRange,
    hash: KeyHash,
    size: RingSize,
    deadline: Moment,
    ready: VecDeque<Address>,
    what: What,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Keys,
    Buckets,
}

impl Coordinator {
    /// Starts a listing of a bucket's keys.
    pub fn list_keys(
        self: &Arc<Self>,
        bucket_type: &BucketType,
        bucket: &Bucket,
        timeout: Duration,
    ) -> Result<KeyListing, RequestError> {
        let range = FoldRange::prefix(&bucket_prefix(bucket_type, bucket));
        let run = self.listing(bucket_type, bucket, range, timeout, What::Keys)?;
        Ok(KeyListing { run })
    }

    /// Starts a listing of a type's buckets.
    pub fn list_buckets(
        self: &Arc<Self>,
        bucket_type: &BucketType,
        timeout: Duration,
    ) -> Result<BucketListing, RequestError> {
        let range = FoldRange::prefix(&type_prefix(bucket_type));
        let any_bucket = Bucket::from("");
        let run = self.listing(bucket_type, &any_bucket, range, timeout, What::Buckets)?;
        Ok(BucketListing {
            run,
            seen: BTreeSet::new(),
        })
    }

    fn listing(
        self: &Arc<Self>,
        bucket_type: &BucketType,
        bucket: &Bucket,
        range: FoldRange,
        timeout: Duration,
        what: What,
    ) -> Result<Listing, RequestError> {
        let state = self.state();
        let properties = state
            .properties(bucket_type, bucket)
            .map_err(|_| RequestError::UnknownBucketType)?;
        // Buckets of a type may have fewer replicas than the type says: one is what all have.
        let n_val = if what == What::Keys {
            properties.n_val
        } else {
            1
        };
        let hash = match properties.chash_keyfun {
            KeyFunction::BucketOnly => KeyHash::BucketOnly,
            _ => KeyHash::Standard,
        };
        let random = self.runtime().random_u64().to_le_bytes();
        let offset = u16::from_le_bytes([random[0], random[1]]);
        let colocated = self.settings.colocated_replicas;
        let ring = state.ring();
        let plan = ring
            .coverage_plan(n_val, colocated, offset, |node| self.is_up(node))
            .map_err(|error| RequestError::InsufficientVnodes {
                wanted: error.missing.len(),
                got: 0,
            })?;
        Ok(Listing {
            coordinator: self.clone(),
            vnodes: plan.vnodes.into(),
            range,
            hash,
            size: ring.size(),
            deadline: self.runtime().now().plus(timeout),
            ready: VecDeque::new(),
            what,
        })
    }
}

impl KeyListing {
    /// The next keys, never an empty chunk; `None` when all have been listed.
    pub async fn next(&mut self) -> Option<Result<Vec<Key>, RequestError>> {
        if let Err(error) = self.run.fill().await {
            return Some(Err(error));
        }
        let count = self.run.ready.len().min(KEYS_PER_CHUNK);
        let keys: Vec<Key> = self
            .run
            .ready
            .drain(..count)
            .map(|address| address.key)
            .collect();
        if keys.is_empty() {
            None
        } else {
            Some(Ok(keys))
        }
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
            let found = self.run.ready.drain(..).map(|address| address.bucket);
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
    /// Reads vnodes until something is ready or none is left.
    async fn fill(&mut self) -> Result<(), RequestError> {
        while self.ready.is_empty() {
            let Some(next) = self.vnodes.pop_front() else {
                return Ok(());
            };
            self.ready = self.read_vnode(next).await?.into();
        }
        Ok(())
    }

    async fn read_vnode(&self, asked: CoverageVnode) -> Result<Vec<Address>, RequestError> {
        let coordinator = &self.coordinator;
        let runtime = coordinator.runtime();
        let vnode = coordinator.parts.vnodes.vnode(asked.partition);
        let vnode = vnode.ok_or(RequestError::VnodeNotReady)?;
        let now = coordinator.wall_time();
        let remaining = self.deadline.since(runtime.now());
        if remaining.is_zero() {
            return Err(RequestError::Timeout);
        }
        let wanted = Wanted {
            asked,
            hash: self.hash,
            size: self.size,
        };
        let (range, what) = (self.range.clone(), self.what);
        let micros = u64::try_from(remaining.as_micros()).unwrap_or(u64::MAX);
        let lease = Lease::Until(kvorum_backend::Timestamp(now.0.saturating_add(micros)));
        let read =
            runtime.blocking(move || read_addresses(&vnode, &wanted, &range, what, now, lease));
        runtime
            .timeout(remaining, read)
            .await
            .map_err(|_| RequestError::Timeout)?
    }
}

/// Which of a vnode's keys belong to the listing.
struct Wanted {
    asked: CoverageVnode,
    hash: KeyHash,
    size: RingSize,
}

impl Wanted {
    fn admits(&self, address: &Address) -> bool {
        if self.asked.whole {
            return true;
        }
        let place = position(
            &address.bucket_type,
            &address.bucket,
            &address.key,
            self.hash,
        );
        let owner: Partition = place.owner(self.size);
        self.asked.owners.contains(&owner)
    }
}

fn read_addresses(
    vnode: &Vnode,
    wanted: &Wanted,
    range: &FoldRange,
    what: What,
    now: kvorum_backend::Timestamp,
    lease: Lease,
) -> Result<Vec<Address>, RequestError> {
    let mut found = Vec::new();
    let mut malformed = None;
    let visitor = &mut |key: &StorageKey| {
        match key.decode() {
            Ok(address) if what == What::Buckets || wanted.admits(&address) => found.push(address),
            Ok(_) => {}
            Err(error) => malformed = Some(error),
        }
        Flow::Continue
    };
    match what {
        What::Keys => vnode.fold_keys(range, now, lease, visitor),
        What::Buckets => vnode.fold_buckets(range, now, lease, visitor),
    }
    .map_err(request_error)?;
    match malformed {
        Some(error) => Err(RequestError::Storage(error.to_string())),
        None => Ok(found),
    }
}
