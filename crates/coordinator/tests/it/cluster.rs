//! Several nodes on simulated machines, with the real transport between them.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kvorum_backend::{Durability, ErrorKind, FoldClock, FoldRange, Lease, Reading, Timestamp};
use kvorum_cluster::{ClusterId, ClusterState, Command, Member};
use kvorum_coordinator::{
    Coordinator, CoordinatorSettings, HintCursor, HintPage, HintPageLimits, HintStore,
    LocalVnodes as _, Parts, PeerReplicas, Remote, ReplicaService, VnodeHints,
};
use kvorum_disk::{Disk, MemoryDisk};
use kvorum_encoding::StorageKey;
use kvorum_object::{Clock, Object, ObjectTag, Resolution};
use kvorum_peer::{PeerSettings, Peers};
use kvorum_properties::PropertyOverlay;
use kvorum_ring::{Epoch, Partition, Ring, RingSize};
use kvorum_runtime::{Executor, ListenOptions, Runtime, SimulatedProcess, World};
use kvorum_test_cluster::{
    Down, Everybody, GivenState, MemoryVnodes, Vnodes, coordinator_settings, cut_off, link_all,
    machine, node_id, number_of, partitions_at, peer_address,
};
use kvorum_vnode::{
    ClientUpdate, Condition, Detail, Handled, Operation, ReplicaFailure, ReplicaReply,
    ReplicaRequest, ScanLimits, ScanRequest, StoredObject, Vnode,
};

use crate::trick_backend::TrickBackend;
use crate::world::{NoMaintenance, Recorder, storage_key};

pub(crate) const RING_SIZE: u16 = 16;

pub(crate) struct ClusterNode {
    pub(crate) number: u8,
    _process: SimulatedProcess,
    pub(crate) coordinator: Arc<Coordinator>,
    pub(crate) known: Arc<GivenState>,
    pub(crate) vnodes: Arc<Vnodes>,
    pub(crate) hints: Arc<VnodeHints>,
    /// Hints whose objects were read for a handover.
    pub(crate) hints_read: Arc<AtomicU64>,
    pub(crate) meter: Arc<Recorder>,
    pub(crate) maintenance: Arc<NoMaintenance>,
    stores: MemoryVnodes,
}

/// The nodes, numbered from 1.
pub(crate) struct Cluster {
    executor: Executor,
    pub(crate) world: World,
    pub(crate) runtime: Runtime,
    pub(crate) nodes: Vec<Arc<ClusterNode>>,
    pub(crate) down: Arc<Down>,
    pub(crate) properties: PropertyOverlay,
}

/// The parameters of the nodes.
pub(crate) struct Setup {
    pub(crate) seed: u64,
    pub(crate) nodes: u8,
    /// The first nodes, this many, own partitions.
    pub(crate) owners: u8,
    pub(crate) heads_first: bool,
    pub(crate) compares_all: bool,
    /// Stand-ins may be on a node that has a replica already.
    pub(crate) colocated: bool,
    pub(crate) peer: PeerSettings,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            seed: 1,
            nodes: 4,
            owners: 4,
            heads_first: true,
            compares_all: true,
            colocated: false,
            peer: PeerSettings::default(),
        }
    }
}

/// A ring of `owners` nodes that own partitions in turn.
pub(crate) fn ring(owners: u8) -> Ring {
    let size = RingSize::new(u64::from(RING_SIZE)).unwrap();
    let owner = |number: u16| node_id(u8::try_from(number % u16::from(owners)).unwrap() + 1);
    let all = (0..RING_SIZE).map(owner).collect();
    Ring::new(size, all, vec![Epoch::FIRST; usize::from(RING_SIZE)]).unwrap()
}

impl Cluster {
    pub(crate) fn new(setup: &Setup) -> Self {
        let (executor, world) = World::new(setup.seed).unwrap();
        let down = Arc::new(Down::default());
        let properties = PropertyOverlay {
            allow_mult: Some(true),
            ..PropertyOverlay::default()
        };
        let mut cluster = Self {
            runtime: world.runtime(),
            executor,
            world,
            nodes: Vec::new(),
            down,
            properties,
        };
        let state = cluster.state(ring(setup.owners));
        for number in 1..=setup.nodes {
            let node = cluster.start(number, &state, setup);
            cluster.nodes.push(Arc::new(node));
        }
        link_all(&cluster.world, setup.nodes);
        cluster
    }

    /// The agreed state with this ring.
    pub(crate) fn state(&self, ring: Ring) -> Arc<ClusterState> {
        let id = ClusterId::from_random([9; 16]);
        let member = Member::new("one@10.0.0.1");
        let state = ClusterState::found(id, "test", node_id(1), member, ring);
        let command = Command::SetDefaultProperties(self.properties.clone());
        Arc::new(kvorum_cluster::apply(&state, command).unwrap())
    }

