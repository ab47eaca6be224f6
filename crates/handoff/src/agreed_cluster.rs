//! The agreed state as transfers use it: reading it, changing it, and notifications of changes.
//!
//! A separate trait beside `kvorum_cluster::AgreedState`: proposals are futures and block no
//! thread, so that the same code runs in a simulation.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use kvorum_cluster::{ClusterState, Command, ProposeError};

/// A proposal under way.
pub type Agreeing = Pin<Box<dyn Future<Output = Result<(), ProposeError>> + Send>>;

/// A wait for a newer state.
pub type Changing = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The agreed state as this node has it.
pub trait AgreedCluster: Send + Sync {
    /// The newest state that is durable on this node: both gates of a move require that a crash
    /// does not lose it.
    fn current(&self) -> Arc<ClusterState>;

    /// Proposes a change and waits until it is agreed and applied here, or refused.
    fn agree(&self, command: Command) -> Agreeing;

    /// Ends when the state's version is above `version`; may end earlier.
    fn changed(&self, version: u64) -> Changing;
}
