//! One part of a fold over keys, on one vnode of any node.
//!
//! A part has limits on the entries that it reads, on the bytes of its findings and on time; the next part
//! continues at the end of this one, on another snapshot. So a fold of any scope holds a thread, a snapshot
//! and memory only briefly. It reads heads and no bodies, so every engine can answer.

use std::ops::{Bound, RangeInclusive};

use bytes::Bytes;
use kvorum_backend::{Flow, FoldClock, FoldEnd, FoldFilter, FoldRange, Lease, Timestamp, Visited};
use kvorum_encoding::{Key, StorageKey, bucket_prefix};
use kvorum_key_folds::{Findings, FoldScope, FoldedEntry, LeafFilter};
use kvorum_object::Head;
use kvorum_ring::position;
use kvorum_tictac::{LeafHash, seeded_hash};

use crate::folding::FoldRequest;
use crate::key_fold_request::{KeyFoldPart, KeyFoldRequest};
use crate::page::PageFailure;
use crate::replica_request::ReplicaFailure;
use crate::stored_form::head_of;
use crate::tree_building::hash_of_head;
use crate::vnode::Vnode;

/// The most entries that a part reads, found or not.
const LOOKED_AT_MAX: usize = 50_000;
/// The most bytes of findings in a part; one entry may exceed it.
const PART_BYTES_MAX: usize = 1 << 20;
/// The most time that a part holds its snapshot, in microseconds: five seconds.
const PART_MICROS_MAX: u64 = 5_000_000;

const MICROS_A_SECOND: u64 = 1_000_000;

impl Vnode {
    /// Reads a part of a fold over keys, on a snapshot of its own. Blocks.
    ///
    /// # Errors
    /// [`PageFailure::OutOfTime`] when the lease is over; [`ReplicaFailure::Damaged`] where entries may be
    /// missing or cannot be read: another replica has them.
    pub fn key_fold_part(
        &self,
        request: &KeyFoldRequest,
        clock: &FoldClock,
        lease: Lease,
    ) -> Result<KeyFoldPart, PageFailure> {
        let scope = &request.fold.scope;
        if scope.is_empty() {
            return Ok(KeyFoldPart {
                findings: Findings::default(),
                next: None,
            });
        }
        let fold = FoldRequest {
            epoch: request.epoch,
            range: request.range(),
            clock: clock.clone(),
            lease: part_lease(lease, clock.now()),
        };
        let mut part = Part::new(request);
        let visitor = &mut |visited: &Visited<'_>| part.visit(visited);
        let narrow = |filter: &mut FoldFilter| {
            filter.segments = scope.leaves.as_ref().map(LeafFilter::segments);
            filter.last_modified = times_of(scope);
        };
        let end = self.fold_heads(&fold, narrow, visitor)?;
        part.finish(end, lease.is_over(clock.now()))
    }
}

/// The lease of one part: the fold's lease, or the time of a part if that ends first.
fn part_lease(lease: Lease, now: Timestamp) -> Lease {
    let end = Timestamp(now.0.saturating_add(PART_MICROS_MAX));
    match lease {
        Lease::Until(until) => Lease::Until(until.min(end)),
        Lease::Unlimited => Lease::Until(end),
    }
}

/// The times of a scope in microseconds, with all of the last second.
fn times_of(scope: &FoldScope) -> Option<RangeInclusive<Timestamp>> {
    let (first, last) = scope.modified_seconds?;
    let first = first.saturating_mul(MICROS_A_SECOND);
    let last = last.saturating_mul(MICROS_A_SECOND);
    let end = last.saturating_add(MICROS_A_SECOND - 1);
    Some(Timestamp(first)..=Timestamp(end))
}

