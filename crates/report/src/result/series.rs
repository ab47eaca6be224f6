//! Series of charts, derived from counts: rates from sums, volume at a moment.

use super::Table;

/// A last row that covers less than this share of a usual row is left out of charts: a run ends
/// with a remainder of some milliseconds, whose rate has no meaning.
const FULL_ROW: f64 = 0.5;

/// A rate per second for each row: `head` over the row's `window`. `None` for an empty window, and
/// for a remainder at the end.
pub fn rate_in_window(table: &Table, head: &str) -> Vec<Option<f64>> {
    let counts = table.numbers(head);
    let windows = table.numbers("window");
    let mut rates: Vec<Option<f64>> = counts
        .iter()
        .zip(&windows)
        .map(|(count, window)| (*window > 0.0).then(|| count / window))
        .collect();
    blank_remainder(&mut rates, &windows);
    rates
}

/// Removes the last value if its row is only a remainder.
fn blank_remainder(values: &mut [Option<f64>], lengths: &[f64]) {
    if let [first, .., last] = lengths
        && *last < FULL_ROW * first
        && let Some(value) = values.last_mut()
    {
        *value = None;
    }
}

/// The rate per second at which a sum grew since the last row that has it. The first row has no
/// rate; a sum that fell has started again.
pub fn rate_of_sum(table: &Table, head: &str) -> Vec<Option<f64>> {
    let times = table.numbers("elapsed");
    let sums = table.column(head).unwrap_or_default();
    let mut before: Option<(f64, f64)> = None;
    let mut rates: Vec<Option<f64>> = times
        .iter()
        .zip(sums)
        .map(|(time, sum)| {
            let now = (*time, (*sum)?);
            let then = before.replace(now)?;
            let (seconds, growth) = (now.0 - then.0, now.1 - then.1);
            (seconds > 0.0 && growth >= 0.0).then(|| growth / seconds)
        })
        .collect();
    let lengths: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    blank_remainder(&mut rates, &lengths);
    rates
}

/// The value of a growing column at a moment, interpolated between its rows.
pub fn value_at(table: &Table, head: &str, seconds: f64) -> Option<f64> {
    let times = table.numbers("elapsed");
    let values = table.numbers(head);
    let after = times.partition_point(|time| *time < seconds);
    match (times.get(after), values.get(after)) {
        (Some(late), Some(later)) => {
            let (early, earlier) = match after.checked_sub(1) {
                Some(index) => (*times.get(index)?, *values.get(index)?),
                None => (0.0, 0.0),
            };
            let share = if *late > early {
                (seconds - early) / (late - early)
            } else {
                1.0
            };
            Some(earlier + share * (later - earlier))
        }
        _ => values.last().copied(),
    }
}

/// Latencies of a statistic, with a gap in rows without samples, which basho_bench fills with
/// zeros.
pub fn latencies(table: &Table, head: &str) -> Vec<Option<f64>> {
    let counts = table.numbers("n");
    let values = table.column(head).unwrap_or_default();
    let mut known: Vec<Option<f64>> = counts
        .iter()
        .zip(values)
        .map(|(count, value)| if *count > 0.0 { *value } else { None })
        .collect();
    blank_remainder(&mut known, &table.numbers("window"));
    known
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn table(text: &str) -> Table {
        Table::parse(text, Path::new("x.csv")).unwrap()
    }

    #[test]
    fn counts_become_rates_over_their_window() {
        let rows = "elapsed, window, successful\n10, 10, 50\n12, 2, 20\n12, 0, 0\n22, 10, 70\n";
        assert_eq!(
            rate_in_window(&table(rows), "successful"),
            [Some(5.0), Some(10.0), None, Some(7.0)]
        );
    }

    #[test]
    fn the_remainder_at_the_end_of_a_run_is_not_drawn() {
        let rows = "elapsed, window, n, mean\n10, 10, 50, 3\n20, 10, 60, 4\n20.1, 0.1, 1, 900\n";
        let table = table(rows);
        assert_eq!(rate_in_window(&table, "n"), [Some(5.0), Some(6.0), None]);
        assert_eq!(latencies(&table, "mean"), [Some(3.0), Some(4.0), None]);
        assert_eq!(rate_of_sum(&table, "n"), [None, Some(1.0), None]);
    }

    #[test]
    fn sums_become_rates_between_known_rows() {
        let table = table("elapsed, cpu\n0, 1\n1, 2\n2, \n4, 5\n5, 1\n6, 2\n");
        assert_eq!(
            rate_of_sum(&table, "cpu"),
            [None, Some(1.0), None, Some(1.0), None, Some(1.0)]
        );
    }

    #[test]
    fn volume_between_rows_lies_on_a_line() {
        let table = table("elapsed, payload\n10, 100\n20, 300\n");
        assert_eq!(value_at(&table, "payload", 5.0), Some(50.0));
        assert_eq!(value_at(&table, "payload", 10.0), Some(100.0));
        assert_eq!(value_at(&table, "payload", 15.0), Some(200.0));
        assert_eq!(value_at(&table, "payload", 99.0), Some(300.0));
    }

    #[test]
    fn rows_without_samples_are_gaps() {
        let table = table("n, mean\n5, 1.5\n0, 0\n");
        assert_eq!(latencies(&table, "mean"), [Some(1.5), None]);
    }
}
