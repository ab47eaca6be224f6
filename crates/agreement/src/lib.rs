//! One log that all nodes agree on, and the machine that it drives: Raft behind a small interface.
//!
//! Cluster name, members, ring and bucket types change rarely and have to be the same everywhere.
//! Each change is a command in a log, which a majority of a few voters has to store; every node
//! applies the same commands to its own [`Machine`]. Reads use the machine and ask no other node,
//! except for reads that must not be behind ([`Agreement::catch_up`]). Without a majority nothing
//! changes, and the agreed state is still served.
//!
//! The library [`openraft`] implements Raft. This crate supplies the log on disk (`log_file`), the
//! marks of its durable end (`end_mark`), the machine's snapshots, the connections to other nodes
//! (the control lane of `kvorum-peer`), and the runtime. So a simulation controls time, randomness
//! and tasks.
//!
//! A single node runs the same log, as its only voter.
//!
//! Outside this crate: the meaning of commands.

mod agreement;
pub mod anatomy;
mod asking;
mod catching_up;
pub mod check;
mod end_mark;
mod error;
mod leader_search;
mod log_file;
mod log_store;
mod machine;
mod membership;
mod persistence;
mod progress;
mod proposing;
mod raft_runtime;
mod raft_types;
mod snapshot_file;

pub use agreement::{Agreement, AgreementSettings, AgreementStatus, Founding, Parts};
pub use error::{AgreementError, OpenError};
pub use machine::Machine;
pub use membership::{MembershipStep, next_membership_step};
