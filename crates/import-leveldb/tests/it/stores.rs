//! Directories: partitions, nodes, tiers, types, locks, and stores without objects.

use std::path::{Path, PathBuf};

use kvorum_import::ImportError;

use crate::level_store::{LevelStore, Packing, key, note_key, typed_key};
use crate::riak_objects::{Sibling, dotted, object_v1, plain};
use crate::world::World;

fn object(value: &str) -> Vec<u8> {
    object_v1(&[("a", 1)], &[plain(value)])
}

fn store_of(names: &[&str]) -> LevelStore {
    let mut store = LevelStore::default();
    let writes: Vec<_> = names
        .iter()
        .map(|name| store.put(&key("b", name), &object("v")))
        .collect();
    store.table(2, &writes, Packing::Lz4);
    store
}

#[test]
fn replicas_of_all_partitions_meet_and_differing_ones_are_merged() {
    let world = World::new();
    let mut first = LevelStore::default();
    let writes = vec![
        first.put(&key("b", "equal"), &object("v")),
        first.put(&key("b", "behind"), &object("old")),
        first.put(
            &key("b", "apart"),
            &object_v1(&[("a", 1)], &[dotted("x", "a", 1)]),
        ),
        first.put(&key("b", "deleted here"), &object("v")),
    ];
    first.table(1, &writes, Packing::Lz4);
    let deleted = vec![vec![first.delete(&key("b", "deleted here"))]];
    first.log(&deleted);
    let mut second = LevelStore::default();
    let newer = object_v1(&[("a", 1), ("b", 1)], &[dotted("new", "b", 1)]);
    let writes = vec![
        second.put(&key("b", "equal"), &object("v")),
        second.put(&key("b", "behind"), &newer),
        second.put(
            &key("b", "apart"),
            &object_v1(&[("b", 1)], &[dotted("y", "b", 1)]),
        ),
        second.put(&key("b", "deleted here"), &object("v")),
    ];
    second.log(&[writes]);
    world.store(0, &first);
    world.store(1, &second);
    let summary = world.import().unwrap();
    assert!(summary.is_whole(), "{summary}");
    assert_eq!(world.values("b", "equal"), ["v"]);
    assert_eq!(world.values("b", "behind"), ["new"]);
    assert_eq!(world.values("b", "apart"), ["x", "y"]);
    assert_eq!(world.values("b", "deleted here"), ["v"]);
    let counts = summary.counts;
    assert_eq!((counts.equal_copies, counts.merged_objects), (1, 2));
    assert_eq!((summary.partitions, counts.objects), (2, 4));
}

#[test]
fn stores_are_found_below_a_data_directory_and_other_stores_are_not() {
    let world = World::new();
    let anti_entropy = {
        let mut store = LevelStore::default();
        let writes = [store.put(b"t\0\0\0 of a hash tree", b"\x83something")];
        store.table(0, &writes, Packing::Plain);
        store
    };
    for (directory, store) in [
        ("leveldb/0", store_of(&["x"])),
        (
            "leveldb/365375409332725729550921208179070754913983135744",
            store_of(&["y"]),
        ),
        ("anti_entropy/0", anti_entropy.clone()),
        ("leveldb/backup.1", store_of(&["backed up"])),
    ] {
        for (name, bytes) in store.all_files() {
            world.write(&format!("riak/{directory}/{name}"), &bytes);
        }
    }
    let summary = world.import().unwrap();
    assert!(summary.is_whole(), "{summary}");
    assert_eq!((summary.partitions, summary.counts.objects), (2, 2));
    assert_eq!(world.values("b", "y"), ["v"]);

    // A store of another kind that is named directly is reported as such.
    let mut other = World::new();
    for (name, bytes) in anti_entropy.all_files() {
        other.write(&format!("riak/{name}"), &bytes);
    }
    other.options.shared.directories = vec![PathBuf::from("riak")];
    let summary = other.import().unwrap();
    assert_eq!((summary.counts.other_keys, summary.counts.objects), (1, 0));
    assert!(!summary.is_whole());
    assert!(matches!(
        World::new().import().unwrap_err(),
        ImportError::NoDirectory { .. }
    ));
}

