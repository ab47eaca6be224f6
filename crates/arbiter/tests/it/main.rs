//! Tests of the arbiter over virtual time, on modelled devices and stores.

mod bounds;
mod failures;
mod fairness;
mod foreground;
mod syncs;
mod world;
