//! What recovery makes of logs that are damaged, foreign, torn, or lack something.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests stop at any failure, as tests do"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kvorum_backend::{Backend, Durability, ErrorKind};
use kvorum_commit::{CommitLog, Committed, Recovered, Recovery, recover, recover_some};
use kvorum_disk::{
    CrashOptions, Disk, Fault, FaultyDisk, MemoryDisk, OpenMode, Operation, Rule, read_file,
};
use kvorum_encoding::{checksum, mask_checksum};

use crate::node::{KEYS, Node, SETTINGS, World, batch, copy_of, segment_files};

/// Where the first record of a segment stands.
const FILE_HEADER_BYTES: usize = 32;

/// A node of one store that was killed after nine puts in several segments, none of them synced by
/// its engine.
fn killed() -> (World, MemoryDisk) {
    let (world, disk) = (World::default(), MemoryDisk::new());
    let node = world.open_some(&disk, &[0]).unwrap();
    for value in 0..9u64 {
        node.put_durably(0, value.to_le_bytes()[0] % KEYS, value)
            .unwrap();
    }
    assert!(node.log.status().segments > 2);
    drop(node);
    (world, disk.crash_image(CrashOptions::nothing_unsynced()))
}

fn values(node: &Node) -> Vec<u64> {
    node.values(0)
        .into_values()
        .map(|(value, _)| value)
        .collect()
}

/// The last value of each key.
const VALUES: [u64; 4] = [8, 5, 6, 7];

fn content(disk: &MemoryDisk, path: &Path) -> Vec<u8> {
    read_file(disk, path, 1 << 20).unwrap()
}

fn overwrite(disk: &MemoryDisk, path: &Path, bytes: &[u8]) {
    let file = disk.open(path, OpenMode::Create).unwrap();
    file.truncate(0).unwrap();
    file.write_at(bytes, 0).unwrap();
}

fn change(disk: &MemoryDisk, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = content(disk, path);
    change(&mut bytes);
    overwrite(disk, path, &bytes);
}

fn lost_files(disk: &MemoryDisk) -> usize {
    let lost = Path::new("commit_log/lost");
    let exists = disk.info(lost).unwrap().is_some();
    if exists {
        disk.list(lost).unwrap().len()
    } else {
        0
    }
}

fn first_and_last(disk: &MemoryDisk) -> (PathBuf, PathBuf) {
    let files = segment_files(disk);
    (files[0].clone(), files[files.len() - 1].clone())
}

#[test]
fn a_killed_node_has_everything_again_and_nothing_to_tell() {
    let (world, disk) = killed();
    let node = world.open_some(&disk, &[0]).unwrap();
    assert_eq!(values(&node), VALUES);
    let expected = Recovery {
        batches_read: 9,
        batches_replayed: 9,
        ..Recovery::default()
    };
    assert_eq!(node.found, expected);
    drop(node);
    let again = world.open_some(&disk, &[0]).unwrap();
    assert_eq!(again.found, Recovery::default());
    assert_eq!(values(&again), VALUES);
}

#[test]
fn what_a_file_held_before_it_was_used_again_is_neither_replayed_nor_damage() {
    let (world, disk) = (World::default(), MemoryDisk::new());
    let node = world.open_some(&disk, &[0]).unwrap();
    for value in 0..40u64 {
        node.put_durably(0, value.to_le_bytes()[0] % KEYS, value)
            .unwrap();
        if value % 10 == 9 {
            node.do_upkeep().unwrap();
        }
    }
    node.put_durably(0, 0, 40).unwrap();
    drop(node);
    // The kind of a segment stands in byte 9 of its header.
    let is_reused = |path: &PathBuf| content(&disk, path)[9] == b'R';
    assert!(segment_files(&disk).iter().any(is_reused));
    let node = world.open_some(&disk, &[0]).unwrap();
    assert_eq!(values(&node), [40, 37, 38, 39]);
    assert_eq!(node.found.damage, Vec::<String>::new());
    assert_eq!(node.found.torn_bytes, 0);
    let left = segment_files(&disk);
    assert_eq!(left.len(), 1, "the new log's: {left:?}");
}

#[test]
fn without_a_log_there_is_nothing_to_do_and_nothing_is_made() {
    let disk = MemoryDisk::new();
    let found = recover(&disk, Path::new("commit_log"), &[]).unwrap();
    assert_eq!(found, Recovery::default());
    assert_eq!(disk.operations(), 0);
}

