//! The server over a coordinator and memory engines, mostly on the simulated runtime, driven by the
//! client and by raw frames.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]

mod conditions;
mod connections;
mod data_types;
mod expiry;
mod fuzz;
mod hostile;
mod index_queries;
mod key_folds;
mod listings;
mod map_reduce;
mod node;
mod objects;
mod properties;
mod real_sockets;
mod small_requests;
