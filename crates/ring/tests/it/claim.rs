//! Claim keeps balance and distance, moves little, and gives the same result on every node.

use kvorum_ring::{ClaimError, Claimant, Epoch, Ring, claim};
use proptest::prelude::*;

use crate::{cases, claimants, node, ring, size};

fn counts(ring: &Ring) -> Vec<usize> {
    ring.members()
        .iter()
        .map(|member| ring.owned_by(*member).count())
        .collect()
}

fn moved(before: &Ring, after: &Ring) -> usize {
    before
        .partitions()
        .filter(|(partition, owner, _)| after.owner(*partition) != *owner)
        .count()
}

/// True if any arrangement with shares equal to within one has n consecutive partitions on distinct
/// nodes. Tries all of them.
fn feasible(partitions: usize, nodes: usize, n: usize) -> bool {
    struct Search {
        partitions: usize,
        nodes: usize,
        n: usize,
        owners: Vec<usize>,
        counts: Vec<usize>,
    }
    impl Search {
        fn fits(&self, at: usize, node: usize) -> bool {
            let near = |step: usize| {
                let back = (at >= step).then(|| self.owners[at - step]);
                let around = (at + step >= self.partitions)
                    .then(|| self.owners[at + step - self.partitions]);
                [back, around].contains(&Some(node))
            };
            let full = self.partitions.div_ceil(self.nodes);
            let overfull = (0..self.nodes)
                .filter(|other| self.counts[*other] == full)
                .count();
            let extra = self.partitions % self.nodes;
            let last_to_fill = extra > 0 && self.counts[node] == full - 1 && overfull == extra;
            self.counts[node] < full && !last_to_fill && !(1..self.n).any(near)
        }

        fn extend(&mut self) -> bool {
            let at = self.owners.len();
            if at == self.partitions {
                return true;
            }
            // Nodes are alike: the first unused one stands for all of them.
            let used = self.counts.iter().filter(|count| **count > 0).count();
            for node in 0..self.nodes.min(used + 1) {
                if self.fits(at, node) {
                    self.owners.push(node);
                    self.counts[node] += 1;
                    if self.extend() {
                        return true;
                    }
                    self.owners.pop();
                    self.counts[node] -= 1;
                }
            }
            false
        }
    }
    Search {
        partitions,
        nodes,
        n,
        owners: Vec::new(),
        counts: vec![0; nodes],
    }
    .extend()
}

#[test]
fn replicas_are_on_distinct_nodes_wherever_that_is_feasible() {
    let mut infeasible = Vec::new();
    for partitions in [8, 16] {
        for nodes in 2..=10 {
            for n in 2..=nodes.min(5) {
                if !feasible(partitions, nodes, n) {
                    infeasible.push((partitions, nodes, n));
                    continue;
                }
                let ring = ring(partitions as u64, nodes, u16::try_from(n).unwrap());
                assert_eq!(
                    ring.crowded(u16::try_from(n).unwrap()),
                    [],
                    "{partitions} {nodes} {n}"
                );
            }
        }
    }
    assert!(
        infeasible.contains(&(16, 3, 3)),
        "three do not divide sixteen: {infeasible:?}"
    );
}

#[test]
fn usual_clusters_have_no_crowded_partition() {
    for partitions in [32, 64, 128, 256, 512, 1024] {
        for nodes in 5..=24 {
            let ring = ring(partitions, nodes, 4);
            assert_eq!(
                ring.crowded(4),
                [],
                "{partitions} partitions on {nodes} nodes"
            );
        }
    }
}

#[test]
fn clusters_of_few_nodes_are_crowded_at_the_seam_alone() {
    let three = ring(64, 3, 3);
    assert!(three.crowded(3).len() <= 2, "{:?}", three.crowded(3));
    assert_eq!(ring(64, 4, 3).crowded(3), []);
    assert_eq!(ring(64, 2, 3).crowded(3), []);
}

#[test]
fn growing_one_by_one_stays_balanced_distinct_and_moves_little() {
    let mut before = ring(64, 1, 3);
    for nodes in 2..=12 {
        let after = claim(size(64), &claimants(nodes), 3, Some(&before)).unwrap();
        let counts = counts(&after);
        assert!(
            counts
                .iter()
                .all(|count| (64 / nodes..=64usize.div_ceil(nodes)).contains(count))
        );
        if nodes >= 4 {
            assert_eq!(after.crowded(3), [], "{nodes} nodes");
            let least = 64 / nodes;
            let moved = moved(&before, &after);
            assert!(
                moved <= least * 4,
                "{moved} of at least {least} moved to {nodes} nodes"
            );
        }
        before = after;
    }
}

