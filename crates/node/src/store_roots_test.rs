//! A node that would miss its stores does not start.

use std::path::Path;

use kvorum_disk::{MemoryDisk, create_directory_durably};
use kvorum_settings::Configuration;

use super::*;

const TIERED: [&str; 3] = [
    "leveldb.tiered = 5",
    "leveldb.tiered.path.fast = /fast",
    "leveldb.tiered.path.slow = /slow",
];

fn loaded(more: &[&str]) -> Settings {
    let mut lines = vec![
        "storage_backend = leveldb",
        "platform_data_dir = /data",
        "leveldb.data_root = /data/leveldb",
    ];
    lines.extend(more);
    let no_more: [&str; 0] = [];
    Configuration::load(&lines.join("\n"), &no_more)
        .unwrap()
        .settings
}

fn store_in(disk: &MemoryDisk, directory: &str) {
    let directory = Path::new(directory);
    create_directory_durably(disk, directory).unwrap();
    replace_file(disk, &directory.join("manifest-0"), b"x").unwrap();
}

fn start(disk: &MemoryDisk, more: &[&str]) -> Result<(), String> {
    create_directory_durably(disk, Path::new("/data")).unwrap();
    settle(disk, Path::new("/data"), &loaded(more)).map_err(|error| error.to_string())
}

fn move_root(disk: &MemoryDisk, from: &str, to: &str) {
    let to = Path::new(to);
    create_directory_durably(disk, to.parent().unwrap()).unwrap();
    disk.rename(Path::new(from), to).unwrap();
}

#[test]
fn paths_stand_before_the_data_root() {
    let roots = StoreRoots::of(&loaded(&TIERED)).unwrap();
    let all: Vec<&Path> = roots.all().collect();
    let expected = ["/fast/data/leveldb", "/slow/data/leveldb"].map(Path::new);
    assert_eq!(all, expected);
    let tiers = roots.tiers("7").unwrap();
    assert_eq!(tiers.slow_directory, Path::new("/slow/data/leveldb/7"));
    assert_eq!(tiers.from_level, 5);
    let roots = StoreRoots::of(&loaded(&TIERED[1..])).unwrap();
    assert_eq!(
        roots.all().collect::<Vec<_>>(),
        [Path::new("/data/leveldb")]
    );
    assert_eq!(roots.tiers("7"), None);
}

#[test]
fn stores_at_the_data_root_are_not_passed_by_when_tiers_begin() {
    let disk = MemoryDisk::new();
    start(&disk, &[]).unwrap();
    store_in(&disk, "/data/leveldb/0");
    start(&disk, &[]).unwrap();
    let refused = start(&disk, &TIERED).unwrap_err();
    assert!(
        refused.contains("stores of leveldb are in /data/leveldb"),
        "{refused}"
    );
    assert!(refused.contains("/fast/data/leveldb"), "{refused}");
    move_root(&disk, "/data/leveldb", "/fast/data/leveldb");
    start(&disk, &TIERED).unwrap();
    start(&disk, &TIERED).unwrap();
}

#[test]
fn stores_at_the_fast_path_are_not_passed_by_when_tiers_end_or_the_path_changes() {
    let disk = MemoryDisk::new();
    start(&disk, &TIERED).unwrap();
    store_in(&disk, "/fast/data/leveldb/0");
    let elsewhere = [TIERED[0], "leveldb.tiered.path.fast = /new", TIERED[2]];
    for keys in [&TIERED[1..], &elsewhere] {
        let refused = start(&disk, keys).unwrap_err();
        assert!(refused.contains("are in /fast/data/leveldb"), "{refused}");
    }
    start(&disk, &TIERED).unwrap();
    move_root(&disk, "/fast/data/leveldb", "/new/data/leveldb");
    start(&disk, &elsewhere).unwrap();
    move_root(&disk, "/new/data/leveldb", "/data/leveldb");
    start(&disk, &[]).unwrap();
    assert!(
        disk.info(Path::new("/data/leveldb_stores"))
            .unwrap()
            .is_none()
    );
}

#[test]
fn with_the_root_as_fast_path_nothing_has_to_be_moved() {
    let disk = MemoryDisk::new();
    start(&disk, &[]).unwrap();
    store_in(&disk, "/data/leveldb/0");
    let here = [TIERED[0], "leveldb.tiered.path.fast = /", TIERED[2]];
    start(&disk, &here).unwrap();
    start(&disk, &[]).unwrap();
}
