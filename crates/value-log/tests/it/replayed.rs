//! Each engine reports the entries that the log has replayed to it.

#![expect(
    clippy::expect_used,
    reason = "helpers of tests stop at any failure, as tests do"
)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use kvorum_backend::{Batch, Durability, Fields, Receipt, Replayed, Sequence, Write};
use kvorum_disk::{CrashOptions, Disk, MemoryDisk};
use kvorum_encoding::{StorageKey, key_segment};
use kvorum_value_log::{ValueLog, ValueLogSettings};

use crate::tenants::{
    Engine, Opened, bitcask_settings, hanoidb_settings, innostore_settings, leveldb_settings,
    leveled_settings, tenants_of,
};

fn engines() -> [Engine; 5] {
    [
        Engine::Bitcask(bitcask_settings()),
        Engine::Leveldb(leveldb_settings()),
        Engine::Leveled(leveled_settings()),
        Engine::Hanoidb(hanoidb_settings()),
        Engine::Innostore(innostore_settings()),
    ]
}

fn open(engine: &Engine, disk: &MemoryDisk) -> Opened {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let settings = ValueLogSettings {
        segment_bytes: 64 << 10,
        garbage_percent_max: 100,
    };
    let log = ValueLog::open(disk.clone(), Path::new("log"), 5, settings);
    let log = log.expect("the log opens").0;
    let drawn = AtomicU64::new(7);
    let draw = Arc::new(move || drawn.fetch_add(1, Ordering::Relaxed));
    let store = engine.open(disk, Path::new("store"), draw, log.clone());
    let store = store.expect("the store opens");
    let admitted = log.admit(&tenants_of(std::slice::from_ref(&store)));
    admitted.expect("the log begins");
    store
}

fn key(number: u8) -> StorageKey {
    StorageKey::from_encoded(vec![b'k', number])
}

fn put(store: &Opened, write: Write) {
    let receipt = store.put(&Batch::of(write), Durability::Grouped);
    let stored = receipt.and_then(Receipt::wait);
    stored.expect("the write is stored");
}

fn value(number: u8) -> Write {
    let (head, body) = (Bytes::from_static(b"head"), Bytes::from_static(b"body"));
    Write::put(key(number), Fields::default(), head, body)
}

#[test]
fn what_a_crash_left_in_the_log_is_reported_once() {
    for engine in engines() {
        let disk = MemoryDisk::new();
        let store = open(&engine, &disk);
        assert_eq!(store.take_replayed(), None, "{engine:?}");
        (0..5).for_each(|number| put(&store, value(number)));
        put(&store, Write::remove(key(3)));
        let disk = disk.crash_image(CrashOptions::nothing_unsynced());
        drop(store);
        let store = open(&engine, &disk);
        let mut segments: Vec<u32> = (0..5).map(|it| key_segment(key(it).as_bytes())).collect();
        segments.sort_unstable();
        let expected = Replayed {
            from: Sequence(0),
            to: store.durable(),
            segments,
        };
        assert_eq!(store.take_replayed(), Some(expected), "{engine:?}");
        assert_eq!(store.take_replayed(), None, "{engine:?}");
    }
}

#[test]
fn a_store_that_was_closed_is_given_back_nothing() {
    for engine in engines() {
        let disk = MemoryDisk::new();
        let store = open(&engine, &disk);
        put(&store, value(1));
        store.close().unwrap();
        let last = store.durable();
        drop(store);
        let store = open(&engine, &disk);
        assert_eq!(store.take_replayed(), None, "{engine:?}");
        assert_eq!(store.durable(), last, "{engine:?}");
    }
}
