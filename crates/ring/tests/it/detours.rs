//! Lists that make a detour have their replicas on distinct nodes, and lose nothing on the way there.

use std::collections::BTreeSet;

use kvorum_ring::{
    Detours, MoveError, NodeId, Partition, Position, Ring, Role, Transition, WriteReplica, claim,
};
use proptest::prelude::*;

use crate::{cases, claimants, node, ring, size};

/// A position whose owner partition is this one.
fn before(size: u64, owner: Partition) -> Position {
    let mut bytes = [0; 20];
    let width = 65_536 / size;
    let top = (u64::from(owner.number()) * width + 65_536 - width / 2) % 65_536;
    bytes[..2].copy_from_slice(&u16::try_from(top).unwrap().to_be_bytes());
    let position = Position::from_bytes(bytes);
    assert_eq!(position.owner(crate::size(size)), owner);
    position
}

/// The ring with as many replicas as it can have, up to `n`, and the detours that these need.
fn spread(partitions: u64, nodes: usize, n: u16) -> Ring {
    let replicas = n.min(u16::try_from(nodes).unwrap());
    let mut ring = ring(partitions, nodes, n).with_replicas_max(replicas);
    if ring.begin_growth(replicas).is_ok() {
        ring.close_growth().unwrap();
        ring.settle_growth().unwrap();
    }
    ring
}

fn nodes_of(ring: &Ring, partitions: u64, owner: Partition, n: u32) -> Vec<NodeId> {
    let list = ring.primaries(before(partitions, owner), n, false);
    list.iter().map(|replica| replica.node).collect()
}

fn distinct(nodes: &[NodeId]) -> usize {
    nodes.iter().collect::<BTreeSet<_>>().len()
}

#[test]
fn every_list_of_every_small_ring_is_on_distinct_nodes() {
    let mut with_detours = 0;
    for partitions in [8, 16, 32, 64] {
        for nodes in 1..=9 {
            for n in 1..=5 {
                let ring = spread(partitions, nodes, n);
                with_detours += usize::from(!ring.detours().is_empty());
                assert_eq!(ring.crowded(n), [], "{partitions} {nodes} {n}");
                for owner in ring.size().partitions() {
                    // Buckets with fewer replicas have the first of them.
                    let longest = nodes_of(&ring, partitions, owner, u32::from(n));
                    assert_eq!(longest.len(), usize::from(n).min(nodes));
                    for n in 1..=longest.len() {
                        let list = nodes_of(&ring, partitions, owner, u32::try_from(n).unwrap());
                        assert_eq!(list, longest[..n]);
                        assert_eq!(distinct(&list), n, "{partitions} {nodes} {n}");
                    }
                }
            }
        }
    }
    assert!(with_detours > 10, "{with_detours}");
}

#[test]
fn three_nodes_need_a_detour_at_the_end_of_the_circle_and_nowhere_else() {
    let ring = spread(64, 3, 3);
    let passed: Vec<_> = ring.detours().passed().collect();
    assert!((1..=2).contains(&passed.len()), "{passed:?}");
    assert!(spread(64, 4, 3).detours().is_empty());
    assert!(spread(64, 5, 3).detours().is_empty());
    assert!(spread(64, 1, 3).detours().is_empty());
}

#[test]
fn detours_change_only_when_others_are_needed() {
    let mut ring = spread(64, 3, 3);
    assert_eq!(ring.begin_growth(3), Err(MoveError::OtherGrowth));
    let (before, owner) = (ring.detours().clone(), size(64).partition(5).unwrap());
    // Lists stay under any change of owners until a change of the lists is agreed.
    ring.seize(owner, ring.owner(size(64).partition(6).unwrap()));
    assert_eq!(*ring.detours(), before);
    assert_ne!(ring.crowded(3), []);
    ring.begin_growth(3).unwrap();
    assert_eq!(*ring.detours(), before);
    assert!(!ring.next_detours().unwrap().is_empty());
    ring.abandon_growth().unwrap();
    assert_eq!((ring.detours(), ring.next_detours()), (&before, None));
    ring.begin_growth(3).unwrap();
    ring.close_growth().unwrap();
    ring.settle_growth().unwrap();
    assert_eq!(ring.crowded(3), []);
}

#[test]
fn where_replicas_share_nodes_on_purpose_lists_go_straight_on() {
    let ring = spread(64, 3, 3);
    let owner = ring.detours().passed().next().unwrap().0;
    let list = ring.primaries(before(64, owner), 3, true);
    let partitions: Vec<Partition> = list.iter().map(|it| it.partition).collect();
    let straight: Vec<Partition> = (0..3).map(|step| ring.size().after(owner, step)).collect();
    assert_eq!(partitions, straight);
}

/// All sets of `count` of these.
fn choices(of: &[Partition], count: usize) -> Vec<BTreeSet<Partition>> {
    let all = 0..1_u32 << of.len();
    let chosen = all.filter(|set| set.count_ones() as usize == count);
    chosen
        .map(|set| {
            let is_in = |(at, _): &(usize, &Partition)| set >> at & 1 == 1;
            of.iter()
                .enumerate()
                .filter(is_in)
                .map(|it| *it.1)
                .collect()
        })
        .collect()
}

