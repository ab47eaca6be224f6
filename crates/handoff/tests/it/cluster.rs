//! Nodes on simulated machines, with the real transport, vnodes, coordinators and transfers; a log in
//! memory gives each of them the agreed state, late and at different times.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use kvorum_backend::{Backend, Flow, FoldEnd, IndexRange, Lease, Reading, Timestamp};
use kvorum_cluster::{
    AgreedState as _, ClusterId, ClusterState, Command, GrowthStep, Member, MemberStatus, MoveStep,
    ProposeError, apply,
};
use kvorum_coordinator::{
    Condition, Coordinator, CoordinatorSettings, GetOptions, LocalVnodes as _, PeerReplicas,
    PutKind, PutOptions, PutRequest, Remote, ReplicaService, RequestError, VnodeHints,
};
use kvorum_disk::{Disk, MemoryDisk};
use kvorum_encoding::{Address, Bucket, BucketType, Key, StorageKey, bucket_prefix};
use kvorum_handoff::{
    AgreedCluster, Agreeing, Budget, Changing, Parts, TransferSettings, Transfers, Unbounded,
};
use kvorum_object::{Clock, Content, Head, Object};
use kvorum_peer::{Caller, Message, PeerService, PeerSettings, Peers, Served};
use kvorum_properties::PropertyOverlay;
use kvorum_ring::{Epoch, Partition, Ring, RingSize};
use kvorum_runtime::{Executor, ListenOptions, Moment, Runtime, SimulatedProcess, Watched, World};
use kvorum_test_cluster::{
    Down, Everybody, GivenState, MemoryVnodes, Unmeasured, Vnodes, coordinator_settings, cut_off,
    link_all, machine, node_id, partitions_at, peer_address,
};
use kvorum_vnode::{
    Change, ChangeObserver, Detail, Handled, Operation, ReplicaReply, ReplicaRequest, Vnode,
};
use parking_lot::Mutex;

pub(crate) fn size() -> RingSize {
    RingSize::new(16).unwrap()
}

pub(crate) fn part(number: u16) -> Partition {
    size().partition(number).unwrap()
}

pub(crate) fn address(bucket: &str, key: &str) -> Address {
    Address {
        bucket_type: BucketType::default_type(),
        bucket: Bucket::new(bucket.as_bytes().to_vec()),
        key: Key::new(key.as_bytes().to_vec()),
    }
}

/// The agreed state.
pub(crate) struct Log {
    state: Mutex<Arc<ClusterState>>,
}

impl Log {
    fn propose(&self, command: Command) -> Result<Arc<ClusterState>, ProposeError> {
        let mut state = self.state.lock();
        *state = Arc::new(apply(&state, command)?);
        Ok(state.clone())
    }
}

/// The agreed state as far as one node has it.
pub(crate) struct Known {
    given: Arc<GivenState>,
    version: Watched<u64>,
    log: Arc<Log>,
    runtime: Runtime,
    vnodes: Arc<NodeVnodes>,
    /// Set while the node learns nothing of the log.
    pub(crate) is_deaf: Mutex<bool>,
}

/// The agreed state as transfers see it.
struct Agreed(Arc<Known>);

impl AgreedCluster for Agreed {
    fn current(&self) -> Arc<ClusterState> {
        self.0.given.current()
    }

    fn agree(&self, command: Command) -> Agreeing {
        let known = self.0.clone();
        Box::pin(async move {
            let drawn = known.runtime.random_u64();
            known.runtime.sleep(Duration::from_millis(drawn % 15)).await;
            let agreed = known.log.propose(command);
            if (drawn >> 32).is_multiple_of(8) {
                // It may have been agreed all the same.
                let detail = "no node leads".to_owned();
                return Err(ProposeError::NotAgreed { detail });
            }
            known.learn(&agreed?);
            Ok(())
        })
    }

