//! A transition reaches its target, one replica of a list at a time, and crowds no more than it must.

use std::collections::BTreeSet;

use kvorum_ring::{Partition, Phase, Ring, Transition, TransitionError, claim};
use proptest::prelude::*;

use crate::{cases, claimants, ring, size};

/// Steps every move as far as it goes, `together` at a time; returns how many rounds it took.
fn run(transition: &mut Transition, together: usize, mut look: impl FnMut(&Transition)) -> usize {
    let mut rounds = 0;
    while !transition.is_done() {
        let started = transition.startable(together);
        assert!(!started.is_empty(), "nothing can move and something has to");
        for partition in &started {
            transition.begin(*partition).unwrap();
            look(transition);
        }
        for partition in &started {
            transition.close(*partition).unwrap();
            look(transition);
        }
        for partition in &started {
            transition.settle(*partition).unwrap();
            look(transition);
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
        let mut transition = Transition::new(from.clone(), &target, n).unwrap();
        run(&mut transition, together, |state| {
            for window in 0..partitions {
                let window = u16::try_from(window).unwrap();
                let first = state.ring().size().partition(window).unwrap();
                let list = (0..n.min(u16::try_from(partitions).unwrap()))
                    .map(|step| state.ring().size().after(first, step));
                let moving = list.filter(|place| state.moves().contains_key(place)).count();
                assert!(moving <= 1, "{moving} replicas of one list move");
            }
        });
        for (partition, owner, epoch) in transition.ring().partitions() {
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
        let mut transition = Transition::new(from, &target, n).unwrap();
        run(&mut transition, 1, |state| {
            assert!(crowded(state.ring(), n).len() <= worst);
        });
    }
}

#[test]
fn steps_out_of_order_are_refused() {
    let from = ring(8, 3, 3);
    let target = claim(size(8), &claimants(4), 3, Some(&from)).unwrap();
    let mut transition = Transition::new(from.clone(), &target, 3).unwrap();
    let partition = transition.startable(1)[0];
    let out_of_order = Err(TransitionError::OtherPhase { partition });
    assert_eq!(transition.close(partition), out_of_order);
    assert_eq!(transition.settle(partition), out_of_order);
    assert_eq!(transition.abandon(partition), out_of_order);
    transition.begin(partition).unwrap();
    assert_eq!(transition.settle(partition), out_of_order);
    let neighbour = from.size().after(partition, 2);
    let too_close = transition.begin(neighbour);
    assert!(matches!(
        too_close,
        Err(TransitionError::TooClose { .. } | TransitionError::NotDue { .. })
    ));
}

#[test]
fn a_move_that_is_abandoned_while_it_fills_stays_with_its_source() {
    let from = ring(8, 3, 3);
    let target = claim(size(8), &claimants(4), 3, Some(&from)).unwrap();
    let mut transition = Transition::new(from.clone(), &target, 3).unwrap();
    let partition = transition.startable(1)[0];
    let begun = transition.begin(partition).unwrap();
    assert_eq!(transition.moves()[&partition].phase, Phase::Filling);
    let mut closing = transition.clone();
    assert!(transition.abandon(partition).unwrap() > begun);
    assert_eq!(transition.ring().owner(partition), from.owner(partition));
    assert!(transition.due().all(|due| due != partition));
    closing.close(partition).unwrap();
    let too_late = closing.abandon(partition);
    assert_eq!(too_late, Err(TransitionError::OtherPhase { partition }));
}
