//! Lets this node's vnodes follow the ring.
//!
//! A vnode is opened when the ring makes this node the owner or the receiver of its partition, and is
//! there until the partition has settled elsewhere; its epoch is that of the ring that this node has
//! learned. Which stores there are is written down before they are opened and after they are gone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kvorum_backend::Backend;
use kvorum_claimant::ReplicatedState;
use kvorum_cluster::{AgreedState, ClusterState};
use kvorum_disk::DiskError;
use kvorum_liveness::Liveness;
use kvorum_peer::Peers;
use kvorum_ring::{Epoch, NodeId, Partition, Phase, Ring};
use kvorum_runtime::Runtime;
use kvorum_vnode::{LeaseTable, Vnode, VnodeSettings};

use crate::contacts::is_unknown;
use crate::error::OpenError;
use crate::held::{Held, HeldFile};
use crate::stores::{FirstStores, StoreError, Stores};
use crate::vnode_table::VnodeTable;

/// What could not be opened or removed is tried again after this long.
const RETRY_PAUSE: Duration = Duration::from_secs(5);

/// What the vnodes stand on.
#[derive(Clone)]
pub(crate) struct Ground {
    pub(crate) runtime: Runtime,
    pub(crate) node: NodeId,
    pub(crate) stores: Arc<dyn Stores>,
    pub(crate) leases: Arc<LeaseTable>,
    pub(crate) held: Arc<HeldFile>,
    pub(crate) table: Arc<VnodeTable>,
    pub(crate) settings: VnodeSettings,
}

/// See the module's description.
pub(crate) struct Follower {
    pub(crate) ground: Ground,
    pub(crate) state: ReplicatedState,
    pub(crate) liveness: Liveness,
    pub(crate) peers: Peers,
    /// The record of stores as it was written last. Held over every change of the vnodes.
    pub(crate) written: tokio::sync::Mutex<Held>,
    members: parking_lot::Mutex<BTreeSet<NodeId>>,
}

/// Why the stores are not as the ring wants them.
#[derive(Debug, thiserror::Error)]
enum FollowError {
    #[error("{0}")]
    Store(StoreError),
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// The partitions that this node has to have, with the epoch at which it got them: the present one
/// for an owner, since it may have been one for long, and that of the move's beginning for a receiver.
fn wanted(state: &ClusterState, node: NodeId) -> BTreeMap<Partition, Epoch> {
    let ring = state.ring();
    let owned = ring.partitions().filter(|(_, owner, _)| *owner == node);
    let owned = owned.map(|(partition, ..)| (partition, ring.epoch(partition)));
    owned.chain(received(ring, node)).collect()
}

fn received(ring: &Ring, node: NodeId) -> impl Iterator<Item = (Partition, Epoch)> + '_ {
    let to_this = ring.moves().iter().filter(move |(_, it)| it.to == node);
    to_this.map(|(partition, moving)| {
        let steps = match moving.phase {
            Phase::Filling => 0,
            Phase::Closing => 1,
        };
        let begun = ring.epoch(*partition).get().saturating_sub(steps);
        (*partition, Epoch::new(begun))
    })
}

/// The partitions whose recorded store is of no use: settled elsewhere, or of before a move back began.
fn stale(held: &Held, state: &ClusterState, node: NodeId) -> Vec<Partition> {
    if held.size != state.ring().size() {
        return held.since.keys().copied().collect();
    }
    let wanted = wanted(state, node);
    let receives: BTreeMap<Partition, Epoch> = received(state.ring(), node).collect();
    let is_stale = |(partition, since): &(&Partition, &Epoch)| {
        let is_older = |begun: &Epoch| *since < begun;
        !wanted.contains_key(partition) || receives.get(partition).is_some_and(is_older)
    };
    let stale = held.since.iter().filter(is_stale);
    stale.map(|(partition, _)| *partition).collect()
}

/// Opens what the node starts with. Blocks.
pub(crate) fn open_first(
    ground: &Ground,
    state: &ClusterState,
) -> Result<(Held, Arc<dyn Backend>), OpenError> {
    let size = state.ring().size();
    let mut wanted = wanted(state, ground.node);
    let recorded = ground.held.load()?;
    let is_first = recorded.is_none();
    let mut held = recorded.unwrap_or(Held {
        size,
        since: BTreeMap::new(),
    });
    // Before the state is known, nothing is known to be of no use.
    if !is_unknown(state) {
        for partition in stale(&held, state, ground.node) {
            tracing::info!(event = "store_left_over", partition = partition.number());
            let removed = ground.stores.remove(held.size, partition, None);
            removed.map_err(OpenError::Stores)?;
            held.since.remove(&partition);
        }
        held.size = size;
    }
    for (partition, since) in &mut wanted {
        match held.since.get(partition) {
            Some(recorded) => *since = *recorded,
            // Where there is no record yet, what is there is this node's own.
            None if is_first => {}
            None => {
                let removed = ground.stores.remove(size, *partition, None);
                removed.map_err(OpenError::Stores)?;
            }
        }
    }
    held.since.extend(&wanted);
    ground.held.store(&held)?;
    let partitions: Vec<Partition> = wanted.into_keys().collect();
    let opened = ground.stores.open_first(size, &partitions);
    let FirstStores { partitions, hints } = opened.map_err(OpenError::Stores)?;
    let vnodes = partitions
        .into_iter()
        .map(|(partition, store)| ground.vnode(state.ring(), partition, store));
    ground.table.put(vnodes);
    ground.leases.renew()?;
    Ok((held, hints))
}

