//! A ring on its way to another: the partitions that may move now.
//!
//! All functions are pure: every member with the same ring and the same target gets the same
//! answer. Notifications, transfers and gates are decided elsewhere.
//!
//! Two partitions do not move together if both could be in one preference list. So each step
//! changes at most one replica of a list.

use crate::moving::MoveError;
use crate::node_id::NodeId;
use crate::partition::{Partition, RingSize};
use crate::ring::Ring;

/// The target of a ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    target: Box<[NodeId]>,
    /// Partitions fewer than this many steps apart do not move together.
    apart: u16,
}

impl Transition {
    /// The transition from `ring` to the owners of `target`, for preference lists of up to `n_max`
    /// replicas.
    pub fn new(ring: &Ring, target: &Ring, n_max: u16) -> Result<Self, MoveError> {
        if target.size() != ring.size() {
            return Err(MoveError::SizeChange {
                expected: ring.size(),
                got: target.size(),
            });
        }
        let owners = target.partitions().map(|(_, owner, _)| owner);
        Ok(Self {
            target: owners.collect(),
            apart: n_max.clamp(1, ring.size().get()),
        })
    }

    /// A stored transition, from the future owner of each partition.
    pub fn from_parts(ring: &Ring, target: Vec<NodeId>, apart: u16) -> Result<Self, MoveError> {
        let got = u64::try_from(target.len())
            .ok()
            .and_then(|len| RingSize::new(len).ok());
        if got != Some(ring.size()) {
            return Err(MoveError::SizeChange {
                expected: ring.size(),
                got: got.unwrap_or(ring.size()),
            });
        }
        Ok(Self {
            target: target.into(),
            apart,
        })
    }

    /// The future owner of a partition.
    pub fn target(&self, partition: Partition) -> NodeId {
        self.target[partition.slot()]
    }

    /// The least distance of partitions that move together.
    pub fn apart(&self) -> u16 {
        self.apart
    }

    /// The partitions that are not at their target, including those that move.
    pub fn due<'a>(&'a self, ring: &'a Ring) -> impl Iterator<Item = Partition> + 'a {
        let owners = ring.partitions().zip(&self.target);
        owners
            .filter(|((_, owner, _), target)| owner != *target)
            .map(|((partition, ..), _)| partition)
    }

    /// True when nothing is left to move.
    pub fn is_done(&self, ring: &Ring) -> bool {
        self.due(ring).next().is_none()
    }

    /// At most `count` partitions that may begin to move now, together and beside those in motion.
    /// The first leave the fewest replicas on one node, so that no list is more crowded than
    /// necessary meanwhile.
    pub fn startable(&self, ring: &Ring, count: usize) -> Vec<Partition> {
        self.startable_of(ring, count, |_| true)
    }

    /// Like [`Transition::startable`], with only the partitions that `may` move.
    pub fn startable_of(
        &self,
        ring: &Ring,
        count: usize,
        may: impl Fn(Partition) -> bool,
    ) -> Vec<Partition> {
        let mut imagined = ring.clone();
        let mut chosen = Vec::new();
        while chosen.len() < count {
            let open = self
                .due(&imagined)
                .filter(|partition| may(*partition))
                .filter(|partition| self.obstacle(&imagined, *partition).is_none());
            let best = open
                .min_by_key(|partition| (self.crowding_after(&imagined, *partition), *partition));
            let Some(partition) = best else { break };
            let begun = imagined.begin_move(partition, self.target(partition));
            if begun.is_err() {
                break;
            }
            chosen.push(partition);
        }
        chosen
    }

    /// A moving partition that is too close for this partition to move too, possibly the partition
    /// itself.
    pub fn obstacle(&self, ring: &Ring, partition: Partition) -> Option<Partition> {
        let mut moving = ring.moves().keys().copied();
        moving.find(|moving| self.is_close(ring, partition, *moving))
    }

    /// True when one partition has to wait while the other moves.
    pub fn is_close(&self, ring: &Ring, one: Partition, other: Partition) -> bool {
        let size = ring.size();
        let apart = size.distance(one, other).min(size.distance(other, one));
        apart < self.apart || ring.share_a_detour(one, other, self.apart)
    }

    /// The change in crowding by this move, after all moves in progress: the neighbours within one
    /// preference list on the target's node, minus those on the present owner's node.
    fn crowding_after(&self, ring: &Ring, partition: Partition) -> i32 {
        let size = ring.size();
        let neighbours = (1..self.apart)
            .flat_map(|steps| [size.after(partition, steps), size.before(partition, steps)]);
        let (from, to) = (ring.owner(partition), self.target(partition));
        let change = neighbours.map(|neighbour| {
            let settled = ring.moves().get(&neighbour).map(|moving| moving.to);
            let owner = settled.unwrap_or_else(|| ring.owner(neighbour));
            i32::from(owner == to) - i32::from(owner == from)
        });
        change.sum()
    }
}
