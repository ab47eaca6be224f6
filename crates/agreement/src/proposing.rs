//! Proposals of commands to the agreed log, on the node that leads.

use std::pin::pin;

use futures_util::future::{Either, select};
use kvorum_runtime::Moment;
use openraft::error::{ClientWriteError, RaftError};

use crate::agreement::{Agreement, RETRY_PAUSE};
use crate::asking::{self, Call, Proposed};
use crate::error::AgreementError;
use crate::leader_search::LeaderSearch;
use crate::raft_runtime::within;
use crate::raft_types::{MemberId, Metrics, Proposal};

impl Agreement {
    /// Puts a command into the log and waits, at most until `deadline`, until it is agreed and applied
    /// here; returns the machine's outcome.
    pub async fn propose(
        &self,
        command: String,
        deadline: Moment,
    ) -> Result<String, AgreementError> {
        let proposal = within(self.runtime.clone(), self.propose_within(command, deadline));
        self.until(deadline, proposal).await
    }

    async fn propose_within(
        &self,
        command: String,
        deadline: Moment,
    ) -> Result<String, AgreementError> {
        let (mut leader, mut search) = (None, LeaderSearch::default());
        loop {
            let asked = leader.filter(|leader| *leader != MemberId::from(self.node));
            let proposed = match asked {
                None => self.propose_here(command.clone()).await,
                Some(leader) => self.propose_to(leader, command.clone(), deadline).await,
            };
            match proposed {
                Proposed::Agreed { index, outcome } => {
                    self.until_applied(index, deadline).await?;
                    return Ok(outcome);
                }
                Proposed::NotLeading { leader: known } => {
                    leader = search.next(self, asked, known, deadline).await;
                    self.runtime.sleep(RETRY_PAUSE).await;
                }
                Proposed::Failed(detail) => return Err(AgreementError::Stopped { detail }),
            }
        }
    }

    pub(crate) async fn propose_here(&self, command: String) -> Proposed {
        match self.raft.client_write(Proposal(command)).await {
            Ok(written) => Proposed::Agreed {
                index: written.log_id.index,
                outcome: written.data.0,
            },
            Err(RaftError::APIError(ClientWriteError::ForwardToLeader(forward))) => {
                Proposed::NotLeading {
                    leader: forward.leader_id,
                }
            }
            Err(error) => Proposed::Failed(error.to_string()),
        }
    }

    /// Asks the leader, and gives up when this node finds another leader: the old one may not
    /// answer any more.
    async fn propose_to(&self, leader: MemberId, command: String, deadline: Moment) -> Proposed {
        let wait = deadline.since(self.runtime.now());
        let call = Call::Propose(command);
        let asked = asking::ask(&self.runtime, &self.peers, leader.into(), &call, wait);
        let before = self.raft.metrics().borrow().current_leader;
        let is_other = move |now| now != leader && Some(now) != before;
        let is_replaced = |it: &Metrics| it.current_leader.is_some_and(is_other);
        let replaced = self.progress.until(&self.runtime, wait, is_replaced);
        let proposed = match select(pin!(asked), pin!(replaced)).await {
            Either::Left((proposed, _)) => proposed,
            Either::Right(_) => return Proposed::NotLeading { leader: None },
        };
        proposed.unwrap_or_else(|error| {
            tracing::debug!(event = "proposal_unanswered", leader = %leader, error = %error);
            Proposed::NotLeading { leader: None }
        })
    }
}
