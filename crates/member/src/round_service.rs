//! The answers of a member to the questions of rounds, and its way to ask others (decision 37).
//!
//! A member that settles waits for its own work first. Then it asks each other member, behind all that it has
//! asked on a lane before: so every message still on its way has reached that member, or will never be
//! accepted. The other member ends older connections of this one, from which it might still read, and waits
//! for the work that it has begun.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use kvorum_claimant::ReplicatedState;
use kvorum_cluster::{AgreedState as _, Command};
use kvorum_coordinator::{LocalVnodes as _, UnderWay, VnodeHints};
use kvorum_exchanges::{
    AskedRound, RoundAnswer, RoundMeans, RoundQuestion, RoundStep, list_to_reap,
};
use kvorum_peer::{Caller, Lane, Peers};
use kvorum_reaping::KeptBecause;
use kvorum_ring::{NodeId, Partition};
use kvorum_runtime::Runtime;
use kvorum_vnode::{Vnode, fold_clock};

use crate::operations::{self, AnswersRounds, Operation, Outcome};
use crate::round_lists::lists_of;
use crate::vnode_table::VnodeTable;

/// Time for the agreed state of a majority to come here.
const LEARN_WAIT: Duration = Duration::from_secs(5);
/// Time for this node's work, and for that of another, to end.
const SETTLE_WAIT: Duration = Duration::from_secs(90);

/// Lanes whose messages may carry objects.
const LANES: [Lane; 2] = [Lane::Requests, Lane::Bulk];

/// See the module's description.
#[derive(Clone)]
pub(crate) struct RoundService {
    pub(crate) runtime: Runtime,
    pub(crate) node: NodeId,
    pub(crate) state: ReplicatedState,
    pub(crate) vnodes: Arc<VnodeTable>,
    pub(crate) hints: Arc<VnodeHints>,
    pub(crate) peers: Peers,
    pub(crate) under_way: Arc<UnderWay>,
}

impl RoundService {
    async fn answer_to(&self, question: RoundQuestion) -> RoundAnswer {
        match question.step {
            RoundStep::Open(_) | RoundStep::Confirm(_) | RoundStep::Reap(_) => {
                self.learn().await?;
                self.blocking(question).await
            }
            RoundStep::ConfirmHints => {
                self.learn().await?;
                self.blocking(question).await
            }
            RoundStep::Settle => self.settle().await,
            RoundStep::Hints | RoundStep::HintsAgain | RoundStep::Note(_) => {
                self.blocking(question).await
            }
        }
    }

    /// Waits until all work of this member that is under way has ended, here and at other members.
    async fn settle(&self) -> RoundAnswer {
        let settled = async {
            self.under_way.settle(&self.runtime).await;
            let state = self.state.current();
            for member in state.members().keys().filter(|it| **it != self.node) {
                for lane in LANES {
                    self.settle_at(*member, lane).await?;
                }
            }
            Ok(0)
        };
        let settled = self.runtime.timeout(SETTLE_WAIT, settled).await;
        settled.unwrap_or(Err(KeptBecause::RequestsUnderWay))
    }

    async fn settle_at(&self, member: NodeId, lane: Lane) -> Result<(), KeptBecause> {
        let deadline = self.runtime.now().plus(SETTLE_WAIT);
        let message = operations::encode(&Operation::SettleReceived);
        let asked = self.peers.request_behind(member, lane, message, deadline);
        let answer = asked.await.ok();
        let outcome = answer.and_then(|it| operations::decode(&it).ok());
        match outcome {
            Some(Outcome::Done) => Ok(()),
            _ => Err(KeptBecause::RequestsUnderWay),
        }
    }

    /// Waits until this node has learned all that was agreed by now.
    async fn learn(&self) -> Result<(), KeptBecause> {
        let newest = self.state.newest(LEARN_WAIT).await;
        newest.map(|_| ()).map_err(|_| KeptBecause::OtherWatermark)
    }

