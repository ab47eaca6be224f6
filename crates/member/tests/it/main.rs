//! Whole members on simulated machines: founded, joined, killed, started again.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot make its input should fail"
)]

mod founding;
mod joining;
mod lost_stores;
mod machines;
mod opening;
mod recovery;
mod requests;
mod stores;
mod tombstones;
mod type_removal;
mod vouching;
