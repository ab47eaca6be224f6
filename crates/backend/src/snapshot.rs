//! Snapshots and folds: reading a store as it was at one moment while it changes.

use std::fmt;
use std::ops::{Bound, RangeInclusive};
use std::sync::Arc;

use bytes::Bytes;
use kvorum_encoding::{SegmentFilter, StorageKey};

use crate::{Fields, Result, Sequence, Timestamp};

/// The time for which a snapshot may pin its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// Until this time; later the store may release the pinned data.
    Until(Timestamp),
    /// While the snapshot lives; for backups. The status counts the pinned bytes.
    Unlimited,
}

impl Lease {
    /// True when the lease is over at `now`.
    pub fn is_over(self, now: Timestamp) -> bool {
        match self {
            Self::Until(end) => end <= now,
            Self::Unlimited => false,
        }
    }
}

/// A range of storage keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoldRange {
    /// Lower end.
    pub from: Bound<Bytes>,
    /// Upper end.
    pub to: Bound<Bytes>,
}

impl FoldRange {
    /// Every key.
    pub fn all() -> Self {
        Self {
            from: Bound::Unbounded,
            to: Bound::Unbounded,
        }
    }

    /// Every key that starts with `prefix`, which must not consist of 0xFF bytes only.
    pub fn prefix(prefix: &[u8]) -> Self {
        let mut end = prefix.to_vec();
        while end.last() == Some(&0xff) {
            end.pop();
        }
        let to = match end.last_mut() {
            Some(last) => {
                *last += 1;
                Bound::Excluded(Bytes::from(end))
            }
            None => Bound::Unbounded,
        };
        Self {
            from: Bound::Included(Bytes::copy_from_slice(prefix)),
            to,
        }
    }

    /// The same range, continued at a resume point.
    #[must_use]
    pub fn resumed_at(self, resume: &StorageKey) -> Self {
        Self {
            from: Bound::Included(resume.to_bytes()),
            ..self
        }
    }

    /// True when the range has `key`.
    pub fn contains(&self, key: &[u8]) -> bool {
        let after_from = match &self.from {
            Bound::Included(from) => key >= &from[..],
            Bound::Excluded(from) => key > &from[..],
            Bound::Unbounded => true,
        };
        after_from && !self.is_past_end(key)
    }

    /// True when `key` and all keys after it are behind the range.
    pub fn is_past_end(&self, key: &[u8]) -> bool {
        match &self.to {
            Bound::Included(to) => key > &to[..],
            Bound::Excluded(to) => key >= &to[..],
            Bound::Unbounded => false,
        }
    }
}

/// The clock of a fold. Engines read no clock of their own.
#[derive(Clone)]
pub struct FoldClock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl FoldClock {
    /// A clock that is read by calling `read`.
    pub fn new(read: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// A clock that does not advance.
    pub fn stopped_at(now: Timestamp) -> Self {
        Self::new(move || now)
    }

    /// The time now.
    pub fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl fmt::Debug for FoldClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FoldClock").field(&self.now()).finish()
    }
}

/// The entries that a fold visits, judged by their fields.
#[derive(Clone, Debug)]
pub struct FoldFilter {
    /// The time for expiry, and for the lease at the beginning.
    pub now: Timestamp,
    /// The clock for the lease during the fold; without a clock, `now` counts.
    pub clock: Option<FoldClock>,
    /// Only entries last modified in this range.
    pub last_modified: Option<RangeInclusive<Timestamp>>,
    /// Only entries in these anti-entropy segments, or in these leaves of a tree.
    pub segments: Option<SegmentFilter>,
}

impl FoldFilter {
    /// Every entry that is not expired at `now`.
    pub fn unexpired(now: Timestamp) -> Self {
        Self {
            now,
            clock: None,
            last_modified: None,
            segments: None,
        }
    }

    /// Every entry that is not expired now, while the lease holds by this clock.
    pub fn unexpired_by(clock: &FoldClock) -> Self {
        Self {
            clock: Some(clock.clone()),
            ..Self::unexpired(clock.now())
        }
    }

    /// True when the lease of the folded snapshot is over by now.
    pub fn is_over(&self, lease: Lease) -> bool {
        lease.is_over(self.clock.as_ref().map_or(self.now, FoldClock::now))
    }

    /// True when an entry with these fields is visited.
    pub fn admits(&self, fields: &Fields) -> bool {
        self.admits_of_any_age(fields) && !fields.is_expired(self.now)
    }

    /// The same for a caller that judges expiry by other rules.
    pub fn admits_of_any_age(&self, fields: &Fields) -> bool {
        let modified = self
            .last_modified
            .as_ref()
            .is_none_or(|range| range.contains(&fields.last_modified));
        let segment = self
            .segments
            .as_ref()
            .is_none_or(|wanted| wanted.admits(fields.segment));
        modified && segment
    }
}

