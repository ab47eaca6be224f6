//! The output of the commands: only this module writes to standard output. It keeps the lines that
//! name a failure, for the end of a long run.

use std::io::{self, Write};

use parking_lot::Mutex;

/// The lines that named a failure, in order.
static FAILURES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Prints a line at once, so that an interrupted log of CI has all lines so far.
#[expect(clippy::print_stdout, reason = "this is what the user asked for")]
pub(crate) fn line(text: &str) {
    if names_failure(text) {
        keep(&mut FAILURES.lock(), text);
    }
    println!("{text}");
    let _ = io::stdout().flush(); // a reader that went away is no reason to stop the tests
}

/// Prints the headline of a stage.
pub(crate) fn headline(text: &str) {
    line(&format!("\n== {text}"));
}

/// The lines so far that named a failure, each once.
pub(crate) fn failures() -> Vec<String> {
    FAILURES.lock().clone()
}

/// True for a failed check, and for a failed test of cargo, also after the names of a lane and of
/// a script.
fn names_failure(text: &str) -> bool {
    let text = text.trim();
    let begins = |line: &str| line.starts_with("FAILED  ") || line.starts_with("FAILED, ");
    text.split(": ").any(begins) || text.ends_with(" ... FAILED")
}

/// Keeps each failure once, since another lane repeats its failures at its end.
fn keep(failures: &mut Vec<String>, text: &str) {
    if !failures.iter().any(|it| it == text) {
        failures.push(text.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_distinguished_from_what_else_is_printed() {
        for text in [
            "FAILED  seed 7: key3 lacks Put 4",
            "beside: FAILED  power-cut 12: a write is lost",
            "beside: browser: FAILED  quick: exit code",
            "test small::heals ... FAILED",
        ] {
            assert!(names_failure(text), "{text}");
        }
        for text in [
            "ok      get: 3 answers",
            "test small::heals ... ok",
            "test result: FAILED. 3 passed; 1 failed",
        ] {
            assert!(!names_failure(text), "{text}");
        }
    }

    #[test]
    fn a_repeated_failure_is_kept_once() {
        let mut kept = Vec::new();
        for text in ["FAILED  one", "FAILED  two", "FAILED  one"] {
            keep(&mut kept, text);
        }
        assert_eq!(kept, ["FAILED  one", "FAILED  two"]);
    }
}
