//! The ring itself: the owner and the epoch of each partition.

use std::collections::BTreeMap;
use std::fmt;

use crate::detour::Detours;
use crate::motion::{Growth, Move};
use crate::node_id::NodeId;
use crate::partition::{Partition, RingSize};

/// A number of a partition that rises with each step of a move. Every replica request carries it,
/// and a vnode refuses a request with a lower epoch than its own. So a former owner cannot serve or
/// be written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(u64);

impl Epoch {
    /// The epoch of every partition of a new ring.
    pub const FIRST: Self = Self(1);

    /// The epoch with this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The epoch's number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The epoch after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The committed ring: the owner and the epoch of every partition, the moves, and the number of
/// replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ring {
    size: RingSize,
    owners: Box<[NodeId]>,
    epochs: Box<[Epoch]>,
    /// The distinct owners in order; computed once, since every request needs them.
    members: Box<[NodeId]>,
    pub(crate) moves: BTreeMap<Partition, Move>,
    pub(crate) replicas_max: u16,
    pub(crate) growth: Option<Growth>,
    pub(crate) detours: Detours,
    /// The detours of the new lists, while a growth is under way.
    pub(crate) next_detours: Detours,
}

/// The reason why lists of owners and epochs do not make a ring.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// The number of owners is not the ring's size.
    #[error("ring of {size} has {got} owners")]
    OwnerCount {
        /// The ring's size.
        size: RingSize,
        /// Number of owners given.
        got: usize,
    },
    /// The number of epochs is not the ring's size.
    #[error("ring of {size} has {got} epochs")]
    EpochCount {
        /// The ring's size.
        size: RingSize,
        /// Number of epochs given.
        got: usize,
    },
}

impl Ring {
    /// The ring with these owners and epochs, one of each for every partition, from partition 0
    /// upward.
    pub fn new(size: RingSize, owners: Vec<NodeId>, epochs: Vec<Epoch>) -> Result<Self, RingError> {
        let expected = usize::from(size.get());
        if owners.len() != expected {
            return Err(RingError::OwnerCount {
                size,
                got: owners.len(),
            });
        }
        if epochs.len() != expected {
            return Err(RingError::EpochCount {
                size,
                got: epochs.len(),
            });
        }
        Ok(Self::from_parts(size, owners, epochs))
    }

    /// The ring of a cluster of one.
    pub fn single(size: RingSize, node: NodeId) -> Self {
        let partitions = usize::from(size.get());
        Self::from_parts(size, vec![node; partitions], vec![Epoch::FIRST; partitions])
    }

    pub(crate) fn from_parts(size: RingSize, owners: Vec<NodeId>, epochs: Vec<Epoch>) -> Self {
        let members = distinct(&owners);
        Self {
            size,
            replicas_max: u16::try_from(members.len()).unwrap_or(u16::MAX),
            members,
            owners: owners.into(),
            epochs: epochs.into(),
            moves: BTreeMap::new(),
            growth: None,
            detours: Detours::default(),
            next_detours: Detours::default(),
        }
    }

    /// The same ring with stored moves and a stored growth.
    #[must_use]
    pub fn with_motion(mut self, moves: BTreeMap<Partition, Move>, growth: Option<Growth>) -> Self {
        self.moves = moves;
        self.growth = growth;
        self
    }

    /// Gives a partition to an owner, possibly the present one, and raises its epoch.
    pub(crate) fn pass_on(&mut self, partition: Partition, owner: NodeId) -> Epoch {
        let slot = self.slot(partition);
        if self.owners[slot] != owner {
            self.owners[slot] = owner;
            self.members = distinct(&self.owners);
        }
        self.epochs[slot] = self.epochs[slot].next();
        self.epochs[slot]
    }

    /// The number of partitions.
    pub fn size(&self) -> RingSize {
        self.size
    }

    /// The owner of a partition.
    pub fn owner(&self, partition: Partition) -> NodeId {
        self.owners[self.slot(partition)]
    }

    /// The epoch of a partition.
    pub fn epoch(&self, partition: Partition) -> Epoch {
        self.epochs[self.slot(partition)]
    }

    /// The nodes that own a partition, in order of their identities.
    pub fn members(&self) -> &[NodeId] {
        &self.members
    }