    fn changed(&self, version: u64) -> Changing {
        let mut versions = self.0.version.watch();
        Box::pin(async move {
            let _reached_or_over = versions.until(|it| *it > version).await;
        })
    }
}

/// The vnodes of one node, and the disks of their stores.
pub(crate) struct NodeVnodes {
    number: u8,
    open: Arc<Vnodes>,
    stores: MemoryVnodes,
    /// The changes that the vnodes have shown.
    shown: Mutex<BTreeMap<Partition, Arc<Shown>>>,
}

/// The versions that are stored, by the changes that were shown: all of them, in order, and nothing
/// else.
#[derive(Default)]
pub(crate) struct Shown(Mutex<BTreeMap<StorageKey, Clock>>);

impl ChangeObserver for Shown {
    fn changed(&self, change: &Change<'_>) {
        let (key, mut stored) = (change.key.clone(), self.0.lock());
        let known = match change.new {
            Some(object) => stored.insert(key, object.clock().clone()),
            None => stored.remove(&key),
        };
        assert_eq!(known.as_ref(), change.old.map(Head::clock));
    }
}

impl NodeVnodes {
    pub(crate) fn vnode(&self, partition: Partition) -> Option<Arc<Vnode>> {
        self.open.vnode(partition)
    }

    fn new_vnode(&self, partition: Partition, epoch: Epoch) -> Vnode {
        let shown = Arc::new(Shown::default());
        self.shown.lock().insert(partition, shown.clone());
        let vnode = self.stores.open(partition, epoch).unwrap();
        vnode.observed_by(shown)
    }

    /// Has a store lose everything, as when its disk was replaced.
    pub(crate) fn wipe(&self, partition: Partition) {
        let epoch = self.vnode(partition).unwrap().status().epoch;
        self.open.insert(Arc::new(self.new_vnode(partition, epoch)));
    }

    /// Has a partition's vnode begin anew over this store.
    pub(crate) fn replace(&self, partition: Partition, store: Arc<dyn Backend>) {
        let epoch = self.vnode(partition).unwrap().status().epoch;
        let vnode = self.stores.open_over(partition, epoch, store).unwrap();
        self.shown.lock().remove(&partition);
        self.open.insert(Arc::new(vnode));
    }

    fn follow(&self, ring: &Ring) {
        let here = partitions_at(ring, node_id(self.number));
        // Settled elsewhere: a store that comes back later begins empty.
        for gone in ring.size().partitions().filter(|it| !here.contains(it)) {
            self.open.remove(gone);
        }
        for partition in here {
            if self.vnode(partition).is_none() {
                let vnode = self.new_vnode(partition, ring.epoch(partition));
                self.open.insert(Arc::new(vnode));
            }
        }
        self.open.advance(ring);
    }
}

impl Known {
    /// Learns a state, unless a newer one is known.
    pub(crate) fn learn(&self, state: &Arc<ClusterState>) {
        if state.version() <= self.given.current().version() {
            return;
        }
        self.given.set(state);
        self.vnodes.follow(state.ring());
        self.version.set(state.version());
    }
}

/// A change of answers to transfers on their way.
pub(crate) type Tamper = Box<dyn FnMut(Message) -> Message + Send>;

struct Dispatch {
    transfers: Transfers,
    replicas: ReplicaService,
    tamper: Arc<Mutex<Option<Tamper>>>,
}

impl PeerService for Dispatch {
    fn handle(&self, caller: Caller, message: Message, deadline: Moment) -> Served {
        if !Transfers::serves(&message) {
            return self.replicas.handle(caller, message, deadline);
        }
        let served = self.transfers.handle(caller, &message, deadline);
        let tamper = self.tamper.clone();
        match served {
            Served::Later(answer) => Served::Later(Box::pin(async move {
                let answer = answer.await;
                match &mut *tamper.lock() {
                    Some(tamper) => tamper(answer),
                    None => answer,
                }
            })),
            served => served,
        }
    }
}

