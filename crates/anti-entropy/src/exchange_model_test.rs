//! Exchanges against a model: exactly the keys that differ are repaired, and bounds only delay
//! repairs.

use std::collections::BTreeSet;

use kvorum_encoding::StorageKey;
use kvorum_tictac::TreeSize;
use proptest::prelude::*;

use crate::exchange::{ExchangeLimits, ExchangeRequest};
use crate::exchange_event::ExchangeEffect;
use crate::outcome::{EndedBy, Outcome};
use crate::test_world::{Draw, Entry, World, key};

/// A put at one replica: the replica, the key, its order, and true if its bytes differ from the
/// bytes of the same order elsewhere.
type Put = (usize, u64, u64, bool);

fn puts() -> impl Strategy<Value = Vec<Put>> {
    let other_bytes = prop::bool::weighted(0.1);
    let put = (0usize..3, 0u64..150, 1u64..4, other_bytes);
    prop::collection::vec(put, 0..200)
}

fn limits() -> impl Strategy<Value = ExchangeLimits> {
    let bounds = (1usize..8, 1usize..32, 5usize..50, 1usize..4);
    bounds.prop_map(
        |(branches_max, leaves_max, keys_max, repairs_at_once)| ExchangeLimits {
            branches_max,
            leaves_max,
            keys_max,
            repairs_at_once,
        },
    )
}

fn world_of(replicas: usize, sizes: &[TreeSize], everywhere: u64, puts: &[Put]) -> World {
    let mut world = World::new(replicas, TreeSize::XxSmall);
    (0..everywhere).for_each(|number| world.write_everywhere(number));
    for (replica, number, order, has_other_bytes) in puts {
        let entry = Entry {
            order: 1000 + order,
            value: order * 7 + u64::from(*has_other_bytes),
            expiry: None,
        };
        world.replicas[replica % replicas].receive(&key(*number), entry);
    }
    for (replica, size) in world.replicas.iter_mut().zip(sizes) {
        replica.rebuild(*size, 0);
    }
    world
}

/// The keys whose entries differ between replicas, or are missing on some.
fn differing(world: &World) -> BTreeSet<StorageKey> {
    let all = world.replicas.iter().flat_map(|it| it.entries.keys());
    let differs = |key: &&StorageKey| {
        let first = world.replicas[0].entries.get(*key);
        world
            .replicas
            .iter()
            .any(|it| it.entries.get(*key) != first)
    };
    all.filter(differs).cloned().collect()
}

fn run(world: &mut World, request: ExchangeRequest, seed: u64) -> (Outcome, BTreeSet<StorageKey>) {
    let mut repaired = BTreeSet::new();
    let outcome = world.exchange(request, &mut Draw(seed), |_, effect, _| {
        if let ExchangeEffect::Repair { key } = effect {
            assert!(repaired.insert(key.clone()), "repaired twice: {key:?}");
        }
    });
    (outcome, repaired)
}

fn sizes() -> impl Strategy<Value = Vec<TreeSize>> {
    prop::collection::vec(prop::sample::select(&TreeSize::ALL[..3]), 3)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_differs_is_repaired_and_nothing_else(
        replicas in 2usize..4,
        sizes in sizes(),
        everywhere in 0u64..300,
        puts in puts(),
        seed in any::<u64>(),
    ) {
        let mut world = world_of(replicas, &sizes, everywhere, &puts);
        let expected = differing(&world);
        let limits = ExchangeLimits {
            branches_max: usize::MAX,
            leaves_max: usize::MAX,
            keys_max: usize::MAX,
            repairs_at_once: 3,
        };
        let request = ExchangeRequest { limits, ..world.request() };
        let (outcome, repaired) = run(&mut world, request, seed);
        prop_assert_eq!(outcome.keys_repaired as usize, expected.len());
        let ended_by = if expected.is_empty() { EndedBy::Equal } else { EndedBy::Repaired };
        prop_assert_eq!((outcome.ended_by, outcome.is_complete), (ended_by, true));
        prop_assert_eq!(repaired, expected);
        prop_assert!(world.are_equal() && world.are_trees_equal());
    }

    #[test]
    fn bounds_are_held_and_everything_is_come_to(
        replicas in 2usize..4,
        sizes in sizes(),
        everywhere in 0u64..300,
        puts in puts(),
        limits in limits(),
        seed in any::<u64>(),
    ) {
        let mut world = world_of(replicas, &sizes, everywhere, &puts);
        let (mut turn, mut after) = (0, None);
        for exchange in 0u64.. {
            let expected = differing(&world);
            let request = ExchangeRequest { limits, turn, after, ..world.request() };
            let (outcome, repaired) = run(&mut world, request, seed ^ exchange);
            prop_assert!(repaired.is_subset(&expected));
            prop_assert!(outcome.branches as usize <= TreeSize::Small.branches());
            prop_assert!(outcome.leaves as usize <= limits.leaves_max);
            prop_assert!(outcome.keys_read <= 2 * (replicas * limits.keys_max) as u64);
            prop_assert!(!outcome.is_complete || world.are_equal());
            if outcome.ended_by == EndedBy::Equal {
                break;
            }
            prop_assert!(exchange < 400, "no end: {:?}", outcome);
            turn += usize::from(outcome.resume_after.is_none());
            after = outcome.resume_after;
        }
        prop_assert!(world.are_equal() && world.repairs_at_once <= limits.repairs_at_once);
    }
}
