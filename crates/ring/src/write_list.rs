//! The replicas of a write: two lists while something moves.
//!
//! While a partition moves, or the number of replicas changes, a write needs its quorums in the old
//! list and in the new one. The lists differ in one replica, so the write goes to one replica more.
//! Each answer counts in the lists that have its replica.

use smallvec::SmallVec;

use crate::detour::Detours;
use crate::node_id::NodeId;
use crate::partition::Partition;
use crate::position::Position;
use crate::preference_list::{Replica, Role};
use crate::ring::Ring;

/// A replica of a write, and the lists that it counts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteReplica {
    /// The vnode and its node.
    pub replica: Replica,
    /// True if it is in the old list.
    pub in_old: bool,
    /// True if it is in the new list.
    pub in_new: bool,
}

/// The replicas of a write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteList {
    /// Primaries in ring order, then fallbacks.
    pub replicas: SmallVec<[WriteReplica; 3]>,
    /// Number of replicas in the old list when all nodes are up.
    pub n_old: u16,
    /// Number of replicas in the new list when all nodes are up.
    pub n_new: u16,
}

impl WriteList {
    /// True while something moves: quorums are counted in both lists.
    pub fn is_joint(&self) -> bool {
        self.n_old != self.n_new || self.replicas.iter().any(|it| it.in_old != it.in_new)
    }
}

/// A place in a list: a partition on its source or its receiver.
#[derive(Clone, Copy)]
struct Place {
    partition: Partition,
    node: NodeId,
    in_old: bool,
    in_new: bool,
}

impl Ring {
    /// The replicas of a write to the key at `position`, for a bucket with `n_val`, on nodes that are
    /// `up`.
    pub fn write_list(
        &self,
        position: Position,
        n_val: u32,
        colocated: bool,
        up: impl Fn(NodeId) -> bool,
    ) -> WriteList {
        let owner = position.owner(self.size());
        let replicas_to = self
            .growth()
            .map_or(self.replicas_max(), |growth| growth.to);
        let mut list = WriteList {
            replicas: SmallVec::new(),
            n_old: self.bounded_n(n_val, colocated, self.replicas_max()),
            n_new: self.bounded_n(n_val, colocated, replicas_to),
        };
        let mut missing = SmallVec::<[Place; 3]>::new();
        for place in self.places(owner, colocated, [list.n_old, list.n_new]) {
            if up(place.node) {
                list.replicas
                    .push(self.at(place, place.node, Role::Primary));
            } else {
                missing.push(place);
            }
        }
        let n = list.n_old.max(list.n_new);
        for place in missing {
            let offers =
                (n..self.size().get()).map(|step| self.owner(self.size().after(owner, step)));
            let is_free = |node: &NodeId| {
                up(*node)
                    && list
                        .replicas
                        .iter()
                        .all(|taken| taken.replica.node != *node)
            };
            let any_up = || {
                let around = (0..self.size().get()).map(|step| n.wrapping_add(step));
                let mut nodes = around.map(|step| self.owner(self.size().after(owner, step)));
                nodes.find(|node| up(*node)).filter(|_| colocated)
            };
            let fallback = offers.clone().find(is_free).or_else(any_up);
            if let Some(node) = fallback {
                list.replicas.push(self.at(place, node, Role::Fallback));
            }
        }
        list
    }

    fn places(
        &self,
        owner: Partition,
        colocated: bool,
        [n_old, n_new]: [u16; 2],
    ) -> impl Iterator<Item = Place> + '_ {
        let [old, new] = self.write_detours(colocated);
        let list = |detours: &'_ Detours, n: u16| -> SmallVec<[Partition; 4]> {
            let walk = detours.walk(self.size(), owner);
            walk.take(usize::from(n)).collect()
        };
        let (old, new) = (list(old, n_old), list(new, n_new));
        let mut partitions = old.clone();
        partitions.extend(new.iter().filter(|it| !old.contains(it)).copied());
        partitions.into_iter().flat_map(move |partition| {
            let (in_old, in_new) = (old.contains(&partition), new.contains(&partition));
            let moving = self.moves().get(&partition);
            let source = Place {
                partition,
                node: self.owner(partition),
                in_old,
                in_new: in_new && moving.is_none(),
            };
            let receiver = moving.map(|moving| Place {
                partition,
                node: moving.to,
                in_old: false,
                in_new,
            });
            std::iter::once(source).chain(receiver)
        })
    }

    fn at(&self, place: Place, node: NodeId, role: Role) -> WriteReplica {
        WriteReplica {
            replica: Replica {
                partition: place.partition,
                node,
                role,
                epoch: self.epoch(place.partition),
            },
            in_old: place.in_old,
            in_new: place.in_new,
        }
    }
}
