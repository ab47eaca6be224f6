//! Damaged files: intact records are imported, and the rest is reported.

use proptest::prelude::*;

use crate::level_store::{LevelStore, Packing, key};
use crate::riak_objects::{object_v1, plain};
use crate::world::World;

const KEYS: usize = 12;

fn name(number: usize) -> String {
    format!("key{number:02}")
}

/// A store of one table and one log, each with some keys, and their names.
fn store(packing: Packing) -> (LevelStore, String, String) {
    let mut store = LevelStore::default();
    let mut writes: Vec<_> = (0..2 * KEYS)
        .map(|number| {
            let object = object_v1(&[("a", 1)], &[plain(&"v".repeat(number * 7))]);
            store.put(&key("b", &name(number)), &object)
        })
        .collect();
    let logged = writes.split_off(KEYS);
    let table = store.table(2, &writes, packing);
    let batches: Vec<_> = logged.into_iter().map(|write| vec![write]).collect();
    let log = store.log(&batches);
    (store, table, log)
}

fn bytes_of<'a>(store: &'a mut LevelStore, name: &str) -> &'a mut Vec<u8> {
    let mut files = store.files.iter_mut();
    &mut files.find(|(known, _)| known == name).unwrap().1
}

/// The imported keys.
fn arrived(world: &World, from: usize) -> Vec<usize> {
    let keys = from..from + KEYS;
    keys.filter(|number| world.values("b", &name(*number)).len() == 1)
        .collect()
}

#[test]
fn a_flipped_byte_of_a_table_costs_its_block_at_most_and_is_reported() {
    for packing in [Packing::Plain, Packing::Lz4] {
        let (whole, table, _) = store(packing);
        let len = whole.files[0].1.len();
        for at in (0..len).step_by(7) {
            let world = World::new();
            let mut damaged = whole.clone();
            bytes_of(&mut damaged, &table)[at] ^= 0x40;
            world.store(0, &damaged);
            let summary = world.import().unwrap();
            assert_eq!(arrived(&world, KEYS).len(), KEYS);
            let lost = KEYS - arrived(&world, 0).len();
            // A block has at most three of these keys.
            assert!(lost <= 4, "{packing:?} byte {at}: {lost} keys lost");
            assert_eq!(
                lost > 0,
                !summary.is_whole(),
                "{packing:?} byte {at}: {summary}"
            );
            if lost > 0 {
                let finding = &summary.first_findings[0];
                assert!(
                    finding.reason.contains("up to default/b/key"),
                    "{finding:?}"
                );
                assert!(finding.len.is_some());
            }
        }
    }
}

#[test]
fn a_table_that_lost_its_end_gives_what_is_before_it() {
    let (whole, table, _) = store(Packing::Plain);
    let bytes = whole.files[0].1.clone();
    for len in (0..bytes.len()).step_by(9) {
        let world = World::new();
        let mut torn = whole.clone();
        bytes_of(&mut torn, &table).truncate(len);
        world.store(0, &torn);
        let summary = world.import().unwrap();
        let arrived = arrived(&world, 0);
        // Keys arrive in order, up to the first missing one.
        assert_eq!(arrived, (0..arrived.len()).collect::<Vec<_>>(), "{len}");
        assert!(
            arrived.len() == KEYS || !summary.is_whole(),
            "{len}: {summary}"
        );
        assert!(!summary.first_findings.is_empty(), "{len}");
    }
}

#[test]
fn a_table_without_an_index_still_gives_all_its_keys() {
    for packing in [Packing::Plain, Packing::Snappy, Packing::Lz4] {
        let (mut damaged, table, _) = store(packing);
        let bytes = bytes_of(&mut damaged, &table);
        let footer = bytes.len() - 48;
        bytes[footer..].fill(0xee);
        let world = World::new();
        world.store(0, &damaged);
        let summary = world.import().unwrap();
        assert_eq!(arrived(&world, 0).len(), KEYS, "{packing:?}");
        assert!(summary.is_whole(), "{summary}");
        assert_eq!(summary.first_findings.len(), 1);
    }
}

#[test]
fn a_flipped_byte_of_a_log_costs_its_record_alone() {
    let (whole, _, log) = store(Packing::Lz4);
    let len = whole.files[1].1.len();
    for at in (0..len).step_by(7) {
        let world = World::new();
        let mut damaged = whole.clone();
        bytes_of(&mut damaged, &log)[at] ^= 0x01;
        world.store(0, &damaged);
        let summary = world.import().unwrap();
        assert_eq!(arrived(&world, 0).len(), KEYS);
        let arrived = arrived(&world, KEYS);
        assert_eq!(arrived.len(), KEYS - 1, "byte {at}");
        // A crash may have cut off the last record.
        let is_last = !arrived.contains(&(2 * KEYS - 1));
        assert_eq!(summary.counts.torn_tails, u64::from(is_last), "byte {at}");
        assert_eq!(summary.counts.unreadable, u64::from(!is_last), "byte {at}");
    }
}

