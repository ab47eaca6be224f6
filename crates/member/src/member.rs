//! The member itself: opened in order, stopped in reverse.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use kvorum_backend::{Backend, BackendError};
use kvorum_claimant::{Claimant, ReplicatedState};
use kvorum_cluster::{AgreedState, ClusterState, MemberStatus, ProposeError};
use kvorum_coordinator::{
    Coordinator, MaintenanceWitness, Meter, PeerReplicas, Remote, ReplicaService, UnderWay,
    VnodeHints,
};
use kvorum_disk::{Disk, DiskError};
use kvorum_exchanges::{Exchanges, KeyPlaces, RoundMeans, StepBudget};
use kvorum_handoff::{Budget, Transfers};
use kvorum_liveness::Liveness;
use kvorum_peer::{Encryption, PeerService, Peers};
use kvorum_ring::NodeId;
use kvorum_runtime::{Listener, Moment, Runtime, TaskGuard, Watcher};
use kvorum_vnode::{
    LeaseTable, NoteFiles, TreeFiles, TreePlacing, ValueFacts, Vnode, VnodeMeter, VnodeWork,
};
use parking_lot::Mutex;

use crate::agreed_log::AgreedLog;
use crate::card::{Card, CardFile};
use crate::catching_up::CatchingUp;
use crate::chronicle;
use crate::contacts::Contacts;
use crate::dispatch::{Dispatch, Up};
use crate::doorkeeper::Doorkeeper;
use crate::error::OpenError;
use crate::follower::{self, ACCEPT_LOST_STORES, Follower, Ground, Loss};
use crate::founding::{self, Opening};
use crate::generation;
use crate::health::{Health, HealthWatch};
use crate::hint_pace::HintPace;
use crate::hint_store;
use crate::opening::Opener;
use crate::operations::{Operations, reason_to_stay};
use crate::recognising::KnownStores;
use crate::round_lists::{RoundParts, mode_of};
use crate::round_service::RoundService;
use crate::settings::MemberSettings;
use crate::store_list::HeldFile;
use crate::stores::Stores;
use crate::unknown_state::is_unknown;
use crate::vnode_table::VnodeTable;
use crate::writability::Writability;

/// Pause between two looks at this node's entry in the agreed state while it is not right.
const INTRODUCTION_PAUSE: Duration = Duration::from_secs(5);
/// Time for which a member that starts waits for the others to be seen, and time between two looks.
const SIGHT_WAIT: Duration = Duration::from_secs(2);
const SIGHT_LOOK_PERIOD: Duration = Duration::from_millis(5);
/// Time for which a node that stops waits for requests of others, and for its farewell to arrive.
const LEAVE_WAIT_MAX: Duration = Duration::from_secs(5);
/// The number of waiting requests of other nodes above which further ones are refused.
const WAITING_MAX: usize = 10_000;

/// Time between the questions of a node that reaches no other.
const REMOVAL_ASK_PERIOD: Duration = Duration::from_secs(5);

/// The parts of a member.
pub struct Parts {
    /// Time, randomness, tasks and sockets.
    pub runtime: Runtime,
    /// The disk of the member's own files.
    pub disk: Arc<dyn Disk>,
    /// The directory of the card, the log and the agreed state.
    pub directory: PathBuf,
    /// The directory of the vnodes' leases.
    pub data_directory: PathBuf,
    /// The opener of stores.
    pub stores: Arc<dyn Stores>,
    /// A store in the place of this node's stores: no new node is founded over it.
    pub remnant: Option<PathBuf>,
    /// Listeners for other nodes.
    pub listeners: Vec<Listener>,
    /// Encryption between nodes.
    pub encryption: Encryption,
    /// The receiver of figures.
    pub meter: Arc<dyn Meter>,
    /// The record of maintenance steps and their times.
    pub maintenance: Arc<dyn MaintenanceWitness>,
    /// The limit on the rate of transfers.
    pub budget: Arc<dyn Budget>,
    /// The settings.
    pub settings: MemberSettings,
}

/// Passes the figures of vnodes on to the meter of requests.
struct VnodeFigures(Arc<dyn Meter>);

