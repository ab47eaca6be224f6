//! Expiry times of a segment's entries: an estimate in a few steps, from which merges and the value
//! log derive the expired share of a segment.
//!
//! Each step is a number of bytes that are expired by a time. If there are too many steps, two
//! neighbours become one with the later time, so no byte counts as expired too early. The two
//! neighbours are the ones with the shortest delay, weighted by bytes. Source of the merging of
//! neighbours: Y. Ben-Haim, E. Tom-Tov, A Streaming Parallel Decision Tree Algorithm, 2010.

/// The steps in a row of a checkpoint.
pub(crate) const STEPS: usize = 4;

/// Bytes of entries by their expiry times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Expiries {
    /// In order of time; unused steps come last, and have no bytes.
    steps: [Step; STEPS],
}

/// Bytes that are expired by a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Step {
    /// In microseconds.
    pub(crate) by: u64,
    pub(crate) bytes: u64,
}

impl Expiries {
    pub(crate) fn of(steps: [Step; STEPS]) -> Self {
        let mut expiries = Self::default();
        let used = steps.iter().filter(|it| it.bytes > 0);
        used.for_each(|it| expiries.add(it.by, it.bytes));
        expiries
    }

    pub(crate) fn steps(&self) -> &[Step; STEPS] {
        &self.steps
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.steps[0].bytes == 0
    }

    /// Counts an entry that expires at this time.
    pub(crate) fn add(&mut self, by: u64, bytes: u64) {
        let used = self.steps.iter().take_while(|it| it.bytes > 0).count();
        let at = self.steps[..used].partition_point(|it| it.by < by);
        if let Some(step) = self.steps[..used].get_mut(at)
            && step.by == by
        {
            step.bytes = step.bytes.saturating_add(bytes);
            return;
        }
        let mut steps = [Step::default(); STEPS + 1];
        steps[..at].copy_from_slice(&self.steps[..at]);
        steps[at] = Step { by, bytes };
        steps[at + 1..=used].copy_from_slice(&self.steps[at..used]);
        if used == STEPS {
            join_two(&mut steps);
        }
        self.steps.copy_from_slice(&steps[..STEPS]);
    }

    /// The least number of bytes that have expired by this time.
    pub(crate) fn bytes_by(&self, time: u64) -> u64 {
        let gone = self.steps.iter().filter(|it| it.by <= time);
        gone.map(|it| it.bytes).sum()
    }
}

/// Makes one step of two neighbours, and frees the last place.
fn join_two(steps: &mut [Step; STEPS + 1]) {
    let delay = |at: &usize| {
        let (first, next) = (steps[*at], steps[*at + 1]);
        u128::from(first.bytes) * u128::from(next.by - first.by)
    };
    let at = (0..STEPS).min_by_key(delay).unwrap_or(0);
    steps[at + 1].bytes = steps[at + 1].bytes.saturating_add(steps[at].bytes);
    steps.copy_within(at + 1.., at);
    steps[STEPS] = Step::default();
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_steady_stream_is_known_to_a_half() {
        let mut expiries = Expiries::default();
        (1..=1_000).for_each(|time| expiries.add(time, 10));
        assert_eq!(
            (expiries.bytes_by(0), expiries.bytes_by(1_000)),
            (0, 10_000)
        );
        let known = expiries.bytes_by(700);
        assert!((3_500..=7_000).contains(&known), "{known}: {expiries:?}");
    }

    #[test]
    fn what_lasts_much_longer_stays_apart() {
        let mut expiries = Expiries::default();
        expiries.add(1_000_000, 100);
        for time in 1..=100 {
            expiries.add(time, 100);
        }
        assert_eq!(expiries.bytes_by(100), 10_000);
        assert_eq!(expiries.bytes_by(1_000_000), 10_100);
    }

    proptest! {
        #[test]
        fn nothing_counts_before_its_time_and_all_of_it_in_the_end(
            entries in proptest::collection::vec((0_u64..50, 1_u64..9), 0..40),
            asked in 0_u64..60,
        ) {
            let mut expiries = Expiries::default();
            entries.iter().for_each(|(by, bytes)| expiries.add(*by, *bytes));
            let gone = entries.iter().filter(|(by, _)| *by <= asked);
            let gone: u64 = gone.map(|(_, bytes)| bytes).sum();
            prop_assert!(expiries.bytes_by(asked) <= gone);
            let all: u64 = entries.iter().map(|(_, bytes)| bytes).sum();
            prop_assert_eq!(expiries.bytes_by(50), all);
            prop_assert!(expiries.steps().is_sorted_by_key(|it| (it.bytes == 0, it.by)));
            prop_assert_eq!(expiries.is_empty(), entries.is_empty());
            prop_assert_eq!(Expiries::of(*expiries.steps()), expiries);
        }

        #[test]
        fn few_times_are_known_exactly(
            entries in proptest::collection::vec((0_u64..STEPS as u64, 1_u64..9), 0..40),
            asked in 0_u64..6,
        ) {
            let mut expiries = Expiries::default();
            entries.iter().for_each(|(by, bytes)| expiries.add(*by, *bytes));
            let gone = entries.iter().filter(|(by, _)| *by <= asked);
            prop_assert_eq!(expiries.bytes_by(asked), gone.map(|(_, bytes)| bytes).sum::<u64>());
        }
    }
}
