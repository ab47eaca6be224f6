//! A node with a stand-in for its control plane. The stand-in delivers each ring late; the machine
//! keeps the ring of an earlier run.
//!
//! Everything else is the server's: stores and value log, vnodes and leases, hints, the failure
//! detector, the peer transport, the coordinator.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use kvorum_cluster::ClusterState;
use kvorum_coordinator::{Coordinator, Parts, PeerReplicas, Remote, ReplicaService, VnodeHints};
use kvorum_disk::Disk;
use kvorum_exchanges::{Exchanges, KeyPlaces, Unbounded};
use kvorum_liveness::{Liveness, LivenessSettings};
use kvorum_peer::{Caller, Message, PeerService, PeerSettings, Peers, Served};
use kvorum_ring::{Epoch, NodeId};
use kvorum_runtime::{ListenOptions, Moment, Runtime};
use kvorum_test_cluster::{
    Everybody, GivenState, Unmeasured, Vnodes, node_id, partitions_at, peer_address,
};
use kvorum_vnode::{LeaseTable, TreeFiles, TreePlacing, Vnode};

use crate::follower::{Follower, with_trees};
use crate::machine::{DIRECTORY, Machine, Node, Running};
use crate::node_settings::{VNODE_SETTINGS, coordinator_settings, exchange_settings};
use crate::stores::Which;

const HINT_DIRECTORY: &str = "/node/hints";
/// The most waiting requests of other nodes; further requests are refused.
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

impl Machine {
    /// Makes a node from the state that the machine keeps.
    pub(crate) fn stand_in(
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
        let known = Arc::new(GivenState::new(learned.clone()));
        let exchanging = exchange_settings(&self.plan);
        let places = exchanging.map(|_| {
            let places = KeyPlaces::new(known.clone());
            Arc::new(places) as Arc<dyn TreePlacing>
        });
        let tree_files = Arc::new(TreeFiles::new(disk.clone(), Path::new(DIRECTORY)));
        for partition in wanted {
            let store = stores.get(size, Which::Partition(partition));
            let store = store.context("a store was not opened")?;
            let epoch = ring.epoch(partition);
            let vnode = Vnode::new(partition, epoch, store, leases.clone(), VNODE_SETTINGS);
            vnodes.insert(with_trees(vnode, places.as_ref(), &tree_files)?);
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
        let directory = Arc::new(Everybody(self.number));
        let peers = Peers::new(runtime.clone(), directory, PeerSettings::default());
        let liveness = Liveness::start(
            runtime,
            peers.clone(),
            node_id(self.number),
            // The generation: it rises with every run, since virtual time only grows.
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
            under_way: Arc::default(),
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
        let detector = liveness.clone();
        let exchanges = exchanging.map(|settings| {
            Exchanges::new(kvorum_exchanges::Parts {
                node: node_id(self.number),
                runtime: runtime.clone(),
                cluster: known.clone(),
                vnodes: vnodes.clone(),
                coordinator: coordinator.clone(),
                is_up: Arc::new(move |node| detector.is_up(node)),
                budget: Arc::new(Unbounded),
                rounds: None,
                tree_files: Some(tree_files.clone()),
                settings,
            })
        });
        if let Some(exchanges) = &exchanges {
            runtime.spawn("anti-entropy", exchanges.clone().run());
        }
        let follower = Follower {
            known,
            vnodes: vnodes.clone(),
            liveness: liveness.clone(),
            leases,
            hint_leases,
            stores: stores.clone(),
            places,
            tree_files,
        };
        follower.follow(learned, self.number);
        Ok(Running {
            runtime: runtime.clone(),
            coordinator,
            vnodes,
            hints,
            liveness,
            stores,
            exchanges,
            node: Node::Follower(follower),
        })
    }

    /// Passes a state to the machine's node, which keeps a newer state of its own; false without a
    /// node.
    pub(crate) fn learn(&self, news: &Arc<ClusterState>) -> anyhow::Result<bool> {
        let running = {
            let mut state = self.state.lock();
            let Some(running) = state.running.clone() else {
                return Ok(false);
            };
            if news.version() > state.learned.version() {
                state.learned = news.clone();
                if let Node::Follower(follower) = &running.node {
                    follower.follow(news, self.number);
                }
            }
            running
        };
        if let Node::Follower(follower) = &running.node {
            follower.follow_stores(news, self.number)?;
        }
        Ok(true)
    }
}

/// Hands over hints once a second.
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
