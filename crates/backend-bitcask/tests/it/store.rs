//! A store on a disk in memory, and short names for calls.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot set up its store has failed"
)]

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::{
    Backend, Batch, Durability, Fields, Flow, FoldDetail, FoldFilter, FoldRange, Lease, Lookup,
    ReadAt, Reading, Sequence, StepBudget, Task, TaskKind, Timestamp, Urgency, Write,
};
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings};
use kvorum_disk::Disk;
use kvorum_encoding::StorageKey;

pub(crate) const NOW: Timestamp = Timestamp(1_000_000_000);

pub(crate) fn open(disk: &(impl Disk + Clone + 'static), settings: BitcaskSettings) -> Bitcask {
    try_open(disk, settings).unwrap()
}

pub(crate) fn try_open(
    disk: &(impl Disk + Clone + 'static),
    settings: BitcaskSettings,
) -> kvorum_backend::Result<Bitcask> {
    let draws = std::sync::atomic::AtomicU64::new(7);
    let draw = move || draws.fetch_add(0x9e37_79b9_7f4a_7c15, std::sync::atomic::Ordering::Relaxed);
    let disk = Arc::new(disk.clone());
    Bitcask::open(disk, Path::new("store"), settings, Arc::new(draw), None)
}

/// Each batch has a file of its own.
pub(crate) fn one_file_each() -> BitcaskSettings {
    BitcaskSettings {
        file_bytes_max: 1,
        ..BitcaskSettings::default()
    }
}

pub(crate) fn key(name: &str) -> StorageKey {
    StorageKey::from_encoded(name.as_bytes().to_vec())
}

pub(crate) fn put_of(name: &str, body: &str, fields: Fields) -> Write {
    let body = Bytes::copy_from_slice(body.as_bytes());
    Write::put(key(name), fields, Bytes::from_static(b"head"), body)
}

pub(crate) fn write(store: &Bitcask, write: Write) -> Sequence {
    let receipt = store.put(&Batch::of(write), Durability::Grouped).unwrap();
    receipt.wait().unwrap()
}

pub(crate) fn put(store: &Bitcask, name: &str, body: &str) -> Sequence {
    write(store, put_of(name, body, Fields::default()))
}

pub(crate) fn remove(store: &Bitcask, name: &str) -> Sequence {
    write(store, Write::remove(key(name)))
}

pub(crate) fn at(now: Timestamp) -> ReadAt {
    ReadAt {
        reading: Reading::MayBlock,
        now,
    }
}

pub(crate) fn body_of(store: &Bitcask, name: &str) -> Option<String> {
    match store.get(&key(name), at(NOW)).unwrap() {
        Lookup::Found(entry) => Some(String::from_utf8(entry.body.to_vec()).unwrap()),
        Lookup::Absent => None,
        Lookup::WouldBlock => panic!("a blocking read would block"),
    }
}

/// The entries that a fold over a new snapshot shows.
pub(crate) fn folded(store: &Bitcask, now: Timestamp) -> Vec<(String, String)> {
    let snapshot = store.snapshot(Lease::Unlimited).unwrap();
    let mut found = Vec::new();
    let end = snapshot.fold(
        FoldDetail::Entries,
        &FoldRange::all(),
        &FoldFilter::unexpired(now),
        &mut |visited| {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            found.push((text(visited.key.as_bytes()), text(&visited.body)));
            Flow::Continue
        },
    );
    assert_eq!(end.unwrap(), kvorum_backend::FoldEnd::Complete);
    found
}

/// Does a task to its end, in steps of the smallest size.
pub(crate) fn do_task(store: &Bitcask, kind: TaskKind, subject: u64, now: Timestamp) {
    let task = Task {
        kind,
        subject,
        urgency: Urgency::Normal,
        cost_bytes: 0,
    };
    for _ in 0..100_000 {
        let step = store.maintenance_step(&task, StepBudget { bytes: 1 }, now);
        if step.unwrap().is_done {
            return;
        }
    }
    panic!("{kind:?} of {subject} does not end");
}

/// Does everything that is due.
pub(crate) fn do_all(store: &Bitcask, now: Timestamp) -> Vec<TaskKind> {
    let mut done = Vec::new();
    for _ in 0..1000 {
        let Some(task) = store.maintenance_due(now).into_iter().next() else {
            return done;
        };
        do_task(store, task.kind, task.subject, now);
        done.push(task.kind);
    }
    panic!("something is due for ever: {done:?}");
}
