//! The form of seconds in result files.

use std::time::Duration;

use kvorum_erlang_terms::Term;

/// Seconds as Erlang prints a float: shortest digits, at least one after the point.
pub(crate) fn seconds(duration: Duration) -> String {
    #[expect(
        clippy::cast_precision_loss,
        reason = "microseconds of a run are far below 2^53"
    )]
    let microseconds = duration.as_micros() as f64;
    Term::Float(microseconds / 1e6).to_string()
}