impl VnodeMeter for VnodeFigures {
    fn worked(&self, work: VnodeWork, took: Duration, now: Moment) {
        self.0.vnode_worked(work, took, now);
    }

    fn value_changed(&self, value: ValueFacts, took: Duration, now: Moment) {
        self.0.value_changed(value, took, now);
    }
}

/// Steps that build trees may go as fast as transfers.
struct TreeSteps(Arc<dyn Budget>);

impl StepBudget for TreeSteps {
    fn ask(&self, bytes: u64) -> Duration {
        self.0.ask(bytes)
    }
}

/// A node that takes part in a cluster, if only in one of its own.
pub struct Member {
    pub(crate) runtime: Runtime,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) settings: MemberSettings,
    pub(crate) node: NodeId,
    pub(crate) cards: CardFile,
    pub(crate) card: ArcSwap<Card>,
    pub(crate) contacts: Arc<Contacts>,
    pub(crate) peers: Peers,
    pub(crate) state: ReplicatedState,
    pub(crate) vnodes: Arc<VnodeTable>,
    pub(crate) hints: Arc<VnodeHints>,
    pub(crate) follower: Arc<Follower>,
    pub(crate) operations: Operations,
    pub(crate) health: Arc<HealthWatch>,
    liveness: Liveness,
    transfers: Transfers,
    exchanges: Option<Exchanges>,
    coordinator: Arc<Coordinator>,
    leases: Arc<LeaseTable>,
    hint_leases: Arc<LeaseTable>,
    tree_files: Arc<TreeFiles>,
    tasks: Mutex<Vec<TaskGuard<()>>>,
}

impl Member {
    /// Opens a member. It takes part when this returns, and its vnodes serve as soon as their stores are
    /// open, one after the other: see [`VnodeTable::watch_readiness`].
    pub async fn open(parts: Parts) -> Result<Arc<Self>, OpenError> {
        Self::open_behind(parts, |services| services).await
    }

