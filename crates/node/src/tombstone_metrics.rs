//! Metrics of tombstones that wait, and of the rounds that remove them in a cluster.

use kvorum_member::RoundsReport;
use kvorum_stats::{MetricKind, MetricsText};

const WENT_THROUGH: &[(&str, &str)] = &[("outcome", "went_through")];
const ENDED_EARLY: &[(&str, &str)] = &[("outcome", "ended_early")];

/// Adds them to a text.
pub(crate) fn add(rounds: &RoundsReport, text: &mut MetricsText) {
    let help = "Tombstones that wait in the stores of this node, as far as they have been counted";
    text.gauge("tombstones_waiting", help, rounds.waiting);
    let help = "Tombstones that the rounds of this node have removed, over all replicas";
    text.counter("tombstones_reaped", help, rounds.reaped);
    let help = "Rounds of this node that have ended, by which tombstones go";
    let outcomes = [
        (WENT_THROUGH, rounds.raised),
        (ENDED_EARLY, rounds.ended_early),
    ];
    text.family(MetricKind::Counter, "tombstone_rounds", help, outcomes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(rounds: &RoundsReport) -> Vec<String> {
        let mut text = MetricsText::new();
        add(rounds, &mut text);
        let text = text.finish();
        let samples = text.lines().filter(|it| !it.starts_with('#'));
        samples.map(str::to_owned).collect()
    }

    #[test]
    fn each_count_moves_its_own_metric() {
        let none = [
            "kvorum_tombstones_waiting 0",
            "kvorum_tombstones_reaped_total 0",
            "kvorum_tombstone_rounds_total{outcome=\"went_through\"} 0",
            "kvorum_tombstone_rounds_total{outcome=\"ended_early\"} 0",
        ];
        assert_eq!(lines(&RoundsReport::default()), none);
        let moved: [fn(&mut RoundsReport) -> &mut u64; 4] = [
            |it| &mut it.waiting,
            |it| &mut it.reaped,
            |it| &mut it.raised,
            |it| &mut it.ended_early,
        ];
        for (at, count_of) in moved.into_iter().enumerate() {
            let mut rounds = RoundsReport::default();
            *count_of(&mut rounds) = 7;
            let mut expected = none.map(str::to_owned);
            expected[at] = expected[at].replace(" 0", " 7");
            assert_eq!(lines(&rounds), expected);
        }
    }
}
