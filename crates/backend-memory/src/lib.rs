//! The memory engine: an ordered in-memory store with TTL and an exact memory bound.
