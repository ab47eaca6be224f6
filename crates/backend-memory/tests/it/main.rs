//! The memory engine under the conformance suite, and what is its own: TTL, the memory bound, and
//! what snapshots pin.

mod bound;
mod conformance;
mod ttl;
