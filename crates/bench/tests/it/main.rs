//! Whole runs, from configuration file to result files, against a server of a few lines.

#![expect(
    clippy::unwrap_used,
    reason = "a failed step of a test is a failed test"
)]

mod fake_server;
mod runs;