    async fn blocking(&self, question: RoundQuestion) -> RoundAnswer {
        let service = self.clone();
        let answer = move || service.answer_blocking(question);
        self.runtime.blocking(answer).await
    }

    fn answer_blocking(&self, question: RoundQuestion) -> RoundAnswer {
        let RoundQuestion { list, round, step } = question;
        match step {
            RoundStep::Open(partition) => {
                let now = self.runtime.now().elapsed();
                let opened = self.vnode(partition)?.open_round(list, round, now);
                opened.map(|it| it.0)
            }
            RoundStep::Note(partition) => {
                let noted = self.vnode(partition)?.note_round(list, round);
                noted.map(|()| 0)
            }
            RoundStep::Confirm(partition) => {
                let confirmed = self.vnode(partition)?.confirm_round(list, round);
                confirmed.map(|()| 0)
            }
            RoundStep::Reap(partition) => {
                let vnode = self.vnode(partition)?;
                vnode.allow_reaping(list, round)?;
                self.reap(&vnode)
            }
            RoundStep::Hints => {
                let noted = self.hints.note_if_none(list, round);
                noted.map_err(|_| KeptBecause::HintsUnknown)
            }
            RoundStep::HintsAgain => {
                let still_none = self.hints.has_still_none(list, round);
                still_none.map(|()| 0)
            }
            RoundStep::ConfirmHints => {
                let state = self.state.current();
                let learned = state.watermark(list);
                let confirmed = self.hints.confirm_round(list, learned, round);
                confirmed.map(|()| 0)
            }
            RoundStep::Settle => Err(KeptBecause::RequestsUnderWay),
        }
    }

    /// The vnode of a partition, which has learned what this node has.
    fn vnode(&self, number: u16) -> Result<Arc<Vnode>, KeptBecause> {
        let partition = Partition::of_number(number).ok_or(KeptBecause::ReplicaDown)?;
        let vnode = self.vnodes.vnode(partition);
        let vnode = vnode.ok_or(KeptBecause::ReplicaDown)?;
        for list in lists_of(&self.state.current(), partition) {
            let followed = vnode.follow_list(list);
            followed.map_err(|_| KeptBecause::NotNoted)?;
        }
        Ok(vnode)
    }

    /// Removes the tombstones of a vnode that may go, by the agreed state of the moment.
    fn reap(&self, vnode: &Vnode) -> RoundAnswer {
        let epoch = self.state.current().ring().epoch(vnode.partition());
        let clock = fold_clock(self.runtime.clock());
        let list_of = |key: &_| list_to_reap(&self.state.look(), key);
        let reaped = vnode.reap_all(epoch, &clock, &list_of);
        reaped.map_err(|failure| {
            let partition = vnode.partition().number();
            tracing::warn!(event = "tombstones_not_reaped", partition, error = %failure);
            KeptBecause::ReplicaDown
        })
    }
}

impl AnswersRounds for RoundService {
    fn answer(&self, question: RoundQuestion) -> AskedRound {
        let service = self.clone();
        Box::pin(async move { service.answer_to(question).await })
    }

    fn settle_for(&self, caller: Caller) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let service = self.clone();
        Box::pin(async move {
            service.peers.end_older(caller).await;
            service.under_way.settle(&service.runtime).await;
        })
    }
}

impl RoundMeans for RoundService {
    fn ask(&self, node: NodeId, question: RoundQuestion) -> AskedRound {
        let service = self.clone();
        Box::pin(async move {
            if node == service.node {
                return service.answer_to(question).await;
            }
            let RoundService { runtime, peers, .. } = &service;
            let operation = Operation::Round(question);
            let asked = operations::ask(runtime, peers, node, &operation);
            match asked.await {
                Ok(Outcome::Round(answer)) => answer,
                _ => Err(KeptBecause::ReplicaDown),
            }
        })
    }

    fn agree(&self, command: Command) -> Pin<Box<dyn Future<Output = bool> + Send>> {
        let state = self.state.clone();
        Box::pin(async move { state.agree(command).await.is_ok() })
    }
}