    fn start(&self, number: u8, state: &Arc<ClusterState>, setup: &Setup) -> ClusterNode {
        let process = self.world.start_process(machine(number));
        let runtime = process.runtime();
        let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
        let stores = AtomicU64::new(u64::from(number) << 32);
        let draw = move || stores.fetch_add(1, Ordering::Relaxed);
        let stores = MemoryVnodes::new(disk, Path::new("/node"), runtime.randomness(), draw);
        let stores = stores.unwrap();
        let hint_partition = RingSize::new(4096).unwrap().partition(4095).unwrap();
        let hints = stores.open(hint_partition, Epoch::FIRST).unwrap();
        let hints = Arc::new(VnodeHints::new(hints));
        let hints_read = Arc::new(AtomicU64::new(0));
        let known = Arc::new(GivenState::new(state.clone()));
        let vnodes = Arc::new(Vnodes::default());
        let meter = Arc::new(Recorder::default());
        let peers = Peers::new(
            runtime.clone(),
            Arc::new(Everybody(number)),
            setup.peer.clone(),
        );
        let maintenance = Arc::new(NoMaintenance::default());
        let parts = Parts {
            node: node_id(number),
            runtime: runtime.clone(),
            cluster: known.clone(),
            vnodes: vnodes.clone(),
            meter: meter.clone(),
            maintenance: maintenance.clone(),
            under_way: Arc::default(),
        };
        let service = ReplicaService::new(parts.clone(), hints.clone(), 1_000);
        let service = Arc::new(service);
        let at = peer_address(number);
        let listener = runtime.listen(at, ListenOptions::default()).unwrap();
        let serving = peers.clone();
        runtime.spawn(
            "serve",
            async move { serving.serve(listener, service).await },
        );
        let remote = Remote {
            peers: Arc::new(PeerReplicas::new(peers, self.down.clone())),
            hints: Arc::new(WatchedHints {
                hints: hints.clone(),
                read: hints_read.clone(),
            }),
            heads_first: setup.heads_first,
        };
        let settings = CoordinatorSettings {
            colocated_replicas: setup.colocated,
            request_timeout: Duration::from_secs(5),
            compares_all_on_get: setup.compares_all,
            ..coordinator_settings()
        };
        let node = ClusterNode {
            number,
            _process: process,
            coordinator: Arc::new(Coordinator::among_peers(parts, remote, settings)),
            known,
            vnodes,
            hints,
            hints_read,
            meter,
            maintenance,
            stores,
        };
        node.learn(state);
        node
    }

    pub(crate) fn run<F: Future>(&self, future: F) -> F::Output {
        self.executor.block_on(future)
    }

    /// Waits for all work that clients did not wait for.
    pub(crate) fn settle(&self) {
        self.run(self.runtime.sleep(Duration::from_secs(2)));
    }

    pub(crate) fn node(&self, number: u8) -> &Arc<ClusterNode> {
        &self.nodes[usize::from(number) - 1]
    }

    /// Gives all nodes a state at once.
    pub(crate) fn learn(&self, state: &Arc<ClusterState>) {
        for node in &self.nodes {
            node.learn(state);
        }
    }

    /// Cuts all links of the node; liveness reports it if `is_noticed`.
    pub(crate) fn cut_off(&self, number: u8, is_noticed: bool) {
        self.set_links(number, true);
        if is_noticed {
            self.down.set(node_id(number), true);
        }
    }

    pub(crate) fn heal(&self, number: u8) {
        self.set_links(number, false);
        self.down.set(node_id(number), false);
        // Requests that failed meanwhile are tried again after a pause.
        self.run(self.runtime.sleep(Duration::from_secs(20)));
    }

    pub(crate) fn set_links(&self, number: u8, is_cut: bool) {
        let count = u8::try_from(self.nodes.len()).unwrap();
        cut_off(&self.world, number, count, is_cut);
    }

    pub(crate) fn break_connections(&self, one: u8, other: u8) {
        self.world.break_connections(machine(one), machine(other));
    }

    /// The numbers of the nodes that have a key, primaries in order.
    pub(crate) fn owners(&self, key: &str) -> Vec<u8> {
        let address = crate::world::address(key);
        let coordinator = &self.nodes[0].coordinator;
        let places = coordinator.preference_list(&address).unwrap();
        places.iter().map(|place| number_of(place.node)).collect()
    }

    /// The partitions of a key's replicas.
    pub(crate) fn partitions(&self, key: &str) -> Vec<Partition> {
        let address = crate::world::address(key);
        let coordinator = &self.nodes[0].coordinator;
        let places = coordinator.preference_list(&address).unwrap();
        places.iter().map(|place| place.partition).collect()
    }

    /// A node that has no replica of the key.
    pub(crate) fn stranger(&self, key: &str) -> u8 {
        let owners = self.owners(key);
        (1..).find(|number| !owners.contains(number)).unwrap()
    }
}

/// Counts the hints that are read for a handover.
struct WatchedHints {
    hints: Arc<VnodeHints>,
    read: Arc<AtomicU64>,
}

