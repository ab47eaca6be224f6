//! The keys that the nhs driver makes itself: unique per worker, in order of time or scattered.

use bytes::Bytes;

use crate::erlang_hash::phash2_integer;
use crate::random::WorkerRandom;

/// Placement of a counter's keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyOrder {
    /// Keys rise with the counter.
    Key,
    /// Keys are scattered: each counter has a fixed, pseudorandom place.
    Skew,
}

/// Makes the keys of one worker.
#[derive(Debug, Clone)]
pub(super) struct WorkerKeys {
    /// Nine digits that differ between workers.
    suffix: String,
}

impl WorkerKeys {
    /// The keys of the worker with this id on the load machine whose name has this hash.
    pub(super) fn new(worker: u32, node_name_hash: u32) -> Self {
        // The driver keeps the top 26 bits of the 32-bit form of this number.
        let identity = phash2_integer(i64::from(worker)) ^ node_name_hash;
        Self {
            suffix: format!("{:09}", identity >> 6),
        }
    }

    /// The key for a counter: eighteen decimal digits.
    pub(super) fn key(&self, counter: u64, order: KeyOrder) -> Bytes {
        let counter = i64::try_from(counter).unwrap_or(i64::MAX);
        let place = match order {
            KeyOrder::Key => counter,
            KeyOrder::Skew => i64::from(phash2_integer(counter)),
        };
        Bytes::from(format!("{place:09}{}", self.suffix))
    }
}

/// Picks one of the first `count` counters, low ones more often: about nine of ten picks are in the
/// lowest fifth.
pub(super) fn skewed_pick(count: u64, random: &mut WorkerRandom) -> u64 {
    let threshold = random.uniform((count / 5).max(1));
    if random.uniform(count) < threshold {
        threshold + random.uniform(count.saturating_sub(threshold))
    } else {
        random.uniform(threshold)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::erlang_hash::phash2_atom;
    use crate::random::Seed;

    fn worker(id: u32) -> WorkerKeys {
        WorkerKeys::new(id, phash2_atom("testnode1"))
    }

    #[test]
    fn keys_are_the_published_ones() {
        for (id, suffix) in [
            (1, "000674574"),
            (2, "000809639"),
            (7, "000714537"),
            (100, "001524337"),
        ] {
            assert_eq!(worker(id).suffix, suffix, "worker {id}");
        }
        assert_eq!(worker(1).key(1, KeyOrder::Key), "000000001000674574");
        assert_eq!(worker(1).key(1, KeyOrder::Skew), "002614250000674574");
    }

    #[test]
    fn workers_up_to_a_hundred_never_share_a_key() {
        let suffixes: BTreeSet<String> = (1..=100).map(|id| worker(id).suffix).collect();
        assert_eq!(suffixes.len(), 100);
        assert_eq!(worker(24).suffix, worker(118).suffix);
    }

    #[test]
    fn scattered_counters_lose_as_many_keys_to_repeats_as_published() {
        let places: BTreeSet<u32> = (1..=100_000).map(phash2_integer).collect();
        assert_eq!(100_000 - places.len(), 43);
    }

    #[test]
    fn the_skewed_pick_has_the_published_shape() {
        const COUNT: u64 = 10_000;
        const DRAWS: u32 = 200_000;
        let mut random = WorkerRandom::new(Seed([42, 23, 12]));
        let picks: Vec<u64> = (0..DRAWS)
            .map(|_| skewed_pick(COUNT, &mut random))
            .collect();
        assert!(picks.iter().all(|pick| (1..=COUNT).contains(pick)));
        for (bound, expected) in [(2000, 0.906), (1000, 0.77), (100, 0.19)] {
            let share =
                picks.iter().filter(|pick| **pick <= bound).count() as f64 / f64::from(DRAWS);
            assert!((share - expected).abs() < 0.01, "{share} below {bound}");
        }
        assert_eq!(skewed_pick(1, &mut random), 1);
    }
}
