//! Counts of the vnodes' work, from the vnodes to Riak's statistics.
//!
//! Vnodes and stores count in totals, which costs requests little, and the statistics have windows
//! of a minute. Additions are carried over once a second, and on each query.

use std::collections::BTreeMap;
use std::time::Duration;

use kvorum_member::VnodeTable;
use kvorum_stats::{Counter, Stats};
use kvorum_vnode::VnodeStatus;
use parking_lot::Mutex;

/// Number of counts that are carried over.
const COUNTS: usize = 9;

/// A count of a vnode, and its counter in the statistics.
type Carried = (fn(&VnodeStatus) -> u64, fn(&Stats) -> &Counter);

/// All that is carried over.
const CARRIED: [Carried; COUNTS] = [
    (|it| it.gets, |to| &to.vnode_gets),
    (|it| it.heads, |to| &to.vnode_heads),
    (|it| it.puts, |to| &to.vnode_puts),
    (|it| it.merges, |to| &to.object_merge),
    (|it| it.index_reads, |to| &to.vnode_index_reads),
    (|it| it.index_counts.writes, |to| &to.vnode_index_writes),
    (
        |it| it.index_counts.postings_written,
        |to| &to.vnode_index_writes_postings,
    ),
    (|it| it.index_counts.deletes, |to| &to.vnode_index_deletes),
    (
        |it| it.index_counts.postings_deleted,
        |to| &to.vnode_index_deletes_postings,
    ),
];

/// Counts in the order of [`CARRIED`].
type Counts = [u64; COUNTS];

/// The counts of each partition that have been carried over.
#[derive(Default)]
pub(crate) struct VnodeFigures {
    seen: Mutex<BTreeMap<u16, Counts>>,
}

/// The difference since; the whole count if it is lower than before, since the vnode was then
/// restarted.
fn added(before: Counts, present: Counts) -> Counts {
    let is_anew = before.iter().zip(&present).any(|(then, now)| now < then);
    let before = if is_anew { Counts::default() } else { before };
    std::array::from_fn(|at| present[at] - before[at])
}

/// Adds the differences to the statistics.
fn count(added: Counts, stats: &Stats, now: Duration) {
    for ((_, counter_of), events) in CARRIED.iter().zip(added) {
        if events > 0 {
            counter_of(stats).add(now, events);
        }
    }
}

impl VnodeFigures {
    /// Carries over the vnodes' counts since the last time.
    pub(crate) fn feed(&self, vnodes: &VnodeTable, stats: &Stats, now: Duration) {
        let mut all = self.seen.lock();
        let mut sum = Counts::default();
        for vnode in vnodes.all() {
            let status = vnode.status();
            let present = CARRIED.map(|(count_of, _)| count_of(&status));
            let before = all.insert(vnode.partition().number(), present);
            let added = added(before.unwrap_or_default(), present);
            sum = std::array::from_fn(|at| sum[at] + added[at]);
        }
        count(sum, stats, now);
    }
}

#[cfg(test)]
/// Counts one of everything that is carried over.
pub(crate) fn count_one_of_each(stats: &Stats, now: Duration) {
    count([1; COUNTS], stats, now);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_is_reported_also_after_a_vnode_began_anew() {
        let seen = |reads, writes| [0, 0, 0, 0, reads, writes, 0, 0, 0];
        let added = |before, present| {
            let it = added(before, present);
            (it[4], it[5])
        };
        assert_eq!(added(seen(0, 0), seen(3, 5)), (3, 5));
        assert_eq!(added(seen(3, 5), seen(4, 5)), (1, 0));
        assert_eq!(added(seen(3, 5), seen(1, 2)), (1, 2));
        assert_eq!(added(seen(0, 5), seen(7, 2)), (7, 2));
    }
}
