//! The runtime of production and that of a simulation, tried on the same promises.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod sockets;
mod tasks;
mod world;
