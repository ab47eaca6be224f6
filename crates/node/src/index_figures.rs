//! Counts of index work, from the vnodes that do it to Riak's statistics.
//!
//! Stores count in totals, which costs a put next to nothing, and the statistics have windows of a
//! minute. What was added is carried over once a second, and when somebody asks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kvorum_backend::IndexCounts;
use kvorum_member::VnodeTable;
use kvorum_stats::Stats;
use parking_lot::Mutex;

use crate::figures::Figures;

/// How often counts are carried over.
const PERIOD: Duration = Duration::from_secs(1);

/// What was carried over of each partition.
#[derive(Default)]
pub(crate) struct IndexFigures {
    seen: Mutex<BTreeMap<u16, Seen>>,
}

#[derive(Clone, Copy, Default)]
struct Seen {
    reads: u64,
    counts: IndexCounts,
}

impl Seen {
    /// What was added since; all of it where a vnode began anew.
    fn since(&self, before: &Self) -> Self {
        let is_anew = self.reads < before.reads || self.counts.writes < before.counts.writes;
        let before = if is_anew { &Self::default() } else { before };
        Self {
            reads: self.reads.saturating_sub(before.reads),
            counts: self.counts.since(&before.counts),
        }
    }
}

impl IndexFigures {
    /// Carries over what the vnodes have counted since the last time.
    pub(crate) fn feed(&self, vnodes: &VnodeTable, stats: &Stats, now: Duration) {
        let mut all = self.seen.lock();
        let mut sum = Seen::default();
        for vnode in vnodes.all() {
            let status = vnode.status();
            let present = Seen {
                reads: status.index_reads,
                counts: status.index_counts,
            };
            let before = all.insert(vnode.partition().number(), present);
            let added = present.since(&before.unwrap_or_default());
            sum.reads += added.reads;
            sum.counts += added.counts;
        }
        for (counter, events) in [
            (&stats.vnode_index_reads, sum.reads),
            (&stats.vnode_index_writes, sum.counts.writes),
            (
                &stats.vnode_index_writes_postings,
                sum.counts.postings_written,
            ),
            (&stats.vnode_index_deletes, sum.counts.deletes),
            (
                &stats.vnode_index_deletes_postings,
                sum.counts.postings_deleted,
            ),
        ] {
            if events > 0 {
                counter.add(now, events);
            }
        }
    }
}

/// Carries counts over for as long as it is polled.
pub(crate) async fn feed_always(figures: Arc<Figures>) {
    loop {
        figures.runtime.sleep(PERIOD).await;
        figures.feed_indexes();
    }
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
