//! The engine behind the trait.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot use its store has failed"
)]

mod conformance;
mod engine;
mod levels;
mod planted;
