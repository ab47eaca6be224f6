//! Four nodes, each with a replica of every key; tests write to single replicas.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use kvorum_anti_entropy::{ExchangeLimits, ScheduleSettings};
use kvorum_backend::{Backend, Batch, Durability, FoldClock, Lease, Reading, Timestamp, Write};
use kvorum_cluster::{ClusterId, ClusterState, Command, Member};
use kvorum_coordinator::{
    Coordinator, Liveness as _, LocalVnodes as _, PeerReplicas, Remote, ReplicaService, VnodeHints,
};
use kvorum_disk::{Disk, MemoryDisk};
use kvorum_encoding::{Bucket, BucketType, Key, StorageKey};
use kvorum_exchanges::{ExchangeSettings, Exchanges, ExchangesReport, KeyPlaces, Parts, Unbounded};
use kvorum_object::{
    ActorId, Clock, Content, Dot, IndexEntry, Metadata, Object, ObjectTag, Resolution, Stored,
};
use kvorum_peer::{PeerSettings, Peers};
use kvorum_properties::PropertyOverlay;
use kvorum_ring::{Epoch, KeyHash, Partition, Ring, RingSize};
use kvorum_runtime::{Executor, ListenOptions, Runtime, SimulatedProcess, World};
use kvorum_test_cluster::{
    Down, Everybody, GivenState, MemoryVnodes, Unmeasured, Vnodes, coordinator_settings, cut_off,
    link_all, machine, node_id, partitions_at, peer_address,
};
use kvorum_vnode::{
    Detail, Handled, IndexPageRequest, IndexScan, Operation, ReplicaReply, ReplicaRequest,
    TreePlacing, Vnode,
};

pub(crate) const NODES: u8 = 4;
/// Every node has a replica of each key.
pub(crate) const N_VAL: u8 = NODES;
const RING_SIZE: u16 = 8;
const INDEX: &str = "colour_bin";

pub(crate) struct Node {
    pub(crate) number: u8,
    _process: SimulatedProcess,
    pub(crate) exchanges: Exchanges,
    known: Arc<GivenState>,
    vnodes: Arc<Vnodes>,
    stores: MemoryVnodes,
    places: Arc<dyn TreePlacing>,
}

/// The nodes, numbered from 1.
pub(crate) struct Cluster {
    executor: Executor,
    world: World,
    pub(crate) runtime: Runtime,
    pub(crate) nodes: Vec<Node>,
    down: Arc<Down>,
    state: Arc<ClusterState>,
}

pub(crate) fn settings() -> ExchangeSettings {
    ExchangeSettings {
        schedule: ScheduleSettings {
            at_once: 2,
            interval_micros: 2_000_000,
            loops_max: 4,
        },
        limits: ExchangeLimits::default(),
        repairs_per_second: 1_000,
        pause: Duration::from_millis(500),
        answer_wait_max: Duration::from_secs(2),
        step_entries_max: 10,
        rebuild_wait: Duration::from_secs(100_000),
        rebuild_delay_max: Duration::ZERO,
        colocated_replicas: false,
    }
}

pub(crate) fn key(name: &str) -> StorageKey {
    let key = Key::new(name.as_bytes().to_vec());
    StorageKey::new(&BucketType::default_type(), &Bucket::from("bucket"), &key)
}

/// A version of an object: this many writes of one actor, and the value of the last.
pub(crate) fn object(counter: u64, value: &str, expires_at: Option<u64>) -> Object {
    let metadata = Metadata {
        expires_at: expires_at.map(kvorum_object::Timestamp::from_micros),
        ..Metadata::default()
    };
    object_with(metadata, counter, value)
}

/// A version of an object with an entry in a secondary index.
pub(crate) fn indexed_object(counter: u64, value: &str, term: &'static str) -> Object {
    let entry = IndexEntry {
        field: INDEX.into(),
        value: term.into(),
    };
    let metadata = Metadata {
        indexes: vec![entry],
        ..Metadata::default()
    };
    object_with(metadata, counter, value)
}

