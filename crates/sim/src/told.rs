//! A node whose control plane is stood in for: it is told of each ring, late, and the ring of before
//! survives with its machine.
//!
//! All else is what the server is made of: stores and value log, vnodes and leases, hints, the detector
//! of who is up, the peer transport, the coordinator.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use kvorum_cluster::{AgreedState, ClusterState, Command, ProposeError};
use kvorum_coordinator::{
    Coordinator, LocalVnodes, Parts, PeerReplicas, Remote, ReplicaService, ServiceParts, VnodeHints,
};
use kvorum_disk::Disk;
use kvorum_liveness::{Liveness, LivenessSettings};
use kvorum_peer::{
    Admission, Caller, Directory, Introduction, Message, PeerService, PeerSettings, Peers, Served,
};
use kvorum_ring::{Epoch, NodeId, Partition};
use kvorum_runtime::{ListenOptions, Moment, Runtime};
use kvorum_vnode::{LeaseTable, Vnode};
use parking_lot::Mutex;

use crate::machine::{
    DIRECTORY, Machine, NoFigures, Node, PORT, Running, VNODE_SETTINGS, address_of,
    coordinator_settings, node_id, number_of,
};
use crate::stores::{SimulatedStores, Which};

const HINT_DIRECTORY: &str = "/node/hints";
/// Requests of other nodes that wait at which further ones are refused.
const WAITING_MAX: usize = 10_000;

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

/// What such a node has that a member has in another way.
pub(crate) struct Told {
    known: Arc<Known>,
    vnodes: Arc<NodeVnodes>,
    liveness: Liveness,
    leases: Arc<LeaseTable>,
    hint_leases: Arc<LeaseTable>,
    stores: Arc<SimulatedStores>,
}

impl Machine {
    /// Puts a node together that knows what the machine keeps.
    pub(crate) fn told(
        &self,
        runtime: &Runtime,
        disk: &Arc<dyn Disk>,
        learned: &Arc<ClusterState>,
    ) -> anyhow::Result<Running> {
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
        let stores = self.stores(runtime, disk);
        stores.open_first(size, &wanted)?;
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
            runtime,
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
        let service = self.front(runtime)(Arc::new(Dispatch {
            liveness: liveness.clone(),
            replicas,
        }));
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
            heads_first: self.plan.heads_first,
        };
        let settings = coordinator_settings(&self.plan);
        let coordinator = Arc::new(Coordinator::among_peers(parts, remote, settings));
        hand_over_hints(runtime, &coordinator);
        let told = Told {
            known,
            vnodes: vnodes.clone(),
            liveness: liveness.clone(),
            leases,
            hint_leases,
            stores: stores.clone(),
        };
        told.follow(learned, self.number);
        Ok(Running {
            runtime: runtime.clone(),
            coordinator,
            vnodes,
            hints,
            liveness,
            stores,
            node: Node::Told(told),
        })
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
                if let Node::Told(told) = &running.node {
                    told.follow(news, self.number);
                }
            }
            running
        };
        if let Node::Told(told) = &running.node {
            told.follow_stores(news, self.number)?;
        }
        Ok(true)
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

impl Told {
    /// Lets the vnodes go on under their actors; the stores are closed.
    pub(crate) fn seal(&self, hints: &VnodeHints) {
        let vnodes: Vec<Arc<Vnode>> = self.vnodes.0.lock().values().cloned().collect();
        let _sealed = self.leases.seal(vnodes.iter().map(|vnode| &**vnode));
        let _sealed = self.hint_leases.seal([hints.vnode()]);
    }

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
            self.stores.remove_told(size, *partition)?;
        }
        for partition in wanted.into_iter().filter(|it| !here.contains(it)) {
            let store = self.stores.open_told(size, partition)?;
            let epoch = ring.epoch(partition);
            let vnode = Vnode::new(partition, epoch, store, self.leases.clone(), VNODE_SETTINGS);
            self.leases.renew()?;
            self.vnodes.0.lock().insert(partition, Arc::new(vnode));
        }
        Ok(())
    }
}

/// Hands hints over now and then.
fn hand_over_hints(runtime: &Runtime, coordinator: &Arc<Coordinator>) {
    let (coordinator, clock) = (coordinator.clone(), runtime.clone());
    runtime.spawn("hints", async move {
        loop {
            clock.sleep(Duration::from_secs(1)).await;
            let deadline = clock.now().plus(Duration::from_secs(10));
            coordinator.hand_off_hints(deadline).await;
        }
    });
}