#[test]
fn a_refused_put_leaves_the_numbering_as_it_was() {
    let (world, memory) = (World::default(), MemoryDisk::new());
    let disk = FaultyDisk::over_memory(&memory);
    let node = world.open_some(&disk, &[0]).unwrap();
    node.put_durably(0, 0, 10).unwrap();
    disk.add_rule(Rule::new(Fault::Error(kvorum_disk::ErrorKind::NoSpace)).on(Operation::Write));
    let refused = node.put_durably(0, 1, 11).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Full);
    disk.heal();
    let sequence = node.put_durably(0, 2, 12).unwrap();
    drop(node);
    let image = memory.crash_image(CrashOptions::nothing_unsynced());
    let node = world.open_some(&image, &[0]).unwrap();
    // The store was synced for the last put, and so has what the log lacks.
    assert_eq!(node.found.batches_missing, 0);
    assert_eq!(node.found.damage, Vec::<String>::new());
    assert_eq!(values(&node), [10, 11, 12]);
    assert_eq!(node.values(0)[&2], (12, sequence));
}

#[test]
fn any_flipped_byte_of_a_closed_segment_costs_one_batch_and_is_told() {
    let (world, disk) = killed();
    let (first, _) = first_and_last(&disk);
    let bytes = content(&disk, &first);
    let used = bytes.len() - bytes.iter().rev().take_while(|byte| **byte == 0).count();
    for at in 0..used {
        let disk = copy_of(&disk);
        change(&disk, &first, |bytes| bytes[at] ^= 0x40);
        let node = world.open_some(&disk, &[0]).unwrap();
        let found = &node.found;
        assert!(found.batches_missing <= 1, "byte {at}: {found:?}");
        let is_in_header = at < FILE_HEADER_BYTES;
        assert!(!is_in_header || found.batches_missing == 0, "byte {at}");
        // Later batches hold all that is shown.
        assert_eq!(values(&node), VALUES, "byte {at}");
        if found.batches_missing > 0 || is_in_header {
            assert!(!found.damage.is_empty(), "byte {at}: {found:?}");
            assert_eq!(lost_files(&disk), 1, "byte {at}");
        }
        drop(node);
        let again = world.open_some(&disk, &[0]).unwrap();
        assert_eq!(again.found, Recovery::default(), "byte {at}");
        assert_eq!(values(&again), VALUES, "byte {at}");
    }
}

#[test]
fn what_a_crash_tore_is_counted_and_is_no_damage() {
    let (world, disk) = killed();
    let (_, last) = first_and_last(&disk);
    change(&disk, &last, |bytes| {
        let used = bytes.len() - bytes.iter().rev().take_while(|byte| **byte == 0).count();
        let end = used.next_multiple_of(8);
        bytes.resize(end, 0);
        bytes.extend([7; 50]);
    });
    let node = world.open_some(&disk, &[0]).unwrap();
    assert_eq!(node.found.torn_bytes, 50);
    assert_eq!(node.found.damage, Vec::<String>::new());
    assert_eq!(values(&node), VALUES);
}

#[test]
fn a_file_of_another_log_or_number_is_set_aside() {
    let (world, disk) = killed();
    let (first, last) = first_and_last(&disk);
    let stray = last.with_file_name("0000000099.segment");
    overwrite(&disk, &stray, &content(&disk, &first));
    let node = world.open_some(&disk, &[0]).unwrap();
    assert_eq!(values(&node), VALUES);
    assert_eq!(node.found.damage.len(), 1);
    assert_eq!(node.found.batches_replayed, 9);
    assert_eq!(lost_files(&disk), 1);
}

#[test]
fn a_log_of_a_newer_version_is_left_as_it_is() {
    let (world, disk) = killed();
    let (first, _) = first_and_last(&disk);
    let old = content(&disk, &first);
    change(&disk, &first, |bytes| {
        bytes[8] += 1;
        let check = mask_checksum(checksum(&bytes[..28]));
        bytes[28..32].copy_from_slice(&check.to_le_bytes());
    });
    let refused = world.open_some(&disk, &[0]).map(drop).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NewerFormat);
    overwrite(&disk, &first, &old);
    let node = world.open_some(&disk, &[0]).unwrap();
    assert_eq!(values(&node), VALUES);
}

#[test]
fn a_disk_too_full_to_replay_keeps_the_log_for_the_next_try() {
    let (world, memory) = killed();
    let disk = FaultyDisk::over_memory(&memory);
    for operation in [Operation::Write, Operation::Allocate] {
        let no_space = Fault::Error(kvorum_disk::ErrorKind::NoSpace);
        disk.add_rule(Rule::new(no_space).on(operation));
    }
    let refused = world.open_some(&disk, &[0]).map(drop).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Full);
    disk.heal();
    let node = world.open_some(&disk, &[0]).unwrap();
    assert_eq!(values(&node), VALUES);
}

