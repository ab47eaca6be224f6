//! A node whose control plane is stood in for: it is told of each ring, late, and the ring of before
//! survives with its machine.
//!
//! All else is what the server is made of: stores and value log, vnodes and leases, hints, the detector
//! of who is up, the peer transport, the coordinator.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use kvorum_cluster::ClusterState;
use kvorum_coordinator::{Coordinator, Parts, PeerReplicas, Remote, ReplicaService, VnodeHints};
use kvorum_disk::Disk;
use kvorum_liveness::{Liveness, LivenessSettings};
use kvorum_peer::{Caller, Message, PeerService, PeerSettings, Peers, Served};
use kvorum_ring::{Epoch, NodeId, Partition};
use kvorum_runtime::{ListenOptions, Moment, Runtime};
use kvorum_test_cluster::{
    Everybody, ToldState, Unmeasured, Vnodes, node_id, partitions_at, peer_address,
};
use kvorum_vnode::{LeaseTable, Vnode};

use crate::machine::{DIRECTORY, Machine, Node, Running, VNODE_SETTINGS, coordinator_settings};
use crate::stores::{SimulatedStores, Which};

const HINT_DIRECTORY: &str = "/node/hints";
/// Requests of other nodes that wait at which further ones are refused.
const WAITING_MAX: usize = 10_000;

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
    known: Arc<ToldState>,
    vnodes: Arc<Vnodes>,
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
        let (size, wanted) = (ring.size(), partitions_at(ring, node_id(self.number)));
        let stores = self.stores(runtime, disk);
        stores.open_first(size, &wanted)?;
        let vnodes = Arc::new(Vnodes::default());
        for partition in wanted {
            let store = stores.get(size, Which::Partition(partition));
            let store = store.context("a store was not opened")?;
            let epoch = ring.epoch(partition);
            let vnode = Vnode::new(partition, epoch, store, leases.clone(), VNODE_SETTINGS);
            vnodes.insert(Arc::new(vnode));
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

        let listener = runtime.listen(peer_address(self.number), ListenOptions::default())?;
        let known = Arc::new(ToldState::new(learned.clone()));
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
        let figures = Arc::new(Unmeasured);
        let parts = Parts {
            node: node_id(self.number),
            runtime: runtime.clone(),
            cluster: known.clone(),
            vnodes: vnodes.clone(),
            meter: figures.clone(),
            maintenance: figures,
        };
        let replicas = ReplicaService::new(parts.clone(), hints.clone(), WAITING_MAX);
        let service = self.front(runtime)(Arc::new(Dispatch {
            liveness: liveness.clone(),
            replicas,
        }));
        let serving = peers.clone();
        runtime.spawn("peer listener", async move {
            serving.serve(listener, service).await;
        });
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

impl Told {
    /// Lets the vnodes go on under their actors; the stores are closed.
    pub(crate) fn seal(&self, hints: &VnodeHints) {
        let vnodes = self.vnodes.all();
        let _sealed = self.leases.seal(vnodes.iter().map(|vnode| &**vnode));
        let _sealed = self.hint_leases.seal([hints.vnode()]);
    }

    /// Asks by a new state from now on, and refuses who asks by an older one.
    fn follow(&self, news: &Arc<ClusterState>, number: u8) {
        self.known.tell(news);
        let ring = news.ring();
        self.vnodes.advance(ring);
        let mut members: BTreeSet<NodeId> = ring.members().iter().copied().collect();
        members.extend(ring.moves().values().map(|moving| moving.to));
        members.insert(node_id(number));
        self.liveness.follow_members(members);
    }

    /// Opens what comes and removes what is gone.
    fn follow_stores(&self, news: &ClusterState, number: u8) -> anyhow::Result<()> {
        let ring = news.ring();
        let wanted = partitions_at(ring, node_id(number));
        let size = ring.size();
        let here = self.vnodes.all();
        let here: Vec<Partition> = here.iter().map(|vnode| vnode.partition()).collect();
        for partition in here.iter().filter(|it| !wanted.contains(it)) {
            self.vnodes.remove(*partition);
            self.stores.remove_told(size, *partition)?;
        }
        for partition in wanted.into_iter().filter(|it| !here.contains(it)) {
            let store = self.stores.open_told(size, partition)?;
            let epoch = ring.epoch(partition);
            let vnode = Vnode::new(partition, epoch, store, self.leases.clone(), VNODE_SETTINGS);
            self.leases.renew()?;
            self.vnodes.insert(Arc::new(vnode));
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
