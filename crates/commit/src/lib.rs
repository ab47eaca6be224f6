//! The node's log: one group commit for every vnode, and what engines lack after a crash. That is the value
//! log, in which entries stay; and the commit log, which earlier versions had.
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
//! - [`ValueLog`] is the log for engines that keep locations in memory: what they put stays where it
//!   was logged, and is not written twice. Such an engine is opened with the log, puts through it by
//!   itself, and is not wrapped in [`Committed`]; see `docs/decisions/0005-values-stay-in-the-commit-log.md`.
//!
//! Where to look: `queue` decides who commits what and who is woken; `segments` writes files and
//! drops them; `log_record` is what a batch looks like in a file.
//!
//! What is asked of an engine beyond the trait's sentences: right after opening, its next batch has
//! the sequence behind [`Backend::durable`](kvorum_backend::Backend::durable), so that a replayed
//! batch gets the sequence that it had. [`recover`] checks it.
//!
//! What this crate must not know: which engine a store is, and what its entries mean.

pub mod anatomy;
mod commit_log;
mod committed;
mod error;
mod group;
mod log_record;
mod queue;
mod recovery;
mod segments;
mod task_driver;
mod value_log;

pub use commit_log::{CommitLog, CommitLogSettings, CommitLogStatus};
pub use committed::Committed;
pub use recovery::{Recovered, Recovery, recover, recover_some};
pub use task_driver::TaskDriver;
pub use value_log::{
    Admission, CollectionDue, ValueLog, ValueLogOpening, ValueLogSettings, ValueLogStatus,
    find_log_id,
};
