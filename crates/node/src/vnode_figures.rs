//! Counts of the vnodes' work, from the vnodes to Riak's statistics.
//!
//! Vnodes and stores count in totals, which costs a request next to nothing, and the statistics have windows
//! of a minute. Additions are carried over once a second, and on each query.

use std::collections::BTreeMap;
use std::time::Duration;

use kvorum_backend::IndexCounts;
use kvorum_member::VnodeTable;
use kvorum_stats::Stats;
use parking_lot::Mutex;

/// What was carried over of each partition.
#[derive(Default)]
pub(crate) struct VnodeFigures {
    seen: Mutex<BTreeMap<u16, Seen>>,
}

#[derive(Clone, Copy, Default)]
struct Seen {
    gets: u64,
    heads: u64,
    puts: u64,
    merges: u64,
    reads: u64,
    counts: IndexCounts,
}

impl Seen {
    /// What was added since; all of it where a vnode began anew.
    fn since(&self, before: &Self) -> Self {
        let is_anew = self.gets < before.gets
            || self.puts < before.puts
            || self.reads < before.reads
            || self.counts.writes < before.counts.writes;
        let before = if is_anew { &Self::default() } else { before };
        Self {
            gets: self.gets.saturating_sub(before.gets),
            heads: self.heads.saturating_sub(before.heads),
            puts: self.puts.saturating_sub(before.puts),
            merges: self.merges.saturating_sub(before.merges),
            reads: self.reads.saturating_sub(before.reads),
            counts: self.counts.since(&before.counts),
        }
    }
}

impl Seen {
    /// Counts what was added.
    fn count(&self, stats: &Stats, now: Duration) {
        for (counter, events) in [
            (&stats.vnode_gets, self.gets),
            (&stats.vnode_heads, self.heads),
            (&stats.vnode_puts, self.puts),
            (&stats.object_merge, self.merges),
            (&stats.vnode_index_reads, self.reads),
            (&stats.vnode_index_writes, self.counts.writes),
            (
                &stats.vnode_index_writes_postings,
                self.counts.postings_written,
            ),
            (&stats.vnode_index_deletes, self.counts.deletes),
            (
                &stats.vnode_index_deletes_postings,
                self.counts.postings_deleted,
            ),
        ] {
            if events > 0 {
                counter.add(now, events);
            }
        }
    }
}

impl VnodeFigures {
    /// Carries over what the vnodes have counted since the last time.
    pub(crate) fn feed(&self, vnodes: &VnodeTable, stats: &Stats, now: Duration) {
        let mut all = self.seen.lock();
        let mut sum = Seen::default();
        for vnode in vnodes.all() {
            let status = vnode.status();
            let present = Seen {
                gets: status.gets,
                heads: status.heads,
                puts: status.puts,
                merges: status.merges,
                reads: status.index_reads,
                counts: status.index_counts,
            };
            let before = all.insert(vnode.partition().number(), present);
            let added = present.since(&before.unwrap_or_default());
            sum.gets += added.gets;
            sum.heads += added.heads;
            sum.puts += added.puts;
            sum.merges += added.merges;
            sum.reads += added.reads;
            sum.counts += added.counts;
        }
        sum.count(stats, now);
    }
}

#[cfg(test)]
/// Counts one of everything that is carried over.
pub(crate) fn count_one_of_each(stats: &Stats, now: Duration) {
    let one_of_each = Seen {
        gets: 1,
        heads: 1,
        puts: 1,
        merges: 1,
        reads: 1,
        counts: IndexCounts {
            writes: 1,
            postings_written: 1,
            deletes: 1,
            postings_deleted: 1,
        },
    };
    one_of_each.count(stats, now);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_is_told_also_after_a_vnode_began_anew() {
        let seen = |reads, writes| Seen {
            reads,
            counts: IndexCounts {
                writes,
                ..IndexCounts::default()
            },
            ..Seen::default()
        };
        let added = |before, present: Seen| {
            let it = present.since(&before);
            (it.reads, it.counts.writes)
        };
        assert_eq!(added(seen(0, 0), seen(3, 5)), (3, 5));
        assert_eq!(added(seen(3, 5), seen(4, 5)), (1, 0));
        assert_eq!(added(seen(3, 5), seen(1, 2)), (1, 2));
        assert_eq!(added(seen(0, 5), seen(7, 2)), (7, 2));
    }
}
