//! The agreed state on a member of a cluster.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use kvorum_agreement::{Agreement, AgreementError};
use kvorum_cluster::{
    AgreedState, ClusterState, Command, DecodeError, Look, ProposeError, Refusal, apply,
};
use kvorum_runtime::{Runtime, Watcher};

use crate::cluster_machine::{Applied, ClusterMachine};
use crate::shown_state::ShownState;

/// Time within which a proposal has to be agreed.
const PROPOSAL_WAIT: Duration = Duration::from_secs(10);

/// The cluster's state in the agreed log. Cheap to clone.
#[derive(Clone)]
pub struct ReplicatedState {
    runtime: Runtime,
    shown: Arc<ShownState>,
    log: Arc<ArcSwap<Log>>,
}

struct Log {
    agreement: Agreement,
    machine: Arc<ClusterMachine>,
}

/// The error for a state that may lack entries that were agreed elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct MayBeBehind {
    /// The version of this node's state.
    pub version: u64,
    /// Time since this node last had the state of a majority; `None` if it has not had it since its
    /// start.
    pub heard_ago: Option<Duration>,
    /// The reason why no newer state could be read.
    pub detail: String,
}

impl ReplicatedState {
    /// The state that `machine` shows, driven by `agreement`.
    pub fn new(runtime: Runtime, agreement: Agreement, machine: Arc<ClusterMachine>) -> Self {
        Self {
            runtime,
            shown: machine.shown().clone(),
            log: Arc::new(ArcSwap::from_pointee(Log { agreement, machine })),
        }
    }

    /// The log below.
    pub fn agreement(&self) -> Agreement {
        self.log.load().agreement.clone()
    }

    /// Changes to the log of a cluster that this node joins. The new machine publishes its states
    /// in the same place.
    pub fn follow(&self, agreement: Agreement, machine: Arc<ClusterMachine>) {
        self.log.store(Arc::new(Log { agreement, machine }));
    }

    /// True once the log has made a state.
    pub fn is_founded(&self) -> bool {
        self.log.load().machine.is_founded()
    }

    /// The state for readers.
    pub fn shown(&self) -> &Arc<ShownState> {
        &self.shown
    }

    /// Watches the version of the state; versions may be skipped.
    pub fn versions(&self) -> Watcher<u64> {
        self.shown.versions()
    }

    /// Makes `state` the first state of a new cluster's log; does nothing when the log has a state.
    pub async fn found(&self, state: &ClusterState) -> Result<(), ProposeError> {
        let founding = ClusterMachine::founding(state);
        let founding = founding.map_err(|_: DecodeError| ProposeError::Unwritable)?;
        self.put(founding).await
    }

    /// Proposes a change and waits until it is agreed and applied here.
    pub async fn agree(&self, command: Command) -> Result<Arc<ClusterState>, ProposeError> {
        // A command that does not fit this node's state is refused here, with its full reason.
        apply(&self.current(), command.clone())?;
        self.put(ClusterMachine::change(&command)).await?;
        Ok(self.current())
    }

    /// The state with all commands that were agreed on any node at the time of the call.
    ///
    /// # Errors
    /// If no leader answers within `wait`: this node's state may be behind.
    pub async fn newest(&self, wait: Duration) -> Result<Arc<ClusterState>, MayBeBehind> {
        let agreement = self.agreement();
        let deadline = self.runtime.now().plus(wait);
        match agreement.catch_up(deadline).await {
            Ok(()) => Ok(self.current()),
            Err(error) => Err(MayBeBehind {
                version: self.current().version(),
                heard_ago: agreement.behind_at_most(),
                detail: error.to_string(),
            }),
        }
    }

    async fn put(&self, text: String) -> Result<(), ProposeError> {
        let deadline = self.runtime.now().plus(PROPOSAL_WAIT);
        let outcome = self.agreement().propose(text, deadline).await;
        let outcome = outcome.map_err(|error: AgreementError| {
            let detail = error.to_string();
            match error {
                AgreementError::NoMajority { .. } => ProposeError::NotAgreed { detail },
                AgreementError::Stopped { .. } => ProposeError::Stopped { detail },
            }
        })?;
        match serde_json::from_str(&outcome) {
            Ok(Applied::Version(_)) => Ok(()),
            Ok(Applied::Refused(reason)) => Err(Refusal::Overtaken { reason }.into()),
            Err(error) => Err(ProposeError::NotAgreed {
                detail: error.to_string(),
            }),
        }
    }
}

impl AgreedState for ReplicatedState {
    fn current(&self) -> Arc<ClusterState> {
        self.shown.current()
    }

    fn look(&self) -> Look {
        self.shown.look()
    }

    /// Waits on the calling thread while the runtime's other threads reach agreement. A simulation
    /// has no other threads: it awaits [`ReplicatedState::agree`].
    fn propose(&self, command: Command) -> Result<Arc<ClusterState>, ProposeError> {
        if self.runtime.is_simulated() {
            return Err(ProposeError::NotAgreed {
                detail: "a simulation awaits its proposals".into(),
            });
        }
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        let state = self.clone();
        self.runtime.spawn("proposal", async move {
            // The waiting caller may have given up.
            let _waits_or_not = sender.send(state.agree(command).await);
        });
        receiver.recv().unwrap_or_else(|_| {
            Err(ProposeError::NotAgreed {
                detail: "the node is stopping".into(),
            })
        })
    }
}