/// The parts of a node that outlive its process.
struct Lasting {
    disk: MemoryDisk,
    known: Arc<Known>,
    hints: Arc<VnodeHints>,
    tamper: Arc<Mutex<Option<Tamper>>>,
}

/// A running node.
pub(crate) struct Running {
    process: SimulatedProcess,
    pub(crate) coordinator: Arc<Coordinator>,
    pub(crate) transfers: Transfers,
}

pub(crate) struct Node {
    pub(crate) number: u8,
    lasting: Lasting,
    running: Mutex<Option<Arc<Running>>>,
}

/// The parameters of a cluster.
pub(crate) struct Setup {
    pub(crate) seed: u64,
    pub(crate) nodes: u8,
    pub(crate) ring: Ring,
    pub(crate) settings: TransferSettings,
    pub(crate) peer: PeerSettings,
    /// By the number of the node.
    pub(crate) budget: Arc<dyn Fn(u8) -> Arc<dyn Budget> + Send + Sync>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            seed: 1,
            nodes: 3,
            ring: Ring::single(size(), node_id(1)),
            settings: TransferSettings {
                page_entries_max: 3,
                answer_wait_max: Duration::from_millis(500),
                retry_pause: Duration::from_millis(10),
                cursor_period: Duration::from_millis(10),
                ..TransferSettings::default()
            },
            peer: PeerSettings {
                retry_pause_min: Duration::from_millis(5),
                retry_pause_max: Duration::from_millis(40),
                ..PeerSettings::default()
            },
            budget: Arc::new(|_| Arc::new(Unbounded)),
        }
    }
}

/// The nodes, numbered from 1.
pub(crate) struct Cluster {
    pub(crate) world: World,
    pub(crate) runtime: Runtime,
    pub(crate) log: Arc<Log>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) down: Arc<Down>,
    setup: Setup,
}

/// Runs a test on a cluster of its own.
pub(crate) fn simulated<T>(setup: Setup, test: impl AsyncFnOnce(Arc<Cluster>) -> T) -> T {
    let (executor, world) = World::new(setup.seed).unwrap();
    run(&executor, world, setup, test)
}

fn run<T>(
    executor: &Executor,
    world: World,
    setup: Setup,
    test: impl AsyncFnOnce(Arc<Cluster>) -> T,
) -> T {
    executor.block_on(async move {
        let cluster = Arc::new(Cluster::new(world, setup));
        test(cluster).await
    })
}

/// The state in which every node is a member already.
fn first_state(setup: &Setup) -> ClusterState {
    let id = ClusterId::from_random([9; 16]);
    let ring = Ring::single(size(), node_id(1));
    let member = |number: u8| Member::new(&format!("kvorum@10.0.0.{number}"));
    let mut state = ClusterState::found(id, "test", node_id(1), member(1), ring);
    let properties = PropertyOverlay {
        allow_mult: Some(true),
        ..PropertyOverlay::default()
    };
    let mut commands = vec![Command::SetDefaultProperties(properties)];
    for number in 2..=setup.nodes {
        // Those that own something from the start are full members, the others are to join.
        let is_owner = setup.ring.members().contains(&node_id(number));
        let member = Member {
            status: if is_owner {
                MemberStatus::Valid
            } else {
                MemberStatus::Joining
            },
            ..member(number)
        };
        let node = node_id(number);
        commands.push(Command::AddMember { node, member });
    }
    if setup.ring.members().len() > 1 {
        let raise = |ring: &Ring| {
            let owners = ring.partitions().map(|(_, owner, _)| owner).collect();
            let epochs = vec![Epoch::new(2); usize::from(size().get())];
            Ring::new(size(), owners, epochs).unwrap()
        };
        commands.push(Command::SetRing(raise(&setup.ring)));
    }
    for command in commands {
        state = apply(&state, command).unwrap();
    }
    state
}

