//! Keys with records that the device fails to read, for a while or permanently.

use std::path::Path;

use kvorum_backend::{Backend as _, Batch, Durability, ErrorKind, Fields, Timestamp};
use kvorum_backend_bitcask::Bitcask;
use kvorum_disk::{ErrorKind as DiskErrorKind, Fault, FaultyDisk, MemoryDisk, Operation, Rule};

use crate::store::{NOW, at, body_of, do_all, key, one_file_each, open, put, put_of};

const MINUTES: u64 = 60_000_000;

/// A store with two keys, opened over a disk that fails to read their segments.
fn unreadable(memory: &MemoryDisk) -> (Bitcask, FaultyDisk) {
    {
        let store = open(memory, one_file_each());
        put(&store, "one", "old");
        put(&store, "two", "old");
        do_all(&store, NOW);
    }
    let disk = FaultyDisk::over_memory(memory);
    let store = open(&disk, one_file_each());
    for number in 1..=2 {
        let device = Rule::new(Fault::Error(DiskErrorKind::Device)).on(Operation::Read);
        let path = format!("store/000000000{number}.segment");
        disk.add_rule(device.path(Path::new(&path)));
    }
    (store, disk)
}

fn try_put(store: &Bitcask, name: &str) -> Option<ErrorKind> {
    let batch = Batch::of(put_of(name, "new", Fields::default()));
    let put = store.put(&batch, Durability::Grouped);
    put.err().map(|error| error.kind())
}

fn read_error(store: &Bitcask, name: &str, minutes: u64) -> Option<ErrorKind> {
    let now = Timestamp(NOW.0 + minutes * MINUTES);
    let head = store.head(&key(name), at(now));
    head.err().map(|error| error.kind())
}

#[test]
fn a_read_that_fails_for_a_while_stops_a_write_to_its_key_and_no_other() {
    let memory = MemoryDisk::new();
    let (store, disk) = unreadable(&memory);
    for _ in 0..100 {
        assert_eq!(read_error(&store, "one", 0), Some(ErrorKind::Failed));
    }
    assert_eq!(try_put(&store, "one"), Some(ErrorKind::Unread));
    assert_eq!(try_put(&store, "three"), None);
    assert_eq!(store.status().lost, []);
    disk.heal();
    assert_eq!(body_of(&store, "one").as_deref(), Some("old"));
    assert_eq!(try_put(&store, "one"), None);
    assert_eq!(body_of(&store, "one").as_deref(), Some("new"));
}

#[test]
fn a_record_that_is_not_given_for_minutes_is_reported_once_and_written_over() {
    let memory = MemoryDisk::new();
    let (store, _disk) = unreadable(&memory);
    for minutes in 0..8 {
        assert_eq!(read_error(&store, "one", minutes), Some(ErrorKind::Failed));
    }
    for minutes in 8..18 {
        assert_eq!(read_error(&store, "one", minutes), Some(ErrorKind::Corrupt));
    }
    let lost = store.status().lost;
    assert_eq!(lost.len(), 1, "{lost:?}");
    assert_eq!(lost[0].file, "0000000001.segment");
    assert!(lost[0].held.contains("has failed to read"), "{lost:?}");
    assert_eq!(store.status().corrupt_reads, 10);
    // The other key was not read until now.
    assert_eq!(read_error(&store, "two", 18), Some(ErrorKind::Failed));
    assert_eq!(try_put(&store, "two"), Some(ErrorKind::Unread));

    assert_eq!(try_put(&store, "one"), None);
    assert_eq!(body_of(&store, "one").as_deref(), Some("new"));
    assert_eq!(store.status().lost, lost);
    drop(store);
    let store = open(&memory, one_file_each());
    assert_eq!(body_of(&store, "one").as_deref(), Some("new"));
    assert_eq!(body_of(&store, "two").as_deref(), Some("old"));
    assert_eq!(store.status().lost, lost);
}
