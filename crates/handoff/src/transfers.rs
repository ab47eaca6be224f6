//! All transfers of one node. As the agreed state changes, wanted transfers begin and others end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use futures_util::future::{Either, select};
use kvorum_cluster::ClusterState;
use kvorum_disk::{DiskError, create_directory_durably};
use kvorum_peer::{Caller, Message, Served};
use kvorum_planted_defects::is_planted;
use kvorum_ring::{Epoch, NodeId, Partition, Phase, Ring};
use kvorum_runtime::{Moment, TaskGuard};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::assignment::{Assignment, Settle};
use crate::cursor_file::{CursorFiles, Kept};
use crate::errand::Errand;
use crate::errands::{Ended, Errands, Parts};
use crate::legs::LegBook;
use crate::progress::Progress;
use crate::sessions::Sessions;
use crate::source::{SILENCE_MAX, Source};
use crate::status::{Observed, OutboundStatus, TransferCounts, TransfersStatus, waiting};
use crate::transfer_id::{Leg, TransferId, TransferKind};
use crate::turns::Turns;
use crate::wire::{Answer, SERVICE, decode_question, encode_answer};

/// The owner of all partitions while the agreed state is not known yet.
const NO_NODE: NodeId = NodeId::from_bytes([0; 16]);

/// A direction of transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From other nodes to this node.
    Inbound,
    /// From this node to other nodes.
    Outbound,
}

/// The reason why a partition is not repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RepairRefused {
    /// This node does not own the partition: ask its owner.
    #[error("partition {} belongs to another node", partition.number())]
    NotOwned {
        /// The partition.
        partition: Partition,
    },
    /// The partition moves, or the number of replicas changes: missing keys arrive with the change,
    /// or with a later repair.
    #[error("partition {} moves", partition.number())]
    Moving {
        /// The partition.
        partition: Partition,
    },
}

/// All transfers of a node. Cheap to clone.
#[derive(Clone)]
pub struct Transfers {
    shared: Arc<Shared>,
}

struct Shared {
    errands: Arc<Errands>,
    work: Mutex<Work>,
    /// Notified of changes that may let a transfer begin or end.
    news: Notify,
}

/// A task besides fetching.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Chore {
    Settle(Partition, Epoch),
    Know(Epoch),
}

#[derive(Default)]
struct Work {
    running: BTreeMap<TransferId, Running>,
    chores: BTreeMap<Chore, TaskGuard<()>>,
    turns: Turns,
    book: LegBook,
    /// Number of open vnodes at the last look.
    open: usize,
    repairs: BTreeSet<TransferId>,
    /// The wanted transfers of the last state.
    wanted: BTreeMap<TransferId, Vec<Leg>>,
    /// Transfers that may have a file.
    kept: BTreeSet<TransferId>,
    /// The ring of the last state.
    ring: Option<Arc<Ring>>,
}

struct Running {
    _task: TaskGuard<()>,
    observed: Arc<Mutex<Observed>>,
}