#[test]
fn tiered_stores_are_whole_when_both_halves_are_named() {
    let mut store = LevelStore::default();
    let cold = [
        store.put(&key("b", "cold"), &object("cold")),
        store.put(&key("b", "deleted"), &object("cold")),
    ];
    store.table(4, &cold, Packing::Lz4);
    let hot = [
        store.put(&key("b", "hot"), &object("hot")),
        store.delete(&key("b", "deleted")),
    ];
    store.table(0, &hot, Packing::Lz4);
    let mut world = World::new();
    for (name, bytes) in store.all_files() {
        let tier = if name.starts_with("sst_4") {
            "slow"
        } else {
            "riak"
        };
        world.write(&format!("{tier}/0/{name}"), &bytes);
    }
    // Without the slow half, the report names the missing table and its keys.
    let summary = world.import().unwrap();
    assert_eq!((summary.counts.unreadable, summary.counts.objects), (1, 1));
    let reason = &summary.first_findings[0].reason;
    assert!(reason.contains("slow tier"), "{reason}");
    assert!(reason.contains("default/b/cold"), "{reason}");

    world.options.slow_tiers = vec![PathBuf::from("slow")];
    world.options.shared.restart = true;
    let summary = world.import().unwrap();
    assert!(summary.is_whole(), "{summary}");
    assert_eq!(world.values("b", "cold"), ["cold"]);
    assert!(world.values("b", "deleted").is_empty());

    // The slow half is no store by itself: deletions in the fast half are missing there.
    world.options.slow_tiers = Vec::new();
    world.options.shared.directories.push(PathBuf::from("slow"));
    let error = world.import().unwrap_err();
    assert!(matches!(error, ImportError::NoManifest { .. }), "{error}");
    world.options.slow_tiers = vec![PathBuf::from("slow")];
    let error = world.import().unwrap_err();
    assert!(matches!(error, ImportError::TierCount { .. }), "{error}");
}

#[test]
fn types_are_found_beforehand_and_typed_objects_arrive_in_theirs() {
    let world = World::new();
    let mut store = LevelStore::default();
    let writes = vec![
        store.put(&note_key(), &[1]),
        store.put(&typed_key("carts", "b", "k1"), &object("1")),
        store.put(&typed_key("carts", "c", "k2"), &object("2")),
        store.put(&key("b", "untyped"), &object("v")),
    ];
    store.table(1, &writes, Packing::Lz4);
    let logged = vec![vec![
        store.put(&typed_key("sessions", "b", "k"), &object("3")),
    ]];
    store.log(&logged);
    world.store(0, &store);
    let error = world.import().unwrap_err();
    let ImportError::MissingTypes { names } = error else {
        panic!("{error}");
    };
    assert_eq!(names, ["carts", "sessions"]);
    assert_eq!(world.server.store.lock().puts, 0);
    world.server.store.lock().bucket_types = vec!["carts", "sessions"];
    let summary = world.import().unwrap();
    assert!(summary.is_whole(), "{summary}");
    assert_eq!(world.server.values("carts", "c", "k2"), ["2"]);
    assert_eq!(world.server.values("sessions", "b", "k"), ["3"]);
    assert_eq!(world.values("b", "untyped"), ["v"]);
}

#[test]
fn a_store_that_riak_has_open_is_not_imported() {
    let mut world = World::new();
    world.store(0, &store_of(&["x"]));
    world.lock_holder = |path| (path == Path::new("riak/0/LOCK")).then_some(4711);
    let error = world.import().unwrap_err();
    assert!(
        matches!(error, ImportError::InUse { process: 4711, .. }),
        "{error}"
    );
    world.options.shared.ignore_locks = true;
    assert!(world.import().unwrap().is_whole());
}

#[test]
fn tombstones_and_data_types_are_treated_as_by_every_importer() {
    let mut world = World::new();
    let mut store = LevelStore::default();
    let gone = Sibling {
        deleted: true,
        ..dotted("", "a", 2)
    };
    let counter = Sibling {
        metadata: vec![(
            "content-type",
            crate::riak_objects::string("application/riak_counter"),
        )],
        ..plain("E\u{1}...")
    };
    let writes = [
        store.put(&key("b", "gone"), &object_v1(&[("a", 2)], &[gone])),
        store.put(&key("b", "counter"), &object_v1(&[("a", 1)], &[counter])),
        store.put(&key("b", "none"), b"no object"),
    ];
    store.table(0, &writes, Packing::Lz4);
    world.store(0, &store);
    let summary = world.import().unwrap();
    assert_eq!(world.values("b", "gone"), ["(deleted)"]);
    let counts = summary.counts;
    assert_eq!((counts.data_types_left_out, counts.unreadable), (1, 1));
    world.options.shared.leave_out_tombstones = true;
    world.options.shared.restart = true;
    assert_eq!(world.import().unwrap().counts.tombstones_left_out, 1);
}
