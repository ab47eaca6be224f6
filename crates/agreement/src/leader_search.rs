//! Finding who leads, when those do not know it who should.
//!
//! Whoever leads says so to the others, where it knows them to be. A node that came back under another
//! address is not told, and the leader that it knew may be gone: so it asks the voters, one after the
//! other, until one leads or has heard of another leader.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use kvorum_runtime::Moment;

use crate::agreement::Agreement;
use crate::asking::ReadPoint;
use crate::raft_types::{MemberId, Metrics};

/// How long one leader is waited for: it asks the voters once, and there may be another one by then.
pub(crate) const LEADER_WAIT: Duration = Duration::from_secs(1);

/// One search; see the module's description.
#[derive(Default)]
pub(crate) struct LeaderSearch {
    /// Who was asked in vain last.
    silent: Option<MemberId>,
    /// Voters asked so far.
    turn: usize,
}

impl LeaderSearch {
    /// Whom to ask next, after `asked` (this node, if none) has said that it does not lead but that
    /// `known` does, if anybody. `None` is this node.
    pub(crate) async fn next(
        &mut self,
        agreement: &Agreement,
        asked: Option<MemberId>,
        known: Option<MemberId>,
        deadline: Moment,
    ) -> Option<MemberId> {
        if asked.is_some() && known.is_none() {
            self.silent = asked;
            // This node may have heard of another one.
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

    /// Asks one more voter who leads, until this node hears of somebody.
    async fn ask_around(&mut self, agreement: &Agreement, deadline: Moment) -> Option<MemberId> {
        let metrics = agreement.raft.metrics().borrow().clone();
        let voters = metrics.membership_config.membership().voter_ids();
        // It may have been the connection.
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
