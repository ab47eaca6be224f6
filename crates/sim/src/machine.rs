//! A machine of the simulation: its disk, what its node knew last, and the node while it runs.
//!
//! The node is put together from the parts that the server is made of: stores and commit log, vnodes
//! and leases, hints, the detector of who is up, the peer transport, the coordinator. What stands in is
//! the control plane: the harness tells each node of each ring, late, and the ring of before survives
//! with the machine.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::Context as _;
use kvorum_cluster::{AgreedState, ClusterState, Command, ProposeError};
use kvorum_coordinator::{
    Coordinator, CoordinatorSettings, HintStore as _, LocalVnodes, MaintenanceWitness, Meter,
    Parts, PeerReplicas, Remote, ReplicaService, RequestError, RequestKind, ServiceParts,
    TombstoneKeeping, VnodeHints,
};
use kvorum_disk::{Disk, FaultyDisk, MemoryDisk, Rule};
use kvorum_encoding::StorageKey;
use kvorum_liveness::{Liveness, LivenessSettings};
use kvorum_object::{Limits, Object};
use kvorum_peer::{
    Admission, Caller, Directory, Introduction, Message, PeerService, PeerSettings, Peers, Served,
};
use kvorum_ring::{Epoch, NodeId, Partition};
use kvorum_runtime::{ListenOptions, Moment, Runtime, SimulatedProcess, World};
use kvorum_vnode::{LeaseTable, Vnode, VnodeSettings};
use parking_lot::Mutex;

use crate::plan::{Engine, RunPlan};
use crate::stores::{SimulatedStores, Which};

const PORT: u16 = 8099;
const DIRECTORY: &str = "/node";
const HINT_DIRECTORY: &str = "/node/hints";
/// Requests of other nodes that wait at which further ones are refused.
const WAITING_MAX: usize = 10_000;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(4);
/// More siblings than clients make: what blind writes pile up is no failure here.
const VNODE_SETTINGS: VnodeSettings = VnodeSettings {
    limits: Limits {
        size_warning_bytes: u64::MAX,
        size_max_bytes: u64::MAX,
        siblings_warning: usize::MAX,
        siblings_max: usize::MAX,
    },
};

/// The identity of a node.
pub(crate) fn node_id(number: u8) -> NodeId {
    NodeId::from_bytes([number; 16])
}

/// The number of a node.
pub(crate) fn number_of(node: NodeId) -> u8 {
    node.as_bytes()[0]
}

/// Where a machine is.
pub(crate) fn address_of(number: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, number))
}

/// What a node knows of the cluster.
pub(crate) struct Known(Mutex<Arc<ClusterState>>);

impl AgreedState for Known {
    fn current(&self) -> Arc<ClusterState> {
        self.0.lock().clone()
    }

    fn propose(&self, _command: Command) -> Result<Arc<ClusterState>, ProposeError> {
        Err(ProposeError::Unwritable)
    }
}

/// The vnodes of a node.
#[derive(Default)]
pub(crate) struct NodeVnodes(Mutex<BTreeMap<Partition, Arc<Vnode>>>);

impl LocalVnodes for NodeVnodes {
    fn vnode(&self, partition: Partition) -> Option<Arc<Vnode>> {
        self.0.lock().get(&partition).cloned()
    }
}

struct Everybody(u8);

impl Directory for Everybody {
    fn introduction(&self) -> Introduction {
        Introduction {
            cluster: node_id(200),
            cluster_name: "simulated".into(),
            node: node_id(self.0),
        }
    }

    fn address(&self, node: NodeId) -> Option<SocketAddr> {
        Some(SocketAddr::new(address_of(number_of(node)), PORT))
    }

    fn admit(&self, _: &Introduction) -> Admission {
        Admission::Member
    }
}

struct Up(Liveness);

impl kvorum_coordinator::Liveness for Up {
    fn is_up(&self, node: NodeId) -> bool {
        self.0.is_up(node)
    }
}

struct Dispatch {
    liveness: Liveness,
    replicas: ReplicaService,
}

impl PeerService for Dispatch {
    fn handle(&self, caller: Caller, message: Message, deadline: Moment) -> Served {
        if Liveness::serves(&message) {
            self.liveness.hear(&message);
            return Served::Now(Message::default());
        }
        self.replicas.handle(caller, message, deadline)
    }
}

struct NoFigures;

impl Meter for NoFigures {
    fn finished(
        &self,
        _kind: RequestKind,
        _error: Option<&RequestError>,
        _took: Duration,
        _object: Option<&Object>,
        _now: Moment,
    ) {
    }

    fn read_repaired(&self, _now: Moment) {}
}

impl MaintenanceWitness for NoFigures {
    fn put_delay(&self) -> Duration {
        Duration::ZERO
    }

