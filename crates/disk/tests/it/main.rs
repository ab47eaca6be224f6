//! What a disk promises, tried on each disk that promises it.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod crash;
mod faults;
mod promises;
