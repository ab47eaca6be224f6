//! Whole runs, from configuration file to result files, against a minimal server.

#![expect(
    clippy::unwrap_used,
    reason = "a failed step of a test is a failed test"
)]

mod embedded_runs;
mod fake_http;
mod fake_server;
mod http_runs;
mod measured_runs;
mod runs;
