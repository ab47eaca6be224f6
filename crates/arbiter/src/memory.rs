//! Reactions to memory running out, so that the system never kills a node: write buffers and caches
//! are reduced first, then writers are slowed, then refused.
//!
//! Key directories, indexes of tables, trees of hashes and queued batches cannot be reduced, so
//! they come first. Write buffers get the rest of the budget, and caches the rest after write
//! buffers. Both keep a small part of their configured sizes, since a node without them would
//! stall. Near the budget puts are delayed more and more, and at it they are refused until
//! deletions, flushes or an operator have made room.

/// Reducible memory that the stores of a node share, and memory beside the stores. Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedMemory {
    /// In caches of read data.
    pub caches: u64,
    /// The configured limit of caches.
    pub caches_max: u64,
    /// In write buffers. The stores count it as well.
    pub write_buffers: u64,
    /// The configured limit of write buffers.
    pub write_buffers_max: u64,
    /// In requests in progress, and in batches queued for the value log.
    pub requests: u64,
    /// In the trees of hashes that anti-entropy compares.
    pub hash_trees: u64,
}

impl SharedMemory {
    /// The memory beside the stores that cannot be reduced.
    pub(crate) fn beside_stores(&self) -> u64 {
        self.requests.saturating_add(self.hash_trees)
    }
}

/// The resulting limits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryOrders {
    /// The present limit of caches, in bytes.
    pub caches_max: u64,
    /// The present limit of write buffers, in bytes.
    pub write_buffers_max: u64,
    /// The fill of memory on the scale of the spring: 1 is the point at which puts are refused, and
    /// more is possible.
    pub fullness: f64,
    /// Puts must be refused.
    pub refuses_puts: bool,
}

/// The part of their configured sizes that caches and write buffers keep.
const KEPT_PART: u64 = 16;
/// The share of the budget above which puts are delayed, in percent.
const SLOW_PERCENT: u64 = 90;
/// The share below which puts are accepted again, in percent.
const TAKEN_AGAIN_PERCENT: u64 = 97;

/// The limits for the memory of `stores`, write buffers included, and for shared memory and memory
/// beside the stores. `refused` is true if puts were refused so far.
pub(crate) fn orders(
    stores: u64,
    shared: SharedMemory,
    bytes_max: Option<u64>,
    refused: bool,
) -> MemoryOrders {
    let Some(bytes_max) = bytes_max else {
        return MemoryOrders {
            caches_max: shared.caches_max,
            write_buffers_max: shared.write_buffers_max,
            fullness: 0.0,
            refuses_puts: false,
        };
    };
    let stores = stores.saturating_add(shared.beside_stores());
    let fixed = stores.saturating_sub(shared.write_buffers);
    // Caches and buffers keep the same part of a smaller budget, or they would use it up.
    let kept_caches = shared.caches_max.min(bytes_max) / KEPT_PART;
    let kept_buffers = shared.write_buffers_max.min(bytes_max) / KEPT_PART;
    let for_buffers = percent(bytes_max, SLOW_PERCENT).saturating_sub(fixed + kept_caches);
    let for_caches = bytes_max.saturating_sub(stores);
    // Caches are reduced in full before any writer is delayed.
    let held = stores.saturating_add(kept_caches);
    let slow_from = percent(bytes_max, SLOW_PERCENT);
    let refused_from = if refused {
        percent(bytes_max, TAKEN_AGAIN_PERCENT)
    } else {
        bytes_max
    };
    MemoryOrders {
        caches_max: for_caches.clamp(kept_caches, shared.caches_max),
        write_buffers_max: for_buffers.clamp(kept_buffers, shared.write_buffers_max),
        fullness: held.saturating_sub(slow_from) as f64 / (bytes_max - slow_from).max(1) as f64,
        refuses_puts: held >= refused_from,
    }
}