impl Transfers {
    /// The transfers of a node. Once [`Transfers::run`] runs, they continue where the node stopped.
    pub fn new(parts: Parts) -> Result<Self, DiskError> {
        create_directory_durably(&*parts.disk, &parts.directory)?;
        let files = CursorFiles {
            disk: parts.disk.clone(),
            directory: parts.directory.clone(),
        };
        let kept: BTreeSet<TransferId> = files.all()?.into_iter().collect();
        let is_repair = |id: &&TransferId| id.kind == TransferKind::Repair;
        let work = Work {
            repairs: kept.iter().filter(is_repair).copied().collect(),
            kept,
            ..Work::default()
        };
        let source = Source {
            runtime: parts.runtime.clone(),
            cluster: parts.cluster.clone(),
            vnodes: parts.vnodes.clone(),
            budget: parts.budget.clone(),
            is_enabled: AtomicBool::new(parts.settings.is_outbound_enabled),
            transfers_max: AtomicUsize::new(parts.settings.transfers_max),
            sessions: Mutex::new(Sessions::default()),
            rejected: AtomicU64::new(0),
            unpaid: AtomicU64::new(0),
        };
        let errands = Errands {
            is_inbound_enabled: AtomicBool::new(parts.settings.is_inbound_enabled),
            timed_out: AtomicU64::new(0),
            parts,
            files,
            source,
        };
        let shared = Shared {
            errands: Arc::new(errands),
            work: Mutex::new(work),
            news: Notify::new(),
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// Carries out the agreed state, for as long as it is polled.
    pub async fn run(&self) {
        let shared = &self.shared;
        let settings = shared.errands.parts.settings;
        loop {
            let state = shared.errands.parts.cluster.current();
            shared.follow(&state);
            let changed = shared.errands.parts.cluster.changed(state.version());
            let notified = std::pin::pin!(shared.news.notified());
            let news = select(changed, notified);
            // Ends of rests and opened vnodes cause no notification, hence the timeout.
            let waited = shared
                .errands
                .parts
                .runtime
                .timeout(settings.retry_pause, news);
            if let Ok(Either::Left(_) | Either::Right(_)) = waited.await {
                shared.errands.parts.runtime.yield_now().await;
            }
        }
    }

    /// True for messages of this service.
    pub fn serves(message: &Message) -> bool {
        message.head.first() == Some(&SERVICE)
    }

    /// Answers a question of another node, if the node is a member.
    pub fn handle(&self, caller: Caller, message: &Message, deadline: Moment) -> Served {
        let state = self.shared.errands.parts.cluster.current();
        if !caller.is_member || state.member(caller.node).is_none() {
            let refused = Answer::Refused("not a member of this cluster".into());
            return Served::Now(encode_answer(&refused));
        }
        match decode_question(message) {
            Ok(question) => {
                let shared = self.shared.clone();
                Served::Later(Box::pin(async move {
                    let answer = shared
                        .errands
                        .source
                        .answer(caller.node, question, deadline)
                        .await;
                    encode_answer(&answer)
                }))
            }
            Err(error) => {
                tracing::warn!(
                    event = "transfer_question_malformed",
                    node = %caller.node,
                    error = %error,
                );
                Served::Now(encode_answer(&Answer::Refused(error.to_string())))
            }
        }
    }

    /// Begins the repair of a partition of this node from its other replicas.
    pub fn repair(&self, partition: Partition) -> Result<(), RepairRefused> {
        let state = self.shared.errands.parts.cluster.current();
        let ring = state.ring();
        if partition.number() >= ring.size().get()
            || ring.owner(partition) != self.shared.errands.parts.node
        {
            return Err(RepairRefused::NotOwned { partition });
        }
        if ring.moves().contains_key(&partition) || ring.growth().is_some() {
            return Err(RepairRefused::Moving { partition });
        }
        let epoch = ring.epoch(partition);
        if let Some(id) = self.shared.begin_repair(partition, epoch) {
            self.shared.note_repair(id);
        }
        self.shared.news.notify_one();
        Ok(())
    }

    /// Begins the repair of all partitions of this node that can be repaired now, and returns them.
    pub fn repair_node(&self) -> Vec<Partition> {
        let state = self.shared.errands.parts.cluster.current();
        let own = state.ring().owned_by(self.shared.errands.parts.node);
        own.filter(|partition| self.repair(*partition).is_ok())
            .collect()
    }

    /// Enables or disables transfers in one direction (`handoff enable|disable`).
    pub fn enable(&self, direction: Direction, is_enabled: bool) {
        let switch = match direction {
            Direction::Inbound => &self.shared.errands.is_inbound_enabled,
            Direction::Outbound => &self.shared.errands.source.is_enabled,
        };
        switch.store(is_enabled, Ordering::Relaxed);
        self.shared.news.notify_one();
    }

    /// Sets the number of transfers at once in each direction (`transfer-limit`). Excess transfers
    /// under way continue.
    pub fn set_transfers_max(&self, transfers_max: usize) {
        let limit = &self.shared.errands.source.transfers_max;
        limit.store(transfers_max, Ordering::Relaxed);
        self.shared.news.notify_one();
    }

    /// Questions that were refused or got no answer in time.
    pub fn counts(&self) -> TransferCounts {
        let errands = &self.shared.errands;
        TransferCounts {
            rejected: errands.source.rejected.load(Ordering::Relaxed),
            timed_out: errands.timed_out.load(Ordering::Relaxed),
        }
    }

    /// The state for operators.
    pub fn status(&self) -> TransfersStatus {
        let shared = &self.shared;
        let (now, node) = (
            shared.errands.parts.runtime.now(),
            shared.errands.parts.node,
        );
        let state = shared.errands.parts.cluster.current();
        let work = shared.work.lock();
        let ids: BTreeSet<_> = work.wanted.keys().chain(&work.repairs).collect();
        let inbound = ids.into_iter().map(|id| match work.running.get(id) {
            Some(running) => running.observed.lock().status(*id, node, now),
            None => {
                let legs = work.wanted.get(id).map_or(&[][..], Vec::as_slice);
                let hindrance = shared.hindrance(*id, legs, state.ring());
                let reason = hindrance.map(str::to_owned);
                waiting(*id, node, reason.or_else(|| work.turns.reason(id)))
            }
        });
        let sessions = shared.errands.source.sessions.lock();
        let outbound = sessions.active(now, SILENCE_MAX).map(|(place, sent)| {
            let (to, kind, target, partition) = *place;
            OutboundStatus {
                kind,
                partition,
                target,
                to,
                keys: sent.keys,
                bytes: sent.bytes,
                begun_at: sent.begun_at,
            }
        });
        let settling = work.chores.keys().filter_map(|chore| match chore {
            Chore::Settle(partition, _) => Some(*partition),
            Chore::Know(_) => None,
        });
        TransfersStatus {
            inbound: inbound.collect(),
            settling: settling.collect(),
            outbound: outbound.collect(),
            transfers_max: shared.errands.source.transfers_max.load(Ordering::Relaxed),
            is_inbound_enabled: shared.errands.is_inbound_enabled.load(Ordering::Relaxed),
            is_outbound_enabled: shared.errands.source.is_enabled.load(Ordering::Relaxed),
        }
    }
}

impl Shared {
    /// Begins and ends transfers to match the state.
    fn follow(self: &Arc<Self>, state: &Arc<ClusterState>) {
        let (node, colocated) = (
            self.errands.parts.node,
            self.errands.parts.settings.colocated_replicas,
        );
        self.note_losses(state);
        self.repair_incomplete(state);
        let mut work = self.work.lock();
        let work = &mut *work;
        let Assignment {
            fetches: mut wanted,
            settles,
            to_know,
        } = Assignment::of(state, node, colocated, &mut work.book);
        let is_own = |id: &TransferId| state.ring().owner(id.partition) == node;
        work.repairs.retain(is_own);
        for id in &work.repairs {
            wanted.insert(*id, work.book.repair(state, id.partition, colocated));
        }
        work.running.retain(|id, _| wanted.contains_key(id));
        work.turns.retain(|id| wanted.contains_key(id));
        let (kept, gone) = work.kept.iter().partition(|id| wanted.contains_key(id));
        work.kept = kept;
        work.wanted = wanted;
        let own = state.ring().owned_by(node);
        let open = own.filter(|it| self.errands.parts.vnodes.vnode(*it).is_some());
        let open_before = std::mem::replace(&mut work.open, open.count());
        if work.open > open_before {
            work.turns.wake(self.errands.parts.runtime.now());
        }
        self.begin_fetches(work, state.ring());
        self.begin_chores(work, settles, to_know);
        self.forget(gone);
    }

    /// Repairs partitions that this node owns now without having filled them: their owners are
    /// lost, and the other replicas have the keys.
    fn note_losses(self: &Arc<Self>, state: &ClusterState) {
        let node = self.errands.parts.node;
        let before = self.work.lock().ring.replace(state.ring().clone());
        let Some(before) = before else { return };
        // A ring owned by `NO_NODE` stands for an unknown ring: a change from it means no loss.
        if Arc::ptr_eq(&before, state.ring()) || before.members() == [NO_NODE] {
            return;
        }
        for partition in state.ring().owned_by(node) {
            let moving = before.moves().get(&partition);
            let was_filled = moving.is_some_and(|it| it.to == node && it.phase == Phase::Closing);
            if before.owner(partition) != node && !was_filled {
                if let Some(vnode) = self.errands.parts.vnodes.vnode(partition) {
                    vnode.mark_incomplete();
                }
                self.begin_repair(partition, state.ring().epoch(partition));
            }
        }
    }

    /// Repairs incomplete vnodes from the other replicas. A vnode without other replicas stays
    /// incomplete until an operator accepts the loss: after a repair without a source it would
    /// serve outdated data.
    fn repair_incomplete(self: &Arc<Self>, state: &ClusterState) {
        let colocated = self.errands.parts.settings.colocated_replicas;
        for partition in state.ring().owned_by(self.errands.parts.node) {
            let vnode = self.errands.parts.vnodes.vnode(partition);
            if vnode.is_none_or(|vnode| vnode.is_complete()) {
                continue;
            }
            let legs = self.work.lock().book.repair(state, partition, colocated);
            if !legs.is_empty() {
                self.begin_repair(partition, state.ring().epoch(partition));
            }
        }
    }

    /// Begins a repair, unless the partition has one already.
    ///
    /// The record of stores names incomplete vnodes, so such a repair outlives a restart.
    fn begin_repair(&self, partition: Partition, epoch: Epoch) -> Option<TransferId> {
        let kind = TransferKind::Repair;
        let of = |epoch| TransferId {
            kind,
            partition,
            epoch,
        };
        let mut work = self.work.lock();
        let any = of(Epoch::new(0))..=of(Epoch::new(u64::MAX));
        if work.repairs.range(any).next().is_some() {
            return None;
        }
        work.repairs.insert(of(epoch));
        work.kept.insert(of(epoch));
        Some(of(epoch))
    }

    /// Notes a requested repair, so that it outlives a restart.
    fn note_repair(self: &Arc<Self>, id: TransferId) {
        let store = self.errands.parts.vnodes.vnode(id.partition);
        let store = store.map_or(kvorum_backend::StoreId(0), |it| it.store_id());
        let progress = Progress { legs: Vec::new() };
        let kept = Kept {
            id,
            store,
            progress,
        };
        let errands = self.errands.clone();
        self.errands.parts.runtime.spawn("note repair", async move {
            errands.keep(kept).await;
        });
    }

    fn begin_fetches(self: &Arc<Self>, work: &mut Work, ring: &Ring) {
        let now = self.errands.parts.runtime.now();
        let is_enabled = self.errands.is_inbound_enabled.load(Ordering::Relaxed);
        let transfers_max = self.errands.source.transfers_max.load(Ordering::Relaxed);
        if work.running.len() >= transfers_max || !is_enabled {
            return;
        }
        let waiting = work.wanted.keys().copied();
        let waiting = waiting.filter(|id| !work.running.contains_key(id));
        for id in work.turns.in_order(waiting, now) {
            if work.running.len() >= transfers_max {
                return;
            }
            let Some(legs) = work.wanted.get(&id).cloned() else {
                continue;
            };
            let keeps_turn = is_planted!(WaitingTransferKeepsTurn);
            if self.hindrance(id, &legs, ring).is_some() && !keeps_turn {
                continue;
            }
            // The reason for its rest holds until its source answers.
            let hindrance = work.turns.reason(&id).filter(|it| !it.is_empty());
            let observed = Observed {
                hindrance,
                ..Observed::new(now)
            };
            let running = self.begin_fetch(id, legs, observed);
            work.running.insert(id, running);
            work.kept.insert(id);
        }
    }

    /// The reason why a transfer cannot begin, if this node can tell without asking another.
    fn hindrance(&self, id: TransferId, legs: &[Leg], ring: &Ring) -> Option<&'static str> {
        if let Err(reason) = self.errands.target(id) {
            return Some(reason);
        }
        let mut last = None;
        for leg in legs {
            last = Some(self.hindrance_of(id.kind, leg, ring)?);
        }
        last
    }

    /// The reason why nothing can be fetched from the source of a leg.
    fn hindrance_of(&self, kind: TransferKind, leg: &Leg, ring: &Ring) -> Option<&'static str> {
        let holder = ring.reader(leg.source);
        if holder != self.errands.parts.node {
            let is_up = (self.errands.parts.is_up)(holder);
            return (!is_up).then_some("the node that has it is down");
        }
        match self.errands.parts.vnodes.vnode(leg.source) {
            None => Some("the partition that has it is not open here yet"),
            Some(vnode) if kind != TransferKind::Repair && !vnode.is_complete() => {
                Some("the partition that has it is being repaired")
            }
            Some(_) => None,
        }
    }