    fn step_between(&self, _from: Moment, _to: Moment) -> Option<String> {
        None
    }
}

/// A machine: it is there while its node is not.
pub(crate) struct Machine {
    pub(crate) number: u8,
    world: World,
    engine: Engine,
    sync_max: Duration,
    heads_first: bool,
    state: Mutex<MachineState>,
    /// What every sync takes on top, in microseconds.
    pub(crate) slowness: Arc<AtomicU64>,
}

struct MachineState {
    disk: MemoryDisk,
    faulty: FaultyDisk,
    /// What is wrong with the disk, by the fault that made it so.
    rules: BTreeMap<usize, Vec<Rule>>,
    /// How far the clock is off, in microseconds.
    clock_offset: i64,
    /// What its node had learned when it ran last.
    learned: Arc<ClusterState>,
    running: Option<Arc<Running>>,
}

/// A node that runs.
pub(crate) struct Running {
    process: SimulatedProcess,
    pub(crate) runtime: Runtime,
    pub(crate) coordinator: Arc<Coordinator>,
    pub(crate) known: Arc<Known>,
    pub(crate) vnodes: Arc<NodeVnodes>,
    pub(crate) hints: Arc<VnodeHints>,
    pub(crate) liveness: Liveness,
    leases: Arc<LeaseTable>,
    hint_leases: Arc<LeaseTable>,
    pub(crate) stores: Arc<SimulatedStores>,
}

impl Machine {
    pub(crate) fn new(
        world: &World,
        number: u8,
        plan: &RunPlan,
        learned: Arc<ClusterState>,
    ) -> Self {
        let disk = MemoryDisk::new();
        let state = MachineState {
            faulty: FaultyDisk::over_memory(&disk),
            disk,
            rules: BTreeMap::new(),
            clock_offset: 0,
            learned,
            running: None,
        };
        Self {
            number,
            world: world.clone(),
            engine: plan.engine,
            sync_max: plan.sync_max,
            heads_first: plan.heads_first,
            state: Mutex::new(state),
            slowness: Arc::default(),
        }
    }

    /// The node, while it runs.
    pub(crate) fn running(&self) -> Option<Arc<Running>> {
        self.state.lock().running.clone()
    }

    /// The ring that its node knows, or knew last.
    pub(crate) fn learned(&self) -> Arc<ClusterState> {
        self.state.lock().learned.clone()
    }

    /// Ends the process where it stands; the machine goes on with this disk.
    fn kill_onto(&self, disk_of: impl FnOnce(&MemoryDisk) -> MemoryDisk) {
        let mut state = self.state.lock();
        if let Some(running) = state.running.take() {
            running.process.kill();
        }
        state.disk = disk_of(&state.disk);
        state.faulty = FaultyDisk::over_memory(&state.disk);
        for rule in state.rules.values().flatten() {
            state.faulty.add_rule(rule.clone());
        }
    }

    /// The power fails.
    pub(crate) fn crash(&self, seed: u64) {
        let options = kvorum_disk::CrashOptions::drawn(seed);
        self.kill_onto(|disk| disk.crash_image(options));
    }

    /// The power fails, and the disk is another one: an empty one or an older copy.
    pub(crate) fn crash_onto(&self, disk: MemoryDisk) {
        self.kill_onto(|_| disk);
    }

    /// A copy of the disk as it is, of a node that runs.
    pub(crate) fn copy_disk(&self) -> Option<MemoryDisk> {
        let state = self.state.lock();
        let options = kvorum_disk::CrashOptions::everything();
        state
            .running
            .as_ref()
            .map(|_| state.disk.crash_image(options))
    }

    /// Stops the node as an operator does; the process is gone afterwards.
    pub(crate) async fn stop(&self) {
        let running = self.state.lock().running.take();
        let Some(running) = running else { return };
        running.liveness.leave();
        // What is under way has a moment to end.
        running.runtime.sleep(Duration::from_millis(100)).await;
        let is_closed = running.stores.close().is_ok();
        if is_closed {
            let vnodes: Vec<Arc<Vnode>> = running.vnodes.0.lock().values().cloned().collect();
            let _sealed = running.leases.seal(vnodes.iter().map(|vnode| &**vnode));
            let _sealed = running.hint_leases.seal([running.hints.vnode()]);
        }
        running.process.kill();
        drop(running);
        self.kill_onto(MemoryDisk::clone);
    }

    /// Starts the node, if its disk lets it.
    pub(crate) fn start(&self) -> anyhow::Result<()> {
        let (learned, disk, offset) = {
            let state = self.state.lock();
            if state.running.is_some() {
                return Ok(());
            }
            (
                state.learned.clone(),
                state.faulty.clone(),
                state.clock_offset,
            )
        };
        let disk: Arc<dyn Disk> = Arc::new(disk);
        let process = self.world.start_process(address_of(self.number));
        process.jump_wall_clock(offset);
        let running = self.put_together(process, &disk, &learned)?;
        self.state.lock().running = Some(Arc::new(running));
        Ok(())
    }