/// The most keys between two checks of the clock, with keys that the fold does not show.
pub const KEYS_PER_LOOK: u32 = 256;

/// A lease that is checked periodically during a fold.
pub struct LeaseWatch<'a> {
    lease: Lease,
    filter: &'a FoldFilter,
    passed: u32,
    is_over: bool,
}

impl<'a> LeaseWatch<'a> {
    /// A watch over a lease, checked once at the start.
    pub fn new(lease: Lease, filter: &'a FoldFilter) -> Self {
        Self {
            lease,
            filter,
            passed: 0,
            is_over: lease.is_over(filter.now) || filter.is_over(lease),
        }
    }

    /// True when the lease was over at the last check.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Counts another key of the fold: true when the lease was over at the last check.
    pub fn passes_key(&mut self) -> bool {
        self.passed += 1;
        if self.passed >= KEYS_PER_LOOK {
            self.passed = 0;
            self.is_over |= self.filter.is_over(self.lease);
        }
        self.is_over
    }
}

/// The part of each entry that a fold reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FoldDetail {
    /// Key, sequence and fields; `head` and `body` are empty.
    Keys,
    /// The head as well; `body` is empty.
    Heads,
    /// Everything.
    Entries,
}

/// The part of one entry that a fold shows.
#[derive(Clone, Debug)]
pub struct Visited<'a> {
    /// The key.
    pub key: &'a StorageKey,
    /// The batch that wrote the entry.
    pub sequence: Sequence,
    /// Fields that folds filter by.
    pub fields: Fields,
    /// The head, if requested.
    pub head: Bytes,
    /// The body, if requested.
    pub body: Bytes,
}

/// The continuation of a fold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Visit the next entry.
    Continue,
    /// Stop behind this entry; the fold returns the resume point.
    Stop,
}

/// The callback of a fold for each entry.
pub type Visitor<'a> = dyn FnMut(Visited<'_>) -> Flow + 'a;

/// The end of a fold. A resume point is behind every visited key, and no key before it remains to
/// be visited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoldEnd {
    /// All of the range was visited.
    Complete,
    /// The visitor stopped it; continue here.
    Stopped(StorageKey),
    /// The lease ran out; take a new snapshot and continue here.
    LeaseExpired(StorageKey),
}

/// A consistent view of a store. Folds may block: they belong on the blocking pool.
pub trait Snapshot: Send + Sync {
    /// The last batch that the snapshot sees.
    fn sequence(&self) -> Sequence;

    /// Visits the entries of a range in key order.
    ///
    /// A damaged entry is skipped, counted in the store's status, and does not end the fold;
    /// [`Snapshot::has_met_damage`] reports it.
    ///
    /// The lease is checked against the filter's clock at least once every [`KEYS_PER_LOOK`] keys;
    /// after its end the fold returns [`FoldEnd::LeaseExpired`].
    fn fold(
        &self,
        detail: FoldDetail,
        range: &FoldRange,
        filter: &FoldFilter,
        visitor: &mut Visitor<'_>,
    ) -> Result<FoldEnd>;

    /// Visits one key of each bucket in the range, in order, and skips the rest of the bucket if
    /// the engine can. Two storage keys are of one bucket when they share the prefix that
    /// [`StorageKey::bucket_prefix_len`] measures.
    fn fold_buckets(
        &self,
        range: &FoldRange,
        filter: &FoldFilter,
        visitor: &mut Visitor<'_>,
    ) -> Result<FoldEnd>;

    /// True when a fold of this snapshot met a place where, by the engine's record, damage may have
    /// removed keys of its range.
    fn has_met_damage(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn a_watched_lease_is_over_within_so_many_keys_of_its_end() {
        let time = Arc::new(AtomicU64::new(1));
        let read = time.clone();
        let clock = FoldClock::new(move || Timestamp(read.load(Ordering::Relaxed)));
        let filter = FoldFilter::unexpired_by(&clock);
        let mut watch = LeaseWatch::new(Lease::Until(Timestamp(5)), &filter);
        assert!((0..1000).all(|_| !watch.passes_key()));
        time.store(5, Ordering::Relaxed);
        let passed = (0..).take_while(|_| !watch.passes_key()).count();
        assert!(passed < KEYS_PER_LOOK as usize);
        time.store(1, Ordering::Relaxed);
        assert!(watch.passes_key(), "what is over stays over");
        assert!(LeaseWatch::new(Lease::Until(Timestamp(1)), &filter).is_over());
        assert!(!LeaseWatch::new(Lease::Unlimited, &filter).is_over());
    }

    #[test]
    fn a_prefix_range_ends_before_the_next_prefix() {
        let range = FoldRange::prefix(&[1, 0xff]);
        assert!(range.contains(&[1, 0xff]));
        assert!(range.contains(&[1, 0xff, 0xff]));
        assert!(!range.contains(&[2]));
        assert!(range.is_past_end(&[2]));
        assert!(!range.contains(&[1, 0xfe]));
    }
}
