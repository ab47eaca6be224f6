//! The search for the leader, by a node that the leader cannot reach.
//!
//! A leader announces itself at the addresses in its state. A node that came back under another
//! address does not receive the announcement, and its last leader may be gone. So the node asks the
//! voters, one after the other, until one leads or names another leader.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use kvorum_runtime::Moment;

use crate::agreement::Agreement;
use crate::asking::ReadPoint;
use crate::raft_types::{MemberId, Metrics};

/// Time to wait for the answer of one leader. The leader asks the voters once, and another leader
/// may be elected meanwhile.
pub(crate) const LEADER_WAIT: Duration = Duration::from_secs(1);

/// One search; see the module's description.
#[derive(Default)]
pub(crate) struct LeaderSearch {
    /// The last node that was asked in vain.
    silent: Option<MemberId>,
    /// Voters asked so far.
    turn: usize,
}

impl LeaderSearch {
    /// The node to ask next; `None` means this node. `asked` (this node, if none) does not lead;
    /// `known` is the leader that it named, if any.
    pub(crate) async fn next(
        &mut self,
        agreement: &Agreement,
        asked: Option<MemberId>,
        known: Option<MemberId>,
        deadline: Moment,
    ) -> Option<MemberId> {
        if asked.is_some() && known.is_none() {
            self.silent = asked;
            // This node may have a new leader by now.
            return None;
        }
        match self.news(known) {
            Some(known) => Some(known),
            None => self.ask_around(agreement, deadline).await,
        }
    }

    fn news(&self, leader: Option<MemberId>) -> Option<MemberId> {
        leader.filter(|_| leader != self.silent)
    }

    /// Asks one more voter for the leader, unless this node finds a leader meanwhile.
    async fn ask_around(&mut self, agreement: &Agreement, deadline: Moment) -> Option<MemberId> {
        let metrics = agreement.raft.metrics().borrow().clone();
        let voters = metrics.membership_config.membership().voter_ids();
        // Only the connection may have failed.
        let again = self.silent.into_iter();
        let others: Vec<MemberId> = again
            .chain(voters)
            .filter(|it| *it != MemberId::from(agreement.node))
            .collect();
        let voter = *others.get(self.turn % others.len().max(1))?;
        self.turn += 1;
        let before = metrics.current_leader;
        let is_news = move |it: &Metrics| it.current_leader.is_some_and(|it| Some(it) != before);
        let heard = agreement
            .progress
            .until(&agreement.runtime, LEADER_WAIT, is_news);
        let asked = agreement.read_point_of(voter, deadline);
        match select(pin!(asked), pin!(heard)).await {
            Either::Left((ReadPoint::At { .. }, _)) => Some(voter),
            Either::Left((ReadPoint::NotLeading { leader }, _)) => self.news(leader),
            Either::Left((ReadPoint::Failed(_), _)) | Either::Right(_) => None,
        }
    }
}