/// A write that a quorum of the old list had is visible to every quorum of the new one, once all new
/// vnodes of it are filled.
#[test]
fn what_a_quorum_had_before_a_change_of_lists_every_quorum_has_after_it() {
    let mut compared = 0;
    for (partitions, nodes, n) in [
        (8, 3, 3),
        (16, 3, 3),
        (8, 4, 4),
        (16, 5, 5),
        (8, 5, 4),
        (8, 2, 2),
    ] {
        let replicas = n.min(u16::try_from(nodes).unwrap());
        let mut changing = ring(partitions, nodes, n).with_replicas_max(replicas);
        if changing.begin_growth(replicas).is_err() {
            continue;
        }
        let mut settled = changing.clone();
        settled.close_growth().unwrap();
        settled.settle_growth().unwrap();
        // The same lists the other way round, as when a fourth node has joined.
        let detours = settled.detours().clone();
        let back = changing.clone().with_detours(detours, Detours::default());
        for ring in [&changing, &back] {
            for owner in ring.size().partitions() {
                for n in 1..=replicas {
                    let list = |ring: &Ring, is_old: bool| -> Vec<Partition> {
                        let list =
                            ring.write_list(before(partitions, owner), u32::from(n), false, |_| {
                                true
                            });
                        let counts =
                            |it: &&WriteReplica| if is_old { it.in_old } else { it.in_new };
                        list.replicas
                            .iter()
                            .filter(counts)
                            .map(|it| it.replica.partition)
                            .collect()
                    };
                    let (old, new) = (list(ring, true), list(ring, false));
                    assert!(old == list(&settled, true) || new == list(&settled, true));
                    let fills = ring.fills(owner, n);
                    let (w, quorum) = (usize::from(n) / 2 + 1, usize::from(n) / 2 + 1);
                    for written in choices(&old, w) {
                        let mut holds = written.clone();
                        for fill in &fills {
                            assert!(old.contains(&fill.source) && new.contains(&fill.target));
                            if written.contains(&fill.source) {
                                holds.insert(fill.target);
                            }
                        }
                        for read in choices(&new, quorum) {
                            compared += 1;
                            assert!(
                                !read.is_disjoint(&holds),
                                "{old:?} {new:?} {written:?} {read:?}"
                            );
                        }
                    }
                }
            }
        }
    }
    assert!(compared > 1_000, "{compared}");
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn coverage_asks_for_each_key_once_and_those_that_have_it(
        partitions in prop::sample::select(vec![8u64, 16, 64]),
        nodes in 1usize..7,
        n in 1u16..5,
        n_val in 1u32..5,
        offset in any::<u16>(),
        down in any::<u8>(),
    ) {
        let ring = spread(partitions, nodes, n);
        let is_up = |id: NodeId| (0..nodes).any(|number| node(number) == id && down >> number & 1 == 0);
        let n = ring.effective_n(n_val, false);
        let is_reached = |owner: Partition| {
            let list = ring.primaries(before(partitions, owner), u32::from(n), false);
            list.iter().any(|it| is_up(it.node))
        };
        let plan = ring.coverage_plan(n_val, false, offset, is_up);
        prop_assert_eq!(plan.is_ok(), ring.size().partitions().all(is_reached));
        if let Ok(plan) = plan {
            let mut owners: Vec<Partition> = plan.vnodes.iter().flat_map(|vnode| vnode.owners.clone()).collect();
            owners.sort_unstable();
            prop_assert_eq!(owners, ring.size().partitions().collect::<Vec<_>>());
            let asked: BTreeSet<Partition> = plan.vnodes.iter().map(|vnode| vnode.partition).collect();
            prop_assert_eq!(asked.len(), plan.vnodes.len());
            for vnode in &plan.vnodes {
                prop_assert!(is_up(vnode.node));
                prop_assert!(vnode.owners.iter().all(|owner| ring.is_replica(*owner, n, vnode.partition)));
            }
        }
    }

    #[test]
    fn stand_ins_are_on_nodes_without_a_replica(
        nodes in 2usize..7,
        n in 2u16..5,
        owner in 0u16..64,
        down in any::<u8>(),
    ) {
        let ring = spread(64, nodes, n);
        let is_up = |id: NodeId| (0..nodes).any(|number| node(number) == id && down >> number & 1 == 0);
        let position = before(64, size(64).partition(owner).unwrap());
        let list = ring.preference_list(position, u32::from(n), false, is_up);
        let all: Vec<NodeId> = list.iter().map(|it| it.node).collect();
        prop_assert_eq!(distinct(&all), all.len());
        let up = (0..nodes).filter(|number| is_up(node(*number))).count();
        prop_assert_eq!(all.len(), usize::from(n).min(nodes).min(up));
        for replica in &list {
            prop_assert_eq!(replica.role == Role::Primary, ring.owner(replica.partition) == replica.node);
        }
    }

    #[test]
    fn one_replica_of_a_list_moves_at_a_time_also_where_lists_make_detours(
        after in 1usize..8,
        together in 1usize..16,
    ) {
        let mut ring = spread(64, 3, 3);
        let target = claim(size(64), &claimants(after), 3, Some(&ring)).unwrap();
        let transition = Transition::new(&ring, &target, 3).unwrap();
        while !transition.is_done(&ring) {
            let started = transition.startable(&ring, together);
            prop_assert!(!started.is_empty());
            for partition in &started {
                ring.begin_move(*partition, transition.target(*partition)).unwrap();
            }
            for owner in ring.size().partitions() {
                let list = ring.write_list(before(64, owner), 3, false, |_| true);
                let moving = list.replicas.iter().filter(|it| it.in_old && !it.in_new).count();
                prop_assert!(moving <= 1, "{} replicas of one list move", moving);
            }
            for partition in &started {
                ring.close_move(*partition).unwrap();
                ring.settle_move(*partition).unwrap();
            }
        }
    }
}
