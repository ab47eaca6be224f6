//! Exchanges between nodes on simulated machines, with the real transport between them.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "what the tests set up must work"
)]

mod cluster;
mod damaged;
mod mending;
mod planted;