fn percent(bytes: u64, percent: u64) -> u64 {
    bytes / 100 * percent
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MEBIBYTE: u64 = 1 << 20;

    fn shared() -> SharedMemory {
        SharedMemory {
            caches: 100 * MEBIBYTE,
            caches_max: 160 * MEBIBYTE,
            write_buffers: 80 * MEBIBYTE,
            write_buffers_max: 160 * MEBIBYTE,
            ..SharedMemory::default()
        }
    }

    fn at(stores: u64, refused: bool) -> MemoryOrders {
        orders(stores * MEBIBYTE, shared(), Some(1000 * MEBIBYTE), refused)
    }

    #[test]
    fn with_room_all_have_what_the_settings_give() {
        let orders = at(500, false);
        assert_eq!(orders.caches_max, shared().caches_max);
        assert_eq!(orders.write_buffers_max, shared().write_buffers_max);
        assert!(orders.fullness == 0.0 && !orders.refuses_puts);
    }

    #[test]
    fn caches_give_way_first_and_keep_a_little() {
        let orders = at(890, false);
        assert_eq!(orders.caches_max, 110 * MEBIBYTE);
        assert!(orders.fullness < 0.01);
        // 890 less 80 in buffers leaves 90 and the kept part of caches.
        assert!((79..=81).contains(&(orders.write_buffers_max / MEBIBYTE)));
        assert_eq!(at(2000, false).caches_max, 10 * MEBIBYTE);
        assert_eq!(at(2000, false).write_buffers_max, 10 * MEBIBYTE);
    }

    #[test]
    fn writers_are_held_back_near_the_budget_refused_at_it_and_taken_again_below() {
        assert!((0.4..0.6).contains(&at(940, false).fullness));
        assert!(!at(989, false).refuses_puts);
        assert!(at(990, false).refuses_puts && at(990, false).fullness >= 1.0);
        assert!(at(970, true).refuses_puts);
        assert!(!at(950, true).refuses_puts);
    }

    #[test]
    fn what_requests_hold_counts_like_what_stores_have_to_hold() {
        let busy = SharedMemory {
            requests: 400 * MEBIBYTE,
            ..shared()
        };
        let at = |stores| orders(stores * MEBIBYTE, busy, Some(1000 * MEBIBYTE), false);
        assert_eq!(at(490).caches_max, 110 * MEBIBYTE);
        assert!((0.4..0.6).contains(&at(540).fullness));
        assert!(at(590).refuses_puts);
    }

    #[test]
    fn trees_of_hashes_count_like_what_stores_have_to_hold() {
        let with_trees = SharedMemory {
            requests: 200 * MEBIBYTE,
            hash_trees: 200 * MEBIBYTE,
            ..shared()
        };
        let at = |stores| orders(stores * MEBIBYTE, with_trees, Some(1000 * MEBIBYTE), false);
        assert_eq!(at(490).caches_max, 110 * MEBIBYTE);
        assert!(at(590).refuses_puts);
    }

    #[test]
    fn caches_that_were_given_more_than_the_budget_do_not_use_it_up() {
        let large = SharedMemory {
            caches_max: 1600 * MEBIBYTE,
            write_buffers_max: 1600 * MEBIBYTE,
            ..SharedMemory::default()
        };
        let orders = orders(2 * MEBIBYTE, large, Some(16 * MEBIBYTE), false);
        assert!(!orders.refuses_puts && orders.fullness == 0.0);
        assert_eq!(orders.caches_max, 14 * MEBIBYTE);
    }

    #[test]
    fn without_a_budget_nothing_follows() {
        let orders = orders(u64::MAX, shared(), None, true);
        assert_eq!(orders.caches_max, shared().caches_max);
        assert!(!orders.refuses_puts && orders.fullness == 0.0);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_allowed_stays_within_the_budget_wherever_stores_leave_room(
            stores in 0..1500u64, caches_max in 0..400u64, buffers_max in 0..400u64, buffers in 0..400u64,
        ) {
            let shared = SharedMemory {
                caches: 0,
                caches_max: caches_max * MEBIBYTE,
                write_buffers: buffers.min(stores) * MEBIBYTE,
                write_buffers_max: buffers_max * MEBIBYTE,
                ..SharedMemory::default()
            };
            let (stores, budget) = (stores * MEBIBYTE, 1000 * MEBIBYTE);
            let orders = orders(stores, shared, Some(budget), false);
            if !orders.refuses_puts {
                prop_assert!(stores + orders.caches_max <= budget);
            }
            prop_assert!(orders.caches_max <= shared.caches_max);
            prop_assert!(orders.write_buffers_max <= shared.write_buffers_max);
        }
    }
}
