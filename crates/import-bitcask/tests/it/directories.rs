//! Directories of real nodes. Regression: an import of a node's bitcask directory brought back
//! objects that had been deleted for years. Riak keeps dropped partitions in `auto_cleanup` and
//! older copies in `manual_cleanup`, and operators rename directories before they remove them.

use std::path::{Path, PathBuf};

use kvorum_import_bitcask::{ImportError, Summary};

use crate::basho::{CaskFile, key};
use crate::partitions::partition;
use crate::riak_objects::{object_v1, plain};
use crate::world::World;

fn cask(name: &str) -> CaskFile {
    let mut file = CaskFile::default();
    file.put(&key("b", name), &object_v1(&[("a", 1)], &[plain("v")]));
    file
}

fn passed_over(summary: &Summary) -> Vec<String> {
    let passed = summary.passed_over.iter();
    passed.map(|it| it.path.display().to_string()).collect()
}

#[test]
fn only_directories_that_riak_opens_are_imported_and_the_others_are_named() {
    const INDEX: &str = "22835963083295358096932575511191922182123945984";
    let leftovers = [
        format!("riak/bitcask/auto_cleanup/{INDEX}"),
        format!("riak/bitcask/manual_cleanup/{INDEX}-1382000000"),
        "riak/bitcask/0.old".to_owned(),
        "riak/bitcask/0-1382000000".to_owned(),
        "riak/bitcask/lost+found/0".to_owned(),
        format!("riak/bitcask/moved/{INDEX}"),
        "riak/bitcask/20240131".to_owned(),
    ];
    let world = World::new();
    world.write("riak/bitcask/0/1.bitcask.data", &cask("live").data);
    for (number, leftover) in leftovers.iter().enumerate() {
        let file = cask(&format!("ghost {number}"));
        world.write(&format!("{leftover}/1.bitcask.data"), &file.data);
    }
    for other in [
        "ring/riak_core_ring.default.1",
        "kv_vnode/0",
        "leveldb/0/CURRENT",
    ] {
        world.write(&format!("riak/{other}"), b"not for us");
    }
    let summary = world.import().unwrap();
    assert_eq!((summary.partitions, summary.counts.objects), (1, 1));
    assert_eq!(world.values("b", "live"), ["v"]);
    for number in 0..leftovers.len() {
        assert!(world.values("b", &format!("ghost {number}")).is_empty());
    }
    let mut expected = vec!["riak/kv_vnode", "riak/leveldb", "riak/ring"];
    expected.extend([
        "riak/bitcask/0-1382000000",
        "riak/bitcask/0.old",
        "riak/bitcask/20240131",
        "riak/bitcask/auto_cleanup",
        "riak/bitcask/lost+found",
        "riak/bitcask/manual_cleanup",
        "riak/bitcask/moved",
    ]);
    expected.sort_unstable();
    let mut passed = passed_over(&summary);
    passed.sort();
    assert_eq!(passed, expected);
    assert!(summary.is_whole());
    let text = summary.to_string();
    assert!(
        text.contains("passed over riak/bitcask/auto_cleanup"),
        "{text}"
    );
}

#[test]
fn a_leftover_that_is_named_itself_is_imported() {
    let mut world = World::new();
    world.write("riak/bitcask/0.old/1.bitcask.data", &cask("k").data);
    world.options.shared.directories = vec![PathBuf::from("riak/bitcask/0.old")];
    assert_eq!(world.import().unwrap().counts.objects, 1);
}

#[test]
fn partitions_without_data_are_named_and_no_reason_to_fail() {
    let world = World::new();
    world.data(0, 1, &cask("k"));
    let directories = [1, 2, 3, 4, 5].map(|number| format!("riak/{}", partition(number)));
    let [version, lock, hint, empty, data] = &directories;
    world.write(&format!("{version}/version.txt"), b"1.7.0");
    world.write(&format!("{lock}/bitcask.write.lock"), b"4711 \n");
    world.write(&format!("{hint}/7.bitcask.hint"), b"");
    world.disk.create_directory(Path::new(empty)).unwrap();
    world.write(&format!("{data}/1.bitcask.data"), b"");
    let summary = world.import().unwrap();
    let (mut passed, mut expected) = (passed_over(&summary), directories[..4].to_vec());
    passed.sort();
    expected.sort();
    assert_eq!(passed, expected);
    assert_eq!((summary.partitions, summary.counts.objects), (2, 1));
    assert!(summary.is_whole(), "{summary}");

    // A node that was never written to.
    let fresh = World::new();
    fresh.write("riak/bitcask/0/version.txt", b"1.7.0");
    assert_eq!(fresh.import().unwrap().counts.objects, 0);
}