impl Cluster {
    fn new(world: World, setup: Setup) -> Self {
        let state = Arc::new(first_state(&setup));
        let log = Arc::new(Log {
            state: Mutex::new(state.clone()),
        });
        let mut cluster = Self {
            runtime: world.runtime(),
            world,
            log,
            nodes: Vec::new(),
            down: Arc::default(),
            setup,
        };
        for number in 1..=cluster.setup.nodes {
            let node = cluster.create(number, &state);
            cluster.nodes.push(node);
            cluster.start(number);
        }
        link_all(&cluster.world, cluster.setup.nodes);
        cluster
    }

    fn create(&self, number: u8, state: &Arc<ClusterState>) -> Node {
        let disk = MemoryDisk::new();
        let leases_disk: Arc<dyn Disk> = Arc::new(disk.clone());
        let random = self.runtime.randomness();
        let stores = AtomicU64::new(u64::from(number) << 32);
        let draw = move || stores.fetch_add(1, Ordering::Relaxed);
        let stores = MemoryVnodes::new(leases_disk, Path::new("node"), random, draw);
        let vnodes = Arc::new(NodeVnodes {
            number,
            open: Arc::default(),
            stores: stores.unwrap(),
            shown: Mutex::default(),
        });
        let of_hints = RingSize::new(4096).unwrap().partition(4095).unwrap();
        let hints = vnodes.new_vnode(of_hints, Epoch::FIRST);
        let hints = Arc::new(VnodeHints::new(hints));
        vnodes.follow(state.ring());
        let known = Arc::new(Known {
            given: Arc::new(GivenState::new(state.clone())),
            version: Watched::new(state.version()),
            log: self.log.clone(),
            runtime: self.runtime.clone(),
            vnodes,
            is_deaf: Mutex::new(false),
        });
        Node {
            number,
            lasting: Lasting {
                disk,
                known,
                hints,
                tamper: Arc::default(),
            },
            running: Mutex::new(None),
        }
    }

    /// Starts a node's process; its stores are as they were.
    pub(crate) fn start(&self, number: u8) {
        let node = self.node(number);
        let Lasting {
            disk,
            known,
            hints,
            tamper,
        } = &node.lasting;
        let process = self.world.start_process(machine(number));
        let runtime = process.runtime();
        let peers = Peers::new(
            runtime.clone(),
            Arc::new(Everybody(number)),
            self.setup.peer.clone(),
        );
        let parts = Parts {
            node: node_id(number),
            runtime: runtime.clone(),
            disk: Arc::new(disk.clone()),
            directory: PathBuf::from("transfers"),
            peers: peers.clone(),
            cluster: Arc::new(Agreed(known.clone())),
            is_up: Arc::new(|_| true),
            vnodes: known.vnodes.open.clone(),
            budget: (self.setup.budget)(number),
            settings: self.setup.settings,
        };
        let transfers = Transfers::new(parts).unwrap();
        let parts = kvorum_coordinator::Parts {
            node: node_id(number),
            runtime: runtime.clone(),
            cluster: known.given.clone(),
            vnodes: known.vnodes.open.clone(),
            meter: Arc::new(Unmeasured),
            maintenance: Arc::new(Unmeasured),
            under_way: Arc::default(),
        };
        let replicas = ReplicaService::new(parts.clone(), hints.clone(), 1_000);
        let dispatch = Arc::new(Dispatch {
            transfers: transfers.clone(),
            replicas,
            tamper: tamper.clone(),
        });
        let at = peer_address(number);
        let listener = runtime.listen(at, ListenOptions::default()).unwrap();
        let serving = peers.clone();
        runtime.spawn(
            "serve",
            async move { serving.serve(listener, dispatch).await },
        );
        let running = transfers.clone();
        runtime.spawn("transfers", async move { running.run().await });
        let remote = Remote {
            peers: Arc::new(PeerReplicas::new(peers, self.down.clone())),
            hints: hints.clone(),
            heads_first: true,
        };
        let settings = CoordinatorSettings {
            request_timeout: Duration::from_secs(5),
            ..coordinator_settings()
        };
        *node.running.lock() = Some(Arc::new(Running {
            process,
            coordinator: Arc::new(Coordinator::among_peers(parts, remote, settings)),
            transfers,
        }));
    }

