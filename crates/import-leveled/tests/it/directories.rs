//! Directories of real nodes, and directories that are not leveled's.

use std::path::{Path, PathBuf};

use kvorum_import::{ImportError, Summary};

use crate::journal::{Journal, key};
use crate::partitions::partition;
use crate::riak_objects::{object_v1, plain};
use crate::world::World;

fn journal(name: &str) -> Vec<u8> {
    let mut journal = Journal::default();
    journal.put(1, &key("b", name), &object_v1(&[("a", 1)], &[plain("v")]));
    journal.completed()
}

fn write(world: &World, store: &str, name: &str) {
    let path = format!("riak/{store}/journal/journal_files/0_x.cdb");
    world.write(&path, &journal(name));
}

fn passed_over(summary: &Summary) -> Vec<String> {
    let passed = summary.passed_over.iter();
    passed.map(|it| it.path.display().to_string()).collect()
}

#[test]
fn only_directories_that_riak_opens_are_imported_and_the_others_are_named() {
    let world = World::new();
    let one = partition(1);
    write(&world, "leveled/0", "live");
    for ghost in [
        "leveled/0.old".to_owned(),
        format!("leveled/moved/{one}"),
        format!("tictac_aae/{one}/rkv"),
        format!("leveled/auto_cleanup/{one}"),
    ] {
        write(&world, &ghost, "ghost");
    }
    world.write("riak/ring/riak_core_ring.default.1", b"ring");
    world.write("riak/kv_vnode/0", b"an identity");
    world.write("riak/bitcask/0/1.bitcask.data", b"not for us");
    let summary = world.import().unwrap();
    assert_eq!((summary.partitions, summary.counts.objects), (1, 1));
    assert!(summary.is_whole(), "{summary}");
    assert!(world.values("b", "ghost").is_empty());
    let mut passed = passed_over(&summary);
    passed.sort();
    assert_eq!(
        passed,
        [
            "riak/bitcask",
            "riak/kv_vnode",
            "riak/leveled/0.old",
            "riak/leveled/auto_cleanup",
            "riak/leveled/moved",
            "riak/ring",
            "riak/tictac_aae",
        ]
    );
}

#[test]
fn a_node_a_data_root_and_a_partition_may_be_named() {
    for root in ["riak", "riak/leveled", "riak/leveled/0"] {
        let mut world = World::new();
        write(&world, "leveled/0", "live");
        world.options.directories = vec![PathBuf::from(root)];
        assert_eq!(world.import().unwrap().counts.objects, 1, "{root}");
    }
}

#[test]
fn directories_without_journals_are_refused_and_partitions_without_files_are_named() {
    let mut world = World::new();
    assert!(matches!(
        world.import(),
        Err(ImportError::NoDirectory { .. })
    ));
    world.write("riak/0/1.bitcask.data", b"bitcask");
    world.write("riak/0/journal/notes.txt", b"no journal of leveled's");
    let refused = world.import().unwrap_err();
    assert!(
        refused.to_string().contains("holds no leveled stores"),
        "{refused}"
    );
    world.options.directories = vec![PathBuf::from("bare")];
    world.write("bare/0/ledger/ledger_files/1_0_0.sst", b"a ledger alone");
    let one = partition(1);
    world.write(
        &format!("bare/{one}/journal/journal_files/lost"),
        b"no journal",
    );
    let summary = world.import().unwrap();
    let mut passed = passed_over(&summary);
    passed.sort();
    assert_eq!(passed, ["bare/0".to_owned(), format!("bare/{one}")]);
    assert!(summary.passed_over[0].reason.contains("without a file"));
}

/// leveled takes no lock: an open journal file is the only sign of a running process.
#[test]
fn a_store_that_a_process_has_open_is_not_imported() {
    let mut world = World::new();
    write(&world, "leveled/0", "live");
    world.open_file = |paths| {
        let path = paths.first()?.clone();
        Some((path, 4711))
    };
    let file = Path::new("riak/leveled/0/journal/journal_files/0_x.cdb");
    assert!(matches!(
        world.import(),
        Err(ImportError::InUse { lock, process: 4711 }) if lock == file
    ));
    world.options.ignore_locks = true;
    assert_eq!(world.import().unwrap().counts.objects, 1);
}

#[test]
fn a_store_whose_compaction_forgets_deletions_is_named() {
    let world = World::new();
    write(&world, "leveled/0", "live");
    world.write("riak/leveled/0/recalc.lock", b"");
    let summary = world.import().unwrap();
    assert!(summary.is_whole());
    let finding = &summary.first_findings[0];
    assert_eq!(finding.file, Path::new("riak/leveled/0/recalc.lock"));
    assert!(finding.reason.contains("drops deletions"));
    // The finding appears once, however often the import is started.
    let lines = kvorum_disk::read_file(&*world.disk, Path::new("state/findings.jsonl"), 1 << 20);
    let again = world.import().unwrap();
    assert_eq!(again.counts, summary.counts);
    let after = kvorum_disk::read_file(&*world.disk, Path::new("state/findings.jsonl"), 1 << 20);
    assert_eq!(lines.unwrap(), after.unwrap());
}