/// Regression: a partition that had been handed off, with only files marked for deletion, ended the
/// import of all others.
#[test]
fn a_partition_whose_files_are_all_marked_for_deletion_is_passed_over() {
    let mut world = World::new();
    world.file_mode = |path| {
        let is_left = path.parent() == Some(Path::new("riak/0"));
        Some(if is_left { 0o645 } else { 0o644 })
    };
    world.data(0, 1, &cask("ghost"));
    world.data(0, 2, &cask("ghost 2"));
    world.data(1, 1, &cask("live"));
    let summary = world.import().unwrap();
    assert_eq!(passed_over(&summary), ["riak/0"]);
    assert!(summary.to_string().contains("mark for files to be deleted"));
    assert_eq!((summary.partitions, summary.counts.objects), (1, 1));
    assert!(world.values("b", "ghost").is_empty());

    // A copy that changed permissions is far more likely than a node without any data.
    world.file_mode = |_| Some(0o755);
    world.options.shared.state_directory = PathBuf::from("another state");
    let error = world.import().unwrap_err();
    assert!(
        matches!(error, ImportError::AllMarkedForDeletion { .. }),
        "{error}"
    );
}

#[test]
fn of_two_data_roots_in_one_node_the_user_chooses() {
    let mut world = World::new();
    world.write("riak/bitcask/0/1.bitcask.data", &cask("live").data);
    world.write("riak/bitcask.2014/0/1.bitcask.data", &cask("ghost").data);
    let error = world.import().unwrap_err();
    let ImportError::SeveralRoots { roots, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(roots.len(), 2);
    assert!(error.to_string().contains("riak/bitcask.2014"), "{error}");
    world.options.shared.directories = vec![PathBuf::from("riak/bitcask")];
    assert_eq!(world.import().unwrap().counts.objects, 1);
    assert!(world.values("b", "ghost").is_empty());
}

#[test]
fn a_directory_that_is_no_store_creates_nothing() {
    let mut world = World::new();
    world.write("riak/some/file", b"text");
    let error = world.import().unwrap_err();
    assert!(matches!(error, ImportError::NothingFound { .. }), "{error}");
    world.options.shared.directories = vec![PathBuf::from("no such directory")];
    let error = world.import().unwrap_err();
    assert!(matches!(error, ImportError::NoDirectory { .. }), "{error}");
    assert!(world.disk.info(Path::new("state")).unwrap().is_none());
}

#[test]
fn a_dry_run_does_not_stand_in_the_way_of_the_import_nor_the_reverse() {
    let mut world = World::new();
    world.data(0, 1, &cask("k"));
    let target = world.options.shared.target.take();
    assert!(world.import().unwrap().is_dry_run);
    world.options.shared.target = target.clone();
    let summary = world.import().unwrap();
    assert!(!summary.is_dry_run);
    assert_eq!(world.values("b", "k"), ["v"]);
    // A later dry run of a source that has grown counts again, and leaves the finished import's
    // state.
    world.options.shared.target = None;
    world.data(1, 1, &cask("l"));
    assert_eq!(world.import().unwrap().counts.objects, 2);
    world.options.shared.target = target;
    let error = world.import().unwrap_err();
    assert!(matches!(error, ImportError::OtherImport { .. }), "{error}");
    assert!(world.values("b", "l").is_empty());
}

#[test]
fn a_dry_run_s_state_of_an_earlier_version_gives_way() {
    let mut world = World::new();
    world.data(0, 1, &cask("k"));
    let target = world.options.shared.target.take();
    world.import().unwrap();
    // The place of a dry run's state in that version.
    let path = Path::new("state/dry-run/state.json");
    let text = kvorum_disk::read_file(&*world.disk, path, 1 << 20).unwrap();
    world.write("state/state.json", &text);
    world.options.shared.target = target;
    assert_eq!(world.import().unwrap().counts.objects, 1);
    assert_eq!(world.values("b", "k"), ["v"]);
}