impl HintStore for WatchedHints {
    fn handle(&self, request: &ReplicaRequest, now: Timestamp, reading: Reading) -> Handled {
        self.hints.handle(request, now, reading)
    }

    fn page(
        &self,
        from: Option<&HintCursor>,
        limits: &HintPageLimits,
        now: Timestamp,
    ) -> Result<HintPage, ReplicaFailure> {
        let page = self.hints.page(from, limits, now)?;
        let read = page.hints.len() as u64;
        self.read.fetch_add(read, Ordering::Relaxed);
        Ok(page)
    }

    fn forget(
        &self,
        partition: Partition,
        key: &StorageKey,
        clock: &Clock,
        now: Timestamp,
    ) -> Result<bool, ReplicaFailure> {
        self.hints.forget(partition, key, clock, now)
    }
}

impl ClusterNode {
    /// Gives the node a state, without opening its stores.
    pub(crate) fn hear_of(&self, state: &Arc<ClusterState>) {
        self.known.set(state);
    }

    /// Adopts a newer state: opens its new stores, and refuses older epochs from now on.
    pub(crate) fn learn(&self, state: &Arc<ClusterState>) {
        self.hear_of(state);
        let ring = state.ring();
        for partition in partitions_at(ring, node_id(self.number)) {
            if self.vnodes.vnode(partition).is_none() {
                let vnode = self.stores.open(partition, ring.epoch(partition));
                self.vnodes.insert(Arc::new(vnode.unwrap()));
            }
        }
        self.vnodes.advance(ring);
    }

    /// From now on the partition's store takes no writes.
    pub(crate) fn break_store(&self, partition: Partition) {
        let backend = Arc::new(TrickBackend::new(u64::from(self.number) << 48));
        backend.refuse_puts(Some(ErrorKind::Failed));
        let vnode = self.stores.open_over(partition, Epoch::FIRST, backend);
        self.vnodes.insert(Arc::new(vnode.unwrap()));
    }

    pub(crate) fn vnode(&self, partition: Partition) -> Arc<Vnode> {
        self.vnodes.vnode(partition).unwrap()
    }

    /// The object of this node's own replica.
    pub(crate) fn stored(&self, partition: Partition, key: &str) -> Option<Arc<Object>> {
        let vnode = self.vnodes.vnode(partition)?;
        let operation = Operation::Get {
            key: storage_key(key),
            detail: Detail::Whole,
        };
        let reply = carry_out(&vnode, operation);
        match reply {
            ReplicaReply::Found(object) => Some(object),
            _ => None,
        }
    }

    /// A client's blind write at a stand-in.
    pub(crate) fn stand_in(&self, partition: Partition, key: &str, value: &str) -> Object {
        let blind = crate::world::request(value, &Clock::new(), Condition::Always);
        let update = ClientUpdate {
            context: blind.context,
            condition: blind.condition,
            content: blind.content,
            resolution: Resolution::KeepSiblings,
            tag: ObjectTag::default(),
        };
        let operation = Operation::Coordinate {
            key: storage_key(key),
            update: Arc::new(update),
            durability: Durability::Grouped,
        };
        let request = ReplicaRequest {
            partition,
            epoch: Epoch::FIRST,
            operation,
        };
        let handled = self.hints.handle(&request, Timestamp(1), Reading::MayBlock);
        match handled {
            Handled::Done(ReplicaReply::Stored { object, .. }) => Arc::unwrap_or_clone(object),
            other => unreachable!("{other:?}"),
        }
    }

    /// Number of hints that the node keeps.
    pub(crate) fn hint_count(&self) -> usize {
        let all = HintPageLimits::default();
        let page = self.hints.page(None, &all, Timestamp(0)).unwrap();
        page.hints.len()
    }
}

pub(crate) fn carry_out(vnode: &Vnode, operation: Operation) -> ReplicaReply {
    let request = ReplicaRequest {
        partition: vnode.partition(),
        epoch: vnode.status().epoch,
        operation,
    };
    match vnode.handle(&request, Timestamp(1), Reading::MayBlock) {
        Handled::Done(reply) => reply,
        Handled::WouldBlock => unreachable!("it may block"),
    }
}

/// Merges all objects of a vnode into another vnode.
pub(crate) fn transfer(from: &Vnode, to: &Vnode) {
    let request = ScanRequest {
        range: FoldRange::all(),
        clock: FoldClock::stopped_at(Timestamp(0)),
        lease: Lease::Unlimited,
        limits: ScanLimits::NONE,
    };
    let page = from.scan::<StoredObject>(&request, &mut |_| true).unwrap();
    assert_eq!(page.undecodable, 0);
    for stored in page.entries {
        let (object, key) = (stored.decode().unwrap(), stored.key);
        let operation = Operation::Store {
            key,
            object,
            resolution: Resolution::KeepSiblings,
            tag: ObjectTag::default(),
            durability: Durability::Grouped,
        };
        let reply = carry_out(to, operation);
        assert!(matches!(reply, ReplicaReply::Received { .. }), "{reply:?}");
    }
}
