//! The tasks of a node in a state of the cluster. Pure.

use std::collections::BTreeMap;

use kvorum_cluster::ClusterState;
use kvorum_ring::{Epoch, NodeId, Partition, Phase};

use crate::legs::LegBook;
use crate::transfer_id::{Leg, TransferId, TransferKind, Wanted};

/// The tasks of one node in a state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Assignment {
    /// The transfers to fetch, with their legs.
    pub(crate) fetches: BTreeMap<TransferId, Vec<Leg>>,
    /// The closing moves to this node, with their sources.
    pub(crate) settles: Vec<Settle>,
    /// Set while a change of the number of replicas closes and this node has not confirmed it.
    pub(crate) to_know: Option<Epoch>,
}

/// A closing move, which settles once its source has applied the closing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settle {
    pub(crate) partition: Partition,
    pub(crate) epoch: Epoch,
    /// `None` for a node that is no longer a member: all other nodes refuse it.
    pub(crate) source: Option<NodeId>,
}

impl Assignment {
    /// The tasks of `node` in `state`.
    pub(crate) fn of(
        state: &ClusterState,
        node: NodeId,
        colocated: bool,
        book: &mut LegBook,
    ) -> Self {
        let ring = state.ring();
        let mut assignment = Self::default();
        for (partition, moving) in ring.moves().iter().filter(|(_, it)| it.to == node) {
            let (partition, epoch) = (*partition, ring.epoch(*partition));
            let source = ring.owner(partition);
            let source = state.members().contains_key(&source).then_some(source);
            match moving.phase {
                Phase::Filling => {
                    let id = TransferId {
                        kind: TransferKind::Ownership,
                        partition,
                        epoch,
                    };
                    let legs = match source {
                        Some(_) => vec![Leg {
                            source: partition,
                            wanted: Wanted::All,
                        }],
                        // No remaining node has the whole partition, but the other replicas
                        // together do.
                        None => book.repair(state, partition, colocated),
                    };
                    assignment.fetches.insert(id, legs);
                }
                Phase::Closing => assignment.settles.push(Settle {
                    partition,
                    epoch,
                    source,
                }),
            }
        }
        assignment.add_growth(state, node, colocated, book);
        assignment
    }