    /// Like [`Member::open`], with `front` before this node's services: requests of other nodes come to
    /// it first. For a simulation, in which messages are lost there.
    pub async fn open_behind(
        parts: Parts,
        front: impl FnOnce(Arc<dyn PeerService>) -> Arc<dyn PeerService> + Send,
    ) -> Result<Arc<Self>, OpenError> {
        let Parts {
            runtime,
            disk,
            directory,
            data_directory,
            remnant,
            stores,
            listeners,
            encryption,
            meter,
            maintenance,
            budget,
            settings,
        } = parts;
        let cards = CardFile::new(disk.clone(), &directory, &data_directory);
        let founded = founding::identify(&runtime, &disk, &cards, remnant, &settings)?;
        let opening = Opening {
            runtime: &runtime,
            disk: &disk,
            cards: &cards,
            settings: &settings,
            encryption,
        };
        let (contacts, peers) = opening.peers(&founded.card);
        let (card, state) = opening.log(founded, &contacts, &peers).await?;
        if founding::is_alone(&state, card.node) {
            for command in founding::settled_alone(&state.current(), &settings) {
                state.agree(command).await?;
            }
            introduce(&state, card.node, &settings).await?;
        }
        founding::warn_of_overruled(&state.current(), &settings);

        let leases = hint_store::open_leases(&disk, &data_directory, &runtime)?;
        let hint_leases = hint_store::open_leases(&disk, &directory.join("hints"), &runtime)?;
        let tree_files = Arc::new(TreeFiles::new(disk.clone(), &data_directory));
        stores.agreed(Arc::new(state.clone()));
        let health_stores = stores.clone();
        let rounds = stores.orders_batches().then(|| RoundParts {
            files: Arc::new(NoteFiles::new(disk.clone(), &data_directory)),
            mode: mode_of(settings.coordinator.tombstones),
            cluster: Arc::new(state.clone()),
        });
        let catching_up = CatchingUp::new(&state.current(), &settings);
        let ground = Ground {
            runtime: runtime.clone(),
            catching_up: catching_up.clone(),
            node: card.node,
            stores,
            leases: leases.clone(),
            held: Arc::new(HeldFile::new(disk.clone(), &directory, card.node)),
            table: Arc::default(),
            settings: settings.vnode,
            meter: Arc::new(VnodeFigures(meter.clone())),
            places: settings.exchanges.map(|_| {
                let places = KeyPlaces::new(Arc::new(state.clone()));
                Arc::new(places) as Arc<dyn TreePlacing>
            }),
            tree_files: tree_files.clone(),
            rounds,
        };
        let vnodes = ground.table.clone();
        let (opening_ground, current) = (ground.clone(), state.current());
        let file = data_directory.join(ACCEPT_LOST_STORES);
        let loss = Loss {
            is_accepted: disk.info(&file)?.is_some(),
            file: file.clone(),
        };
        let is_loss_accepted = loss.is_accepted;
        let begin = move || follower::begin(&opening_ground, &current, &loss);
        let beginning = runtime.blocking(begin).await?;
        if is_loss_accepted {
            // It is in the record by now, and holds for one start.
            disk.remove_file(&file)?;
            disk.sync_directory(&data_directory)?;
        }
        let (held, partitions) = (beginning.held, beginning.partitions);
        let cluster = Arc::new(state.clone());
        let hints = hint_store::open_hints(
            beginning.hints,
            &hint_leases,
            settings.vnode,
            cluster,
            NoteFiles::new(disk.clone(), &directory.join("hints")),
        )?;
        let known = KnownStores::of(&held);
        hints.close(!catching_up.is_done());

        let liveness = Liveness::start(
            &runtime,
            peers.clone(),
            card.node,
            generation::begin(&disk, &directory, card.node, runtime.wall_time())?,
            settings.liveness,
        );
        let follower = Follower::new(ground, state.clone(), liveness.clone(), peers.clone(), held);
        let remote = Remote {
            peers: Arc::new(PeerReplicas::new(
                peers.clone(),
                Arc::new(Up(liveness.clone())),
            )),
            hints: hints.clone(),
            heads_first: settings.heads_first,
        };
        let under_way: Arc<UnderWay> = Arc::default();
        let coordinator_parts = kvorum_coordinator::Parts {
            node: card.node,
            runtime: runtime.clone(),
            cluster: Arc::new(state.clone()),
            vnodes: vnodes.clone(),
            meter,
            maintenance,
            under_way: under_way.clone(),
        };
        let replicas = ReplicaService::new(coordinator_parts.clone(), hints.clone(), WAITING_MAX);
        let coordinator = Coordinator::among_peers(coordinator_parts, remote, settings.coordinator);
        let coordinator = Arc::new(coordinator);
        let detector = liveness.clone();
        let transfers = Transfers::new(kvorum_handoff::Parts {
            node: card.node,
            runtime: runtime.clone(),
            disk: disk.clone(),
            directory: directory.join("transfers"),
            peers: peers.clone(),
            cluster: Arc::new(AgreedLog(state.clone())),
            is_up: Arc::new(move |node| detector.is_up(node)),
            vnodes: vnodes.clone(),
            budget: budget.clone(),
            settings: settings.transfers,
        })?;
        let round_service = RoundService {
            runtime: runtime.clone(),
            node: card.node,
            state: state.clone(),
            vnodes: vnodes.clone(),
            hints: hints.clone(),
            peers: peers.clone(),
            under_way,
        };
        let detector = liveness.clone();
        let means = settings
            .reaping
            .then(|| Arc::new(round_service.clone()) as Arc<dyn RoundMeans>);
        let exchanges = settings.exchanges.map(|exchanges| {
            Exchanges::new(kvorum_exchanges::Parts {
                node: card.node,
                runtime: runtime.clone(),
                cluster: Arc::new(state.clone()),
                vnodes: vnodes.clone(),
                coordinator: coordinator.clone(),
                is_up: Arc::new(move |node| detector.is_up(node)),
                budget: Arc::new(TreeSteps(budget)),
                tree_files: Some(tree_files.clone()),
                rounds: means,
                settings: exchanges,
            })
        });
        let health = Arc::new(HealthWatch {
            node: card.node,
            state: state.clone(),
            liveness: liveness.clone(),
            vnodes: vnodes.clone(),
            stores: health_stores,
            writability: Writability::default(),
            coordinator: coordinator.clone(),
            is_removed: AtomicBool::new(false),
        });
        let operations = Operations {
            runtime: runtime.clone(),
            node: card.node,
            state: state.clone(),
            transfers: transfers.clone(),
            vnodes: vnodes.clone(),
            hints: hints.clone(),
            health: health.clone(),
            shown_plan: Arc::default(),
            rounds: Arc::new(round_service),
        };
        let member = Arc::new(Self {
            health,
            transfers,
            exchanges,
            operations,
            node: card.node,
            card: ArcSwap::from_pointee(card),
            follower: Arc::new(follower),
            coordinator,
            tasks: Mutex::default(),
            runtime,
            disk,
            settings,
            cards,
            contacts,
            peers,
            state,
            vnodes,
            hints,
            liveness,
            leases,
            hint_leases,
            tree_files,
        });
        let opener = Opener::new(member.follower.clone(), known, partitions);
        member.keep("vnode opening", Arc::new(opener).run());
        member.follower.follow().await;
        member.start(listeners, replicas, &catching_up, front);
        member.keep("removal watch", watch_for_removal(Arc::downgrade(&member)));
        member.until_others_are_seen().await;
        Ok(member)
    }

