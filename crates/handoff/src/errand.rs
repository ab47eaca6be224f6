//! The driver of one transfer, and the small errands around it: reports to the agreed log, and questions
//! whether a source knows.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kvorum_cluster::{Command, GrowthStep, MoveStep, ProposeError};
use kvorum_peer::Lane;
use kvorum_ring::{Epoch, NodeId};
use kvorum_runtime::{PlantedDefect, is_planted};
use parking_lot::Mutex;

use crate::assignment::Settle;
use crate::cursor_file::Kept;
use crate::machine::{Effect, Event, Machine};
use crate::progress::Progress;
use crate::receiving;
use crate::status::{Activity, Observed};
use crate::transfer_id::{Leg, TransferId, TransferKind};
use crate::transfers::Shared;
use crate::wire::{Answer, Question, decode_answer, encode_question};

/// Why a repair rests whose sources lack something themselves.
const NO_SOURCE: &str = "no other replica is there that lacks nothing; if none will be, `kvorum admin cluster accept-loss` goes on with what is here";

/// How an errand ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// There is nothing left to do.
    Done,
    /// It did not get on, and lets others have their turn.
    Resting(String),
}

/// A transfer under way.
pub(crate) struct Errand {
    pub(crate) shared: Arc<Shared>,
    pub(crate) id: TransferId,
    pub(crate) legs: Vec<Leg>,
    pub(crate) observed: Arc<Mutex<Observed>>,
}

impl Errand {
    /// Fetches what there is to fetch, and reports it.
    pub(crate) async fn run(self) -> Ended {
        let vnode = match self.shared.target(self.id) {
            Ok(vnode) => vnode,
            Err(reason) => return Ended::Resting(reason.into()),
        };
        if !vnode.is_complete() && self.id.kind == TransferKind::Repair && self.lacks_source().await
        {
            return Ended::Resting(NO_SOURCE.into());
        }
        // What was read elsewhere before a delete must not be merged after the delete is forgotten.
        let _kept = vnode.keep_tombstones();
        let runtime = &self.shared.parts.runtime;
        let kept = self.load().await;
        let mut machine = Machine::new(
            self.id,
            self.legs.clone(),
            kept,
            runtime.random_u64(),
            self.shared.parts.settings,
            self.shared.defects,
            runtime.now(),
        );
        let mut event = Event::Go;
        loop {
            let effect = machine.step(event, runtime.now());
            self.observe(&machine);
            event = match effect {
                Effect::Finish => break,
                Effect::Rest(reason) => {
                    if machine.has_news() {
                        self.note(&machine).await;
                    }
                    return Ended::Resting(reason);
                }
                effect => self.perform(&machine, effect).await,
            };
        }
        if machine.unpaid() > 0 {
            self.until_admitted(machine.unpaid()).await;
        }
        self.report().await
    }

    /// True when every source lacks something itself, or cannot be asked: what they have between them may be
    /// nothing, and would be answered with from then on. Before anything is fetched: what a source had while
    /// it lacked something is not all that it has when that is over.
    async fn lacks_source(&self) -> bool {
        let parts = &self.shared.parts;
        if !parts.settings.are_stores_kept || self.legs.is_empty() {
            return false;
        }
        let mut sources: Vec<_> = self.legs.iter().map(|leg| leg.source).collect();
        sources.sort_by_key(|source| self.shared.holder(*source) != parts.node);
        for partition in sources {
            let holder = self.shared.holder(partition);
            if holder != parts.node && !(parts.is_up)(holder) {
                continue;
            }
            let question = Question::LacksNothing { partition };
            let answer = self.shared.ask(holder, question).await;
            // An earlier version does not know.
            if let Ok(Answer::Knows(true) | Answer::Refused(_)) = answer {
                return false;
            }
        }
        true
    }

    /// Waits until the budget admits this number of bytes.
    async fn until_admitted(&self, bytes: u64) {
        loop {
            let wait = self.shared.parts.budget.ask(bytes);
            if wait.is_zero() {
                return;
            }
            self.shared.parts.runtime.sleep(wait).await;
        }
    }

    /// What is kept of an earlier run, if it is of the same legs and the same contents.
    async fn load(&self) -> Progress {
        let (files, id) = (self.shared.files.clone(), self.id);
        let kept = self.shared.parts.runtime.blocking(move || files.load(id));
        let vnode = self.shared.parts.vnodes.vnode(self.id.partition);
        let store = vnode.map(|vnode| vnode.store_id());
        let none = Progress::none(&self.legs);
        let is_same = |kept: &Kept| {
            let sources = kept.progress.legs.iter().map(|leg| leg.source);
            Some(kept.store) == store && sources.eq(self.legs.iter().map(|leg| leg.source))
        };
        let kept = kept.await.filter(is_same);
        kept.map_or(none, |kept| kept.progress)
    }

    /// Notes how far it has come; failing costs time alone.
    async fn note(&self, machine: &Machine) {
        let Some(vnode) = self.shared.parts.vnodes.vnode(self.id.partition) else {
            return;
        };
        let kept = Kept {
            id: self.id,
            store: vnode.store_id(),
            progress: machine.progress().clone(),
        };
        self.shared.keep(kept).await;
    }