    fn put_together(
        &self,
        process: SimulatedProcess,
        disk: &Arc<dyn Disk>,
        learned: &Arc<ClusterState>,
    ) -> anyhow::Result<Running> {
        let runtime = process.runtime();
        let open_leases = |directory: &str| -> anyhow::Result<Arc<LeaseTable>> {
            let directory = Path::new(directory);
            kvorum_disk::create_directory_durably(&**disk, directory)?;
            let opened = LeaseTable::open(disk.clone(), directory, runtime.randomness())?;
            Ok(Arc::new(opened.0))
        };
        let leases = open_leases(DIRECTORY)?;
        let hint_leases = open_leases(HINT_DIRECTORY)?;
        let ring = learned.ring();
        let (size, wanted) = (ring.size(), wanted(learned, self.number));
        let stores = SimulatedStores::open_first(
            &runtime,
            disk.clone(),
            (self.engine, self.sync_max),
            self.slowness.clone(),
            (size, &wanted),
        )?;
        let vnodes = Arc::new(NodeVnodes::default());
        for partition in wanted {
            let store = stores.get(size, Which::Partition(partition));
            let store = store.context("a store was not opened")?;
            let epoch = ring.epoch(partition);
            let vnode = Vnode::new(partition, epoch, store, leases.clone(), VNODE_SETTINGS);
            vnodes.0.lock().insert(partition, Arc::new(vnode));
        }
        let store = stores.get(size, Which::Hints);
        let store = store.context("the hints were not opened")?;
        let hints = Vnode::new(
            size.partition(0).context("no partition 0")?,
            Epoch::FIRST,
            store,
            hint_leases.clone(),
            VNODE_SETTINGS,
        );
        let hints = Arc::new(VnodeHints::new(hints));
        leases.renew()?;
        hint_leases.renew()?;

        let listener = runtime.listen(
            SocketAddr::new(address_of(self.number), PORT),
            ListenOptions::default(),
        )?;
        let known = Arc::new(Known(Mutex::new(learned.clone())));
        let directory = Arc::new(Everybody(self.number));
        let peers = Peers::new(runtime.clone(), directory, PeerSettings::default());
        let liveness = Liveness::start(
            &runtime,
            peers.clone(),
            node_id(self.number),
            // Higher with every run whatever the clock says, as if it were kept.
            u64::try_from(runtime.now().elapsed().as_micros())?,
            LivenessSettings::default(),
        );
        let replicas = ReplicaService::new(ServiceParts {
            runtime: runtime.clone(),
            cluster: known.clone(),
            vnodes: vnodes.clone(),
            hints: hints.clone(),
            waiting_max: WAITING_MAX,
        });
        let service = Arc::new(Dispatch {
            liveness: liveness.clone(),
            replicas,
        });
        let serving = peers.clone();
        runtime.spawn("peer listener", async move {
            serving.serve(listener, service).await;
        });
        let figures = Arc::new(NoFigures);
        let parts = Parts {
            node: node_id(self.number),
            runtime: runtime.clone(),
            cluster: known.clone(),
            vnodes: vnodes.clone(),
            meter: figures.clone(),
            maintenance: figures,
        };
        let remote = Remote {
            peers: Arc::new(PeerReplicas::new(peers, Arc::new(Up(liveness.clone())))),
            hints: hints.clone(),
            heads_first: self.heads_first,
        };
        let settings = CoordinatorSettings {
            colocated_replicas: false,
            request_timeout: REQUEST_TIMEOUT,
            slow_request_threshold: Duration::MAX,
            requests_max: 1_000,
            tombstones: TombstoneKeeping::Keep,
        };
        let coordinator = Arc::new(Coordinator::among_peers(parts, remote, settings));
        let running = Running {
            process,
            runtime,
            coordinator,
            known,
            vnodes,
            hints,
            liveness,
            leases,
            hint_leases,
            stores,
        };
        running.hand_over_hints();
        running.follow(learned, self.number);
        Ok(running)
    }

    /// Its node learns a state, if it runs and does not know a newer one.
    pub(crate) fn learn(&self, news: &Arc<ClusterState>) -> anyhow::Result<bool> {
        let running = {
            let mut state = self.state.lock();
            let Some(running) = state.running.clone() else {
                return Ok(false);
            };
            if news.version() > state.learned.version() {
                state.learned = news.clone();
                running.follow(news, self.number);
            }
            running
        };
        running.follow_stores(news, self.number)?;
        Ok(true)
    }

