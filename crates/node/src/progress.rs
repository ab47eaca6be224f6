//! Progress of long work on files, on standard error: an overwritten line on a terminal, and a line
//! at intervals elsewhere.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// Time between two reports on a terminal, and elsewhere.
pub(crate) const TICK: Duration = Duration::from_millis(500);
const LINE: Duration = Duration::from_secs(10);

/// The times of the beginning and of the last report.
pub(crate) struct Progress {
    is_terminal: bool,
    began: Instant,
    shown: Instant,
}

impl Progress {
    pub(crate) fn begin() -> Self {
        let began = Instant::now();
        Self {
            is_terminal: std::io::stderr().is_terminal(),
            began,
            shown: began,
        }
    }

    /// Shows the bytes read so far and all bytes to read, if a report is due.
    pub(crate) fn show(&mut self, read: u64, all: u64) {
        if self.is_due() {
            self.print(&progress_line(read, all, self.began.elapsed()));
        }
    }

    /// Shows a line if a report is due.
    pub(crate) fn show_line(&mut self, line: &str) {
        if self.is_due() {
            self.print(line);
        }
    }

    fn is_due(&self) -> bool {
        let wait = if self.is_terminal { TICK } else { LINE };
        self.shown.elapsed() >= wait
    }

    fn print(&mut self, line: &str) {
        self.shown = Instant::now();
        let (before, after) = if self.is_terminal {
            ("\r", "")
        } else {
            ("", "\n")
        };
        let _shown_or_closed = write!(std::io::stderr(), "{before}{line}{after}");
    }

    pub(crate) fn end(self) {
        if self.is_terminal && self.shown != self.began {
            let _shown_or_closed = writeln!(std::io::stderr());
        }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }
}

fn progress_line(read: u64, all: u64, elapsed: Duration) -> String {
    const MIB: u64 = 1 << 20;
    let percent = read
        .saturating_mul(100)
        .checked_div(all)
        .unwrap_or(100)
        .min(100);
    let rest = u128::from(all.saturating_sub(read));
    let left = (elapsed.as_secs().max(1) as u128 * rest)
        .checked_div(u128::from(read))
        .map_or("unknown".to_owned(), |seconds| format!("{seconds} s"));
    format!(
        "{percent:>3} %, {} of {} MiB, {left} left ",
        read / MIB,
        all / MIB
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_says_how_long_it_will_take() {
        let line = progress_line(1 << 20, 4 << 20, Duration::from_secs(5));
        assert_eq!(line, " 25 %, 1 of 4 MiB, 15 s left ");
        assert!(progress_line(0, 0, Duration::ZERO).starts_with("100 %"));
    }
}