    fn add_growth(
        &mut self,
        state: &ClusterState,
        node: NodeId,
        colocated: bool,
        book: &mut LegBook,
    ) {
        let ring = state.ring();
        let Some(growth) = ring.growth() else { return };
        match growth.phase {
            Phase::Filling => {
                let filled = state.growth_filled();
                for partition in ring.owned_by(node).filter(|it| !filled.contains(it)) {
                    let id = TransferId {
                        kind: TransferKind::Growth,
                        partition,
                        epoch: ring.epoch(partition),
                    };
                    // If replicas share nodes, replica lists do not depend on the number of
                    // replicas.
                    let legs = match colocated {
                        true => Vec::new(),
                        false => book.growth(state, partition, growth.to),
                    };
                    self.fetches.insert(id, legs);
                }
            }
            Phase::Closing => {
                let knows = state.growth_known().contains(&node);
                let first = ring.size().partitions().next();
                if !knows && ring.members().contains(&node) {
                    self.to_know = first.map(|first| ring.epoch(first));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use kvorum_cluster::{ClusterId, Member};
    use kvorum_ring::{Ring, RingSize};

    use super::*;
    use crate::legs::repair_legs;

    fn node(number: u8) -> NodeId {
        NodeId::from_bytes([number; 16])
    }

    fn state(ring: Ring) -> ClusterState {
        let id = ClusterId::from_random([9; 16]);
        ClusterState::found(id, "test", node(1), Member::new("kvorum@1"), ring)
    }

    fn ring() -> Ring {
        let size = RingSize::new(8).unwrap();
        let owners = [1, 2, 3, 1, 2, 3, 1, 2].map(node).to_vec();
        Ring::new(size, owners, vec![Epoch::FIRST; 8]).unwrap()
    }

    fn part(number: u16) -> Partition {
        RingSize::new(8).unwrap().partition(number).unwrap()
    }

    fn of(state: &ClusterState, node: NodeId, colocated: bool) -> Assignment {
        Assignment::of(state, node, colocated, &mut LegBook::default())
    }

    fn leg(source: u16, owners: &[u16], replicas: u16) -> Leg {
        Leg {
            source: part(source),
            wanted: Wanted::Owners {
                owners: owners.iter().copied().map(part).collect(),
                replicas,
            },
        }
    }

    #[test]
    fn the_receiver_of_a_move_fetches_and_then_settles() {
        let mut moving = ring();
        let epoch = moving.begin_move(part(2), node(1)).unwrap();
        let filling = state(moving.clone());
        let fetches = of(&filling, node(1), false).fetches;
        let id = fetches.keys().next().unwrap();
        assert_eq!((id.kind, id.epoch), (TransferKind::Ownership, epoch));
        // The source is not a member in this state: the legs are the other replicas.
        assert!(fetches[id].iter().all(|leg| leg.source != part(2)));
        assert_eq!(of(&filling, node(2), false), Assignment::default());
        let epoch = moving.close_move(part(2)).unwrap();
        let settle = Settle {
            partition: part(2),
            epoch,
            source: None,
        };
        let closing = of(&state(moving), node(1), false);
        assert_eq!(closing.settles, [settle]);
        assert!(closing.fetches.is_empty());
    }

    #[test]
    fn a_vnode_grows_from_the_one_before_it_and_shrinks_into_the_one_before() {
        let mut growing = ring().with_replicas_max(2);
        growing.begin_growth(3).unwrap();
        let fetches = of(&state(growing), node(1), false).fetches;
        let legs: Vec<_> = fetches.values().flatten().cloned().collect();
        assert_eq!(legs, [leg(7, &[6], 3), leg(2, &[1], 3), leg(5, &[4], 3)]);
        let mut shrinking = ring();
        shrinking.begin_growth(2).unwrap();
        let fetches = of(&state(shrinking), node(3), false).fetches;
        let legs: Vec<_> = fetches.values().flatten().cloned().collect();
        assert_eq!(legs, [leg(3, &[1], 2), leg(6, &[4], 2)]);
    }

    /// A ring in which the lists that begin at 6 and 7 pass over a partition, since they have its
    /// node already.
    fn spread() -> Ring {
        let mut changing = ring();
        changing.begin_growth(3).unwrap();
        changing.close_growth().unwrap();
        changing.settle_growth().unwrap();
        changing
    }

    #[test]
    fn a_vnode_to_which_lists_make_a_detour_fetches_from_the_one_whose_place_it_takes() {
        let mut changing = ring();
        changing.begin_growth(3).unwrap();
        let of = |node| {
            let fetches = of(&state(changing.clone()), node, false).fetches;
            let legs = fetches.into_iter().map(|(id, legs)| (id.partition, legs));
            legs.filter(|(_, legs)| !legs.is_empty())
                .collect::<Vec<_>>()
        };
        // Partitions 6, 7, 0 belong to nodes 1, 2, 1, and 7, 0, 1 to nodes 2, 1, 2. So partition 2
        // takes the places of 0 and of 1.
        assert_eq!(of(node(1)), []);
        assert_eq!(of(node(2)), []);
        let legs = vec![leg(0, &[6], 3), leg(1, &[7], 3)];
        assert_eq!(of(node(3)), [(part(2), legs)]);
    }

    #[test]
    fn a_repair_follows_detours() {
        let state = state(spread());
        let owners = |legs: Vec<Leg>| -> Vec<(u16, Vec<u16>)> {
            let owners = |leg: &Leg| match &leg.wanted {
                Wanted::Owners { owners, .. } => owners.iter().map(|it| it.number()).collect(),
                Wanted::All => Vec::new(),
            };
            legs.iter()
                .map(|it| (it.source.number(), owners(it)))
                .collect()
        };
        let of_two = owners(repair_legs(&state, part(2), false));
        let expected = [
            (0, vec![0, 7]),
            (1, vec![1, 0]),
            (3, vec![2, 1]),
            (4, vec![2]),
            (6, vec![6]),
            (7, vec![7, 6]),
        ];
        assert_eq!(of_two, expected);
        let straight = repair_legs(&state, part(2), true);
        assert!(straight.iter().all(|leg| leg.source != part(6)));
    }

    #[test]
    fn an_owner_is_to_know_that_growth_closes() {
        let mut growing = ring().with_replicas_max(2);
        growing.begin_growth(3).unwrap();
        growing.close_growth().unwrap();
        let epoch = growing.epoch(part(0));
        let state = state(growing);
        assert_eq!(of(&state, node(3), false).to_know, Some(epoch));
        assert_eq!(of(&state, node(9), false).to_know, None);
    }

    #[test]
    fn a_repair_asks_every_other_replica_of_each_range() {
        let legs = repair_legs(&state(ring()), part(4), false);
        assert_eq!(
            legs,
            [
                leg(2, &[2], 3),
                leg(3, &[3, 2], 3),
                leg(5, &[4, 3], 3),
                leg(6, &[4], 3),
            ]
        );
        let alone = state(ring().with_replicas_max(1));
        assert_eq!(repair_legs(&alone, part(4), false), []);
    }
}