    pub(crate) fn spoil_disk(&self, fault: usize, rules: Vec<Rule>) {
        let mut state = self.state.lock();
        for rule in &rules {
            state.faulty.add_rule(rule.clone());
        }
        state.rules.insert(fault, rules);
    }

    /// Undoes what one fault did to the disk.
    pub(crate) fn mend_disk(&self, fault: usize) {
        let mut state = self.state.lock();
        if state.rules.remove(&fault).is_none() {
            return;
        }
        state.faulty.heal();
        for rule in state.rules.values().flatten() {
            state.faulty.add_rule(rule.clone());
        }
    }

    pub(crate) fn jump_clock(&self, micros: i64) {
        let mut state = self.state.lock();
        state.clock_offset += micros;
        if let Some(running) = &state.running {
            running.process.jump_wall_clock(micros);
        }
    }

    /// The disk keeps a list of what it was asked, which nobody reads here.
    pub(crate) fn forget_disk_log(&self) {
        self.state.lock().faulty.clear_log();
    }
}

/// The partitions that a node has by a state: its own, and those that move to it.
fn wanted(state: &ClusterState, number: u8) -> Vec<Partition> {
    let (ring, own) = (state.ring(), node_id(number));
    let is_wanted = |(partition, owner, _): &(Partition, NodeId, Epoch)| {
        *owner == own || ring.moves().get(partition).is_some_and(|it| it.to == own)
    };
    let wanted = ring.partitions().filter(is_wanted);
    wanted.map(|(partition, ..)| partition).collect()
}

impl Running {
    /// Asks by a new state from now on, and refuses who asks by an older one.
    fn follow(&self, news: &Arc<ClusterState>, number: u8) {
        *self.known.0.lock() = news.clone();
        let ring = news.ring();
        for vnode in self.vnodes.0.lock().values() {
            vnode.advance_epoch(ring.epoch(vnode.partition()));
        }
        let mut members: BTreeSet<NodeId> = ring.members().iter().copied().collect();
        members.extend(ring.moves().values().map(|moving| moving.to));
        members.insert(node_id(number));
        self.liveness.follow_members(members);
    }

    /// Opens what comes and removes what is gone.
    fn follow_stores(&self, news: &ClusterState, number: u8) -> anyhow::Result<()> {
        let (ring, wanted) = (news.ring(), wanted(news, number));
        let size = ring.size();
        let here: Vec<Partition> = self.vnodes.0.lock().keys().copied().collect();
        for partition in here.iter().filter(|it| !wanted.contains(it)) {
            self.vnodes.0.lock().remove(partition);
            self.stores.remove(size, *partition)?;
        }
        for partition in wanted.into_iter().filter(|it| !here.contains(it)) {
            let store = self.stores.open(size, partition)?;
            let epoch = ring.epoch(partition);
            let vnode = Vnode::new(partition, epoch, store, self.leases.clone(), VNODE_SETTINGS);
            self.leases.renew()?;
            self.vnodes.0.lock().insert(partition, Arc::new(vnode));
        }
        Ok(())
    }

    /// Hands hints over now and then.
    fn hand_over_hints(&self) {
        let (coordinator, runtime) = (self.coordinator.clone(), self.runtime.clone());
        self.runtime.spawn("hints", async move {
            loop {
                runtime.sleep(Duration::from_secs(1)).await;
                let deadline = runtime.now().plus(Duration::from_secs(10));
                coordinator.hand_off_hints(deadline).await;
            }
        });
    }

    /// How many hints it keeps.
    pub(crate) fn hint_count(&self) -> usize {
        let now = kvorum_backend::Timestamp(self.runtime.wall_time().micros());
        let page = self.hints.page(None, usize::MAX, now);
        page.map_or(usize::MAX, |page| page.hints.len())
    }

    /// What its replica of a key holds, asked alone.
    pub(crate) fn stored(
        &self,
        partition: Partition,
        key: &StorageKey,
    ) -> Result<Option<Arc<Object>>, String> {
        use kvorum_vnode::{Detail, Handled, Operation, ReplicaReply, ReplicaRequest};
        let vnode = self.vnodes.vnode(partition).ok_or("it has no vnode")?;
        let request = ReplicaRequest {
            partition,
            epoch: vnode.status().epoch,
            operation: Operation::Get {
                key: key.clone(),
                detail: Detail::Whole,
            },
        };
        let now = kvorum_backend::Timestamp(self.runtime.wall_time().micros());
        match vnode.handle(&request, now, kvorum_backend::Reading::MayBlock) {
            Handled::Done(ReplicaReply::Found(object)) => Ok(Some(object)),
            Handled::Done(ReplicaReply::NotFound) => Ok(None),
            other => Err(format!("{other:?}")),
        }
    }
}