impl KeyFoldRequest {
    /// The keys that are left to read.
    fn range(&self) -> FoldRange {
        let scope = &self.fold.scope;
        let bound = |key: &Key| -> Bound<Bytes> {
            let key = StorageKey::new(&scope.bucket_type, &scope.bucket, key);
            Bound::Included(key.to_bytes())
        };
        let range = match &scope.keys {
            None => FoldRange::prefix(&bucket_prefix(&scope.bucket_type, &scope.bucket)),
            Some((first, last)) => FoldRange {
                from: bound(first),
                to: bound(last),
            },
        };
        match &self.from {
            None => range,
            Some(from) => range.resumed_at(from),
        }
    }

    /// True for a key that the vnode answers for.
    fn admits(&self, key: &Key) -> bool {
        let scope = &self.fold.scope;
        self.owners.as_ref().is_none_or(|owners| {
            let place = position(&scope.bucket_type, &scope.bucket, key, self.hash);
            owners.contains(&place.owner(self.size))
        })
    }
}

/// A part in progress.
struct Part<'a> {
    request: &'a KeyFoldRequest,
    findings: Findings,
    looked_at: usize,
    /// The reason why the part cannot be answered.
    failure: Option<ReplicaFailure>,
}

impl<'a> Part<'a> {
    fn new(request: &'a KeyFoldRequest) -> Self {
        Self {
            request,
            findings: Findings::default(),
            looked_at: 0,
            failure: None,
        }
    }

    fn visit(&mut self, visited: &Visited<'_>) -> Flow {
        self.looked_at += 1;
        if let Err(failure) = self.take(visited) {
            self.failure = Some(failure);
            return Flow::Stop;
        }
        let is_over = self.looked_at >= LOOKED_AT_MAX;
        match is_over || self.findings.memory_bytes() >= PART_BYTES_MAX {
            true => Flow::Stop,
            false => Flow::Continue,
        }
    }

    fn take(&mut self, visited: &Visited<'_>) -> Result<(), ReplicaFailure> {
        let address = visited.key.decode();
        let address = address.map_err(|error| ReplicaFailure::Storage(error.to_string()))?;
        if !self.request.admits(&address.key) {
            return Ok(());
        }
        let head = head_of(visited.fields.tag, &visited.head);
        let head = head.map_err(|error| unreadable(visited.key, &error))?;
        let entry = SeenHead {
            key: address.key,
            stored_key: visited.key,
            segment: visited.fields.segment,
            head,
        };
        self.findings.take(self.request.fold.kind, &entry);
        Ok(())
    }

    fn finish(self, end: FoldEnd, is_lease_over: bool) -> Result<KeyFoldPart, PageFailure> {
        if let Some(failure) = self.failure {
            return Err(failure.into());
        }
        let next = match end {
            FoldEnd::Complete => None,
            FoldEnd::Stopped(next) => Some(next),
            FoldEnd::LeaseExpired(_) if is_lease_over => return Err(PageFailure::OutOfTime),
            FoldEnd::LeaseExpired(next) => Some(next),
        };
        Ok(KeyFoldPart {
            findings: self.findings,
            next,
        })
    }
}

fn unreadable(key: &StorageKey, error: &kvorum_object::DecodeError) -> ReplicaFailure {
    ReplicaFailure::Damaged(format!("the head of {key:?} cannot be read: {error}"))
}

/// A stored entry without its values.
struct SeenHead<'a> {
    key: Key,
    stored_key: &'a StorageKey,
    segment: u32,
    head: Head,
}

impl FoldedEntry for SeenHead<'_> {
    fn key(&self) -> &Key {
        &self.key
    }

    fn siblings(&self) -> u64 {
        self.head.siblings().len() as u64
    }

    fn size_bytes(&self) -> u64 {
        self.head.size().bytes
    }

    fn is_tombstone(&self) -> bool {
        self.head.is_tombstone()
    }

    fn segment(&self) -> u32 {
        self.segment
    }

    fn leaf_hash(&self, seed: Option<u64>) -> u32 {
        let hash = hash_of_head(self.stored_key, &self.head);
        let hash = seed.map_or(hash, |seed| seeded_hash(hash, seed));
        LeafHash::of_entry(hash).get()
    }

    fn clock(&self) -> Bytes {
        self.head.clock().encode()
    }
}
