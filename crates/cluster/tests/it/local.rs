//! The file in two generations, under crashes, damage and a full disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kvorum_cluster::{
    AgreedState, ClusterState, LocalState, OpenError, OpenNote, Opened, ProposeError, Unreadable,
};
use kvorum_disk::{
    CrashOptions, Disk, ErrorKind, Fault, FaultyDisk, MemoryDisk, OpenMode, Operation, RealDisk,
    Rule, read_file,
};

use crate::{NODE_NAME, after, created, directory, founding, node, set_bucket};

fn newest() -> PathBuf {
    directory().join("cluster")
}

fn previous() -> PathBuf {
    directory().join("cluster.previous")
}

fn shared(disk: &MemoryDisk) -> Arc<dyn Disk> {
    Arc::new(disk.clone())
}

fn opened(disk: &MemoryDisk) -> Result<Opened, OpenError> {
    LocalState::open(shared(disk), directory(), NODE_NAME)
}

fn overwrite(disk: &MemoryDisk, path: &Path, bytes: &[u8]) {
    if disk.info(path).unwrap().is_some() {
        disk.remove_file(path).unwrap();
    }
    disk.open(path, OpenMode::CreateNew)
        .unwrap()
        .write_at(bytes, 0)
        .unwrap();
}

fn bytes_of(disk: &MemoryDisk, path: &Path) -> Vec<u8> {
    read_file(disk, path, 1 << 20).unwrap()
}

