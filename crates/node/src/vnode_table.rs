//! This node's vnodes by partition.

use std::sync::Arc;

use kvorum_coordinator::LocalVnodes;
use kvorum_ring::Partition;
use kvorum_vnode::Vnode;

/// A fixed table: partitions come and go with the ring, which does not change on one node.
pub(crate) struct VnodeTable {
    slots: Vec<Option<Arc<Vnode>>>,
}

impl VnodeTable {
    pub(crate) fn new(partitions: usize, vnodes: Vec<Vnode>) -> Self {
        let mut slots = vec![None; partitions];
        for vnode in vnodes {
            let slot = vnode.partition().slot();
            if let Some(place) = slots.get_mut(slot) {
                *place = Some(Arc::new(vnode));
            }
        }
        Self { slots }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Vnode>> {
        self.slots.iter().flatten()
    }
}

impl LocalVnodes for VnodeTable {
    fn vnode(&self, partition: Partition) -> Option<Arc<Vnode>> {
        self.slots.get(partition.slot())?.clone()
    }
}