#[test]
fn a_node_that_stopped_in_order_starts_on_a_full_disk() {
    let (world, memory) = killed();
    let disk = FaultyDisk::over_memory(&memory);
    let node = world.open_some(&disk, &[0]).unwrap();
    node.stores[0].close().unwrap();
    node.log.remove().unwrap();
    drop(node);
    disk.add_rule(Rule::new(Fault::Error(kvorum_disk::ErrorKind::NoSpace)).on(Operation::Write));
    let node = world.open_some(&disk, &[0]).unwrap();
    assert_eq!(values(&node), VALUES);
    let refused = node.put_durably(0, 0, 50).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Full);
    disk.heal();
    node.put_durably(0, 0, 51).unwrap();
}

#[test]
fn bad_sectors_end_recovery_and_lose_nothing() {
    let (world, memory) = killed();
    let disk = FaultyDisk::over_memory(&memory);
    let device = Fault::Error(kvorum_disk::ErrorKind::Device);
    let bad = disk.add_rule(Rule::new(device).on(Operation::Read).nth(4));
    let refused = world.open_some(&disk, &[0]).map(drop).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Failed);
    assert_eq!(disk.fired(bad), 1);
    disk.heal();
    let node = world.open_some(&disk, &[0]).unwrap();
    assert_eq!(values(&node), VALUES);
}

/// Two stores that were killed after four puts each.
fn two_killed() -> (World, MemoryDisk) {
    let (world, disk) = (World::default(), MemoryDisk::new());
    let node = world.open_some(&disk, &[0, 1]).unwrap();
    for value in 0..8u64 {
        let key = (value / 2).to_le_bytes()[0];
        let store = usize::from(value % 2 == 1);
        node.put_durably(store, key, value).unwrap();
    }
    drop(node);
    (world, disk.crash_image(CrashOptions::nothing_unsynced()))
}

const LOG: &str = "commit_log";

#[test]
fn stores_are_recovered_one_by_one_while_the_log_of_this_run_is_written() {
    let (world, disk) = two_killed();
    let mut recovered = Recovered::default();
    let mut recover = |engine: &Arc<dyn Backend>, running| {
        recovered.running = running;
        let engines = std::slice::from_ref(engine);
        recover_some(&disk, Path::new(LOG), engines, &mut recovered).unwrap()
    };
    let early = world.engine(&disk, 1).unwrap();
    let found = recover(&early, None);
    assert_eq!(
        (found.batches_replayed, found.batches_of_unknown_stores),
        (4, 4)
    );
    let id = world.draw();
    let log = CommitLog::create(Arc::new(disk.clone()), Path::new(LOG), id, SETTINGS).unwrap();
    let put = |engine: &Arc<dyn Backend>, value| {
        let store = Committed::new(engine.clone(), log.clone(), Durability::Grouped);
        let receipt = store.put(&batch(0, value), Durability::Grouped).unwrap();
        receipt.wait().unwrap();
    };
    put(&early, 100);
    let late = world.engine(&disk, 0).unwrap();
    let found = recover(&late, Some(id));
    assert_eq!(
        (found.batches_replayed, found.batches_of_unknown_stores),
        (4, 0)
    );
    put(&late, 101);
    // Nothing of the earlier log is left.
    let generations = disk.list(Path::new(LOG)).unwrap();
    assert_eq!(generations.len(), 1, "{generations:?}");
    drop((early, late, log));
    let disk = disk.crash_image(CrashOptions::nothing_unsynced());
    let node = world.open_some(&disk, &[0, 1]).unwrap();
    let got = |store| node.values(store).into_values().map(|(value, _)| value);
    assert_eq!(got(0).collect::<Vec<_>>(), [101, 2, 4, 6]);
    assert_eq!(got(1).collect::<Vec<_>>(), [100, 3, 5, 7]);
}

#[test]
fn a_store_that_fails_keeps_no_other_from_being_recovered_and_loses_nothing() {
    let (world, memory) = two_killed();
    let faulty = FaultyDisk::over_memory(&memory);
    let rule = Rule::new(Fault::Error(kvorum_disk::ErrorKind::Device)).path_contains("stores/0");
    let stores = [0, 1].map(|number| world.engine(&faulty, number).unwrap());
    faulty.add_rule(rule);
    let mut recovered = Recovered::default();
    let found = recover_some(&faulty, Path::new(LOG), &stores, &mut recovered).unwrap();
    assert_eq!(recovered.stores, [stores[1].identity()].into());
    let failed: Vec<_> = found.failed.iter().map(|(store, _)| *store).collect();
    assert_eq!(failed, [stores[0].identity()]);
    assert!(recover(&faulty, Path::new(LOG), &stores[..1]).is_err());
    drop(stores);
    let disk = memory.crash_image(CrashOptions::nothing_unsynced());
    let node = world.open_some(&disk, &[0, 1]).unwrap();
    let got = |store| node.values(store).into_values().map(|(value, _)| value);
    assert_eq!(got(0).collect::<Vec<_>>(), [0, 2, 4, 6]);
    assert_eq!(got(1).collect::<Vec<_>>(), [1, 3, 5, 7]);
}
