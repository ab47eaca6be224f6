//! Transfers of whole partitions between nodes: moves, growth of the number of replicas, repair.
//!
//! The receiver of a transfer fetches it. A node takes its transfers from the agreed state
//! ([`Transfers`] does so for as long as it runs), and asks the source for page after page of whole
//! objects in ascending key order. It merges each page through its vnode, makes it durable, reads the
//! heads back, and only then goes on behind it. It reports finished steps in the agreed log: that a
//! partition closes, that it settles, that a vnode is filled for more replicas. The steps and the
//! reasons why they are safe are in decision 7.
//!
//! - `assignment`: the tasks of a node in a state of the cluster: pure;
//! - `turns`: the transfers that go on now, and those that wait: pure;
//! - `machine`: one transfer as `step(event, now) -> effect`: pure;
//! - `errand`: the driver of one machine; [`Transfers`]: all of them, and the answering side;
//! - `wire`: questions and answers as bytes.
//!
//! The receiver asks, and the source does not push: only the receiver has the record of its durable
//! pages, resumes after a crash of either side, and has to be slowed down by an arbiter.
//!
//! Outside this crate: agreement on commands, the engine below a vnode, and hints, which the
//! coordinator hands over.

mod agreed_cluster;
mod assignment;
mod belonging;
mod chain;
mod cursor_file;
mod errand;
mod errands;
mod legs;
mod machine;
mod progress;
mod receiving;
mod sessions;
mod settings;
mod source;
mod status;
mod transfer_id;
mod transfers;
mod turns;
pub mod wire;

pub use agreed_cluster::{AgreedCluster, Agreeing, Changing};
pub use errands::Parts;
pub use settings::{Budget, TransferSettings, Unbounded};
pub use status::{Activity, OutboundStatus, TransferCounts, TransferStatus, TransfersStatus};
pub use transfer_id::{TransferId, TransferKind};
pub use transfers::{Direction, RepairRefused, Transfers};
