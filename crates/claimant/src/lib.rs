//! The agreed cluster state as a replicated log, and the task that carries committed plans out.
//!
//! [`ReplicatedState`] is the cluster's state behind the same interface as a single node's file:
//! commands go into the agreed log, every member applies them. The [`Claimant`], as Riak calls the node
//! that alone changes the ring, runs on the leader of the log. It makes the members of the cluster members
//! of the log, begins the moves of a committed plan, a few at a time, and changes the number of replicas
//! when all have moved. The node that ends a step (everything is transferred, the source has confirmed)
//! reports that as a command.
//!
//! Outside this crate: the way that data moves.

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