    fn observe(&self, machine: &Machine) {
        let sizes = machine.sizes();
        let from = machine.leg().map(|leg| self.shared.holder(leg.source));
        let mut observed = self.observed.lock();
        observed.from = from;
        if observed.keys != sizes.keys {
            observed.updated_at = self.shared.parts.runtime.now();
        }
        (observed.keys, observed.bytes) = (sizes.keys, sizes.bytes);
        observed.keys_about = sizes.keys_about;
    }

    async fn perform(&self, machine: &Machine, effect: Effect) -> Event {
        let runtime = &self.shared.parts.runtime;
        match effect {
            Effect::Admit { bytes } => {
                while !self.shared.is_inbound_enabled.load(Ordering::Relaxed) {
                    runtime.sleep(self.shared.parts.settings.retry_pause).await;
                }
                self.until_admitted(bytes).await;
                let state = self.shared.parts.cluster.current();
                let source = machine.leg().map(|leg| state.ring().epoch(leg.source));
                Event::Admitted(source.unwrap_or(self.id.epoch))
            }
            Effect::Ask(question) => {
                let Some(leg) = machine.leg() else {
                    return Event::Go;
                };
                let holder = self.shared.holder(leg.source);
                match self.shared.ask(holder, question).await {
                    Ok(answer) => self.heard(answer),
                    Err(reason) => Event::Unanswered(reason),
                }
            }
            Effect::Store(objects) => {
                let Some(vnode) = self.shared.parts.vnodes.vnode(self.id.partition) else {
                    return Event::NotStored("the partition is not open here any more".into());
                };
                let state = self.shared.parts.cluster.current();
                match receiving::store(runtime, vnode, state, objects).await {
                    Ok(()) => Event::Stored,
                    Err(reason) => Event::NotStored(reason),
                }
            }
            Effect::Note => {
                self.note(machine).await;
                Event::Noted
            }
            Effect::Pause(wait, hindrance) => {
                if hindrance.is_some() {
                    self.hinder(hindrance);
                }
                runtime.sleep(wait).await;
                Event::Go
            }
            Effect::Rest(_) | Effect::Finish => Event::Go,
        }
    }

    fn heard(&self, answer: Answer) -> Event {
        match answer {
            Answer::Page(page) => {
                self.hinder(None);
                Event::Page(page)
            }
            Answer::Piece {
                session,
                offset,
                bytes,
            } => Event::Piece {
                session,
                offset,
                bytes,
            },
            Answer::UnknownSession => Event::SessionUnknown,
            Answer::Later { wait, reason } => {
                self.hinder(Some(reason.clone()));
                Event::Later { wait, reason }
            }
            Answer::Refused(reason) => Event::Unanswered(reason),
            Answer::Knows(_) => Event::Unanswered("an answer to another question".into()),
        }
    }

    fn hinder(&self, hindrance: Option<String>) {
        if let Some(reason) = &hindrance {
            tracing::debug!(event = "transfer_hindered", transfer = %self.id, reason);
        }
        self.observed.lock().hindrance = hindrance;
    }

    /// Everything is here: says so where it matters.
    async fn report(&self) -> Ended {
        self.observed.lock().activity = Activity::Reporting;
        let TransferId {
            kind,
            partition,
            epoch: at,
        } = self.id;
        let command = match kind {
            TransferKind::Repair => return Ended::Done,
            TransferKind::Ownership => {
                if let Some(vnode) = self.shared.parts.vnodes.vnode(partition) {
                    vnode.mark_complete();
                }
                Command::Move {
                    partition,
                    at,
                    step: MoveStep::Close,
                }
            }
            TransferKind::Growth => Command::Grow {
                from: self.shared.parts.cluster.current().ring().replicas_max(),
                step: GrowthStep::Filled { partition, at },
            },
        };
        self.shared.agree(command).await
    }
}

impl Shared {
    /// Has a step agreed on, however long that takes; a step that does not fit any more is done.
    async fn agree(&self, command: Command) -> Ended {
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

    /// Has a move settled once its source knows that it closes.
    pub(crate) async fn settle(self: Arc<Self>, settle: Settle) -> Ended {
        let Settle {
            partition, epoch, ..
        } = settle;
        if let Some(source) = settle.source {
            let question = Question::Knows { partition, epoch };
            let is_early = is_planted(PlantedDefect::MoveSettledEarly);
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

    /// Says that this node knows that a change of the number of replicas closes, once its vnodes do.
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

    /// Who has a partition in full at present.
    pub(crate) fn holder(&self, partition: kvorum_ring::Partition) -> NodeId {
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
        let answer = asked.await.map_err(|error| error.to_string())?;
        decode_answer(&answer).map_err(|error| {
            tracing::warn!(event = "transfer_answer_malformed", node = %node, error = %error);
            error.to_string()
        })
    }

    pub(crate) async fn keep(&self, kept: Kept) {
        let files = self.files.clone();
        let kept = self.parts.runtime.blocking(move || files.keep(&kept)).await;
        if let Err(error) = kept {
            tracing::warn!(event = "transfer_cursor_not_kept", error = %error);
        }
    }
}