    /// True for a member that reaches no other, or is missing in its own state.
    fn looks_removed(&self) -> bool {
        let state = self.state.current();
        if is_unknown(&state) {
            return false;
        }
        let is_member = state.member(self.node).is_some();
        !is_member || state.members().len() > 1 && self.liveness().up().len() < 2
    }

    /// Waits until the others are seen: a node that has just started would take all others to be down.
    async fn until_others_are_seen(&self) {
        let deadline = self.runtime.now().plus(SIGHT_WAIT);
        let members = self.state.current().members().len();
        while self.liveness.up().len() < members && self.runtime.now() < deadline {
            self.runtime.sleep(SIGHT_LOOK_PERIOD).await;
        }
    }

    fn start(
        &self,
        listeners: Vec<Listener>,
        replicas: ReplicaService,
        catching_up: &Arc<CatchingUp>,
        front: impl FnOnce(Arc<dyn PeerService>) -> Arc<dyn PeerService>,
    ) {
        let service = front(Arc::new(Dispatch {
            state: self.state.clone(),
            liveness: self.liveness.clone(),
            replicas,
            transfers: self.transfers.clone(),
            doorkeeper: Doorkeeper {
                runtime: self.runtime.clone(),
                state: self.state.clone(),
                name: self.settings.name.clone(),
            },
            operations: self.operations.clone(),
        }));
        for listener in listeners {
            let (peers, service) = (self.peers.clone(), service.clone());
            self.keep("peer listener", async move {
                peers.serve(listener, service).await;
            });
        }
        let learning = hint_store::keep_learning(
            self.runtime.clone(),
            self.hints.clone(),
            self.state.clone(),
            catching_up.clone(),
        );
        self.keep("watermarks for hints", learning);
        let follower = self.follower.clone();
        self.keep("ring follower", async move { follower.run().await });
        let claimant = Claimant::new(
            self.runtime.clone(),
            self.state.clone(),
            self.node,
            self.settings.claimant,
        );
        let liveness = self.liveness.clone();
        let (runtime, peers) = (self.runtime.clone(), self.peers.clone());
        let claimant = claimant
            .heeding(move |node| liveness.is_up(node))
            .keeping_back(move |node| reason_to_stay(runtime.clone(), peers.clone(), node));
        self.keep("claimant", async move { claimant.run().await });
        let transfers = self.transfers.clone();
        self.keep("transfers", async move { transfers.run().await });
        if let Some(exchanges) = &self.exchanges {
            self.keep("anti-entropy", exchanges.clone().run());
        }
        self.keep(
            "vouching",
            self.contacts.vouching.clone().run(
                self.runtime.clone(),
                self.peers.clone(),
                self.node,
                self.contacts.shown.clone(),
            ),
        );
        self.keep("chronicle", chronicle::keep(self.state.clone()));
        self.keep("introduction", self.keep_introduced());
        self.keep("hints", self.hand_over_hints(catching_up.watch()));
    }