fn object_with(metadata: Metadata, counter: u64, value: &str) -> Object {
    let content = Content {
        metadata,
        value: Bytes::copy_from_slice(value.as_bytes()),
    };
    let dot = |counter| Dot {
        actor: ActorId(77),
        counter,
    };
    let mut context = Clock::new();
    for before in 1..counter {
        context.observe(dot(before), kvorum_object::Timestamp::from_micros(before));
    }
    let write = kvorum_object::Write {
        context: &context,
        content,
        dot: dot(counter),
        now: kvorum_object::Timestamp::from_micros(counter),
        resolution: Resolution::KeepSiblings,
    };
    kvorum_object::update(Stored::Absent, write).unwrap()
}

impl Cluster {
    pub(crate) fn new(settings: ExchangeSettings) -> Self {
        let (executor, world) = World::new(1).unwrap();
        let size = RingSize::new(u64::from(RING_SIZE)).unwrap();
        let owner = |number: u16| node_id(u8::try_from(number % u16::from(NODES)).unwrap() + 1);
        let owners = (0..RING_SIZE).map(owner).collect();
        let epochs = vec![Epoch::FIRST; usize::from(RING_SIZE)];
        let ring = Ring::new(size, owners, epochs).unwrap();
        let id = ClusterId::from_random([9; 16]);
        let state = ClusterState::found(id, "test", node_id(1), Member::new("one@10.0.0.1"), ring);
        let n_val = PropertyOverlay {
            n_val: Some(u32::from(N_VAL)),
            ..PropertyOverlay::default()
        };
        let command = Command::SetDefaultProperties(n_val);
        let state = kvorum_cluster::apply(&state, command).unwrap();
        let mut cluster = Self {
            runtime: world.runtime(),
            executor,
            world,
            nodes: Vec::new(),
            down: Arc::default(),
            state: Arc::new(state),
        };
        for number in 1..=NODES {
            let node = cluster.start(number, settings);
            cluster.nodes.push(node);
        }
        link_all(&cluster.world, NODES);
        cluster
    }

    fn start(&self, number: u8, settings: ExchangeSettings) -> Node {
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
        let known = Arc::new(GivenState::new(self.state.clone()));
        let vnodes = Arc::new(Vnodes::default());
        let directory = Arc::new(Everybody(number));
        let peers = Peers::new(runtime.clone(), directory, PeerSettings::default());
        let figures = Arc::new(Unmeasured);
        let parts = kvorum_coordinator::Parts {
            node: node_id(number),
            runtime: runtime.clone(),
            cluster: known.clone(),
            vnodes: vnodes.clone(),
            meter: figures.clone(),
            maintenance: figures,
            under_way: Arc::default(),
        };
        let service = Arc::new(ReplicaService::new(parts.clone(), hints.clone(), 1_000));
        let at = peer_address(number);
        let listener = runtime.listen(at, ListenOptions::default()).unwrap();
        let serving = peers.clone();
        runtime.spawn("serve", async move {
            serving.serve(listener, service).await;
        });
        let remote = Remote {
            peers: Arc::new(PeerReplicas::new(peers, self.down.clone())),
            hints,
            heads_first: true,
        };
        let coordinator = Coordinator::among_peers(parts, remote, coordinator_settings());
        let down = self.down.clone();
        let exchanges = Exchanges::new(Parts {
            node: node_id(number),
            runtime: runtime.clone(),
            cluster: known.clone(),
            vnodes: vnodes.clone(),
            coordinator: Arc::new(coordinator),
            is_up: Arc::new(move |node| down.is_up(node)),
            budget: Arc::new(Unbounded),
            rounds: None,
            tree_files: None,
            settings,
        });
        runtime.spawn("anti-entropy", exchanges.clone().run());
        let node = Node {
            number,
            _process: process,
            exchanges,
            places: Arc::new(KeyPlaces::new(known.clone())),
            known,
            vnodes,
            stores,
        };
        node.open(self.state.ring());
        node
    }

