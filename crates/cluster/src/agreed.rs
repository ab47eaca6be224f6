//! The interface for reaching agreement on commands. A file and a replicated log implement it.

use std::ops::Deref;
use std::sync::Arc;

use arc_swap::Guard;
use kvorum_disk::DiskError;

use crate::command::Command;
use crate::refusal::Refusal;
use crate::state::ClusterState;

/// The state that all members agree on, and the way to change it.
///
/// 1. [`AgreedState::current`] is cheap and never waits. It may lack changes that were just agreed
///    elsewhere, but shows agreed changes only.
/// 2. When [`AgreedState::propose`] returns a state, the command is durable and every later
///    `current` on this node includes it.
/// 3. When it returns a refusal, nothing changed.
/// 4. When it returns another error, the command may or may not take effect later; `current` shows
///    which.
pub trait AgreedState: Send + Sync {
    /// The newest agreed state on this node.
    fn current(&self) -> Arc<ClusterState>;

    /// Like [`AgreedState::current`], for a short look in every request. An implementation avoids
    /// the state's reference count, a word that all cores would share.
    fn look(&self) -> Look {
        Look(Guard::from_inner(self.current()))
    }

    /// Proposes a change and waits until it is agreed. Blocks.
    fn propose(&self, command: Command) -> Result<Arc<ClusterState>, ProposeError>;
}

/// A short look at the agreed state. Must not be kept across a wait: few can exist at a time.
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

/// The reason why a proposal did not succeed. Its text is fit for clients; only
/// [`ProposeError::in_full`] has paths of the server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProposeError {
    /// The command does not fit the present state. Change the request.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The new state could not be stored. Repair the disk, then try again.
    #[error("keep the cluster state: the disk failed, see this node's log")]
    Storage(#[from] DiskError),
    /// The change could not be agreed: too few nodes can be reached. Try again;
    /// [`AgreedState::current`] shows whether the change took effect.
    #[error("agree on the cluster state: not agreed in time, see this node's log; try again later")]
    NotAgreed {
        /// The attempt.
        detail: String,
    },
    /// The agreed log cannot be written any more, here or at the leader. Repair that node's disk
    /// and restart it.
    #[error("agree on the cluster state: the agreed log of a node stopped, see this node's log")]
    Stopped {
        /// The reason.
        detail: String,
    },
    /// The new state has no written form. Report this bug.
    #[error("the cluster state cannot be written down")]
    Unwritable,
}

impl ProposeError {
    /// The failure with all details, for logs and operators.
    pub fn in_full(&self) -> String {
        match self {
            Self::Storage(error) => format!("keep the cluster state: {error}"),
            Self::NotAgreed { detail } | Self::Stopped { detail } => {
                format!("agree on the cluster state: {detail}")
            }
            other => other.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a client that set a property received the path of the server's log.
    #[test]
    fn the_details_of_a_failure_are_for_the_log_alone() {
        let detail = || "write /var/lib/kvorum/ring/log: no space".to_owned();
        let stopped = ProposeError::Stopped { detail: detail() };
        let not_agreed = ProposeError::NotAgreed { detail: detail() };
        for error in [stopped, not_agreed] {
            assert!(error.in_full().ends_with(&detail()));
            assert!(!error.to_string().contains('/'), "{error}");
            assert!(error.to_string().contains("see this node's log"), "{error}");
        }
    }
}
