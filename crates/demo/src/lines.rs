//! The demo as lines, if there is no terminal or lines are requested.

use std::io::Write;
use std::time::Duration;

use crate::picture::{Phase, Picture};

/// Time between two lines about the progress.
const PERIOD: Duration = Duration::from_secs(2);

/// The position after the printed lines.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    notes: usize,
    next: Duration,
}

impl Lines {
    /// Lines that begin after everything in the picture.
    pub(crate) fn after(picture: &Picture) -> Self {
        Self {
            notes: picture.notes.len(),
            next: picture.elapsed + PERIOD,
        }
    }

    /// Prints new lines. Errors of the output are ignored: the demo continues without a reader.
    pub(crate) fn show(&mut self, picture: &Picture, out: &mut impl Write) {
        for (at, note) in picture.notes.iter().skip(self.notes) {
            let _nobody_may_listen = writeln!(out, "{:>4} s  * {note}", at.as_secs());
        }
        self.notes = picture.notes.len();
        // The load has a clock of its own.
        let is_due = picture.elapsed >= self.next || picture.elapsed + PERIOD < self.next;
        if is_due && picture.phase == Phase::Running {
            self.next = picture.elapsed + PERIOD;
            let _nobody_may_listen = writeln!(out, "{}", picture.line());
        }
        let _nobody_may_listen = out.flush();
    }
}
