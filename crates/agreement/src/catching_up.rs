//! Catching up with all agreed entries, for callers that must not read an older state.
//!
//! A majority confirms the leader, and the leader replies with the end of the log; then the machine
//! here applies entries up to that end. No proposal is needed, since nothing is written. A caller
//! that cannot wait for a leader receives the age of the last contact with one: the machine's state
//! is at most that old.

use std::time::Duration;

use kvorum_runtime::Moment;
use openraft::error::{CheckIsLeaderError, RaftError};
use openraft::raft::AppendEntriesResponse;

use crate::agreement::{Agreement, RETRY_PAUSE};
use crate::asking::{self, Call, ReadPoint};
use crate::error::AgreementError;
use crate::leader_search::{LEADER_WAIT, LeaderSearch};
use crate::raft_runtime::within;
use crate::raft_types::MemberId;

impl Agreement {
    /// Waits, at most until `deadline`, until the machine here has applied all entries that were
    /// agreed on any node at the time of the call.
    pub async fn catch_up(&self, deadline: Moment) -> Result<(), AgreementError> {
        let caught_up = within(self.runtime.clone(), self.catch_up_within(deadline));
        self.until(deadline, caught_up).await
    }

    async fn catch_up_within(&self, deadline: Moment) -> Result<(), AgreementError> {
        let (mut leader, mut search) = (None, LeaderSearch::default());
        loop {
            let asked = leader.filter(|leader| *leader != MemberId::from(self.node));
            let point = match asked {
                None => self.read_point_here().await,
                Some(leader) => self.read_point_of(leader, deadline).await,
            };
            match point {
                ReadPoint::At { index: None } => return Ok(()),
                ReadPoint::At { index: Some(index) } => {
                    return self.until_applied(index, deadline).await;
                }
                ReadPoint::NotLeading { leader: known } => {
                    leader = search.next(self, asked, known, deadline).await;
                    self.runtime.sleep(RETRY_PAUSE).await;
                }
                ReadPoint::Failed(detail) => return Err(AgreementError::Stopped { detail }),
            }
        }
    }

    pub(crate) async fn read_point_here(&self) -> ReadPoint {
        match self.raft.get_read_log_id().await {
            Ok((point, _)) => ReadPoint::At {
                index: point.map(|point| point.index),
            },
            Err(RaftError::APIError(CheckIsLeaderError::ForwardToLeader(forward))) => {
                ReadPoint::NotLeading {
                    leader: forward.leader_id,
                }
            }
            Err(RaftError::APIError(CheckIsLeaderError::QuorumNotEnough(_))) => {
                ReadPoint::NotLeading { leader: None }
            }
            Err(error) => ReadPoint::Failed(error.to_string()),
        }
    }

    pub(crate) async fn read_point_of(&self, leader: MemberId, deadline: Moment) -> ReadPoint {
        let wait = deadline.since(self.runtime.now()).min(LEADER_WAIT);
        let asked = asking::ask(&self.runtime, &self.peers, leader.into(), &Call::Read, wait);
        asked.await.unwrap_or_else(|error| {
            tracing::debug!(event = "read_point_unanswered", leader = %leader, error = %error);
            ReadPoint::NotLeading { leader: None }
        })
    }

    /// Records that this node follows a leader at present.
    pub(crate) fn note_heard<E>(&self, answered: &Result<AppendEntriesResponse<MemberId>, E>) {
        if matches!(
            answered,
            Ok(AppendEntriesResponse::Success | AppendEntriesResponse::PartialSuccess(_))
        ) {
            *self.heard.lock() = Some(self.runtime.now());
        }
    }

    /// Time since this node last had the state of a majority, as a follower or as a leader with a
    /// majority. `None` if it has not had it since its start.
    pub fn behind_at_most(&self) -> Option<Duration> {
        let followed = *self.heard.lock();
        let followed = followed.map(|heard| self.runtime.now().since(heard));
        let led = self.raft.metrics().borrow().millis_since_quorum_ack;
        let led = led.map(Duration::from_millis);
        followed.into_iter().chain(led).min()
    }
}
