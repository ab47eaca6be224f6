//! Tables as a whole: written, read, scanned, and damaged.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot make its table has failed"
)]

mod damage;
mod model;
mod notes;
mod segment_scans;
mod support;