    fn keep(&self, name: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        let task = self.runtime.spawn(name, work);
        self.tasks.lock().push(task.abort_on_drop());
    }

    /// Keeps this node's addresses in the agreed state up to date.
    fn keep_introduced(&self) -> impl Future<Output = ()> + Send + 'static {
        let (runtime, state) = (self.runtime.clone(), self.state.clone());
        let (node, settings) = (self.node, self.settings.clone());
        async move {
            let mut versions = state.versions();
            let mut logged = None;
            loop {
                versions.see();
                if let Err(error) = introduce(&state, node, &settings).await {
                    tracing::debug!(event = "not_introduced_yet", error = error.in_full());
                    if let ProposeError::Refused(refusal) = error
                        && logged.as_ref() != Some(&refusal)
                    {
                        tracing::warn!(
                            event = "introduction_refused",
                            name = %settings.name,
                            reason = %refusal,
                            "the others keep the former name and addresses of this node; check \
                             nodename and listener.*",
                        );
                        logged = Some(refusal);
                    }
                    runtime.sleep(INTRODUCTION_PAUSE).await;
                } else if versions.changed().await.is_err() {
                    return;
                }
            }
        }
    }

    /// Hands hints over whenever they are due. A node that is about to be removed takes no new ones.
    fn hand_over_hints(
        &self,
        mut caught_up: Watcher<bool>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let (runtime, liveness) = (self.runtime.clone(), self.liveness.clone());
        let (coordinator, hints) = (self.coordinator.clone(), self.hints.clone());
        let (state, node, period) = (self.state.clone(), self.node, self.settings.hint_period);
        async move {
            if caught_up.until(|is_done| *is_done).await.is_err() {
                return;
            }
            let mut pace = HintPace::new(period, liveness.up(), runtime.now());
            loop {
                runtime.sleep(pace.look_period()).await;
                let up = liveness.up();
                let is_leaving = has_handed_over_all(&state.current(), node);
                let has_closed = hints.is_closed() != is_leaving && hints.close(is_leaving);
                let is_due = pace.is_due(up.clone(), runtime.now()) || has_closed;
                if !is_due || up.len() < 2 || hints.vnode().store_status().keys == 0 {
                    continue;
                }
                let deadline = runtime.now().plus(10 * period);
                let outcome = coordinator.hand_off_hints(deadline).await;
                pace.passed(outcome, runtime.now());
                if outcome.handed > 0 {
                    tracing::info!(
                        event = "hints_handed_over",
                        handed = outcome.handed,
                        kept = outcome.kept,
                    );
                }
            }
        }
    }

    /// The coordinator, which protocols call.
    pub fn coordinator(&self) -> &Arc<Coordinator> {
        &self.coordinator
    }

    /// The vnodes of this node.
    pub fn vnodes(&self) -> &Arc<VnodeTable> {
        &self.vnodes
    }

    /// The hints that this node keeps in place of others.
    pub fn hints(&self) -> &Arc<VnodeHints> {
        &self.hints
    }

    /// The agreed state and its log.
    pub fn state(&self) -> &ReplicatedState {
        &self.state
    }

    /// False until a member has received the state of its cluster: before, a placeholder is shown.
    pub fn is_state_known(&self) -> bool {
        !is_unknown(&self.state().current())
    }

    /// The ability of this node to serve, and its hindrances. Does not block.
    pub fn health(&self) -> Health {
        self.health.health()
    }

    /// Transfers of partitions.
    pub fn transfers(&self) -> &Transfers {
        &self.transfers
    }

    /// Anti-entropy, where it is on.
    pub fn exchanges(&self) -> Option<&Exchanges> {
        self.exchanges.as_ref()
    }

    /// The nodes that are up.
    pub fn liveness(&self) -> &Liveness {
        &self.liveness
    }

    /// The way to other nodes.
    pub fn peers(&self) -> &Peers {
        &self.peers
    }

    /// This node.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// The settings.
    pub fn settings(&self) -> &MemberSettings {
        &self.settings
    }

    /// Takes no part any more: announces it, answers the pending requests, and ends all tasks. Stores
    /// stay open.
    pub async fn stop(&self) {
        // Stores that are being opened at this moment are left to the next run.
        self.vnodes.close();
        self.liveness.leave();
        // Its last words are on their way when others have run.
        self.runtime.yield_now().await;
        // A write that is under way here for another node's client would be in doubt for ever.
        self.peers.take_leave(LEAVE_WAIT_MAX).await;
        self.tasks.lock().clear();
        self.state.agreement().stop().await;
    }

    /// Closes every store; the first failure is returned when all have been tried. Blocks.
    pub fn close_stores(&self) -> Result<(), BackendError> {
        let mut first_failure = None;
        for (partition, store) in self.backends() {
            if let Err(error) = store.close() {
                tracing::error!(event = "store_close_failed", partition, error = %error);
                first_failure.get_or_insert(error);
            }
        }
        first_failure.map_or(Ok(()), Err)
    }

    /// Lets the vnodes go on in the next run with their trees and under their actors; the stores are
    /// closed without an error, and logged writes for them are not needed any more. Blocks.
    pub fn seal(&self) -> Result<(), DiskError> {
        let vnodes = self.vnodes.all();
        for vnode in &vnodes {
            if let Err(error) = vnode.seal_trees(&self.tree_files) {
                // They are built anew.
                let partition = vnode.partition().number();
                tracing::warn!(event = "trees_not_kept", partition, error = %error);
            }
        }
        self.leases
            .seal(vnodes.iter().map(|vnode: &Arc<Vnode>| &**vnode))?;
        self.hint_leases.seal([self.hints.vnode()])
    }

    fn backends(&self) -> Vec<(Option<u16>, Arc<dyn Backend>)> {
        let vnodes = self.vnodes.all();
        let of_vnodes = vnodes.iter().map(|vnode| {
            (
                Some(vnode.partition().number()),
                vnode.store_for_upkeep().clone(),
            )
        });
        let of_hints = (None, self.hints.vnode().store_for_upkeep().clone());
        of_vnodes.chain([of_hints]).collect()
    }
}

