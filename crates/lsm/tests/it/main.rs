//! The tree as a whole: against a model, through crashes, and with damage.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot use its store has failed"
)]

mod blobs;
mod crashes;
mod damage;
mod model;
mod parts;
mod ranges;
mod repair;
mod sharing;
mod support;
mod tiers;
mod upkeep;
