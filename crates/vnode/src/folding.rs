//! Listings of a vnode: keys, heads and buckets, a bounded part at a time.

use std::sync::Arc;

use kvorum_backend::{
    Flow, FoldClock, FoldDetail, FoldEnd, FoldFilter, FoldRange, Lease, Snapshot, Tag, Timestamp,
    Visited,
};
use kvorum_encoding::StorageKey;
use kvorum_ring::Epoch;
use kvorum_runtime::Clock;

use crate::replica_request::ReplicaFailure;
use crate::stored_form::TOMBSTONE_TAG;
use crate::vnode::Vnode;

/// The range of a listing, and its time.
#[derive(Clone, Debug)]
pub struct FoldRequest {
    /// The partition's epoch in the sender's ring.
    pub epoch: Epoch,
    /// The keys of the listing.
    pub range: FoldRange,
    /// Gives the time for expiry, read once at the beginning, and measures the lease.
    pub clock: FoldClock,
    /// Time for which the snapshot may pin its data.
    pub lease: Lease,
}

/// The clock of a fold that begins now. It advances with monotonic time: a lease ends no earlier and no
/// later if the wall clock is set.
pub fn fold_clock(clock: Arc<dyn Clock>) -> FoldClock {
    let (began, wall) = (clock.now(), clock.wall_time());
    FoldClock::new(move || Timestamp(wall.plus(clock.now().since(began)).micros()))
}

impl Vnode {
    /// Visits the keys of a range in order, without tombstones. Blocks.
    ///
    /// # Errors
    /// [`ReplicaFailure::Damaged`] where keys may be missing: another replica has them.
    pub fn fold_keys(
        &self,
        request: &FoldRequest,
        visitor: &mut dyn FnMut(&StorageKey) -> Flow,
    ) -> Result<FoldEnd, ReplicaFailure> {
        let snapshot = self.snapshot(request)?;
        let filter = FoldFilter::unexpired_by(&request.clock);
        let visit = &mut |visited: Visited<'_>| {
            if is_passed_over(&visited) {
                return Flow::Continue;
            }
            visitor(visited.key)
        };
        let end = snapshot.fold(FoldDetail::Keys, &request.range, &filter, visit)?;
        check_unharmed(&*snapshot)?;
        Ok(end)
    }

    /// Visits one key of each bucket in the range that holds more than tombstones. Blocks.
    ///
    /// Buckets come in order, except that those whose first key is a tombstone come last, after a
    /// search for a key that is not one.
    ///
    /// # Errors
    /// Those of [`Vnode::fold_keys`].
    pub fn fold_buckets(
        &self,
        request: &FoldRequest,
        visitor: &mut dyn FnMut(&StorageKey) -> Flow,
    ) -> Result<FoldEnd, ReplicaFailure> {
        let snapshot = self.snapshot(request)?;
        let filter = FoldFilter::unexpired_by(&request.clock);
        let mut doubtful = Vec::new();
        let visit = &mut |visited: Visited<'_>| {
            if is_page(&visited) {
                return Flow::Continue;
            }
            if is_tombstone(&visited) {
                doubtful.push(visited.key.clone());
                return Flow::Continue;
            }
            visitor(visited.key)
        };
        let end = snapshot.fold_buckets(&request.range, &filter, visit)?;
        for first in &doubtful {
            match first_living(&*snapshot, first, &filter)? {
                Living::Found(key) => {
                    // The range has been folded: the answer of the visitor does not matter.
                    let _flow = visitor(&key);
                }
                Living::None => {}
                Living::LeaseExpired => return Ok(FoldEnd::LeaseExpired(first.clone())),
            }
        }
        check_unharmed(&*snapshot)?;
        Ok(end)
    }

    /// Visits the entries of a range in order with their heads, tombstones among them, as far as the
    /// narrowed filter admits them. Blocks.
    ///
    /// # Errors
    /// As [`Vnode::fold_keys`].
    pub(crate) fn fold_heads(
        &self,
        request: &FoldRequest,
        narrow: impl FnOnce(&mut FoldFilter),
        visitor: &mut dyn FnMut(&Visited<'_>) -> Flow,
    ) -> Result<FoldEnd, ReplicaFailure> {
        let snapshot = self.snapshot(request)?;
        let mut filter = FoldFilter::unexpired_by(&request.clock);
        narrow(&mut filter);
        let visit = &mut |visited: Visited<'_>| match is_page(&visited) {
            true => Flow::Continue,
            false => visitor(&visited),
        };
        let end = snapshot.fold(FoldDetail::Heads, &request.range, &filter, visit)?;
        check_unharmed(&*snapshot)?;
        Ok(end)
    }

    fn snapshot(&self, request: &FoldRequest) -> Result<Box<dyn Snapshot>, ReplicaFailure> {
        self.check_epoch(request.epoch)?;
        self.check_complete()?;
        Ok(self.backend.snapshot(request.lease)?)
    }
}

/// Fails if damage may have removed keys from the visited range.
fn check_unharmed(snapshot: &dyn Snapshot) -> Result<(), ReplicaFailure> {
    match snapshot.has_met_damage() {
        true => Err(ReplicaFailure::Damaged(
            "stored data damaged: keys of this range may be missing".to_owned(),
        )),
        false => Ok(()),
    }
}

enum Living {
    Found(StorageKey),
    None,
    LeaseExpired,
}

/// The first key of a bucket, from `first` on, that is not a tombstone.
fn first_living(
    snapshot: &dyn Snapshot,
    first: &StorageKey,
    filter: &FoldFilter,
) -> Result<Living, ReplicaFailure> {
    let key = first.as_bytes();
    let prefix_len = first.bucket_prefix_len().unwrap_or(key.len());
    let range = FoldRange::prefix(&key[..prefix_len]).resumed_at(first);
    let mut found = None;
    let visit = &mut |visited: Visited<'_>| {
        if is_tombstone(&visited) {
            return Flow::Continue;
        }
        found = Some(visited.key.clone());
        Flow::Stop
    };
    let end = snapshot.fold(FoldDetail::Keys, &range, filter, visit)?;
    Ok(match (found, end) {
        (Some(key), _) => Living::Found(key),
        (None, FoldEnd::LeaseExpired(_)) => Living::LeaseExpired,
        (None, FoldEnd::Complete | FoldEnd::Stopped(_)) => Living::None,
    })
}

/// True for an entry that is not a present object.
fn is_passed_over(visited: &Visited<'_>) -> bool {
    is_tombstone(visited) || is_page(visited)
}

fn is_page(visited: &Visited<'_>) -> bool {
    visited.fields.tag == Tag::PAGE
}

fn is_tombstone(visited: &Visited<'_>) -> bool {
    visited.fields.tag == TOMBSTONE_TAG
}
