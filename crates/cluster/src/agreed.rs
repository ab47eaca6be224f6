//! Where commands become agreed: the interface that a file and a replicated log both fill.

use std::ops::Deref;
use std::sync::Arc;

use arc_swap::Guard;
use kvorum_disk::DiskError;

use crate::command::{Command, Refusal};
use crate::state::ClusterState;

/// The state that all members agree on, and the way to change it.
///
/// 1. [`AgreedState::current`] is cheap and never waits; it may be behind what was just agreed
///    elsewhere, but never shows what was not agreed.
/// 2. When [`AgreedState::propose`] returns a state, the command is durable and every later
///    `current` on this node includes it.
/// 3. When it returns a refusal, nothing changed.
/// 4. When it returns another error, the command may or may not take effect later; `current` shows
///    which.
pub trait AgreedState: Send + Sync {
    /// The newest state known here.
    fn current(&self) -> Arc<ClusterState>;

    /// As [`AgreedState::current`], for a short look: what every request does. An implementation
    /// spares it the count of the state's holders, which is one word for all cores.
    fn look(&self) -> Look {
        Look(Guard::from_inner(self.current()))
    }

    /// Proposes a change and waits until it is agreed; belongs on the blocking pool.
    fn propose(&self, command: Command) -> Result<Arc<ClusterState>, ProposeError>;
}

/// A short look at the agreed state. Not for keeping across a wait: there are few at a time.
pub struct Look(Guard<Arc<ClusterState>>);

impl From<Guard<Arc<ClusterState>>> for Look {
    fn from(guard: Guard<Arc<ClusterState>>) -> Self {
        Self(guard)
    }
}

impl Deref for Look {
    type Target = ClusterState;

    fn deref(&self) -> &ClusterState {
        &self.0
    }
}

/// Why a proposal did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProposeError {
    /// The command does not fit the present state. Change the request.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The new state could not be stored. Mend the disk, then try again.
    #[error("keep the cluster state: {0}")]
    Storage(#[from] DiskError),
    /// The change could not be agreed: too few nodes can be reached. Try again; whether it takes
    /// effect, [`AgreedState::current`] shows.
    #[error("agree on the cluster state: {detail}")]
    NotAgreed {
        /// What was tried.
        detail: String,
    },
    /// The new state has no written form. A bug to report.
    #[error("the cluster state cannot be written down")]
    Unwritable,
}
