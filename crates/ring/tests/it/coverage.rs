//! Coverage plans reach every key exactly once, with the fewest possible vnodes.

use std::collections::BTreeSet;

use kvorum_ring::{NodeId, Partition, Ring};
use proptest::prelude::*;

use crate::{cases, node, ring, size};

/// The fewest available vnodes that cover all owner partitions, by trying all sets of them.
fn fewest(ring: &Ring, n: u16, up: impl Fn(NodeId) -> bool) -> Option<u32> {
    let size = ring.size();
    let all = (1u32 << size.get()) - 1;
    let covers: Vec<u32> = size
        .partitions()
        .map(|vnode| (0..n).fold(0, |set, step| set | 1 << size.before(vnode, step).number()))
        .collect();
    let allowed = size.partitions().filter(|vnode| up(ring.owner(*vnode)));
    let allowed = allowed.fold(0u32, |set, vnode| set | 1 << vnode.number());
    (0..=all)
        .filter(|set| set & !allowed == 0)
        .filter(|set| {
            let covered = covers
                .iter()
                .enumerate()
                .filter(|(vnode, _)| set >> vnode & 1 == 1);
            covered.fold(0, |covered, (_, cover)| covered | cover) == all
        })
        .map(u32::count_ones)
        .min()
}

#[test]
fn a_single_node_without_colocated_replicas_asks_every_vnode() {
    let ring = Ring::single(size(64), node(1));
    let plan = ring.coverage_plan(3, false, 5, |_| true).unwrap();
    assert_eq!(plan.vnodes.len(), 64);
    assert!(
        plan.vnodes
            .iter()
            .all(|vnode| vnode.whole && vnode.owners == [vnode.partition])
    );
    assert_eq!(
        ring.coverage_plan(3, true, 5, |_| true)
            .unwrap()
            .vnodes
            .len(),
        22
    );
}

#[test]
fn an_overlapping_vnode_gets_its_own_part() {
    let ring = ring(8, 4, 3);
    let plan = ring.coverage_plan(3, false, 0, |_| true).unwrap();
    let shares: Vec<usize> = plan.vnodes.iter().map(|vnode| vnode.owners.len()).collect();
    assert_eq!(shares, [3, 3, 2]);
    assert_eq!(
        plan.vnodes
            .iter()
            .map(|vnode| vnode.whole)
            .collect::<Vec<_>>(),
        [true, true, false]
    );
}

#[test]
fn a_vnode_that_may_have_more_than_its_share_gets_it_in_full() {
    let mut ring = ring(8, 4, 3);
    ring.begin_growth(ring.replicas_max() - 1).unwrap();
    let plan = ring.coverage_plan(3, false, 0, |_| true).unwrap();
    assert!(plan.vnodes.iter().all(|vnode| !vnode.whole));
}

#[test]
fn keys_without_a_live_replica_are_named() {
    let ring = ring(8, 4, 2);
    let (one, other) = (
        ring.owner(size(8).partition(3).unwrap()),
        ring.owner(size(8).partition(4).unwrap()),
    );
    let up = |node| node != one && node != other;
    let error = ring.coverage_plan(2, false, 0, up).unwrap_err();
    assert!(error.missing.contains(&size(8).partition(3).unwrap()));
    assert!(
        ring.coverage_plan(2, false, 0, |_| false)
            .unwrap_err()
            .missing
            .len()
            == 8
    );
}

proptest! {
    #![proptest_config(cases(128))]

    #[test]
    fn every_owner_partition_is_answered_for_once_by_the_fewest_vnodes(
        nodes in 1usize..7,
        n_val in 1u32..5,
        offset in any::<u16>(),
        colocated in any::<bool>(),
        down in any::<u8>(),
    ) {
        let ring = ring(8, nodes, 3);
        let is_up = |id: NodeId| (0..nodes).any(|number| node(number) == id && down >> number & 1 == 0);
        let n = ring.effective_n(n_val, colocated);
        let plan = ring.coverage_plan(n_val, colocated, offset, is_up);
        let best = fewest(&ring, n, is_up);
        prop_assert_eq!(plan.is_ok(), best.is_some());
        if let Ok(plan) = plan {
            let mut owners: Vec<Partition> = plan.vnodes.iter().flat_map(|vnode| vnode.owners.clone()).collect();
            owners.sort_unstable();
            prop_assert_eq!(owners, ring.size().partitions().collect::<Vec<_>>());
            let asked: BTreeSet<Partition> = plan.vnodes.iter().map(|vnode| vnode.partition).collect();
            prop_assert_eq!(asked.len(), plan.vnodes.len());
            prop_assert_eq!(Some(u32::try_from(plan.vnodes.len()).unwrap()), best);
            for vnode in &plan.vnodes {
                prop_assert!(is_up(vnode.node) && ring.owner(vnode.partition) == vnode.node);
                let held = |owner: &Partition| ring.size().distance(*owner, vnode.partition) < n;
                prop_assert!(vnode.owners.iter().all(held));
            }
        }
    }
}
