//! A transition reaches its target, one replica of a list at a time, with the least crowding.

use std::collections::BTreeSet;

use kvorum_encoding::{Bucket, BucketType, Key};
use kvorum_ring::{
    KeyHash, MoveError, Partition, Phase, Position, Replica, Ring, Transition, WriteReplica, claim,
    position,
};
use proptest::prelude::*;

use crate::{cases, claimants, node, ring, size};

/// Carries out every move, `together` at a time; returns the number of rounds.
fn run(
    ring: &mut Ring,
    transition: &Transition,
    together: usize,
    mut look: impl FnMut(&Ring),
) -> usize {
    let mut rounds = 0;
    while !transition.is_done(ring) {
        let started = transition.startable(ring, together);
        assert!(!started.is_empty(), "nothing can move and something has to");
        for partition in &started {
            assert_eq!(transition.obstacle(ring, *partition), None);
            ring.begin_move(*partition, transition.target(*partition))
                .unwrap();
            look(ring);
        }
        for partition in &started {
            ring.close_move(*partition).unwrap();
            look(ring);
        }
        for partition in &started {
            ring.settle_move(*partition).unwrap();
            look(ring);
        }
        rounds += 1;
    }
    rounds
}

fn crowded(ring: &Ring, n: u16) -> BTreeSet<Partition> {
    ring.crowded(n).into_iter().collect()
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn the_target_is_reached_one_replica_of_a_list_at_a_time(
        partitions in prop::sample::select(vec![8u64, 16, 64, 256]),
        before in 1usize..8,
        after in 1usize..8,
        n in 1u16..5,
        together in 1usize..32,
    ) {
        let from = ring(partitions, before, n);
        let target = claim(size(partitions), &claimants(after), n, Some(&from)).unwrap();
        let transition = Transition::new(&from, &target, n).unwrap();
        let mut moved = from.clone();
        run(&mut moved, &transition, together, |ring| {
            for window in 0..partitions {
                let window = u16::try_from(window).unwrap();
                let first = ring.size().partition(window).unwrap();
                let list = (0..n.min(u16::try_from(partitions).unwrap()))
                    .map(|step| ring.size().after(first, step));
                let moving = list.filter(|place| ring.moves().contains_key(place)).count();
                assert!(moving <= 1, "{moving} replicas of one list move");
            }
        });
        prop_assert!(moved.moves().is_empty());
        for (partition, owner, epoch) in moved.partitions() {
            prop_assert_eq!(owner, target.owner(partition));
            let steps = if from.owner(partition) == owner { 0 } else { 3 };
            prop_assert_eq!(epoch.get(), from.epoch(partition).get() + steps);
        }
    }

    #[test]
    fn growth_never_crowds_more_lists_than_before(
        partitions in prop::sample::select(vec![16u64, 64, 256]),
        before in 4usize..8,
        more in 1usize..4,
        n in 1u16..4,
    ) {
        let from = ring(partitions, before, n);
        let target = claim(size(partitions), &claimants(before + more), n, Some(&from)).unwrap();
        let worst = crowded(&from, n).len().max(crowded(&target, n).len());
        let transition = Transition::new(&from, &target, n).unwrap();
        run(&mut from.clone(), &transition, 1, |ring| {
            assert!(crowded(ring, n).len() <= worst);
        });
    }

    #[test]
    fn a_write_goes_to_an_old_and_a_new_list_that_differ_in_one_replica(
        before in 3usize..6,
        after in 3usize..8,
        n in 1u32..4,
        key in any::<u16>(),
    ) {
        let from = ring(64, before, 3);
        let target = claim(size(64), &claimants(after), 3, Some(&from)).unwrap();
        let transition = Transition::new(&from, &target, 3).unwrap();
        let position = position_of(key);
        run(&mut from.clone(), &transition, 8, |ring| {
            let list = ring.write_list(position, n, false, |_| true);
            let old: Vec<_> = list.replicas.iter().filter(|it| it.in_old).collect();
            let new: Vec<_> = list.replicas.iter().filter(|it| it.in_new).collect();
            assert_eq!(old.len(), usize::from(list.n_old));
            assert_eq!(new.len(), usize::from(list.n_new));
            let differing = old.iter().filter(|it| !it.in_new).count();
            assert!(differing <= 1);
            assert_eq!(list.is_joint(), differing == 1);
            let readers = ring.preference_list(position, n, false, |_| true);
            let is_closing = |it: &Replica| ring.reader(it.partition) != ring.owner(it.partition);
            let read_from = if readers.iter().any(is_closing) { new } else { old };
            let read_from: Vec<_> = read_from.iter().map(|it| it.replica).collect();
            assert_eq!(&readers[..], &read_from[..]);
        });
    }

    #[test]
    fn who_is_down_in_a_joint_list_is_stood_in_for_in_its_own_lists(
        key in any::<u16>(),
        down in 0usize..5,
    ) {
        let from = ring(64, 4, 3);
        let target = claim(size(64), &claimants(5), 3, Some(&from)).unwrap();
        let transition = Transition::new(&from, &target, 3).unwrap();
        let position = position_of(key);
        run(&mut from.clone(), &transition, 8, |ring| {
            let list = ring.write_list(position, 3, false, |it| it != node(down));
            let all = ring.write_list(position, 3, false, |_| true);
            for list in [&list, &all] {
                let mut nodes: Vec<_> = list.replicas.iter().map(|it| it.replica.node).collect();
                nodes.sort_unstable();
                let count = nodes.len();
                nodes.dedup();
                assert_eq!(nodes.len(), count, "a node holds two replicas");
            }
            assert!(list.replicas.iter().all(|it| it.replica.node != node(down)));
            for kind in [|it: &WriteReplica| it.in_old, |it: &WriteReplica| it.in_new] {
                let standing = list.replicas.iter().filter(|it| kind(it)).count();
                let wanted = all.replicas.iter().filter(|it| kind(it)).count();
                // Five nodes cannot always stand in for one of five.
                assert!(standing + 1 >= wanted);
            }
        });
    }
}

