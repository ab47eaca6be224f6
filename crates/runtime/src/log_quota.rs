//! A bound on how often one kind of event is logged.
//!
//! A client that repeats a mistake, or a bucket whose objects grow too large, would write a line for
//! each request. A quota lets the first lines of each window through and counts the others; the
//! next line let through has the number of lines left out.

use std::sync::Mutex;
use std::time::Duration;

/// Lines of one kind in a window.
const LINES_MAX: u32 = 10;

/// The window.
const WINDOW: Duration = Duration::from_secs(60);

/// The quota of one kind of event.
#[derive(Debug)]
pub struct LogQuota {
    used: Mutex<Used>,
}

#[derive(Debug)]
struct Used {
    window_began: Duration,
    lines: u32,
    left_out: u64,
}

impl LogQuota {
    /// An unused quota of 10 lines a minute.
    pub const fn new() -> Self {
        Self {
            used: Mutex::new(Used {
                window_began: Duration::ZERO,
                lines: 0,
                left_out: 0,
            }),
        }
    }

    /// Takes one line at `now`, a time since any fixed moment. `None` leaves the line out; a number
    /// counts the lines left out since the last one.
    pub fn take(&self, now: Duration) -> Option<u64> {
        let mut used = self
            .used
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let is_over = now
            .checked_sub(used.window_began)
            .is_none_or(|age| age >= WINDOW);
        if is_over {
            used.window_began = now;
            used.lines = 0;
        }
        if used.lines < LINES_MAX {
            used.lines += 1;
            Some(std::mem::take(&mut used.left_out))
        } else {
            used.left_out += 1;
            None
        }
    }
}

impl Default for LogQuota {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_quota_are_counted_and_reported_with_the_next() {
        let quota = LogQuota::new();
        let at = Duration::from_secs;
        for _ in 0..LINES_MAX {
            assert_eq!(quota.take(at(100)), Some(0));
        }
        for second in 100..130 {
            assert_eq!(quota.take(at(second)), None);
        }
        assert_eq!(quota.take(at(160)), Some(30));
        assert_eq!(quota.take(at(161)), Some(0));
        // A wall clock that was set back begins a new window.
        assert_eq!(quota.take(at(5)), Some(0));
    }
}
