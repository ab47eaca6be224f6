//! Counts of exchanges, carried over from anti-entropy to the statistics. Anti-entropy has totals, and
//! Riak's names count the last minute too.

use std::time::Duration;

use kvorum_member::ComparedCounts;
use kvorum_stats::{Counter, Stats};
use parking_lot::Mutex;

/// Number of counts that are carried over.
const COUNTS: usize = 5;

/// A count of exchanges, and its counter in the statistics.
type Carried = (fn(&ComparedCounts) -> u64, fn(&Stats) -> &Counter);

/// All that is carried over.
const CARRIED: [Carried; COUNTS] = [
    (ComparedCounts::all, |to| &to.tictacaae_exchange),
    (|it| it.roots, |to| &to.tictacaae_root_compare),
    (|it| it.branches, |to| &to.tictacaae_branch_compare),
    (|it| it.keys, |to| &to.tictacaae_clock_compare),
    (|it| it.nothing, |to| &to.tictacaae_error),
];

/// The counts that have been carried over.
#[derive(Default)]
pub(crate) struct ExchangeFigures {
    seen: Mutex<ComparedCounts>,
}

impl ExchangeFigures {
    /// Carries over the counts since the last time.
    pub(crate) fn feed(&self, present: ComparedCounts, stats: &Stats, now: Duration) {
        let mut seen = self.seen.lock();
        for (count_of, counter_of) in CARRIED {
            let added = count_of(&present).saturating_sub(count_of(&seen));
            if added > 0 {
                counter_of(stats).add(now, added);
            }
        }
        *seen = present;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    fn values(stats: &Stats, now: Duration) -> BTreeMap<&'static str, i64> {
        stats.riak_values(now).into_iter().collect()
    }

    #[test]
    fn each_end_of_an_exchange_moves_its_name_and_that_of_all() {
        let one = |roots, branches, keys, nothing| ComparedCounts {
            roots,
            branches,
            keys,
            nothing,
        };
        for (present, name) in [
            (one(1, 0, 0, 0), "tictacaae_root_compare"),
            (one(0, 1, 0, 0), "tictacaae_branch_compare"),
            (one(0, 0, 1, 0), "tictacaae_clock_compare"),
            (one(0, 0, 0, 1), "tictacaae_error"),
        ] {
            let (stats, figures) = (Stats::default(), ExchangeFigures::default());
            figures.feed(present, &stats, NOW);
            figures.feed(present, &stats, NOW);
            let total = format!("{name}_total");
            let names = [
                name,
                total.as_str(),
                "tictacaae_exchange",
                "tictacaae_exchange_total",
            ];
            let values = values(&stats, NOW);
            let moved = values.iter().filter(|(_, value)| **value != 0);
            assert_eq!(moved.count(), names.len());
            for name in names {
                assert_eq!(values[name], 1, "{name}");
            }
        }
    }

    #[test]
    fn the_last_minute_ends_and_the_total_stays() {
        let (stats, figures) = (Stats::default(), ExchangeFigures::default());
        let mut counts = ComparedCounts {
            roots: 3,
            ..ComparedCounts::default()
        };
        figures.feed(counts, &stats, NOW);
        counts.roots += 2;
        let later = NOW + Duration::from_secs(90);
        figures.feed(counts, &stats, later);
        let values = values(&stats, later);
        assert_eq!(values["tictacaae_root_compare"], 2);
        assert_eq!(values["tictacaae_root_compare_total"], 5);
    }
}
