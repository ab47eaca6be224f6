//! The memory engine under the conformance suite, and its own tests: TTL, the memory bound, and
//! pinned versions of snapshots.

#![expect(clippy::unwrap_used, reason = "what the tests set up must work")]

mod bound;
mod conformance;
mod ttl;
