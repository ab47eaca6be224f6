//! Recovery of a cluster whose agreed log has lost its majority for good.
//!
//! An operator orders one of the remaining members to continue alone. That member stores its last
//! state under a new identity of the cluster, and a card that makes its next start begin a new log
//! with that state. The other remaining members are ordered to follow: their next start follows the
//! new log. All of them restart, since the end of a process ends the connections that it made under
//! the old identity. From then on such connections are refused, also from lost voters that come
//! back. Stores stay as they are.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kvorum_claimant::ClusterMachine;
use kvorum_cluster::{AgreedState, ClusterId, Command};
use kvorum_disk::DiskError;

use crate::card::{Card, Stage, recovered_file};
use crate::checked_file::Found;
use crate::doorkeeper::Follows;
use crate::error::JoinError;
use crate::joining::Joined;
use crate::member::Member;
use crate::operations::{Operation, Outcome};
use crate::unknown_state::unknown_state;

/// Time for a majority to answer.
const MAJORITY_WAIT: Duration = Duration::from_secs(5);

/// The reason why a cluster is not recovered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecoverError {
    /// The node is alone, or belongs to no cluster yet.
    #[error("there is nothing to recover: this node is the only member")]
    Alone,
    /// The log has a majority.
    #[error("there is nothing to recover: a majority of the voters has just agreed")]
    HasMajority,
    /// Another remaining member has a later state.
    #[error(
        "{name} can be reached and has decisions that this node lacks (version {theirs}, here \
         {own}): recover there"
    )]
    NotNewest {
        /// Its name.
        name: String,
        /// The version of its state.
        theirs: u64,
        /// The version of this node's state.
        own: u64,
    },
    /// A disk operation failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The state cannot be written.
    #[error("the state cannot be written: {detail}")]
    Unwritable {
        /// The reason.
        detail: String,
    },
}

/// The state and the members from which this node would recover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outlook {
    /// The version of the state.
    pub version: u64,
    /// Other members that can be reached: they can follow.
    pub reachable: Vec<String>,
    /// Members that cannot be reached: they will be refused for ever.
    pub lost: Vec<String>,
}

impl Member {
    /// Checks that the cluster needs a recovery, and lists its members.
    pub async fn recovery_outlook(&self) -> Result<Outlook, RecoverError> {
        let state = self.state.current();
        if !self.state.is_founded() || state.members().len() < 2 {
            return Err(RecoverError::Alone);
        }
        let asked = self
            .state
            .agree(Command::NameCluster(state.name().to_owned()));
        if let Ok(Ok(_)) = self.runtime.timeout(MAJORITY_WAIT, asked).await {
            return Err(RecoverError::HasMajority);
        }
        let mut outlook = Outlook {
            version: state.version(),
            reachable: Vec::new(),
            lost: Vec::new(),
        };
        for (node, member) in state.members().iter().filter(|(it, _)| **it != self.node) {
            match self.operate(*node, Operation::Version).await {
                Ok(Outcome::Version(theirs)) if theirs > outlook.version => {
                    return Err(RecoverError::NotNewest {
                        name: member.name.clone(),
                        theirs,
                        own: outlook.version,
                    });
                }
                Ok(Outcome::Version(_)) => outlook.reachable.push(member.name.clone()),
                _ => outlook.lost.push(member.name.clone()),
            }
        }
        outlook.reachable.sort();
        outlook.lost.sort();
        Ok(outlook)
    }

    /// Makes the next start of this node continue alone with its state. The caller stops the node
    /// at once.
    pub async fn recover(&self) -> Result<Outlook, RecoverError> {
        let outlook = self.recovery_outlook().await?;
        let mut random = [0; 16];
        self.runtime.randomness().fill(&mut random);
        let cluster = ClusterId::from_random(random);
        let state = self.state.current().recovered(cluster, self.node);
        let text = state.to_json().map_err(|error| RecoverError::Unwritable {
            detail: error.to_string(),
        })?;
        let file = recovered_file(self.cards.directory(), self.node);
        let sequence = match file.load(&*self.disk)? {
            Found::Content { sequence, .. } => sequence,
            Found::Nothing | Found::Damaged => 0,
        };
        file.store(&*self.disk, sequence + 1, &text)?;
        // From here on the next start recovers.
        self.cards.store(&Card {
            stage: Stage::Founding,
            node: self.node,
            cluster,
            log: self.card.load().log + 1,
        })?;
        tracing::warn!(event = "cluster_recovering", cluster = %cluster, version = outlook.version);
        Ok(outlook)
    }

    /// Makes the next start of this node follow a member that has recovered the cluster. The caller
    /// stops the node at once.
    ///
    /// # Errors
    /// After an error the node is unchanged.
    pub async fn follow_recovered(
        &self,
        address: SocketAddr,
        name: Option<&str>,
    ) -> Result<Joined, JoinError> {
        let state = self.state.current();
        let follows = Follows {
            cluster: state.id().to_string(),
            version: state.version(),
        };
        let (cluster, by) = self.knock(address, name, Some(follows)).await?;
        let unknown = unknown_state(cluster, self.node, &self.settings.name);
        let shown = Arc::new(kvorum_claimant::ShownState::new(unknown));
        let machine = Arc::new(ClusterMachine::new(shown));
        // Created now for the next start; no node sends it requests before.
        let (card, log) = self.open_next_log(cluster, machine).await?;
        log.stop().await;
        self.cards.store(&card).map_err(JoinError::log)?;
        tracing::warn!(event = "recovery_followed", cluster = %cluster, by = %by);
        Ok(Joined { by })
    }
}