impl Ground {
    fn vnode(&self, ring: &Ring, partition: Partition, store: Arc<dyn Backend>) -> Arc<Vnode> {
        let (epoch, leases) = (ring.epoch(partition), self.leases.clone());
        Arc::new(Vnode::new(partition, epoch, store, leases, self.settings))
    }

    /// Opens the stores of partitions that were not there before. Blocks.
    fn open(
        &self,
        held: &mut Held,
        state: &ClusterState,
        new: &BTreeMap<Partition, Epoch>,
    ) -> Result<(), FollowError> {
        let ring = state.ring();
        for partition in new.keys() {
            let removed = self.stores.remove(held.size, *partition, None);
            removed.map_err(FollowError::Store)?;
        }
        held.since.extend(new);
        self.held.store(held)?;
        let mut vnodes = Vec::new();
        for partition in new.keys() {
            let store = self.stores.open(held.size, *partition);
            vnodes.push(self.vnode(ring, *partition, store.map_err(FollowError::Store)?));
        }
        self.leases.renew()?;
        self.table.put(vnodes);
        Ok(())
    }

    /// Closes and removes stores, whether a vnode stands on them or not. Blocks.
    pub(crate) fn remove(
        &self,
        held: &mut Held,
        partitions: impl IntoIterator<Item = (Partition, Option<Arc<Vnode>>)>,
    ) -> Result<(), StoreError> {
        for (partition, vnode) in partitions {
            let store = vnode.map(|vnode| vnode.backend().clone());
            self.stores.remove(held.size, partition, store)?;
            held.since.remove(&partition);
        }
        self.held.store(held)?;
        Ok(())
    }
}

impl Follower {
    pub(crate) fn new(
        ground: Ground,
        state: ReplicatedState,
        liveness: Liveness,
        peers: Peers,
        held: Held,
    ) -> Self {
        Self {
            ground,
            state,
            liveness,
            peers,
            written: tokio::sync::Mutex::new(held),
            members: parking_lot::Mutex::default(),
        }
    }

    /// Works for as long as it is polled.
    pub(crate) async fn run(&self) {
        let mut versions = self.state.versions();
        loop {
            versions.mark_unchanged();
            let is_done = self.follow().await;
            let changed = versions.changed();
            if is_done {
                if changed.await.is_err() {
                    return;
                }
            } else {
                let _changed_or_retried = self.ground.runtime.timeout(RETRY_PAUSE, changed).await;
            }
        }
    }

    /// Brings everything to the state of this moment; false when something is left to be tried again.
    pub(crate) async fn follow(&self) -> bool {
        let mut held = self.written.lock().await;
        let state = self.state.current();
        self.follow_members(&state);
        if is_unknown(&state) {
            return true;
        }
        let ring = state.ring();
        for vnode in self.ground.table.all() {
            vnode.advance_epoch(ring.epoch(vnode.partition()));
        }
        let ground = self.ground.clone();
        let mut next = held.clone();
        let work = move || {
            let followed = follow_stores(&ground, &mut next, &state);
            (next, followed)
        };
        let (next, followed) = self.ground.runtime.blocking(work).await;
        *held = next;
        if let Err(error) = &followed {
            tracing::error!(event = "ring_not_followed", error = %error);
        }
        followed.is_ok()
    }

    fn follow_members(&self, state: &ClusterState) {
        let members: BTreeSet<NodeId> = state.members().keys().copied().collect();
        let before = std::mem::replace(&mut *self.members.lock(), members.clone());
        for gone in before.difference(&members) {
            self.peers.forget(*gone);
        }
        if before != members {
            self.liveness.follow_members(members);
        }
    }
}

/// Opens what is missing and removes what has settled elsewhere. Blocks.
fn follow_stores(
    ground: &Ground,
    held: &mut Held,
    state: &ClusterState,
) -> Result<(), FollowError> {
    let wanted = wanted(state, ground.node);
    if held.size != state.ring().size() && held.since.is_empty() {
        held.size = state.ring().size();
    }
    let gone: Vec<_> = stale(held, state, ground.node)
        .into_iter()
        .map(|partition| (partition, ground.table.take(partition)))
        .collect();
    if !gone.is_empty() {
        for (partition, _) in &gone {
            tracing::info!(
                event = "partition_settled_elsewhere",
                partition = partition.number()
            );
        }
        ground.remove(held, gone).map_err(FollowError::Store)?;
    }
    held.size = state.ring().size();
    let have: BTreeSet<Partition> = ground.table.all().iter().map(|it| it.partition()).collect();
    let new: BTreeMap<Partition, Epoch> = wanted
        .into_iter()
        .filter(|(partition, _)| !have.contains(partition))
        .collect();
    if !new.is_empty() {
        ground.open(held, state, &new)?;
    }
    Ok(())
}
