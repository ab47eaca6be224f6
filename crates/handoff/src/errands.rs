//! Small errands around transfers: steps for the agreed log, questions to other nodes, and notes of
//! the progress of transfers.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use kvorum_cluster::{Command, GrowthStep, MoveStep, ProposeError};
use kvorum_coordinator::LocalVnodes;
use kvorum_disk::Disk;
use kvorum_peer::{Lane, PeerError, Peers};
use kvorum_planted_defects::is_planted;
use kvorum_ring::{Epoch, NodeId, Partition};
use kvorum_runtime::Runtime;
use kvorum_vnode::Vnode;

use crate::agreed_cluster::AgreedCluster;
use crate::assignment::Settle;
use crate::cursor_file::{CursorFiles, Kept};
use crate::settings::{Budget, TransferSettings};
use crate::source::Source;
use crate::transfer_id::{TransferId, TransferKind};
use crate::wire::{Answer, Question, decode_answer, encode_question};

/// The parts of transfers.
pub struct Parts {
    /// This node.
    pub node: NodeId,
    /// Clock, tasks and the blocking pool.
    pub runtime: Runtime,
    /// The disk for the progress of transfers.
    pub disk: Arc<dyn Disk>,
    /// The transfers' own directory.
    pub directory: PathBuf,
    /// The connections to other nodes.
    pub peers: Peers,
    /// The agreed state.
    pub cluster: Arc<dyn AgreedCluster>,
    /// True for a node that counts as up; other nodes are not asked.
    pub is_up: Arc<dyn Fn(NodeId) -> bool + Send + Sync>,
    /// This node's vnodes, including vnodes that are being filled.
    pub vnodes: Arc<dyn LocalVnodes>,
    /// The limit on their rate.
    pub budget: Arc<dyn Budget>,
    /// Their settings.
    pub settings: TransferSettings,
}

/// The end of an errand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// There is nothing left to do.
    Done,
    /// The errand made no progress, and gives up its turn.
    Resting(String),
}

/// See the module's description.
pub(crate) struct Errands {
    pub(crate) parts: Parts,
    pub(crate) files: CursorFiles,
    pub(crate) source: Source,
    pub(crate) is_inbound_enabled: AtomicBool,
    /// Questions without an answer in time.
    pub(crate) timed_out: AtomicU64,
}

impl Errands {
    /// The vnode that a transfer fills, or the reason why it cannot be filled yet.
    pub(crate) fn target(&self, id: TransferId) -> Result<Arc<Vnode>, &'static str> {
        let vnode = self.parts.vnodes.vnode(id.partition);
        let vnode = vnode.ok_or("the partition is not open here yet")?;
        // From here on this node refuses anything older than the move.
        if id.kind != TransferKind::Repair && vnode.status().epoch < id.epoch {
            return Err("the vnode here has not learned of it yet");
        }
        Ok(vnode)
    }

    /// Proposes a step until it is agreed; a step that is refused counts as done.
    pub(crate) async fn agree(&self, command: Command) -> Ended {
        loop {
            match self.parts.cluster.agree(command.clone()).await {
                Ok(()) => return Ended::Done,
                Err(ProposeError::Refused(refusal)) => {
                    tracing::debug!(event = "transfer_step_refused", reason = %refusal);
                    return Ended::Done;
                }
                Err(error) => {
                    tracing::warn!(event = "transfer_step_not_agreed", error = error.in_full());
                    let pause = self.parts.settings.retry_pause;
                    self.parts.runtime.sleep(pause).await;
                }
            }
        }
    }

    /// Settles a move once its source has applied the closing.
    pub(crate) async fn settle(self: Arc<Self>, settle: Settle) -> Ended {
        let Settle {
            partition, epoch, ..
        } = settle;
        if let Some(source) = settle.source {
            let question = Question::Knows { partition, epoch };
            let is_early = is_planted!(MoveSettledEarly);
            while !is_early && !self.is_known(source, question.clone()).await {
                let pause = self.parts.settings.retry_pause;
                self.parts.runtime.sleep(pause).await;
            }
        }
        let step = MoveStep::Settle;
        let at = epoch;
        let command = Command::Move {
            partition,
            at,
            step,
        };
        self.agree(command).await
    }

    async fn is_known(&self, source: NodeId, question: Question) -> bool {
        matches!(self.ask(source, question).await, Ok(Answer::Knows(true)))
    }

    /// Confirms the closing phase of a change of the number of replicas, once all vnodes of this
    /// node have it.
    pub(crate) async fn know(self: Arc<Self>, at: Epoch) -> Ended {
        let node = self.parts.node;
        loop {
            let state = self.parts.cluster.current();
            let ring = state.ring();
            let behind = ring.owned_by(node).any(|partition| {
                let vnode = self.parts.vnodes.vnode(partition);
                vnode.is_some_and(|vnode| vnode.status().epoch < ring.epoch(partition))
            });
            if !behind {
                let step = GrowthStep::Known { node, at };
                let from = ring.replicas_max();
                return self.agree(Command::Grow { from, step }).await;
            }
            let pause = self
                .parts
                .settings
                .retry_pause
                .min(Duration::from_millis(50));
            self.parts.runtime.sleep(pause).await;
        }
    }

    /// The node that has the whole partition at present.
    pub(crate) fn holder(&self, partition: Partition) -> NodeId {
        self.parts.cluster.current().ring().reader(partition)
    }

    /// Asks a node, which may be this one.
    pub(crate) async fn ask(&self, node: NodeId, question: Question) -> Result<Answer, String> {
        let parts = &self.parts;
        let deadline = parts.runtime.now().plus(parts.settings.answer_wait_max);
        if node == parts.node {
            return Ok(self.source.answer(node, question, deadline).await);
        }
        let message = encode_question(&question);
        let asked = parts.peers.request(node, Lane::Bulk, message, deadline);
        let answer = asked.await.map_err(|error| {
            if matches!(error, PeerError::Timeout { .. }) {
                self.timed_out.fetch_add(1, Ordering::Relaxed);
            }
            error.to_string()
        })?;
        decode_answer(&answer).map_err(|error| {
            tracing::warn!(event = "transfer_answer_malformed", node = %node, error = %error);
            error.to_string()
        })
    }

    /// Notes the progress of a transfer.
    pub(crate) async fn keep(&self, kept: Kept) {
        let files = self.files.clone();
        let kept = self.parts.runtime.blocking(move || files.keep(&kept)).await;
        if let Err(error) = kept {
            tracing::warn!(event = "transfer_cursor_not_kept", error = %error);
        }
    }
}
