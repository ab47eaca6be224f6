//! The vnodes of a node, which a test opens and removes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kvorum_coordinator::LocalVnodes;
use kvorum_ring::{NodeId, Partition, Ring};
use kvorum_vnode::Vnode;
use parking_lot::Mutex;

/// The vnodes of a node.
#[derive(Default)]
pub struct Vnodes {
    open: Mutex<BTreeMap<Partition, Arc<Vnode>>>,
    is_broken: AtomicBool,
}

impl LocalVnodes for Vnodes {
    fn vnode(&self, partition: Partition) -> Option<Arc<Vnode>> {
        assert!(!self.is_broken.load(Ordering::SeqCst), "broken on purpose");
        self.open.lock().get(&partition).cloned()
    }
}

impl Vnodes {
    /// Adds a vnode, in place of its partition's present vnode.
    pub fn insert(&self, vnode: Arc<Vnode>) {
        self.open.lock().insert(vnode.partition(), vnode);
    }

    /// Removes the vnode of a partition.
    pub fn remove(&self, partition: Partition) {
        self.open.lock().remove(&partition);
    }

    /// The open vnodes, in the order of their partitions.
    pub fn all(&self) -> Vec<Arc<Vnode>> {
        self.open.lock().values().cloned().collect()
    }

    /// Makes open vnodes refuse older epochs than the ring's.
    pub fn advance(&self, ring: &Ring) {
        for vnode in self.open.lock().values() {
            vnode.advance_epoch(ring.epoch(vnode.partition()));
        }
    }

    /// Makes every request for a vnode panic from now on, or no longer.
    pub fn set_broken(&self, is_broken: bool) {
        self.is_broken.store(is_broken, Ordering::SeqCst);
    }
}

/// The partitions of a node in a ring, in order: its own, and partitions that move to it.
pub fn partitions_at(ring: &Ring, node: NodeId) -> Vec<Partition> {
    let receiver = |partition| ring.moves().get(&partition).map(|moving| moving.to);
    let all = ring.partitions();
    let here =
        all.filter(|(partition, owner, _)| *owner == node || receiver(*partition) == Some(node));
    here.map(|(partition, ..)| partition).collect()
}
