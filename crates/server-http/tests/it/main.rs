//! The HTTP interface over simulated sockets and memory backends, asked by a raw client.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests may panic; the lint knows test functions only"
)]

mod bytes;
mod client;
mod conditions;
mod connections;
mod data_types;
mod expiry;
mod fuzz;
mod hostile;
mod index_queries;
mod key_folds;
mod link_walk;
mod listings;
mod map_reduce;
mod objects;
mod openapi;
mod opening;
mod properties;
mod refusals;
mod resources;
mod siblings;
mod spelling;
mod validators;
mod world;
