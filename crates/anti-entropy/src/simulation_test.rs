//! Whole lives of a preference list: lost writes, wiped and rolled-back replicas, wrong trees, exchanges
//! among late writes.

use std::collections::BTreeMap;

use kvorum_encoding::StorageKey;
use kvorum_tictac::TreeSize;

use crate::exchange::{ExchangeLimits, ExchangeRequest};
use crate::outcome::EndedBy;
use crate::test_world::{Draw, Entry, World, key};

const KEYS: u64 = 400;

/// One failure, or a write.
fn disturb(world: &mut World, backups: &mut [BTreeMap<StorageKey, Entry>], draw: &mut Draw) {
    let at = draw.place(world.replicas.len());
    let size = world.size;
    match draw.below(100) {
        0 => {
            world.replicas[at].entries.clear();
            world.replicas[at].rebuild(size, 0);
        }
        1 => backups[at] = world.replicas[at].entries.clone(),
        2 => {
            world.replicas[at].entries = backups[at].clone();
            world.replicas[at].rebuild(size, 0);
        }
        3 => {
            let leaves = world.replicas[at].tree.size().leaves();
            let leaf = u32::try_from(draw.below(u64::from(leaves))).unwrap();
            world.replicas[at].tree.correct(leaf, 77);
        }
        4 => {
            let other = TreeSize::ALL[draw.place(3)];
            world.replicas[at].rebuild(other, 0);
        }
        _ => {
            let (number, entry) = (draw.below(KEYS), world.fresh());
            let keeps = draw.place(world.replicas.len());
            for (replica, it) in world.replicas.iter_mut().enumerate() {
                if replica == keeps || !draw.happens(10) {
                    it.receive(&key(number), entry);
                }
            }
        }
    }
}

#[test]
fn replicas_converge_without_reads() {
    let (mut exchanges, mut questions, mut keys_read) = (0u64, 0u64, 0u64);
    for seed in 0..100 {
        let mut draw = Draw(seed);
        let replicas = 2 + draw.place(4);
        let mut world = World::new(replicas, TreeSize::ALL[draw.place(3)]);
        let mut backups = vec![BTreeMap::new(); replicas];
        for _ in 0..draw.below(2000) {
            disturb(&mut world, &mut backups, &mut draw);
        }
        let newest = newest_of(&world);
        let mut turn = 0;
        while !(world.are_equal() && world.are_trees_equal()) {
            let request = ExchangeRequest {
                turn,
                ..world.request()
            };
            let outcome = world.exchange(request, &mut draw, |_, _, _| {});
            exchanges += 1;
            questions += u64::from(outcome.questions);
            keys_read += outcome.keys_read;
            turn += 1;
            assert!(
                turn < 40,
                "seed {seed}: no end after {turn} exchanges: {outcome:?}"
            );
        }
        assert_eq!(world.replicas[0].entries, newest, "seed {seed}");
        let request = world.request();
        let outcome = world.exchange(request, &mut draw, |_, _, _| {});
        assert_eq!(outcome.ended_by, EndedBy::Equal, "seed {seed}");
        assert!(outcome.is_complete, "seed {seed}");
    }
    // A loss of about one key in ten is mended 64 leaves at a time.
    assert!(exchanges < 100 * 12, "{exchanges}");
    assert!(questions < exchanges * 6 * 5, "{questions} in {exchanges}");
    assert!(
        keys_read < exchanges * 2 * 5 * 64 * 3,
        "{keys_read} in {exchanges}"
    );
}

/// The latest entry of each key on any replica: exchanges must lose none of these.
fn newest_of(world: &World) -> BTreeMap<StorageKey, Entry> {
    let mut newest: BTreeMap<StorageKey, Entry> = BTreeMap::new();
    for (key, entry) in world.replicas.iter().flat_map(|it| &it.entries) {
        let kept = newest.entry(key.clone()).or_insert(*entry);
        *kept = (*kept).max(*entry);
    }
    newest
}

#[test]
fn a_wiped_replica_is_whole_again() {
    let mut world = World::new(3, TreeSize::XxSmall);
    (0..3000).for_each(|number| world.write_everywhere(number));
    let before = world.replicas[1].entries.clone();
    world.replicas[1].entries.clear();
    world.replicas[1].rebuild(TreeSize::XxSmall, 0);
    let mut draw = Draw(3);
    for turn in 0.. {
        let limits = ExchangeLimits {
            branches_max: 64,
            leaves_max: 256,
            ..ExchangeLimits::default()
        };
        let request = ExchangeRequest {
            limits,
            turn,
            ..world.request()
        };
        if world.exchange(request, &mut draw, |_, _, _| {}).is_complete {
            break;
        }
        assert!(turn < 20);
    }
    assert_eq!(world.replicas[1].entries, before);
}