fn position_of(key: u16) -> Position {
    position(
        &BucketType::default_type(),
        &Bucket::from(b"b".to_vec()),
        &Key::from(key.to_be_bytes().to_vec()),
        KeyHash::Standard,
    )
}

#[test]
fn steps_out_of_order_are_refused() {
    let from = ring(8, 3, 3);
    let target = claim(size(8), &claimants(4), 3, Some(&from)).unwrap();
    let transition = Transition::new(&from, &target, 3).unwrap();
    let mut ring = from.clone();
    let partition = transition.startable(&ring, 1)[0];
    let to = transition.target(partition);
    let out_of_order = Err(MoveError::OtherPhase { partition });
    assert_eq!(ring.close_move(partition), out_of_order);
    assert_eq!(ring.settle_move(partition), out_of_order);
    assert_eq!(ring.abandon_move(partition), out_of_order);
    assert_eq!(
        ring.begin_move(partition, ring.owner(partition)),
        Err(MoveError::NotDue { partition })
    );
    ring.begin_move(partition, to).unwrap();
    assert_eq!(ring.begin_move(partition, to), out_of_order);
    assert_eq!(ring.settle_move(partition), out_of_order);
    assert_eq!(
        ring.begin_growth(2),
        Err(MoveError::Moving { partitions: 1 })
    );
    let neighbour = from.size().after(partition, 2);
    assert_eq!(transition.obstacle(&ring, neighbour), Some(partition));
}

#[test]
fn a_move_that_is_abandoned_while_it_fills_stays_with_its_source() {
    let from = ring(8, 3, 3);
    let target = claim(size(8), &claimants(4), 3, Some(&from)).unwrap();
    let transition = Transition::new(&from, &target, 3).unwrap();
    let mut ring = from.clone();
    let partition = transition.startable(&ring, 1)[0];
    let begun = ring
        .begin_move(partition, transition.target(partition))
        .unwrap();
    assert_eq!(ring.moves()[&partition].phase, Phase::Filling);
    let mut closing = ring.clone();
    assert!(ring.abandon_move(partition).unwrap() > begun);
    assert_eq!(ring.owner(partition), from.owner(partition));
    closing.close_move(partition).unwrap();
    assert_eq!(closing.reader(partition), transition.target(partition));
    let too_late = closing.abandon_move(partition);
    assert_eq!(too_late, Err(MoveError::OtherPhase { partition }));
}

#[test]
fn more_replicas_count_only_once_they_are_filled() {
    let alone = ring(8, 1, 3);
    assert_eq!(alone.effective_n(3, false), 1);
    let target = claim(size(8), &claimants(3), 3, Some(&alone)).unwrap();
    let transition = Transition::new(&alone, &target, 3).unwrap();
    let mut ring = alone.clone();
    run(&mut ring, &transition, 8, |ring| {
        assert_eq!(
            ring.effective_n(3, false),
            1,
            "a joining node brings no replica"
        );
    });
    assert_eq!(ring.begin_growth(3), Err(MoveError::OtherGrowth));
    for to in [2, 3] {
        let before = ring.clone();
        ring.begin_growth(to).unwrap();
        let list = ring.write_list(position_of(1), 3, false, |_| true);
        assert_eq!((list.n_old, list.n_new), (to - 1, to));
        assert!(list.is_joint());
        assert_eq!(ring.effective_n(3, false), to - 1);
        let partition = ring.size().partition(0).unwrap();
        let refused = ring.begin_move(partition, node(1));
        assert_eq!(refused, Err(MoveError::Growing));
        ring.close_growth().unwrap();
        assert_eq!(ring.effective_n(3, false), to);
        assert!(
            ring.write_list(position_of(1), 3, false, |_| true)
                .is_joint()
        );
        assert_eq!(ring.abandon_growth(), Err(MoveError::OtherGrowth));
        ring.settle_growth().unwrap();
        assert!(
            !ring
                .write_list(position_of(1), 3, false, |_| true)
                .is_joint()
        );
        assert_eq!(ring.effective_n(2, false), 2);
        for (partition, _, epoch) in ring.partitions() {
            assert_eq!(epoch.get(), before.epoch(partition).get() + 3);
        }
    }
    assert_eq!(ring.replicas_max(), 3);
}

#[test]
fn a_partition_that_closes_is_listed_where_it_goes() {
    let from = ring(8, 3, 1).with_replicas_max(1);
    let target = claim(size(8), &claimants(4), 1, Some(&from)).unwrap();
    let transition = Transition::new(&from, &target, 1).unwrap();
    let mut ring = from.clone();
    let partition = transition.startable(&ring, 1)[0];
    let to = transition.target(partition);
    ring.begin_move(partition, to).unwrap();
    let listed = |ring: &Ring, down| {
        let plan = ring.coverage_plan(1, false, 0, |node| node != down);
        plan.map(|plan| {
            plan.vnodes
                .iter()
                .find(|it| it.partition == partition)
                .unwrap()
                .node
        })
    };
    assert_eq!(listed(&ring, to), Ok(from.owner(partition)));
    ring.close_move(partition).unwrap();
    assert!(listed(&ring, to).is_err(), "who is to have it is down");
    assert_eq!(listed(&ring, node(99)), Ok(to));
}
