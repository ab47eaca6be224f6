//! The driver of one transfer: carries out what its machine decides, and reports the end to the agreed
//! log.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use kvorum_backend::PinnedTo;
use kvorum_cluster::{Command, GrowthStep, MoveStep};
use kvorum_vnode::Vnode;
use parking_lot::Mutex;

use crate::cursor_file::Kept;
use crate::errands::{Ended, Errands};
use crate::machine::{Effect, Event, Machine};
use crate::progress::Progress;
use crate::receiving;
use crate::status::{Activity, Observed};
use crate::transfer_id::{Leg, TransferId, TransferKind};
use crate::wire::{Answer, Question};

/// The reason why a repair rests whose sources lack something themselves.
const NO_SOURCE: &str = "no other replica is complete; if none will be, `kvorum admin cluster \
 accept-loss` goes on with the data that is here";

/// A transfer under way.
pub(crate) struct Errand {
    pub(crate) errands: Arc<Errands>,
    pub(crate) id: TransferId,
    pub(crate) legs: Vec<Leg>,
    pub(crate) observed: Arc<Mutex<Observed>>,
}

impl Errand {
    /// Fetches the legs of the transfer, and reports the end.
    pub(crate) async fn run(self) -> Ended {
        let vnode = match self.errands.target(self.id) {
            Ok(vnode) => vnode,
            Err(reason) => return Ended::Resting(reason.into()),
        };
        if !vnode.is_complete() && self.id.kind == TransferKind::Repair && self.lacks_source().await
        {
            return Ended::Resting(NO_SOURCE.into());
        }
        if let Err(reason) = self.take_over_pin(&vnode).await {
            return Ended::Resting(reason);
        }
        // An object that was read elsewhere before a delete must not be merged after the delete is
        // forgotten.
        let _kept = vnode.keep_tombstones();
        let hidden = vnode.hidden_generation();
        let runtime = &self.errands.parts.runtime;
        let kept = self.load().await;
        let mut machine = Machine::new(
            self.id,
            self.legs.clone(),
            kept,
            runtime.random_u64(),
            self.errands.parts.settings,
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
        // An order may have been let in at the source just before it learned of the move.
        if let Err(reason) = self.take_over_pin(&vnode).await {
            self.note(&machine).await;
            return Ended::Resting(reason);
        }
        if let Err(reason) = self.give_up_hidden(vnode, hidden).await {
            return Ended::Resting(reason);
        }
        self.report().await
    }

    /// Removes the vnode's hidden entries, once everything else is here. Not after growth, which fetches
    /// only the keys of some lists.
    async fn give_up_hidden(&self, vnode: Arc<Vnode>, hidden: u64) -> Result<(), String> {
        if self.id.kind == TransferKind::Growth {
            return Ok(());
        }
        let remove = move || vnode.remove_all_hidden(hidden);
        let removed = self.errands.parts.runtime.blocking(remove).await;
        removed.map_err(|failure| failure.to_string())
    }

    /// True when every source lacks something itself, or cannot be asked: all of them together may have
    /// nothing, and the vnode would then answer without the data. Checked before anything is fetched:
    /// an incomplete source may have more later.
    async fn lacks_source(&self) -> bool {
        let parts = &self.errands.parts;
        if !parts.settings.are_stores_kept || self.legs.is_empty() {
            return false;
        }
        let mut sources: Vec<_> = self.legs.iter().map(|leg| leg.source).collect();
        sources.sort_by_key(|source| self.errands.holder(*source) != parts.node);
        for partition in sources {
            let holder = self.errands.holder(partition);
            if holder != parts.node && !(parts.is_up)(holder) {
                continue;
            }
            let question = Question::LacksNothing { partition };
            let answer = self.errands.ask(holder, question).await;
            // An earlier version refuses the question.
            if let Ok(Answer::Knows(true) | Answer::Refused(_)) = answer {
                return false;
            }
        }
        true
    }

    /// Gives the vnode the pin of the partition that moves here. A node with one backend has nothing to
    /// choose; the pin of an owner that is lost is lost with it.
    async fn take_over_pin(&self, vnode: &Arc<Vnode>) -> Result<(), String> {
        let TransferId {
            kind,
            partition,
            epoch,
        } = self.id;
        let has_owner = self.legs.iter().any(|leg| leg.source == partition);
        let has_moves = vnode.store_for_upkeep().moves().is_some();
        if kind != TransferKind::Ownership || !has_owner || !has_moves {
            return Ok(());
        }
        let question = Question::Pin { partition, epoch };
        let holder = self.errands.holder(partition);
        match self.errands.ask(holder, question).await? {
            Answer::Pin(pin) => self.keep_pin(vnode, pin).await,
            // An earlier version refuses the question.
            Answer::Refused(_) => Ok(()),
            Answer::Later { reason, .. } => Err(reason),
            _ => Err("an answer to another question".into()),
        }
    }

    async fn keep_pin(&self, vnode: &Arc<Vnode>, pin: Option<String>) -> Result<(), String> {
        let (vnode, runtime) = (vnode.clone(), &self.errands.parts.runtime);
        let kept = runtime.blocking(move || keep_pin(&vnode, pin.as_deref()));
        let failed = |error| format!("failed to keep the partition's pin: {error}");
        kept.await.map_err(failed)
    }

    /// Waits until the budget admits this number of bytes.
    async fn until_admitted(&self, bytes: u64) {
        loop {
            let wait = self.errands.parts.budget.ask(bytes);
            if wait.is_zero() {
                return;
            }
            self.errands.parts.runtime.sleep(wait).await;
        }
    }

    /// The progress of an earlier run, if it is of the same legs and the same contents.
    async fn load(&self) -> Progress {
        let (files, id) = (self.errands.files.clone(), self.id);
        let kept = self.errands.parts.runtime.blocking(move || files.load(id));
        let vnode = self.errands.parts.vnodes.vnode(self.id.partition);
        // Entries that were here before they were hidden have not been stored again.
        let vnode = vnode.filter(|vnode| !vnode.hides_anything());
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
        let Some(vnode) = self.errands.parts.vnodes.vnode(self.id.partition) else {
            return;
        };
        let kept = Kept {
            id: self.id,
            store: vnode.store_id(),
            progress: machine.progress().clone(),
        };
        self.errands.keep(kept).await;
    }

    fn observe(&self, machine: &Machine) {
        let sizes = machine.sizes();
        let from = machine.leg().map(|leg| self.errands.holder(leg.source));
        let mut observed = self.observed.lock();
        observed.from = from;
        if observed.keys != sizes.keys {
            observed.updated_at = self.errands.parts.runtime.now();
        }
        (observed.keys, observed.bytes) = (sizes.keys, sizes.bytes);
        observed.keys_about = sizes.keys_about;
    }

    async fn perform(&self, machine: &Machine, effect: Effect) -> Event {
        let runtime = &self.errands.parts.runtime;
        match effect {
            Effect::Admit { bytes } => {
                while !self.errands.is_inbound_enabled.load(Ordering::Relaxed) {
                    runtime.sleep(self.errands.parts.settings.retry_pause).await;
                }
                self.until_admitted(bytes).await;
                let state = self.errands.parts.cluster.current();
                let source = machine.leg().map(|leg| state.ring().epoch(leg.source));
                Event::Admitted(source.unwrap_or(self.id.epoch))
            }
            Effect::Ask(question) => {
                let Some(leg) = machine.leg() else {
                    return Event::Go;
                };
                let holder = self.errands.holder(leg.source);
                match self.errands.ask(holder, question).await {
                    Ok(answer) => self.heard(answer),
                    Err(reason) => Event::Unanswered(reason),
                }
            }
            Effect::Store(objects) => {
                let Some(vnode) = self.errands.parts.vnodes.vnode(self.id.partition) else {
                    return Event::NotStored("the partition is not open here any more".into());
                };
                let state = self.errands.parts.cluster.current();
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
            Answer::Knows(_) | Answer::Pin(_) => {
                Event::Unanswered("an answer to another question".into())
            }
        }
    }

    fn hinder(&self, hindrance: Option<String>) {
        if let Some(reason) = &hindrance {
            tracing::debug!(event = "transfer_hindered", transfer = %self.id, reason);
        }
        self.observed.lock().hindrance = hindrance;
    }

    /// Reports in the agreed log that everything is here.
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
                if let Some(vnode) = self.errands.parts.vnodes.vnode(partition) {
                    vnode.mark_complete();
                }
                Command::Move {
                    partition,
                    at,
                    step: MoveStep::Close,
                }
            }
            TransferKind::Growth => Command::Grow {
                from: self.errands.parts.cluster.current().ring().replicas_max(),
                step: GrowthStep::Filled { partition, at },
            },
        };
        self.errands.agree(command).await
    }
}

/// Pins a vnode's store as its partition is pinned elsewhere. Blocks.
fn keep_pin(vnode: &Vnode, pin: Option<&str>) -> kvorum_backend::Result<()> {
    let Some(moves) = vnode.store_for_upkeep().moves() else {
        return Ok(());
    };
    let before = moves.pinned();
    moves.take_over_pin(pin)?;
    let pinned = moves.pinned().filter(|it| !it.is_there);
    if let Some(PinnedTo { name, .. }) = &pinned
        && pinned != before
    {
        tracing::warn!(
            event = "pin_without_backend",
            partition = vnode.partition().number(),
            backend = %name,
            "the partition is pinned to a backend that this node does not have: the properties count here \
             until it is declared",
        );
    }
    Ok(())
}