    fn begin_fetch(
        self: &Arc<Self>,
        id: TransferId,
        legs: Vec<Leg>,
        observed: Observed,
    ) -> Running {
        let observed = Arc::new(Mutex::new(observed));
        let errand = Errand {
            errands: self.errands.clone(),
            id,
            legs,
            observed: observed.clone(),
        };
        let shared = self.clone();
        let task = self.errands.parts.runtime.spawn("transfer", async move {
            let ended = errand.run().await;
            shared.ended(id, ended);
        });
        Running {
            _task: task.abort_on_drop(),
            observed,
        }
    }

    fn ended(&self, id: TransferId, ended: Ended) {
        let now = self.errands.parts.runtime.now();
        let mut work = self.work.lock();
        let reason = match ended {
            Ended::Resting(reason) => {
                tracing::info!(event = "transfer_rests", transfer = %id, reason);
                reason
            }
            Ended::Done => {
                tracing::info!(event = "transfer_done", transfer = %id);
                if id.kind == TransferKind::Repair {
                    work.repairs.remove(&id);
                    if let Some(vnode) = self.errands.parts.vnodes.vnode(id.partition) {
                        vnode.mark_complete();
                    }
                }
                String::new()
            }
        };
        // This code runs in that task: dropping its guard here would abort it before its end.
        let running = work.running.remove(&id);
        let has_got_on = |it: &Running| it.observed.lock().keys > 0;
        let has_got_on = reason.is_empty() || running.as_ref().is_some_and(has_got_on);
        // A transfer that is still wanted is tried again after a pause.
        let pause = self.errands.parts.settings.retry_pause;
        work.turns.rest(id, reason, has_got_on, pause, now);
        drop(work);
        self.news.notify_one();
        drop(running);
    }

