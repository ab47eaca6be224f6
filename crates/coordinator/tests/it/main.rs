//! The coordinator over vnodes in memory, on simulated time.

#![expect(clippy::unwrap_used, reason = "what the tests set up must work")]

mod cluster;
#[path = "../../../vnode/tests/it/trick_backend.rs"]
mod trick_backend;
mod world;

mod data_types;
mod deleting;
mod index_queries;
mod key_folds;
mod listings;
mod logging;
mod moves;
mod objects;
mod quorums;
mod several_nodes;
mod waiting;
