//! Joins, leaves and changes of location: the rules of fresh rings hold after them, and little moves.
//!
//! The shares alone determine the least that can move. A join moves no more. A leave moves more:
//! each partition of the departing node has neighbours that must not take it, and with few nodes
//! beyond n, many others have to make room. With hardly more nodes than n, or locations than l,
//! only a repeating ring is possible, and restoring it moves most of it.

use kvorum_ring::{Claimant, Ring, claim};
use proptest::prelude::*;

use crate::arrangement::{counts, least, located, moved, spacing};
use crate::{cases, claimants, node, size};

fn is_balanced(ring: &Ring, claimants: &[Claimant]) -> bool {
    let partitions = usize::from(ring.size().get());
    let (k, most) = (
        partitions / claimants.len(),
        partitions.div_ceil(claimants.len()),
    );
    let mut counts = counts(ring, claimants).into_iter();
    counts.all(|count| (k..=most).contains(&count))
}

/// The ring after an update, with all properties of a fresh one.
fn updated(before: &Ring, claimants: &[Claimant], n: usize) -> Ring {
    let replicas = u16::try_from(n).unwrap();
    let claimed = |previous| claim(before.size(), claimants, replicas, previous).unwrap();
    let after = claimed(Some(before));
    assert!(is_balanced(&after, claimants));
    let fresh = spacing(&claimed(None), claimants, n);
    let found = spacing(&after, claimants, n);
    assert!(found >= fresh, "{found:?} instead of {fresh:?}");
    assert!(found.1 >= fresh.1 || found.0 > fresh.0);
    after
}

/// Tries every possible sequence of joins and leaves.
fn every_sequence(before: &Ring, nodes: &[usize], n: usize, length: usize) -> usize {
    if length == 0 {
        return 1;
    }
    let newcomer = nodes.iter().max().unwrap() + 1;
    let join = [nodes, &[newcomer]].concat();
    let leaves = nodes.iter().map(|gone| {
        let staying = nodes.iter().filter(|node| *node != gone);
        staying.copied().collect::<Vec<usize>>()
    });
    let mut sequences = 0;
    for nodes in std::iter::once(join).chain(leaves) {
        if nodes.is_empty() {
            continue;
        }
        let claimants: Vec<Claimant> = nodes.iter().map(|it| Claimant::new(node(*it))).collect();
        let after = updated(before, &claimants, n);
        let replicas = u16::try_from(n).unwrap();
        let again = claim(before.size(), &claimants, replicas, Some(&after)).unwrap();
        assert_eq!(again, after, "{nodes:?} moves without a reason");
        sequences += every_sequence(&after, &nodes, n, length - 1);
    }
    sequences
}

#[test]
fn every_sequence_of_joins_and_leaves_of_small_rings_keeps_what_fresh_rings_have() {
    let mut sequences = 0;
    for partitions in [8, 16] {
        for nodes in 2..=8 {
            for n in 2..=4 {
                let ring = crate::ring(partitions, nodes, u16::try_from(n).unwrap());
                let nodes: Vec<usize> = (0..nodes).collect();
                sequences += every_sequence(&ring, &nodes, n, 2);
            }
        }
    }
    assert!(sequences >= 1_500, "{sequences}");
}

#[test]
fn a_join_moves_the_least_that_balance_demands() {
    for partitions in [8, 16, 32, 64, 128, 256, 512] {
        for n in 2..=5 {
            for nodes in [n + 1, n + 2, 2 * n, 2 * n + 1, 4 * n] {
                if nodes as u64 >= partitions {
                    continue;
                }
                let before = crate::ring(partitions, nodes, u16::try_from(n).unwrap());
                let after = updated(&before, &claimants(nodes + 1), n);
                let case = format!("{partitions} partitions, node {nodes} joins, n {n}");
                assert_eq!(moved(&before, &after), least(&before, &after), "{case}");
            }
        }
    }
}

#[test]
fn a_leave_moves_no_more_than_twice_the_least_where_nodes_are_twice_n() {
    for partitions in [16, 64, 128, 512] {
        for n in 2..=4 {
            for nodes in [2 * n, 2 * n + 1, 3 * n, 4 * n] {
                let before = crate::ring(partitions, nodes, u16::try_from(n).unwrap());
                for gone in [0, nodes / 2, nodes - 1] {
                    let mut staying = claimants(nodes);
                    staying.remove(gone);
                    let after = updated(&before, &staying, n);
                    let (moved, least) = (moved(&before, &after), least(&before, &after));
                    let case = format!("{partitions} partitions, {nodes} nodes, n {n}");
                    assert!(moved <= 2 * least + 2, "{moved} of {least}: {case}");
                }
            }
        }
    }
}

/// Six racks are more than the three that a list needs, so adding or removing a node moves little.
#[test]
fn where_locations_have_room_little_moves_too() {
    for partitions in [64, 128, 256] {
        let map: Vec<usize> = (0..12).map(|node| node % 6).collect();
        let before = claim(size(partitions), &located(&map), 3, None).unwrap();
        for location in 0..6 {
            let joined = located(&[&map[..], &[location]].concat());
            let after = updated(&before, &joined, 3);
            let (moves, due) = (moved(&before, &after), least(&before, &after));
            assert!(moves <= 2 * due + 2, "{moves} of {due} move at a join");
            let mut left = located(&map);
            left.remove(location);
            let after = updated(&before, &left, 3);
            let (moves, due) = (moved(&before, &after), least(&before, &after));
            assert!(moves <= 3 * due + 2, "{moves} of {due} move at a leave");
        }
    }
}

proptest! {
    #![proptest_config(cases(40))]

    #[test]
    fn after_any_update_all_is_as_distinct_as_in_a_fresh_ring_and_at_rest(
        bits in 3u32..=7,
        before in prop::collection::vec(0usize..5, 2..12),
        after in prop::collection::vec(0usize..5, 2..12),
        gone in 0usize..3,
        n in 2usize..=4,
    ) {
        // Some nodes leave, some join, and some change their location.
        let size = size(1 << bits);
        let replicas = u16::try_from(n).unwrap();
        let before = claim(size, &located(&before), replicas, None).unwrap();
        let mut claimants = located(&after);
        claimants.drain(..gone.min(after.len() - 1));
        let after = updated(&before, &claimants, n);
        let again = claim(size, &claimants, replicas, Some(&after)).unwrap();
        prop_assert_eq!(again, after);
    }
}