    fn begin_chores(
        self: &Arc<Self>,
        work: &mut Work,
        settles: Vec<Settle>,
        to_know: Option<Epoch>,
    ) {
        let by_chore = settles.into_iter();
        let by_chore = by_chore.map(|it| (Chore::Settle(it.partition, it.epoch), Some(it)));
        let know = to_know.map(|at| (Chore::Know(at), None));
        let chores: BTreeMap<Chore, Option<Settle>> = by_chore.chain(know).collect();
        work.chores
            .retain(|chore, task| chores.contains_key(chore) && !task.task().is_finished());
        for (chore, settle) in chores {
            if work.chores.contains_key(&chore) {
                continue;
            }
            let errands = self.errands.clone();
            let task = self
                .errands
                .parts
                .runtime
                .spawn("transfer chore", async move {
                    let _done = match (chore, settle) {
                        (_, Some(settle)) => errands.settle(settle).await,
                        (Chore::Know(at) | Chore::Settle(_, at), None) => errands.know(at).await,
                    };
                });
            work.chores.insert(chore, task.abort_on_drop());
        }
    }

    /// Removes the files of transfers that are done or no longer wanted.
    fn forget(self: &Arc<Self>, gone: BTreeSet<TransferId>) {
        if gone.is_empty() {
            return;
        }
        let files = self.errands.files.clone();
        let forget = self.errands.parts.runtime.blocking(move || {
            for id in gone {
                if let Err(error) = files.forget(id) {
                    tracing::warn!(event = "transfer_cursor_not_removed", error = %error);
                }
            }
        });
        self.errands.parts.runtime.spawn("forget transfers", forget);
    }
}
