//! Output of the program: lines, and the counts at the end.

use std::fmt::Display;
use std::io::Write as _;

/// Prints the counts that summarize the output; true if nothing failed.
pub(crate) fn conclude(passed: impl Display, failed: usize) -> bool {
    line(&format!("{passed} passed, {failed} failed"));
    failed == 0
}

/// Prints a line.
pub(crate) fn line(text: &str) {
    // A reader that closed the pipe does not need the rest.
    let _closed = writeln!(std::io::stdout().lock(), "{text}");
}
