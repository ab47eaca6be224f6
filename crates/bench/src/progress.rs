//! The progress of a run on the screen: one line that is updated, or a line for each interval if
//! standard error is not a terminal.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use crate::output::per_second;

/// Writes progress to standard error.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Length of the run; `None` runs until it is stopped.
    duration: Option<Duration>,
    is_terminal: bool,
    /// Operations at the time of the last line.
    before: (Duration, u64),
    /// True once the warm-up was announced.
    has_warmed_up: bool,
}

impl Progress {
    /// Progress of a run of this length.
    pub(crate) fn new(duration: Option<Duration>) -> Self {
        Self {
            duration,
            is_terminal: io::stderr().is_terminal(),
            before: (Duration::ZERO, 0),
            has_warmed_up: false,
        }
    }

    /// True if [`Progress::tick`] shows anything.
    pub(crate) fn is_renewed(&self) -> bool {
        self.is_terminal
    }

    /// Shows the remaining time of the warm-up.
    pub(crate) fn warming_up(&mut self, left: Duration) {
        if self.is_terminal {
            let _ = write!(io::stderr(), "\rwarming up, {} left\x1b[K", clock(left));
        } else if !self.has_warmed_up {
            let _ = writeln!(io::stderr(), "warming up, {} left", clock(left));
        }
        self.has_warmed_up = true;
    }

    /// Updates the line on a terminal.
    pub(crate) fn tick(&mut self, elapsed: Duration, operations: u64, errors: u64) {
        if self.is_terminal {
            let bar = self.bar(elapsed);
            let line = self.line(elapsed, operations, errors);
            let line = format!("{bar}{line}");
            // The run does not stop because progress cannot be shown.
            let _ = write!(io::stderr(), "\r{line}\x1b[K");
        }
    }

    /// Writes a line for each interval if there is no terminal.
    pub(crate) fn interval(&mut self, elapsed: Duration, operations: u64, errors: u64) {
        if !self.is_terminal {
            let line = self.line(elapsed, operations, errors);
            let _ = writeln!(io::stderr(), "{line}");
        }
    }

    /// Ends the line, so that it stays on the screen.
    pub(crate) fn end(&self) {
        if self.is_terminal {
            let _ = writeln!(io::stderr());
        }
    }

    /// The finished part of the run as a bar; empty for a run without an end.
    fn bar(&self, elapsed: Duration) -> String {
        const WIDTH: u128 = 20;
        let Some(duration) = self.duration else {
            return String::new();
        };
        let full = WIDTH * elapsed.as_millis() / duration.as_millis().max(1);
        let full = usize::try_from(full.min(WIDTH)).unwrap_or(0);
        let (full, empty) = ("#".repeat(full), "-".repeat(20 - full));
        format!("[{full}{empty}] ")
    }

    fn line(&mut self, elapsed: Duration, operations: u64, errors: u64) -> String {
        let (before, count) = std::mem::replace(&mut self.before, (elapsed, operations));
        let rate = per_second(
            operations.saturating_sub(count),
            elapsed.saturating_sub(before),
        );
        let place = match self.duration {
            Some(duration) => {
                let share = elapsed.as_secs_f64() / duration.as_secs_f64().max(1e-9) * 100.0;
                let left = duration.saturating_sub(elapsed);
                format!("{:3.0} %, {} left", share.min(100.0), clock(left))
            }
            None => format!("{} so far", clock(elapsed)),
        };
        format!("{place}, {rate:.0} ops/s, {operations} done, {errors} errors")
    }
}

/// Hours, minutes and seconds.
fn clock(duration: Duration) -> String {
    let seconds = duration.as_secs_f64().round();
    let seconds = Duration::from_secs_f64(seconds).as_secs();
    format!(
        "{}:{:02}:{:02}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_shows_share_rest_and_present_rate() {
        let mut progress = Progress::new(Some(Duration::from_secs(100)));
        let line = progress.line(Duration::from_secs(10), 5000, 0);
        assert_eq!(line, " 10 %, 0:01:30 left, 500 ops/s, 5000 done, 0 errors");
        let line = progress.line(Duration::from_secs(20), 6000, 7);
        assert_eq!(line, " 20 %, 0:01:20 left, 100 ops/s, 6000 done, 7 errors");
        assert_eq!(
            progress.bar(Duration::from_secs(25)),
            "[#####---------------] "
        );
        assert_eq!(
            progress.bar(Duration::from_secs(101)),
            "[####################] "
        );
        let line = Progress::new(None).line(Duration::from_secs(7200), 7200, 0);
        assert_eq!(line, "2:00:00 so far, 1 ops/s, 7200 done, 0 errors");
    }
}
