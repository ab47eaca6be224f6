//! The agreed cluster state as a replicated log, and the task that carries out committed plans.
//!
//! [`ReplicatedState`] is the cluster's state behind the same interface as a single node's file:
//! commands go into the agreed log, and every member applies them. The [`Claimant`] runs on the
//! leader of the log; Riak gives this name to the one node that changes the ring. It adds the
//! members of the cluster to the log, begins the moves of a committed plan, a few at a time, and
//! changes the number of replicas after all moves. The node that ends a step, such as a transfer,
//! reports that as a command.
//!
//! Outside this crate: the transfer of data.

mod claimant;
mod cluster_machine;
mod pacing;
mod replicated_state;
mod shown_state;

pub use claimant::{Claimant, ClaimantSettings};
pub use cluster_machine::ClusterMachine;
pub use pacing::Pacing;
pub use replicated_state::{MayBeBehind, ReplicatedState};
pub use shown_state::ShownState;