    pub(crate) fn sleep(&self, seconds: u64) {
        let sleep = self.runtime.sleep(Duration::from_secs(seconds));
        self.executor.block_on(sleep);
    }

    pub(crate) fn runtime_sleep_millis(&self, millis: u64) {
        let sleep = self.runtime.sleep(Duration::from_millis(millis));
        self.executor.block_on(sleep);
    }

    pub(crate) fn node(&self, number: u8) -> &Node {
        &self.nodes[usize::from(number) - 1]
    }

    pub(crate) fn wall_micros(&self) -> u64 {
        self.runtime.wall_time().micros()
    }

    /// The partition under which a node has a key.
    pub(crate) fn partition(&self, number: u8, key: &StorageKey) -> Partition {
        let name = self.nodes[0].places.tree_of(key).unwrap();
        let ring = self.state.ring();
        let holders = ring.holders(name.owner, u16::from(N_VAL));
        let is_here = |it: &Partition| ring.owner(*it) == node_id(number);
        holders.into_iter().find(is_here).unwrap()
    }

    /// Merges an object into a node's replica.
    pub(crate) fn give(&self, number: u8, name: &str, object: &Object) {
        let key = key(name);
        let vnode = self.vnode(number, &key);
        let reply = self.ask(
            &vnode,
            Operation::Store {
                key,
                object: Arc::new(object.clone()),
                resolution: Resolution::KeepSiblings,
                tag: ObjectTag::default(),
                durability: Durability::Buffered,
            },
        );
        assert!(matches!(reply, ReplicaReply::Received { .. }), "{reply:?}");
    }

    pub(crate) fn give_all(&self, name: &str, object: &Object) {
        (1..=NODES).for_each(|number| self.give(number, name, object));
    }

    /// Removes a key from a store without its vnode.
    pub(crate) fn lose(&self, number: u8, name: &str) {
        let vnode = self.vnode(number, &key(name));
        let removal = Batch::of(Write::remove(key(name)));
        let store = vnode.store_for_upkeep();
        let _buffered = store.put(&removal, Durability::Buffered).unwrap();
    }

    /// The object of a node's own replica.
    pub(crate) fn stored(&self, number: u8, name: &str) -> Option<Arc<Object>> {
        let key = key(name);
        let vnode = self.vnode(number, &key);
        let detail = Detail::Whole;
        match self.ask(&vnode, Operation::Get { key, detail }) {
            ReplicaReply::Found(object) => Some(object),
            ReplicaReply::NotFound => None,
            other => panic!("{other:?}"),
        }
    }

    /// True if the index at a node's own replica of a key has the key.
    pub(crate) fn is_indexed(&self, number: u8, name: &str) -> bool {
        let vnode = self.vnode(number, &key(name));
        let request = IndexPageRequest {
            partition: vnode.partition(),
            epoch: Epoch::FIRST,
            hash: KeyHash::Standard,
            size: self.state.ring().size(),
            owners: None,
            bucket_type: BucketType::default_type(),
            bucket: Bucket::from("bucket"),
            scan: IndexScan::Terms {
                field: INDEX.into(),
                from: Bound::Unbounded,
                to: Bound::Unbounded,
            },
            pattern: None,
            after: None,
            entries_max: 1_000,
        };
        let clock = FoldClock::stopped_at(Timestamp(self.wall_micros()));
        let page = vnode
            .index_page(&request, &clock, Lease::Unlimited)
            .unwrap();
        let mut keys = page.entries.iter().map(|it| it.key.as_bytes());
        keys.any(|it| it == name.as_bytes())
    }

    pub(crate) fn vnode(&self, number: u8, key: &StorageKey) -> Arc<Vnode> {
        let partition = self.partition(number, key);
        self.node(number).vnodes.vnode(partition).unwrap()
    }

