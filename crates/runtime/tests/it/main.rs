//! The runtime of production and that of a simulation, under the same tests.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod sockets;
mod tasks;
mod world;
