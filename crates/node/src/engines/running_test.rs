//! A store of a node as it is run, for tests of the effects of riak.conf's keys on it.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::{
    Backend, Batch, Durability, Fields, Lookup, ReadAt, Reading, Timestamp, Write,
};
use kvorum_disk::{Disk, MemoryDisk, create_directory_durably};
use kvorum_encoding::{Bucket, BucketType, Key, StorageKey};
use kvorum_ring::{Partition, RingSize};
use kvorum_runtime::SeededRandomness;
use kvorum_settings::{Configuration, Settings};
use kvorum_value_log::ValueLog;

use super::Engines;
use crate::maintained_value_log::open_value_log;

/// The time of entries and queries, in microseconds.
pub(super) const NOW: Timestamp = Timestamp(1_000_000_000);

pub(super) fn loaded(lines: &[&str]) -> Settings {
    let no_more: [&str; 0] = [];
    Configuration::load(&lines.join("\n"), &no_more)
        .unwrap()
        .settings
}

pub(super) fn key(number: u32) -> StorageKey {
    let key = Key::from(format!("{number:08}").into_bytes());
    StorageKey::new(&BucketType::default_type(), &Bucket::from("bucket"), &key)
}

/// Words, as values often are.
pub(super) fn text(number: u32, len: usize) -> Bytes {
    let words = (0..).map(|at| format!("value {} of key {number}; ", at * 7919 % 1000));
    let mut text = Vec::new();
    for word in words {
        text.extend_from_slice(word.as_bytes());
        if text.len() >= len {
            break;
        }
    }
    text.truncate(len);
    text.into()
}

/// A store of a node as it is run: over the value log, if these settings have one.
pub(super) struct Running {
    pub(super) store: Arc<dyn Backend>,
    pub(super) log: Option<ValueLog>,
}

impl Running {
    /// Opens the first partition's store, with the files of an earlier opening.
    pub(super) fn open(disk: &MemoryDisk, lines: &[&str]) -> Self {
        let settings = loaded(lines);
        let seam: Arc<dyn Disk> = Arc::new(disk.clone());
        let randomness = Arc::new(SeededRandomness::new(1));
        let engines = Engines::new(seam.clone(), settings.clone(), randomness);
        let directory = Path::new("/value_log");
        let log = engines.use_value_log(false).then(|| {
            create_directory_durably(&*seam, directory).unwrap();
            open_value_log(&seam, directory, &settings, 77).unwrap()
        });
        let ring_size = RingSize::new(8).unwrap();
        let partition: Partition = ring_size.partitions().next().unwrap();
        let store = engines
            .open(ring_size, partition, None, log.as_ref())
            .unwrap();
        if let Some(log) = &log {
            let tenants = engines.tenants_of(std::slice::from_ref(&store));
            let _given = log.admit(&tenants).unwrap();
        }
        Self { store, log }
    }

    /// Puts a value as a client's put does, and waits until it is acknowledged.
    pub(super) fn put(&self, number: u32, body: Bytes) {
        let write = Write::put(key(number), Fields::default(), Bytes::from("head"), body);
        let receipt = self
            .store
            .put(&Batch::of(write), Durability::BackendDefault);
        receipt.unwrap().wait().unwrap();
    }

    pub(super) fn holds(&self, number: u32) -> bool {
        let at = ReadAt {
            reading: Reading::MayBlock,
            now: NOW,
        };
        matches!(self.store.get(&key(number), at).unwrap(), Lookup::Found(_))
    }
}