#[test]
fn damage_of_a_record_that_crosses_blocks_costs_no_other() {
    let mut store = LevelStore::default();
    let batches: Vec<_> = (0..60)
        .map(|number| {
            let object = object_v1(&[("a", 1)], &[plain(&"v".repeat(2000))]);
            vec![store.put(&key("b", &name(number)), &object)]
        })
        .collect();
    let log = store.log(&batches);
    bytes_of(&mut store, &log)[33_000] ^= 1;
    let world = World::new();
    world.store(0, &store);
    let summary = world.import().unwrap();
    assert_eq!(summary.counts.unreadable, 1, "{summary}");
    let finding = &summary.first_findings[0];
    assert!(finding.file.ends_with(&log), "{finding:?}");
    let (offset, len) = (finding.offset, finding.len.unwrap());
    assert!(offset <= 33_000 && offset + len > 33_000, "{finding:?}");
    let missing = (0..60).filter(|number| world.values("b", &name(*number)).is_empty());
    assert_eq!(missing.count(), 1);
}

#[test]
fn without_a_manifest_that_can_be_used_everything_there_is_is_taken() {
    let (store, _, _) = store(Packing::Lz4);
    for (file, bytes) in [
        (
            "MANIFEST-000002",
            &b"no manifest at all, and long enough to have a header"[..],
        ),
        ("CURRENT", b"MANIFEST-000077\n"),
        ("CURRENT", b""),
    ] {
        let world = World::new();
        world.store(0, &store);
        world.write(&format!("riak/0/{file}"), bytes);
        let summary = world.import().unwrap();
        assert_eq!(summary.counts.objects, 2 * KEYS as u64, "{file}: {summary}");
    }
}

#[test]
fn every_flipped_byte_of_a_manifest_leaves_all_keys() {
    let (store, _, _) = store(Packing::Lz4);
    let manifest = store.all_files();
    let (_, manifest) = manifest
        .iter()
        .find(|(name, _)| name.starts_with("MANI"))
        .unwrap();
    for at in 0..manifest.len() {
        let world = World::new();
        world.store(0, &store);
        let mut bytes = manifest.clone();
        bytes[at] ^= 0x10;
        world.write("riak/0/MANIFEST-000002", &bytes);
        let summary = world.import().unwrap();
        assert_eq!(
            summary.counts.objects,
            2 * KEYS as u64,
            "byte {at}: {summary}"
        );
        assert!(!summary.first_findings.is_empty(), "byte {at}");
    }
}

#[test]
fn a_missing_table_is_named_with_its_keys() {
    let (mut store, table, _) = store(Packing::Lz4);
    store.files.retain(|(name, _)| *name != table);
    let world = World::new();
    world.store(0, &store);
    let summary = world.import().unwrap();
    assert_eq!(arrived(&world, KEYS).len(), KEYS);
    assert_eq!(summary.counts.unreadable, 1);
    let finding = &summary.first_findings[0];
    assert!(finding.file.ends_with(&table), "{finding:?}");
    let keys = "keys behind default/b/key00 up to default/b/key11";
    assert!(finding.reason.contains(keys), "{finding:?}");
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 100,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_bytes_in_any_file_make_an_import_fail(
        file in 0..4usize,
        from in 0..900usize,
        bytes in prop::collection::vec(any::<u8>(), 1..200),
    ) {
        let (store, table, log) = store(Packing::Lz4);
        let files = store.all_files();
        let name = [&table[..], &log, "MANIFEST-000002", "CURRENT"][file];
        let (_, whole) = files.iter().find(|(known, _)| known == name).unwrap();
        let mut damaged = whole.clone();
        let from = from.min(damaged.len());
        damaged.splice(from..(from + bytes.len()).min(whole.len()), bytes);
        let world = World::new();
        world.store(0, &store);
        world.write(&format!("riak/0/{name}"), &damaged);
        let summary = world.import().unwrap();
        let whole_half = if file == 0 { KEYS } else { 0 };
        if file < 2 {
            prop_assert_eq!(arrived(&world, whole_half).len(), KEYS, "{}", summary);
        }
    }
}