    /// Ends a node's process at once.
    pub(crate) async fn kill(&self, number: u8) {
        let running = self.node(number).running.lock().take();
        running.unwrap().process.kill();
        self.runtime.sleep(Duration::from_millis(1)).await;
    }

    pub(crate) fn node(&self, number: u8) -> &Node {
        &self.nodes[usize::from(number) - 1]
    }

    pub(crate) fn agreed(&self) -> Arc<ClusterState> {
        self.log.state.lock().clone()
    }

    /// Agrees on a command; all nodes learn of it in time.
    pub(crate) fn agree(&self, command: Command) -> Arc<ClusterState> {
        self.log.propose(command).unwrap()
    }

    pub(crate) fn begin_move(&self, partition: Partition) {
        let at = self.agreed().ring().epoch(partition);
        self.agree(Command::Move {
            partition,
            at,
            step: MoveStep::Begin,
        });
    }

    /// Commits the staged changes.
    pub(crate) fn commit(&self) {
        let id = self.agreed().plan().unwrap().id;
        self.agree(Command::CommitPlan { id });
    }

    pub(crate) fn learn_all(&self) {
        let state = self.agreed();
        for node in &self.nodes {
            node.known().learn(&state);
        }
    }

    pub(crate) async fn until(&self, what: &str, holds: impl Fn() -> bool) {
        for _ in 0..20_000 {
            if holds() {
                return;
            }
            self.runtime.sleep(Duration::from_millis(5)).await;
        }
        let state = self.agreed();
        let status: Vec<_> = self.nodes.iter().filter_map(Node::try_running).collect();
        let status: Vec<_> = status.iter().map(|it| it.transfers.status()).collect();
        panic!(
            "it never comes to hold that {what}: {:?} {status:#?}",
            state.ring()
        );
    }

    /// Begins due moves, as the leader of the log does, and gives the agreed state to all nodes, each
    /// at some time.
    pub(crate) async fn lead(self: Arc<Self>) {
        loop {
            self.runtime.sleep(Duration::from_millis(5)).await;
            let state = self.agreed();
            for (partition, _) in state.next_moves(3) {
                self.begin_move(partition);
            }
            let from = state.ring().replicas_max();
            if let Some(to) = self.agreed().next_growth() {
                let step = GrowthStep::Begin(to);
                self.agree(Command::Grow { from, step });
            }
            let state = self.agreed();
            for node in &self.nodes {
                let is_late = !self.runtime.random_u64().is_multiple_of(6);
                if !is_late && !*node.known().is_deaf.lock() {
                    node.known().learn(&state);
                }
            }
        }
    }

    /// Gives the agreed state to all nodes that are not deaf, for as long as it is polled.
    pub(crate) async fn spread_state(self: Arc<Self>) {
        loop {
            let state = self.agreed();
            let hearing = self.nodes.iter().filter(|it| !*it.known().is_deaf.lock());
            hearing.for_each(|node| node.known().learn(&state));
            self.runtime.sleep(Duration::from_millis(5)).await;
        }
    }

    /// True when everything that was committed is carried out.
    pub(crate) fn is_carried_out(&self) -> bool {
        let state = self.agreed();
        let ring = state.ring();
        state.transition().is_none()
            && ring.moves().is_empty()
            && ring.growth().is_none()
            && state.next_growth().is_none()
    }

    pub(crate) fn set_links(&self, number: u8, is_cut: bool) {
        cut_off(&self.world, number, self.setup.nodes, is_cut);
    }

    pub(crate) fn break_connections(&self, one: u8, other: u8) {
        self.world.break_connections(machine(one), machine(other));
    }

    pub(crate) async fn sleep_ms(&self, ms: u64) {
        self.runtime.sleep(Duration::from_millis(ms)).await;
    }
}

