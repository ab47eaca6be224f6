//! The promises of a disk, tested on each disk that makes them.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod crash;
mod faults;
mod promises;
