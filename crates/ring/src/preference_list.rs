//! Preference lists: the replicas of one key, with stand-ins for nodes that are down.
//!
//! Riak may place a fallback on a node that already holds a replica, so one machine can make up a
//! quorum. Here a fallback always adds a node. If no node is left the list stays short, and a
//! quorum that the nodes cannot reach is refused. Only with colocated replicas, for which the user
//! asks explicitly, may a node be used again.

use smallvec::SmallVec;

use crate::node_id::NodeId;
use crate::partition::Partition;
use crate::position::Position;
use crate::ring::{Epoch, Ring};

/// The role of a replica: on its partition's owner or on a stand-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// On the owner of its partition.
    Primary,
    /// On a stand-in: kept under the partition of the primary that is down, and handed over when the
    /// primary is back.
    Fallback,
}

/// One copy of an object: the vnode to ask, and the node that serves it now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replica {
    /// The partition, also on a fallback.
    pub partition: Partition,
    /// The node that serves it now.
    pub node: NodeId,
    /// The role: `Primary` if that node owns the partition.
    pub role: Role,
    /// The partition's epoch in the ring that the list was made from.
    pub epoch: Epoch,
}

/// Primaries in ring order, then fallbacks. Lists of usual length need no allocation.
pub type PreferenceList = SmallVec<[Replica; 3]>;

impl Ring {
    /// The replicas from which to read the key at `position`, for a bucket with `n_val`, on nodes
    /// that are `up`. For a write see [`Ring::write_list`].
    ///
    /// At most [`Ring::effective_n`] replicas, fewer when too many nodes are down.
    pub fn preference_list(
        &self,
        position: Position,
        n_val: u32,
        colocated: bool,
        up: impl Fn(NodeId) -> bool,
    ) -> PreferenceList {
        let n = self.effective_n(n_val, colocated);
        let owner = position.owner(self.size());
        let mut list = PreferenceList::new();
        let mut down = SmallVec::<[Partition; 3]>::new();
        let places = self.read_detours(colocated).walk(self.size(), owner);
        for partition in places.take(usize::from(n)) {
            let node = self.reader(partition);
            if up(node) {
                list.push(self.replica(partition, node, Role::Primary));
            } else {
                down.push(partition);
            }
        }
        if !down.is_empty() {
            self.add_fallbacks(&mut list, &down, owner, n, colocated, up);
        }
        list
    }

    /// The replicas of the key at `position` when every node is up.
    pub fn primaries(&self, position: Position, n_val: u32, colocated: bool) -> PreferenceList {
        self.preference_list(position, n_val, colocated, |_| true)
    }

    /// Walks on around the circle behind the primaries, and takes the owners of the partitions
    /// there.
    fn add_fallbacks(
        &self,
        list: &mut PreferenceList,
        down: &[Partition],
        owner: Partition,
        n: u16,
        colocated: bool,
        up: impl Fn(NodeId) -> bool,
    ) {
        let offered = |step| self.owner(self.size().after(owner, step));
        let mut waiting = down.iter().copied();
        let mut next = waiting.next();
        for node in (n..self.size().get()).map(offered) {
            let Some(partition) = next else { return };
            if up(node) && list.iter().all(|replica| replica.node != node) {
                list.push(self.replica(partition, node, Role::Fallback));
                next = waiting.next();
            }
        }
        if !colocated {
            return;
        }
        for node in (0..self.size().get()).map(|step| offered(n.wrapping_add(step))) {
            let Some(partition) = next else { return };
            if up(node) {
                list.push(self.replica(partition, node, Role::Fallback));
                next = waiting.next();
            }
        }
    }

    fn replica(&self, partition: Partition, node: NodeId, role: Role) -> Replica {
        Replica {
            partition,
            node,
            role,
            epoch: self.epoch(partition),
        }
    }
}
