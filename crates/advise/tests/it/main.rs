//! Declared figures against the engines themselves, and whole recommendations.

#![expect(
    clippy::unwrap_used,
    reason = "a failed step of a test is a failed test"
)]

mod engine_figures;
mod guide;
mod recommendations;
