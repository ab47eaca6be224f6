//! The node's commit log: one group commit for every vnode, and replay into engines after a crash.
//!
//! A node has dozens of stores. If each synced its own file before acknowledging a put, the device
//! would see dozens of syncs where one could serve them all. So a put is applied to its engine
//! without a sync, written to one log that all stores of the node share, and acknowledged when the
//! log's next sync is done. Engines are synced later, at leisure, as maintenance; what a crash takes
//! from them is put again from the log. The measurement behind this stands in
//! `docs/decisions/0001-one-commit-log-per-node.md`.
//!
//! - [`CommitLog`] is the log: appends, groups, tickets, trimming.
//! - [`Committed`] is a backend whose grouped puts go through a log. It wraps any engine, so engines
//!   need no write-ahead log of their own.
//! - [`recover`] reads what an earlier run left behind and puts into each store what it lacks.
//!
//! What this crate must not know: which engine a store is, and what its entries mean.

mod commit_log;
mod committed;
mod error;
mod log_record;
mod recovery;

pub use commit_log::{CommitLog, CommitLogSettings, CommitLogStatus};
pub use committed::Committed;
pub use recovery::{Recovery, recover};
