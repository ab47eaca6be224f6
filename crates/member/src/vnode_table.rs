//! This node's vnodes by partition: they come and go with the ring.

use std::sync::Arc;

use arc_swap::ArcSwap;
use kvorum_coordinator::LocalVnodes;
use kvorum_ring::Partition;
use kvorum_vnode::Vnode;
use parking_lot::Mutex;

/// See the module's description. Looked into by every request, changed when the ring is.
#[derive(Default)]
pub struct VnodeTable {
    slots: ArcSwap<Slots>,
    changing: Mutex<()>,
}

type Slots = Vec<Option<Arc<Vnode>>>;

impl VnodeTable {
    /// All vnodes, in the order of their partitions.
    pub fn all(&self) -> Vec<Arc<Vnode>> {
        self.slots.load().iter().flatten().cloned().collect()
    }

    /// The vnode of the partition of this number.
    pub fn numbered(&self, partition: u16) -> Option<Arc<Vnode>> {
        self.slots.load().get(usize::from(partition))?.clone()
    }

    pub(crate) fn put(&self, vnodes: impl IntoIterator<Item = Arc<Vnode>>) {
        self.change(|slots| {
            for vnode in vnodes {
                let slot = vnode.partition().slot();
                if slots.len() <= slot {
                    slots.resize(slot + 1, None);
                }
                slots[slot] = Some(vnode);
            }
        });
    }

    pub(crate) fn take(&self, partition: Partition) -> Option<Arc<Vnode>> {
        self.change(|slots| slots.get_mut(partition.slot())?.take())
    }

    pub(crate) fn take_all(&self) -> Vec<Arc<Vnode>> {
        self.change(|slots| std::mem::take(slots).into_iter().flatten().collect())
    }

    fn change<R>(&self, change: impl FnOnce(&mut Slots) -> R) -> R {
        let _changing = self.changing.lock();
        let mut slots = Slots::clone(&self.slots.load());
        let result = change(&mut slots);
        self.slots.store(Arc::new(slots));
        result
    }
}

impl LocalVnodes for VnodeTable {
    fn vnode(&self, partition: Partition) -> Option<Arc<Vnode>> {
        self.slots.load().get(partition.slot())?.clone()
    }
}
