//! What recovery makes of logs that are damaged, foreign, torn, or lack something.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests stop at any failure, as tests do"
)]

use std::path::{Path, PathBuf};

use kvorum_backend::{Backend, ErrorKind};
use kvorum_commit::{Recovery, recover};
use kvorum_disk::{
    CrashOptions, Disk, Fault, FaultyDisk, MemoryDisk, OpenMode, Operation, Rule, read_file,
};
use kvorum_encoding::{checksum, mask_checksum};

use crate::node::{KEYS, Node, World, copy_of, segment_files};

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
    assert_eq!(node.found.batches_missing, 1);
    assert_eq!(node.found.damage, Vec::<String>::new());
    assert_eq!(values(&node), [10, 12]);
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
