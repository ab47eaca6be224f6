//! The agreed state as every member of a cluster has it.

use std::sync::Arc;
use std::time::Duration;

use kvorum_agreement::{Agreement, AgreementError};
use kvorum_cluster::{
    AgreedState, ClusterState, Command, DecodeError, ProposeError, Refusal, apply,
};
use kvorum_runtime::Runtime;

use crate::cluster_machine::{Applied, ClusterMachine};

/// How long a proposal may take to be agreed.
const PROPOSAL_WAIT: Duration = Duration::from_secs(10);

/// The cluster's state in the agreed log.
#[derive(Clone)]
pub struct ReplicatedState {
    runtime: Runtime,
    agreement: Agreement,
    machine: Arc<ClusterMachine>,
    /// What this node shows until the log has made a state.
    before: Arc<ClusterState>,
}

impl ReplicatedState {
    /// The state that `machine` has, driven by `agreement`. `before` is shown while there is none.
    pub fn new(
        runtime: Runtime,
        agreement: Agreement,
        machine: Arc<ClusterMachine>,
        before: ClusterState,
    ) -> Self {
        Self {
            runtime,
            agreement,
            machine,
            before: Arc::new(before),
        }
    }

    /// The log below.
    pub fn agreement(&self) -> &Agreement {
        &self.agreement
    }

    /// Makes `state` the first one of a new cluster's log; nothing happens when it has one.
    pub async fn found(&self, state: &ClusterState) -> Result<(), ProposeError> {
        let founding = ClusterMachine::founding(state);
        let founding = founding.map_err(|_: DecodeError| ProposeError::Unwritable)?;
        self.put(founding).await
    }

    /// Proposes a change and waits until it is agreed and applied here.
    pub async fn agree(&self, command: Command) -> Result<Arc<ClusterState>, ProposeError> {
        // What does not fit here is refused here, with its reason whole.
        apply(&self.current(), command.clone())?;
        self.put(ClusterMachine::change(&command)).await?;
        Ok(self.current())
    }

    async fn put(&self, text: String) -> Result<(), ProposeError> {
        let deadline = self.runtime.now().plus(PROPOSAL_WAIT);
        let outcome = self.agreement.propose(text, deadline).await;
        let outcome = outcome.map_err(|error: AgreementError| ProposeError::NotAgreed {
            detail: error.to_string(),
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
        self.machine.state().unwrap_or_else(|| self.before.clone())
    }

    /// Waits on the calling thread while the runtime's other threads agree. In a simulation there are
    /// none: there, [`ReplicatedState::agree`] is awaited.
    fn propose(&self, command: Command) -> Result<Arc<ClusterState>, ProposeError> {
        if self.runtime.is_simulated() {
            return Err(ProposeError::NotAgreed {
                detail: "a simulation awaits its proposals".into(),
            });
        }
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        let state = self.clone();
        self.runtime.spawn("proposal", async move {
            // Whoever waited may have given up.
            let _waits_or_not = sender.send(state.agree(command).await);
        });
        receiver.recv().unwrap_or_else(|_| {
            Err(ProposeError::NotAgreed {
                detail: "the node is stopping".into(),
            })
        })
    }
}