#[test]
fn a_departing_node_leaves_nothing_behind() {
    let before = ring(64, 6, 3);
    let mut staying = claimants(6);
    staying[2].weight = 0;
    let after = claim(size(64), &staying, 3, Some(&before)).unwrap();
    assert_eq!(after.owned_by(node(2)).count(), 0);
    assert_eq!(after.crowded(3), []);
    staying.remove(2);
    assert_eq!(claim(size(64), &staying, 3, Some(&before)).unwrap(), after);
}

#[test]
fn a_claim_that_changes_nothing_moves_nothing() {
    for nodes in 1..=9 {
        let before = ring(64, nodes, 4);
        let after = claim(size(64), &claimants(nodes), 4, Some(&before)).unwrap();
        assert_eq!(after, before, "{nodes} nodes");
    }
}

#[test]
fn epochs_rise_where_owners_change_and_nowhere_else() {
    let before = ring(64, 4, 3);
    let after = claim(size(64), &claimants(5), 3, Some(&before)).unwrap();
    for (partition, owner, epoch) in after.partitions() {
        let changed = before.owner(partition) != owner;
        assert_eq!(
            epoch,
            if changed {
                Epoch::FIRST.next()
            } else {
                Epoch::FIRST
            }
        );
    }
    assert!(moved(&before, &after) >= 12);
}

#[test]
fn locations_are_kept_apart_where_they_allow_it() {
    for (nodes, places) in [(6, 3), (9, 3), (8, 4), (12, 3)] {
        let mut located = claimants(nodes);
        for (number, claimant) in located.iter_mut().enumerate() {
            claimant.location = Some(format!("rack{}", number % places));
        }
        let ring = claim(size(64), &located, 2, None).unwrap();
        let place = |partition| {
            let owner = ring.owner(partition);
            located
                .iter()
                .find(|claimant| claimant.node == owner)
                .unwrap()
                .location
                .clone()
        };
        let together = ring
            .size()
            .partitions()
            .filter(|at| place(*at) == place(ring.size().after(*at, 1)));
        assert_eq!(together.count(), 0, "{nodes} nodes in {places} racks");
    }
}

#[test]
fn weights_decide_shares() {
    let mut weighted = claimants(5);
    weighted[0].weight = 2;
    let ring = claim(size(64), &weighted, 3, None).unwrap();
    let counts = counts(&ring);
    assert!((21..=22).contains(&counts[0]), "{counts:?}");
    assert!(
        counts[1..].iter().all(|count| (10..=11).contains(count)),
        "{counts:?}"
    );
    // No weight buys a node more partitions than fit three apart.
    weighted[0].weight = 1_000_000;
    let ring = claim(size(64), &weighted, 3, None).unwrap();
    assert_eq!(ring.owned_by(node(0)).count(), 21);
}

#[test]
fn impossible_claims_say_why() {
    assert_eq!(claim(size(8), &[], 3, None), Err(ClaimError::NoClaimants));
    let leaving = [Claimant {
        weight: 0,
        ..Claimant::new(node(1))
    }];
    assert_eq!(
        claim(size(8), &leaving, 3, None),
        Err(ClaimError::NoClaimants)
    );
    let twice = [Claimant::new(node(1)), Claimant::new(node(1))];
    assert_eq!(
        claim(size(8), &twice, 3, None),
        Err(ClaimError::Duplicate { node: node(1) })
    );
    let other_size = claim(size(16), &claimants(1), 3, Some(&ring(8, 1, 3)));
    assert_eq!(
        other_size,
        Err(ClaimError::SizeChange {
            expected: size(16),
            got: size(8)
        })
    );
}

proptest! {
    #![proptest_config(cases(48))]

    #[test]
    fn any_claim_is_balanced_and_never_worse_than_a_fresh_layout(
        bits in 3u32..=8,
        before in 1usize..20,
        after in 1usize..20,
        left in 0usize..4,
        n in 1u16..=5,
    ) {
        let size = size(1 << bits);
        let previous = claim(size, &claimants(before), n, None).unwrap();
        // Some of the former nodes leave, others join.
        let staying: Vec<_> = claimants(left + after).split_off(left);
        let ring = claim(size, &staying, n, Some(&previous)).unwrap();
        let mut reversed = staying.clone();
        reversed.reverse();
        prop_assert_eq!(&claim(size, &reversed, n, Some(&previous)).unwrap(), &ring);
        let partitions = usize::from(size.get());
        for claimant in &staying {
            let owned = ring.owned_by(claimant.node).count();
            prop_assert!((partitions / after..=partitions.div_ceil(after)).contains(&owned));
        }
        let fresh = claim(size, &staying, n, None).unwrap();
        if fresh.crowded(n).is_empty() {
            prop_assert_eq!(ring.crowded(n), []);
        }
    }
}
