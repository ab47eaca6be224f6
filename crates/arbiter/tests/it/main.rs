//! Tests of the arbiter over virtual time, on modelled devices and stores.

#![expect(
    clippy::cast_possible_truncation,
    reason = "the model counts in floats and reports in bytes"
)]

mod bounds;
mod failures;
mod fairness;
mod foreground;
mod scarcity;
mod syncs;
mod world;