    fn ask(&self, vnode: &Vnode, operation: Operation) -> ReplicaReply {
        let request = ReplicaRequest {
            partition: vnode.partition(),
            epoch: Epoch::FIRST,
            operation,
        };
        let now = Timestamp(self.wall_micros());
        match vnode.handle(&request, now, Reading::MayBlock) {
            Handled::Done(reply) => reply,
            Handled::WouldBlock => panic!("it may block"),
        }
    }

    /// True when all replicas have the same object of a key.
    pub(crate) fn are_same(&self, name: &str) -> bool {
        let held: Vec<_> = (1..=NODES).map(|it| self.stored(it, name)).collect();
        let is_same = |one: &Option<Arc<Object>>, other: &Option<Arc<Object>>| match (one, other) {
            (Some(one), Some(other)) => one.is_same_as(other) && one == other,
            (one, other) => one.is_none() && other.is_none(),
        };
        held.windows(2).all(|it| is_same(&it[0], &it[1]))
    }

    /// Replaces all stores of a node with empty ones.
    pub(crate) fn wipe(&self, number: u8) {
        self.node(number).open(self.state.ring());
    }

    /// Replaces the store that a node has for a key.
    pub(crate) fn open_over(&self, number: u8, key: &StorageKey, store: Arc<dyn Backend>) {
        let (node, partition) = (self.node(number), self.partition(number, key));
        let vnode = node.stores.open_over(partition, Epoch::FIRST, store);
        let vnode = vnode.unwrap().with_trees(node.places.clone());
        node.vnodes.insert(Arc::new(vnode));
    }

    pub(crate) fn set_down(&self, number: u8, is_down: bool, is_noticed: bool) {
        cut_off(&self.world, number, NODES, is_down);
        self.down.set(node_id(number), is_down && is_noticed);
    }

    pub(crate) fn change_properties(&mut self, properties: PropertyOverlay) {
        let command = Command::SetDefaultProperties(properties);
        self.state = Arc::new(kvorum_cluster::apply(&self.state, command).unwrap());
        for node in &self.nodes {
            node.known.set(&self.state);
        }
    }

    pub(crate) fn reports(&self) -> Vec<ExchangesReport> {
        self.nodes.iter().map(|it| it.exchanges.report()).collect()
    }

    /// Number of preference lists with this n_val that had a complete exchange within this many
    /// seconds.
    pub(crate) fn complete_within(&self, seconds: u64, n_val: u8) -> usize {
        let reports = self.reports();
        let complete = reports.iter().flat_map(|report| {
            let since = report.now_micros.saturating_sub(seconds * 1_000_000);
            let targets = report.targets.iter();
            targets.filter(move |it| {
                it.target.n == n_val && it.complete_at.is_some_and(|at| at >= since)
            })
        });
        complete.count()
    }

    /// Waits until all preference lists have been compared completely by an exchange that begins from now on.
    pub(crate) fn converge(&self) {
        let begun = self.runtime.now();
        for _ in 0..60 {
            self.sleep(1);
            let since = self.runtime.now().since(begun).as_secs();
            if self.complete_within(since, N_VAL) == usize::from(RING_SIZE) {
                return;
            }
        }
        panic!("no end: {:?}", self.reports());
    }

    pub(crate) fn keys_repaired(&self) -> u64 {
        self.reports().iter().map(|it| it.keys_repaired).sum()
    }
}

impl Node {
    /// Opens empty stores for all partitions, whose trees are not built yet.
    fn open(&self, ring: &Ring) {
        for partition in partitions_at(ring, node_id(self.number)) {
            let vnode = self.stores.open(partition, Epoch::FIRST).unwrap();
            let vnode = vnode.with_trees(self.places.clone());
            self.vnodes.insert(Arc::new(vnode));
        }
    }
}