/// A disk with two generations that differ, and both states, the older one first.
fn two_generations() -> (MemoryDisk, ClusterState, ClusterState) {
    let disk = MemoryDisk::new();
    let state = created(&shared(&disk));
    let older = state.propose(set_bucket("b", r#"{"n_val":1}"#)).unwrap();
    let newer = state.propose(set_bucket("b", r#"{"n_val":2}"#)).unwrap();
    (disk, older.as_ref().clone(), newer.as_ref().clone())
}

fn note(disk: &MemoryDisk) -> (ClusterState, OpenNote) {
    let Opened { state, note } = opened(disk).unwrap();
    (state.current().as_ref().clone(), note.unwrap())
}

#[test]
fn what_was_agreed_is_there_after_a_restart() {
    let (disk, _, newer) = two_generations();
    disk.crash(CrashOptions::nothing_unsynced());
    let Opened { state, note } = opened(&disk).unwrap();
    assert!(note.is_none());
    assert_eq!(*state.current(), newer);
    assert_eq!(state.this_node(), node(1));
}

#[test]
fn a_real_disk_keeps_it_too() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("data/cluster_state");
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let state = LocalState::create(Arc::clone(&disk), &directory, founding()).unwrap();
    let agreed = state.propose(set_bucket("b", r#"{"n_val":1}"#)).unwrap();
    let found = LocalState::open(disk, &directory, NODE_NAME).unwrap();
    assert!(found.note.is_none());
    assert_eq!(found.state.current(), agreed);
}

#[test]
fn an_operator_can_read_the_file() {
    let (disk, ..) = two_generations();
    let text = String::from_utf8(bytes_of(&disk, &newest())).unwrap();
    let (first, json) = text.split_once('\n').unwrap();
    assert!(
        first.starts_with("kvorum cluster state, format 1, "),
        "{first}"
    );
    let json: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!(json["members"][0]["name"], NODE_NAME);
    assert_eq!(json["buckets"][0]["bucket"], "b");
    assert_eq!(json["buckets"][0]["properties"]["n_val"], 2);
}

#[test]
fn a_change_that_changes_nothing_is_not_written() {
    let (disk, _, newer) = two_generations();
    let state = opened(&disk).unwrap().state;
    let before = disk.operations();
    assert_eq!(
        *state.propose(set_bucket("b", r#"{"n_val":2}"#)).unwrap(),
        newer
    );
    let refused = state.propose(crate::update_type("t", "{}"));
    assert!(matches!(refused, Err(ProposeError::Refused(_))));
    assert_eq!(disk.operations(), before);
}

/// Cuts the power after every change of the disk during a proposal, with every outcome of the
/// unsynced changes: a restart finds the old or the new state, and no obstacle.
#[test]
fn r21_a_crash_at_any_point_leaves_the_old_or_the_new_state() {
    let (base, _, old) = two_generations();
    base.sync_directory(directory()).unwrap();
    let command = || set_bucket("b", r#"{"n_val":3}"#);
    let new = after(&old, [command()]).unwrap();
    let options = || {
        CrashOptions::extremes()
            .into_iter()
            .chain((0..16).map(CrashOptions::drawn))
    };
    let (mut olds, mut news) = (0, 0);
    for operations in 0.. {
        let mut finished = false;
        for options in options() {
            let disk = base.crash_image(CrashOptions::everything());
            let state = opened(&disk).unwrap().state;
            disk.cut_after(disk.operations() + operations);
            finished = state.propose(command()).is_ok();
            disk.crash(options);
            let found = opened(&disk).unwrap();
            assert!(
                found.note.is_none(),
                "after {operations}, {options:?}: {:?}",
                found.note
            );
            let current = found.state.current();
            assert!(
                *current == new || (*current == old && !finished),
                "{operations} {options:?}"
            );
            let counted = if *current == old {
                &mut olds
            } else {
                &mut news
            };
            *counted += 1;
            let next = found
                .state
                .propose(set_bucket("c", r#"{"n_val":4}"#))
                .unwrap();
            assert_eq!(next.version(), current.version() + 1);
        }
        if finished {
            assert!(
                operations >= 8,
                "two files, each written, synced, renamed and its name synced"
            );
            break;
        }
    }
    assert!(olds > 10 && news > 10, "{olds} {news}");
}

#[test]
fn a_crash_while_founding_leaves_a_cluster_or_nothing() {
    for operations in 0.. {
        let mut finished = false;
        for options in CrashOptions::extremes()
            .into_iter()
            .chain((0..8).map(CrashOptions::drawn))
        {
            let disk = MemoryDisk::new();
            disk.cut_after(operations);
            finished = LocalState::create(shared(&disk), directory(), founding()).is_ok();
            disk.crash(options);
            match opened(&disk) {
                Ok(found) => assert_eq!(found.state.current().version(), 1),
                Err(OpenError::Missing { .. }) if !finished => {
                    created(&shared(&disk));
                }
                Err(error) => panic!("after {operations}, {options:?}: {error}"),
            }
        }
        if finished {
            break;
        }
    }
}

#[test]
fn r21_any_flipped_bit_of_the_newest_falls_back_to_the_one_before() {
    let (base, older, _) = two_generations();
    let sound = bytes_of(&base, &newest());
    for at in 0..sound.len() {
        let mut flipped = sound.clone();
        flipped[at] ^= 1 << (at % 8);
        let disk = base.crash_image(CrashOptions::everything());
        overwrite(&disk, &newest(), &flipped);
        let (state, note) = note(&disk);
        assert_eq!(state, older, "byte {at}");
        assert_eq!(note.older_version, Some(older.version()));
        assert!(matches!(note.reason, Unreadable::Damaged(_)), "byte {at}");
    }
}

#[test]
fn what_was_damaged_is_kept_aside_and_written_anew() {
    let (base, older, newer) = two_generations();
    let sound = bytes_of(&base, &newest());
    for damaged in [
        &sound[..0],
        &sound[..sound.len() / 2],
        &vec![0; sound.len()][..],
        b"garbage",
    ] {
        let disk = base.crash_image(CrashOptions::everything());
        overwrite(&disk, &newest(), damaged);
        let (state, note) = note(&disk);
        assert_eq!(state, older);
        assert!(note.not_restored.is_none());
        assert_eq!(bytes_of(&disk, note.kept_as.as_deref().unwrap()), damaged);
        let text = note.to_string();
        assert!(
            text.contains("data/cluster_state/cluster cannot be read: damaged"),
            "{text}"
        );
        assert!(
            text.contains("version 2, later changes may be lost"),
            "{text}"
        );
        disk.crash(CrashOptions::nothing_unsynced());
        let again = opened(&disk).unwrap();
        assert!(again.note.is_none());
        assert_eq!(*again.state.current(), older);
    }
    let disk = base.crash_image(CrashOptions::everything());
    overwrite(&disk, &previous(), b"garbage");
    let (state, note) = note(&disk);
    assert_eq!((state, note.older_version), (newer, None));
    assert!(opened(&disk).unwrap().note.is_none());
}

#[test]
fn a_missing_or_unreadable_newest_falls_back_too() {
    let (base, older, _) = two_generations();
    let disk = base.crash_image(CrashOptions::everything());
    disk.remove_file(&newest()).unwrap();
    let (state, note) = note(&disk);
    assert_eq!(state, older);
    assert!(matches!(note.reason, Unreadable::Missing) && note.kept_as.is_none());

    let faulty = FaultyDisk::over_memory(&base);
    faulty.add_rule(
        Rule::new(Fault::Error(ErrorKind::Device))
            .on(Operation::Read)
            .path(&newest()),
    );
    let found = LocalState::open(Arc::new(faulty), directory(), NODE_NAME).unwrap();
    assert_eq!(*found.state.current(), older);
    assert!(matches!(found.note.unwrap().reason, Unreadable::Disk(_)));
}

#[test]
fn r21_two_damaged_files_are_named_and_never_replaced() {
    let (disk, ..) = two_generations();
    overwrite(&disk, &newest(), b"");
    overwrite(&disk, &previous(), b"garbage");
    let before = disk.operations();
    let Err(error @ OpenError::BothUnreadable { .. }) = opened(&disk) else {
        panic!("opened")
    };
    let text = error.to_string();
    assert!(
        text.contains("data/cluster_state/cluster (damaged: the file is empty)"),
        "{text}"
    );
    assert!(
        text.contains("data/cluster_state/cluster.previous (damaged: "),
        "{text}"
    );
    let create = LocalState::create(shared(&disk), directory(), founding());
    assert!(matches!(create, Err(OpenError::AlreadyExists { .. })));
    assert_eq!(disk.operations(), before);
    disk.remove_file(&newest()).unwrap();
    assert!(matches!(
        opened(&disk),
        Err(OpenError::BothUnreadable { .. })
    ));
}

#[test]
fn a_file_from_the_future_is_left_alone() {
    use kvorum_encoding::{checksum, checksum_append, mask_checksum};
    let (disk, ..) = two_generations();
    let covered = "kvorum cluster state, format 2, 2 bytes";
    let crc = mask_checksum(checksum_append(checksum(covered.as_bytes()), b"{}"));
    overwrite(
        &disk,
        &newest(),
        format!("{covered}, crc32c {crc:08x}\n{{}}").as_bytes(),
    );
    let Err(error @ OpenError::NewerFormat { .. }) = opened(&disk) else {
        panic!("opened")
    };
    let text =
        "data/cluster_state/cluster: format 2 is newer than 1, the newest that this version reads";
    assert_eq!(error.to_string(), text);
}

#[test]
fn an_empty_directory_is_no_damage() {
    let disk = MemoryDisk::new();
    let Err(error @ OpenError::Missing { .. }) = opened(&disk) else {
        panic!("opened")
    };
    assert_eq!(error.to_string(), "no cluster state in data/cluster_state");
}

#[test]
fn r22_a_renamed_node_is_refused_with_the_name_of_its_data() {
    let (disk, ..) = two_generations();
    let renamed = LocalState::open(shared(&disk), directory(), "riak@10.0.0.9");
    let Err(error @ OpenError::NodeRenamed { .. }) = renamed else {
        panic!("opened")
    };
    let text = error.to_string();
    assert!(
        text.contains("belongs to node riak@127.0.0.1 of cluster default"),
        "{text}"
    );
    assert!(
        text.contains("the configured nodename is riak@10.0.0.9"),
        "{text}"
    );
    assert!(text.contains("set nodename = riak@127.0.0.1"), "{text}");
}

#[test]
fn r21_a_full_disk_refuses_the_change_and_loses_nothing() {
    let (memory, _, newer) = two_generations();
    let faulty = FaultyDisk::over_memory(&memory);
    let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
    let state = LocalState::open(disk, directory(), NODE_NAME)
        .unwrap()
        .state;
    faulty.add_rule(Rule::new(Fault::Error(ErrorKind::NoSpace)).on(Operation::Write));
    let command = || set_bucket("b", r#"{"n_val":9}"#);
    for _ in 0..3 {
        let Err(error @ ProposeError::Storage(_)) = state.propose(command()) else {
            unreachable!("nothing can be written");
        };
        // Clients get the text, so it must not contain paths of the server.
        let path = directory().display().to_string();
        assert!(error.in_full().contains(&path), "{}", error.in_full());
        assert!(!error.to_string().contains(&path), "{error}");
        assert_eq!(*state.current(), newer);
    }
    let found = opened(&memory.crash_image(CrashOptions::nothing_unsynced())).unwrap();
    assert!(found.note.is_none());
    assert_eq!(*found.state.current(), newer);
    faulty.heal();
    assert_eq!(
        state.propose(command()).unwrap().version(),
        newer.version() + 1
    );
}

/// Fails each operation of a proposal in turn, once: the proposal returns an error, the state before
/// stays current, and a restart finds one of the two states.
#[test]
fn a_failed_operation_anywhere_is_survived() {
    let (base, _, old) = two_generations();
    let command = || set_bucket("b", r#"{"n_val":9}"#);
    let new = after(&old, [command()]).unwrap();
    for number in 1.. {
        let memory = base.crash_image(CrashOptions::everything());
        let faulty = FaultyDisk::over_memory(&memory);
        let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
        let state = LocalState::open(disk, directory(), NODE_NAME)
            .unwrap()
            .state;
        faulty.fail_operation_number(faulty.operations() + number);
        let result = state.propose(command());
        if faulty.faults() == 0 {
            assert_eq!(*result.unwrap(), new);
            assert!(number > 8);
            break;
        }
        assert!(
            matches!(result, Err(ProposeError::Storage(_))),
            "operation {number}"
        );
        assert_eq!(*state.current(), old);
        let found = opened(&memory.crash_image(CrashOptions::drawn(number))).unwrap();
        assert!(found.note.is_none());
        assert!(
            [&old, &new].contains(&&*found.state.current()),
            "operation {number}"
        );
        assert_eq!(*state.propose(command()).unwrap(), new);
    }
}
