//! The memory engine under the conformance suite, and what is its own: TTL, the memory bound, and
//! what snapshots pin.

#![expect(clippy::unwrap_used, reason = "what the tests set up must work")]

mod bound;
mod conformance;
mod ttl;
