//! Transfers between nodes on simulated machines.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot make its input should fail"
)]

mod cluster;
mod growing;
mod pins;
mod transferring;