    /// All partitions with their owners and epochs.
    pub fn partitions(&self) -> impl Iterator<Item = (Partition, NodeId, Epoch)> + '_ {
        let owners = self.owners.iter().zip(&self.epochs);
        self.size
            .partitions()
            .zip(owners)
            .map(|(partition, (owner, epoch))| (partition, *owner, *epoch))
    }

    /// The partitions of one node.
    pub fn owned_by(&self, node: NodeId) -> impl Iterator<Item = Partition> + '_ {
        self.partitions()
            .filter(move |(_, owner, _)| *owner == node)
            .map(|(partition, ..)| partition)
    }

    /// Number of an object's replicas for reads: at most the number of partitions, and at most the
    /// agreed number ([`Ring::replicas_max`]) unless several replicas may be on one node
    /// (`colocated`).
    ///
    /// The agreed number counts, and not the nodes that are up: a failure must not lower a quorum.
    /// The number of members does not count either: a node that has just joined holds nothing yet.
    pub fn effective_n(&self, n_val: u32, colocated: bool) -> u16 {
        self.bounded_n(n_val, colocated, self.read_replicas_max())
    }

    pub(crate) fn bounded_n(&self, n_val: u32, colocated: bool, replicas_max: u16) -> u16 {
        let most = if colocated {
            self.size.get()
        } else {
            replicas_max.min(self.size.get())
        };
        u16::try_from(n_val).unwrap_or(most).min(most)
    }

    /// The owner partitions whose `n` replicas are on fewer distinct nodes than possible.
    pub fn crowded(&self, n: u16) -> Vec<Partition> {
        let members = u16::try_from(self.members.len()).unwrap_or(u16::MAX);
        let n = n.min(members).min(self.size.get());
        let shares = |partition: Partition| {
            let list = self.detours.walk(self.size, partition);
            let mut nodes: Vec<_> = list
                .take(usize::from(n))
                .map(|partition| self.owner(partition))
                .collect();
            nodes.sort_unstable();
            nodes.dedup();
            nodes.len() < usize::from(n)
        };
        self.size
            .partitions()
            .filter(|partition| shares(*partition))
            .collect()
    }

    /// The same ring with a higher epoch of every partition: its vnodes refuse requests that were
    /// planned earlier.
    #[must_use]
    pub fn with_epochs_raised(&self) -> Self {
        let mut ring = self.clone();
        ring.raise_epochs();
        ring
    }

    /// Raises the epoch of every partition.
    pub(crate) fn raise_epochs(&mut self) {
        for epoch in &mut self.epochs {
            *epoch = epoch.next();
        }
    }

    /// A partition of a larger ring is taken modulo this one's size: a stale number from a peer may
    /// name a wrong owner, but never stops the node. The epoch check then refuses the request.
    fn slot(&self, partition: Partition) -> usize {
        self.size.wrap(partition.number()).slot()
    }
}

fn distinct(owners: &[NodeId]) -> Box<[NodeId]> {
    let mut members = owners.to_vec();
    members.sort_unstable();
    members.dedup();
    members.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u8) -> NodeId {
        NodeId::from_bytes([number; 16])
    }

    #[test]
    fn members_are_the_distinct_owners() {
        let size = RingSize::new(8).unwrap();
        let owners = [3, 1, 3, 1, 2, 2, 2, 2].map(node).to_vec();
        let ring = Ring::new(size, owners, vec![Epoch::FIRST; 8]).unwrap();
        assert_eq!(ring.members(), [1, 2, 3].map(node));
        assert_eq!(
            ring.owned_by(node(3))
                .map(Partition::number)
                .collect::<Vec<_>>(),
            [0, 2]
        );
        assert_eq!(ring.effective_n(5, false), 3);
        assert_eq!(ring.effective_n(2, false), 2);
        assert_eq!(ring.effective_n(5, true), 5);
        assert_eq!(ring.effective_n(u32::MAX, true), 8);
    }

    #[test]
    fn a_ring_of_the_wrong_length_is_refused() {
        let size = RingSize::new(8).unwrap();
        let epochs = |count| vec![Epoch::FIRST; count];
        let short = Ring::new(size, vec![node(1); 7], epochs(8));
        assert_eq!(short, Err(RingError::OwnerCount { size, got: 7 }));
        let long = Ring::new(size, vec![node(1); 8], epochs(9));
        assert_eq!(long, Err(RingError::EpochCount { size, got: 9 }));
    }

    #[test]
    fn crowded_names_the_owner_partitions_that_share_a_node() {
        let size = RingSize::new(8).unwrap();
        let owners = [1, 2, 3, 1, 2, 3, 1, 2].map(node).to_vec();
        let ring = Ring::new(size, owners, vec![Epoch::FIRST; 8]).unwrap();
        assert_eq!(
            ring.crowded(3)
                .iter()
                .map(|p| p.number())
                .collect::<Vec<_>>(),
            [6, 7]
        );
        assert_eq!(ring.crowded(2), []);
        assert_eq!(Ring::single(size, node(1)).crowded(3), []);
    }
}
