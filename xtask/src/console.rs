//! What the commands print: the one place that writes to standard output.

use std::io::{self, Write};

/// Prints a line at once, so that a log cut short by CI holds everything up to there.
#[expect(clippy::print_stdout, reason = "this is what the user asked for")]
pub(crate) fn line(text: &str) {
    println!("{text}");
    let _ = io::stdout().flush(); // a reader that went away is no reason to stop the tests
}

/// Prints the headline of a stage.
pub(crate) fn headline(text: &str) {
    line(&format!("\n== {text}"));
}