/// Proposes this node's name and address to the cluster, if they are not agreed yet.
async fn introduce(
    state: &ReplicatedState,
    node: NodeId,
    settings: &MemberSettings,
) -> Result<(), ProposeError> {
    if !state.is_founded() {
        return Ok(());
    }
    let Some(command) = founding::introduction(&state.current(), node, settings) else {
        return Ok(());
    };
    tracing::info!(event = "introduced_anew", name = %settings.name);
    state.agree(command).await.map(|_| ())
}

/// True for a member that waits for its removal.
fn has_handed_over_all(state: &ClusterState, node: NodeId) -> bool {
    let member = state.member(node);
    member.is_some_and(|it| it.status == MemberStatus::Exiting)
}

/// Detects the removal of this node from its cluster, for as long as the member lives.
///
/// A node that was removed, or whose join was cleared, does not receive the decision: the log no longer
/// replicates to it. It only sees that all others refuse it. So a node that reaches no other member asks
/// them now and then about its removal, and reports it in its health.
async fn watch_for_removal(member: Weak<Member>) {
    loop {
        let Some(runtime) = member.upgrade().map(|member| member.runtime.clone()) else {
            return;
        };
        runtime.sleep(REMOVAL_ASK_PERIOD).await;
        let Some(member) = member.upgrade() else {
            return;
        };
        let is_removed = member.looks_removed() && member.was_removed().await;
        let was = member.health.is_removed.swap(is_removed, Ordering::Relaxed);
        if is_removed && !was {
            tracing::warn!(
                event = "removed_from_cluster",
                node = %member.settings.name,
                "this node is no member any more and serves nothing; stop it, or let it join again",
            );
        }
    }
}
