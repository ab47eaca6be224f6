//! The bound on repairs a second.

const SECOND_MICROS: u64 = 1_000_000;

/// Admits a number of repairs a second, and after a rest a number at once. All times are
/// microseconds of one clock.
#[derive(Clone, Debug)]
pub struct Pace {
    /// The time between two repairs; zero for no bound.
    gap_micros: u64,
    /// The largest lead of an admitted repair over its due time.
    slack_micros: u64,
    /// The due time of the next repair, unless a rest comes before it.
    due: u64,
}

impl Pace {
    /// Admits `per_second` repairs a second, and `at_once` after a rest. Zero a second means no
    /// bound.
    pub fn new(per_second: u32, at_once: u32) -> Self {
        let gap_micros = SECOND_MICROS.checked_div(u64::from(per_second));
        let gap_micros = gap_micros.unwrap_or(0);
        Self {
            gap_micros,
            slack_micros: gap_micros * u64::from(at_once.max(1) - 1),
            due: 0,
        }
    }

    /// Admits a repair, or returns the time that it has to wait.
    ///
    /// # Errors
    /// The time to wait, in microseconds.
    pub fn let_through(&mut self, now: u64) -> Result<(), u64> {
        let due = self.due.max(now);
        let wait = due.saturating_sub(now.saturating_add(self.slack_micros));
        if wait > 0 {
            return Err(wait);
        }
        self.due = due.saturating_add(self.gap_micros);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_go_through_a_second_after_a_burst() {
        let mut pace = Pace::new(10, 5);
        let mut through = 0;
        for now in (0..10 * SECOND_MICROS).step_by(1000) {
            through += u32::from(pace.let_through(now).is_ok());
        }
        assert_eq!(through, 4 + 100);
    }

    #[test]
    fn a_wait_is_as_long_as_it_says() {
        let mut pace = Pace::new(100, 1);
        assert_eq!(pace.let_through(50), Ok(()));
        assert_eq!(pace.let_through(50), Err(10_000));
        assert_eq!(pace.let_through(10_049), Err(1));
        assert_eq!(pace.let_through(10_050), Ok(()));
        let mut unbounded = Pace::new(0, 0);
        assert!((0..1000).all(|_| unbounded.let_through(7).is_ok()));
    }
}
