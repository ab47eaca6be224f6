//! Directories of real nodes: hash trees beside the stores, and stores that were dropped, renamed
//! or never finished. Regression: every node of Riak 2.0 and later has LevelDB stores in
//! `cluster_meta`, and an import of its data directory counted their keys as losses.

use std::path::{Path, PathBuf};

use kvorum_import::{ImportError, Summary};

use crate::level_store::{LevelStore, Packing, key};
use crate::partitions::partition;
use crate::riak_objects::{object_v1, plain};
use crate::world::World;

fn store(name: &str) -> LevelStore {
    let mut store = LevelStore::default();
    let writes = [store.put(&key("b", name), &object_v1(&[("a", 1)], &[plain("v")]))];
    store.table(0, &writes, Packing::Plain);
    store
}

fn hash_tree() -> LevelStore {
    let mut store = LevelStore::default();
    let writes = [store.put(b"t\0\0\0 of a hash tree", b"\x83something")];
    store.log(&[writes.to_vec()]);
    store
}

fn write(world: &World, directory: &str, store: &LevelStore) {
    for (name, bytes) in store.all_files() {
        world.write(&format!("riak/{directory}/{name}"), &bytes);
    }
}

fn passed_over(summary: &Summary) -> Vec<String> {
    let passed = summary.passed_over.iter();
    passed.map(|it| it.path.display().to_string()).collect()
}

#[test]
fn trees_of_a_node_and_stores_that_riak_does_not_open_are_named_and_left() {
    let world = World::new();
    write(&world, "leveldb/0", &store("live"));
    for tree in [
        "cluster_meta/trees",
        "anti_entropy/0",
        "tictac_aae/0/x",
        "yz_anti_entropy/0",
    ] {
        write(&world, tree, &hash_tree());
    }
    for ghost in [
        "leveldb/0.bak",
        "leveldb/old/0",
        "leveldb/backup/0",
        "leveldb/lost/0",
    ] {
        write(&world, ghost, &store("ghost"));
    }
    world.write("riak/ring/riak_core_ring.default.1", b"ring");
    let summary = world.import().unwrap();
    assert_eq!((summary.partitions, summary.counts.objects), (1, 1));
    assert!(summary.is_whole(), "{summary}");
    assert!(summary.first_findings.is_empty());
    assert!(world.values("b", "ghost").is_empty());
    let mut passed = passed_over(&summary);
    passed.sort();
    assert_eq!(
        passed,
        [
            "riak/anti_entropy",
            "riak/cluster_meta",
            "riak/leveldb/0.bak",
            "riak/leveldb/backup",
            "riak/leveldb/lost",
            "riak/leveldb/old",
            "riak/ring",
            "riak/tictac_aae",
            "riak/yz_anti_entropy",
        ]
    );
}

#[test]
fn stores_that_were_never_finished_are_named_and_no_reason_to_fail() {
    let world = World::new();
    write(&world, "leveldb/0", &store("k"));
    let mut expected = [1, 2, 3, 4].map(|number| format!("riak/leveldb/{}", partition(number)));
    let [opened, tables, begun, empty] = &expected;
    world.write(&format!("{opened}/LOCK"), b"");
    world.write(&format!("{opened}/LOG"), b"2014/01/01-00:00:00 opened");
    let directory = format!("{tables}/sst_0");
    world.disk.create_directory(Path::new(&directory)).unwrap();
    world.write(&format!("{begun}/CURRENT"), b"MANIFEST-000001\n");
    world.write(&format!("{begun}/MANIFEST-000001"), b"");
    world.disk.create_directory(Path::new(empty)).unwrap();
    let summary = world.import().unwrap();
    let mut passed = passed_over(&summary);
    passed.sort();
    expected.sort();
    assert_eq!(passed, expected);
    assert_eq!((summary.partitions, summary.counts.objects), (1, 1));
    assert!(summary.is_whole(), "{summary}");
}

#[test]
fn writes_without_a_manifest_are_not_passed_over() {
    let world = World::new();
    for (name, bytes) in hash_tree().all_files() {
        if std::path::Path::new(&name)
            .extension()
            .is_some_and(|it| it == "log")
        {
            world.write(&format!("riak/leveldb/0/{name}"), &bytes);
        }
    }
    world.write("riak/leveldb/0/LOCK", b"");
    world.write("riak/leveldb/0/LOG", b"");
    let error = world.import().unwrap_err();
    assert!(matches!(error, ImportError::NoManifest { .. }), "{error}");
}

#[test]
fn a_dry_run_does_not_stand_in_the_way_of_the_import() {
    let mut world = World::new();
    write(&world, "0", &store("k"));
    let target = world.options.shared.target.take();
    assert!(world.import().unwrap().is_dry_run);
    world.options.shared.target = target;
    assert!(!world.import().unwrap().is_dry_run);
    assert_eq!(world.values("b", "k"), ["v"]);
}

#[test]
fn a_directory_that_is_no_store_creates_nothing() {
    let mut world = World::new();
    world.write("riak/some/file", b"text");
    let error = world.import().unwrap_err();
    assert!(matches!(error, ImportError::NothingFound { .. }), "{error}");
    world.options.shared.directories = vec![PathBuf::from("riak/some/file")];
    let error = world.import().unwrap_err();
    assert!(matches!(error, ImportError::NoDirectory { .. }), "{error}");
    assert!(world.disk.info(Path::new("state")).unwrap().is_none());
}
