//! The parts of a node with a stand-in for its control plane, and the changes that follow from the
//! state.

use std::collections::BTreeSet;
use std::sync::Arc;

use kvorum_cluster::ClusterState;
use kvorum_coordinator::VnodeHints;
use kvorum_liveness::Liveness;
use kvorum_ring::{NodeId, Partition};
use kvorum_test_cluster::{GivenState, Vnodes, node_id, partitions_at};
use kvorum_vnode::{LeaseTable, TreeFiles, TreePlacing, Vnode};

use crate::node_settings::VNODE_SETTINGS;
use crate::stores::SimulatedStores;

/// The parts that a member makes in another way.
pub(crate) struct Follower {
    pub(crate) known: Arc<GivenState>,
    pub(crate) vnodes: Arc<Vnodes>,
    pub(crate) liveness: Liveness,
    pub(crate) leases: Arc<LeaseTable>,
    pub(crate) hint_leases: Arc<LeaseTable>,
    pub(crate) stores: Arc<SimulatedStores>,
    pub(crate) places: Option<Arc<dyn TreePlacing>>,
    pub(crate) tree_files: Arc<TreeFiles>,
}

/// A vnode, with trees if a placing of keys in trees is given. Its store must not have been written
/// since it was opened; a file of trees that does not fit the store is removed.
pub(crate) fn with_trees(
    vnode: Vnode,
    places: Option<&Arc<dyn TreePlacing>>,
    files: &TreeFiles,
) -> anyhow::Result<Arc<Vnode>> {
    let store = vnode.store_for_upkeep();
    files.sift(vnode.partition(), store.identity(), store.durable())?;
    Ok(Arc::new(match places {
        Some(places) => vnode.with_trees(places.clone()),
        None => vnode,
    }))
}

impl Follower {
    /// Stores trees and leases, so that vnodes continue with their trees and actors; the stores are
    /// closed.
    pub(crate) fn seal(&self, hints: &VnodeHints) {
        let vnodes = self.vnodes.all();
        for vnode in &vnodes {
            let _kept_or_built_anew = vnode.seal_trees(&self.tree_files);
        }
        let _sealed = self.leases.seal(vnodes.iter().map(|vnode| &**vnode));
        let _sealed = self.hint_leases.seal([hints.vnode()]);
    }

    /// Makes the node use a new state: plans of requests follow it, and callers with an older state
    /// are refused.
    pub(crate) fn follow(&self, news: &Arc<ClusterState>, number: u8) {
        self.known.set(news);
        let ring = news.ring();
        self.vnodes.advance(ring);
        let mut members: BTreeSet<NodeId> = ring.members().iter().copied().collect();
        members.extend(ring.moves().values().map(|moving| moving.to));
        members.insert(node_id(number));
        self.liveness.follow_members(members);
    }

    /// Opens stores of new partitions, and removes stores of partitions that are gone.
    pub(crate) fn follow_stores(&self, news: &ClusterState, number: u8) -> anyhow::Result<()> {
        let ring = news.ring();
        let wanted = partitions_at(ring, node_id(number));
        let size = ring.size();
        let here = self.vnodes.all();
        let here: Vec<Partition> = here.iter().map(|vnode| vnode.partition()).collect();
        for partition in here.iter().filter(|it| !wanted.contains(it)) {
            self.vnodes.remove(*partition);
            self.stores.remove_for_follower(size, *partition)?;
        }
        for partition in wanted.into_iter().filter(|it| !here.contains(it)) {
            let store = self.stores.open_for_follower(size, partition)?;
            let epoch = ring.epoch(partition);
            let vnode = Vnode::new(partition, epoch, store, self.leases.clone(), VNODE_SETTINGS);
            self.leases.renew()?;
            let vnode = with_trees(vnode, self.places.as_ref(), &self.tree_files)?;
            self.vnodes.insert(vnode);
        }
        Ok(())
    }
}
