//! Tests of a store of several stores, over the engines themselves.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot use its store has failed"
)]

mod children;
mod conformance;
mod moving;
mod opening;
mod routing;
