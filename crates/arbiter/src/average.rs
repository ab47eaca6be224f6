//! Moving averages over virtual time.

use std::time::Duration;

use kvorum_runtime::Moment;

/// Amounts per second, with decreasing weight of older seconds.
#[derive(Clone, Debug)]
pub(crate) struct Rate {
    window_seconds: f64,
    /// The amounts so far, with decreased weight.
    sum: f64,
    since: Option<Moment>,
    at: Moment,
}

impl Rate {
    /// The weight of an amount falls by a factor of e within `window`.
    pub(crate) fn over(window: Duration) -> Self {
        Self {
            window_seconds: window.as_secs_f64(),
            sum: 0.0,
            since: None,
            at: Moment::default(),
        }
    }

    pub(crate) fn add(&mut self, amount: f64, now: Moment) {
        self.since.get_or_insert(now);
        self.sum = self.faded(now) + amount;
        self.at = self.at.max(now);
    }

    /// A rate that has just begun counts as if it had lasted a second.
    pub(crate) fn per_second(&self, now: Moment) -> f64 {
        let Some(since) = self.since else {
            return 0.0;
        };
        let age = now.since(since).as_secs_f64().max(1.0);
        let seen_seconds = self.window_seconds * (1.0 - (-age / self.window_seconds).exp());
        (self.faded(now) / seen_seconds).max(0.0)
    }

    fn faded(&self, now: Moment) -> f64 {
        let gone = now.since(self.at).as_secs_f64();
        self.sum * (-gone / self.window_seconds).exp()
    }
}

/// A computed amount as a whole number of bytes or microseconds; zero for NaN.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a float becomes the nearest number there is, and fractions of a byte count for nothing"
)]
pub(crate) fn whole(amount: f64) -> u64 {
    amount as u64
}

/// Computed seconds as a duration, at most `most`.
pub(crate) fn seconds(amount: f64, most: Duration) -> Duration {
    Duration::try_from_secs_f64(amount.max(0.0)).map_or(most, |duration| duration.min(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::from_start(Duration::from_millis(millis))
    }

    #[test]
    fn a_steady_rate_is_seen_from_the_first_seconds_on() {
        let mut rate = Rate::over(Duration::from_secs(60));
        for step in 1..=50 {
            rate.add(10.0, at(1000 + step * 100));
        }
        let seen = rate.per_second(at(6000));
        assert!((95.0..106.0).contains(&seen), "{seen}");
    }

    #[test]
    fn what_has_stopped_fades() {
        let mut rate = Rate::over(Duration::from_secs(1));
        rate.add(100.0, at(0));
        assert!(rate.per_second(at(10_000)) < 0.1);
        assert!(Rate::over(Duration::from_secs(1)).per_second(at(5)) < 1e-9);
    }

    #[test]
    fn computed_amounts_stay_within_their_types() {
        assert_eq!(whole(f64::NAN), 0);
        assert_eq!(whole(-1.0), 0);
        assert_eq!(
            seconds(f64::INFINITY, Duration::from_secs(1)),
            Duration::from_secs(1)
        );
        assert_eq!(seconds(-3.0, Duration::from_secs(1)), Duration::ZERO);
    }
}
