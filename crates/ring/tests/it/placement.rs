//! Fresh rings meet the demands of Riak's claim version 4: shares of k or k + 1 partitions, n
//! consecutive partitions on distinct nodes, and as many in distinct locations as any arrangement
//! of such shares allows. Small rings are compared with all arrangements.

use kvorum_ring::{Claimant, Ring, claim};
use proptest::prelude::*;

use crate::arrangement::{Oracle, counts, located, spacing};
use crate::{cases, size};

/// Every way to put this many nodes into locations, ignoring the locations' names.
fn maps(nodes: usize) -> Vec<Vec<usize>> {
    let mut maps = vec![Vec::new()];
    for _ in 0..nodes {
        let longer = maps.iter().flat_map(|map: &Vec<usize>| {
            let next = map.iter().max().map_or(0, |most| most + 1);
            (0..=next).map(move |location| [&map[..], &[location]].concat())
        });
        maps = longer.collect();
    }
    maps
}

fn fresh(partitions: usize, located: &[Claimant], n: usize) -> Ring {
    let size = size(u64::try_from(partitions).unwrap());
    claim(size, located, u16::try_from(n).unwrap(), None).unwrap()
}

/// Checks that no arrangement is better than the one found; returns the number of undecided cases.
fn check(partitions: usize, map: &[usize], n: usize) -> usize {
    let located = located(map);
    let ring = fresh(partitions, &located, n);
    let locations = map.iter().max().unwrap() + 1;
    let (n_found, l_found) = spacing(&ring, &located, n);
    let case = format!("{partitions} partitions, nodes in {map:?}, n {n}");
    let mut unknown = 0;
    for n in n_found + 1..=n.min(map.len()) {
        let better = Oracle::exists(partitions, map, n, 1);
        assert_ne!(better, Some(true), "{case}: {n} distinct nodes");
        unknown += usize::from(better.is_none());
    }
    for l in l_found + 1..=n.min(locations) {
        let better = Oracle::exists(partitions, map, n_found, l);
        assert_ne!(better, Some(true), "{case}: {l} distinct locations");
        unknown += usize::from(better.is_none());
    }
    unknown
}

#[test]
fn small_rings_are_as_distinct_in_nodes_and_locations_as_any_arrangement() {
    let (mut checked, mut unknown) = (0, 0);
    for nodes in 2..=5 {
        for map in maps(nodes) {
            for n in 2..=4 {
                for partitions in [8, 16] {
                    checked += 1;
                    unknown += check(partitions, &map, n);
                }
            }
        }
    }
    assert!(unknown * 20 < checked, "{unknown} of {checked} unknown");
}

/// Locations whose shares fit l apart, with a node to spare.
#[test]
fn locations_of_usual_clusters_are_as_far_apart_as_their_shares_allow() {
    for (map, n, expected) in [
        // Half of the nodes are in one location, which has every other partition.
        (vec![0, 0, 0, 0, 1, 1, 1, 2], 3, 2),
        (vec![0, 0, 0, 1, 1, 1], 3, 2),
        (vec![0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1], 4, 2),
        (vec![0, 0, 0, 1, 1, 2, 2], 4, 2),
        (vec![0, 0, 1, 1, 2, 2, 3, 3], 3, 3),
        (vec![0, 1, 1, 2, 3, 3, 4], 4, 3),
        (vec![0, 0, 1, 1, 2, 2, 3, 3], 4, 4),
        (vec![0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3], 3, 3),
    ] {
        for partitions in [32, 64, 128, 256] {
            let located = located(&map);
            let ring = fresh(partitions, &located, n);
            let found = spacing(&ring, &located, n);
            assert_eq!(found, (n, expected), "{partitions} partitions, {map:?}");
        }
    }
}

/// No list is longer than the ring, whatever the n_val.
#[test]
fn more_replicas_and_nodes_than_partitions_are_no_harm() {
    for nodes in [7, 8, 9, 20] {
        let located = located(&(0..nodes).collect::<Vec<_>>());
        for n in [7, 8, 9, 20, 4_000] {
            let ring = fresh(8, &located, n);
            assert_eq!(ring.members().len(), nodes.min(8));
            let again = claim(
                ring.size(),
                &located,
                u16::try_from(n).unwrap(),
                Some(&ring),
            );
            assert_eq!(again.unwrap(), ring);
        }
    }
}

#[test]
fn the_largest_ring_is_claimed_in_one_go() {
    let map: Vec<usize> = (0..64).map(|node| node % 8).collect();
    let located = located(&map);
    let ring = fresh(4096, &located, 4);
    assert_eq!(counts(&ring, &located), vec![64; 64]);
    assert_eq!(spacing(&ring, &located, 4), (4, 4));
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn any_map_of_nodes_to_locations_is_balanced_and_as_distinct_as_its_shares_allow(
        bits in 3u32..=7,
        map in prop::collection::vec(0usize..6, 2..14),
        n in 2usize..=4,
    ) {
        let partitions = 1usize << bits;
        let located = located(&map);
        let ring = fresh(partitions, &located, n);
        let (k, nodes) = (partitions / map.len(), map.len());
        let counts = counts(&ring, &located);
        prop_assert!(counts.iter().all(|count| (k..=partitions.div_ceil(nodes)).contains(count)));
        let (n_found, l_found) = spacing(&ring, &located, n);
        // With a node to spare, no node is twice in a list.
        if nodes > n && partitions >= 2 * nodes {
            prop_assert_eq!(n_found, n.min(nodes));
        }
        // The least number of partitions of the fullest location. The solver is only tested on
        // rings that leave it some room, and a node to spare.
        let in_location = |location: usize| map.iter().filter(|it| **it == location).count();
        let fullest = (0..6).map(in_location).max().unwrap();
        let locations = (0..6).filter(|location| in_location(*location) > 0).count();
        let due = partitions.div_ceil(nodes) * fullest;
        let roomy = (1..=n.min(locations)).rev().find(|l| due * (l + usize::from(*l > 1)) <= partitions);
        if nodes > n {
            prop_assert!(l_found >= roomy.unwrap_or(1), "{} of {:?}", l_found, roomy);
        }
    }
}
