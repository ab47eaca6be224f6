//! Pages made from result directories, as the command line makes them.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed step of a test is a failed test"
)]

mod directory;
mod pages;