impl Node {
    pub(crate) fn known(&self) -> &Known {
        &self.lasting.known
    }

    pub(crate) fn vnodes(&self) -> &NodeVnodes {
        &self.lasting.known.vnodes
    }

    pub(crate) fn try_running(&self) -> Option<Arc<Running>> {
        self.running.lock().clone()
    }

    pub(crate) fn running(&self) -> Arc<Running> {
        self.try_running().unwrap()
    }

    pub(crate) fn tamper(&self, tamper: Option<Tamper>) {
        *self.lasting.tamper.lock() = tamper;
    }

    pub(crate) fn disk(&self) -> &MemoryDisk {
        &self.lasting.disk
    }

    /// The object of the replica here alone.
    pub(crate) fn stored(&self, partition: Partition, address: &Address) -> Option<Arc<Object>> {
        let vnode = self.vnodes().vnode(partition)?;
        let operation = Operation::Get {
            key: StorageKey::from_address(address),
            detail: Detail::Whole,
        };
        let request = ReplicaRequest {
            partition,
            epoch: vnode.status().epoch,
            operation,
        };
        match vnode.handle(&request, Timestamp(1), Reading::MayBlock) {
            Handled::Done(ReplicaReply::Found(object)) => Some(object),
            _ => None,
        }
    }

    /// The result of the index `w_bin` of the replica here: terms and keys, in order.
    pub(crate) fn indexed(&self, partition: Partition) -> Vec<(Bytes, StorageKey)> {
        let vnode = self.vnodes().vnode(partition).unwrap();
        let (bucket_type, bucket) = (BucketType::default_type(), Bucket::from("bucket"));
        let range = IndexRange {
            bucket_prefix: bucket_prefix(&bucket_type, &bucket).into(),
            field: Bytes::from_static(b"w_bin"),
            from: Bound::Unbounded,
            to: Bound::Unbounded,
            after: None,
        };
        let mut found = Vec::new();
        let indexes = vnode.store_for_upkeep().indexes().unwrap();
        let fold = indexes.fold_index(&range, Lease::Unlimited, Timestamp(1), &mut |term, key| {
            found.push((term.clone(), key.clone()));
            Flow::Continue
        });
        assert_eq!(fold.unwrap(), FoldEnd::Complete);
        found
    }

    pub(crate) fn keys(&self, partition: Partition) -> u64 {
        let vnode = self.vnodes().vnode(partition);
        let keys = vnode.map_or(0, |vnode| vnode.store_status().keys);
        if let Some(shown) = self
            .vnodes()
            .shown
            .lock()
            .get(&partition)
            .filter(|_| keys > 0)
        {
            assert_eq!(shown.0.lock().len() as u64, keys, "each was shown");
        }
        keys
    }
}

impl Running {
    pub(crate) async fn get(
        &self,
        address: &Address,
        options: &GetOptions,
    ) -> Result<Option<Arc<Object>>, RequestError> {
        let now = self.coordinator.runtime().now();
        self.coordinator.get(address, options, now).await
    }

    pub(crate) async fn put(
        &self,
        address: &Address,
        content: Content,
        context: &Clock,
    ) -> Result<Arc<Object>, RequestError> {
        let now = self.coordinator.runtime().now();
        let request = PutRequest {
            context: context.clone(),
            condition: Condition::Always,
            content,
            kind: PutKind::Versioned,
        };
        let options = PutOptions::default();
        self.coordinator.put(address, request, &options, now).await
    }
}

impl Running {
    /// Writes without having read.
    pub(crate) async fn put_blindly(&self, address: &Address, value: &str) -> Arc<Object> {
        let context = Clock::new();
        let put = self.put(address, content(value), &context);
        put.await.unwrap()
    }
}

pub(crate) fn content(value: &str) -> Content {
    Content {
        value: Bytes::copy_from_slice(value.as_bytes()),
        ..Content::default()
    }
}
