//! A small node: a few volatile engines behind one log, on a disk that can be cut.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests stop at any failure, as tests do"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use kvorum_backend::{
    Backend, Batch, Durability, Fields, Lookup, ReadAt, Reading, Receipt, Result, Sequence,
    Timestamp, Write,
};
use kvorum_commit::{CommitLog, CommitLogSettings, Committed, Recovery, recover};
use kvorum_disk::{CrashOptions, Disk, MemoryDisk};
use kvorum_encoding::StorageKey;

use crate::engine::{Synced, VolatileEngine};

/// Segments of a few records, and a log that is trimmed after three of them.
pub(crate) const SETTINGS: CommitLogSettings = CommitLogSettings {
    segment_bytes: 600,
    bytes_max: 3_000,
};
pub(crate) const KEYS: u8 = 4;

/// What outlives a crash beside the disk: it belongs to the test.
#[derive(Clone, Default)]
pub(crate) struct World {
    synced: Synced,
    numbers: Arc<AtomicU64>,
}

/// An open node.
pub(crate) struct Node {
    pub(crate) stores: Vec<Arc<Committed>>,
    pub(crate) log: CommitLog,
    pub(crate) found: Recovery,
}

impl World {
    pub(crate) fn draw(&self) -> u64 {
        1 + self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn engine(&self, disk: &dyn CloneDisk, number: usize) -> Result<Arc<dyn Backend>> {
        let directory = PathBuf::from(format!("stores/{number}"));
        let world = self.clone();
        let synced = self.synced.clone();
        let draw = move || world.draw();
        let engine = VolatileEngine::open(disk.shared(), &directory, synced, draw)?;
        Ok(Arc::new(engine))
    }

    /// Opens the stores of these numbers.
    pub(crate) fn open_some(&self, disk: &dyn CloneDisk, numbers: &[usize]) -> Result<Node> {
        self.open_with(disk, numbers, SETTINGS)
    }

    pub(crate) fn open_with(
        &self,
        disk: &dyn CloneDisk,
        numbers: &[usize],
        settings: CommitLogSettings,
    ) -> Result<Node> {
        let engines = numbers.iter().map(|number| self.engine(disk, *number));
        let engines: Vec<Arc<dyn Backend>> = engines.collect::<Result<_>>()?;
        let directory = Path::new("commit_log");
        let found = recover(&*disk.shared(), directory, &engines)?;
        let log = CommitLog::create(disk.shared(), directory, self.draw(), settings)?;
        let committed = |engine| Committed::new(engine, log.clone(), Durability::Grouped);
        let stores = engines.into_iter().map(committed).map(Arc::new).collect();
        Ok(Node { stores, log, found })
    }
}

impl Node {
    /// Puts a value without waiting.
    pub(crate) fn put(&self, store: usize, key: u8, value: u64) -> Result<Receipt> {
        self.stores[store].put(&batch(key, value), Durability::Grouped)
    }

    /// Puts a value and waits until it is durable.
    pub(crate) fn put_durably(&self, store: usize, key: u8, value: u64) -> Result<Sequence> {
        self.put(store, key, value).and_then(Receipt::wait)
    }

    /// The values of a store, with their sequences.
    pub(crate) fn values(&self, store: usize) -> BTreeMap<u8, (u64, Sequence)> {
        let at = ReadAt {
            reading: Reading::MayBlock,
            now: Timestamp(0),
        };
        let mut values = BTreeMap::new();
        for number in 0..KEYS {
            if let Lookup::Found(entry) = self.stores[store].get(&key(number), at).unwrap() {
                let value = u64::from_le_bytes(entry.body[..8].try_into().unwrap());
                values.insert(number, (value, entry.sequence));
            }
        }
        values
    }

    /// Does upkeep until none is due.
    pub(crate) fn do_upkeep(&self) -> Result<()> {
        for _ in 0..1_000 {
            if !self.log.is_upkeep_due() && !self.log.is_upkeep_due() {
                return Ok(());
            }
            self.log.upkeep_step()?;
        }
        panic!("upkeep never ends");
    }
}

/// A disk of which tests keep a handle.
pub(crate) trait CloneDisk {
    fn shared(&self) -> Arc<dyn Disk>;
}

impl<D: Disk + Clone + 'static> CloneDisk for D {
    fn shared(&self) -> Arc<dyn Disk> {
        Arc::new(self.clone())
    }
}

pub(crate) fn key(number: u8) -> StorageKey {
    StorageKey::from_encoded(vec![b'k', number])
}

pub(crate) fn batch(number: u8, value: u64) -> Batch {
    let mut body = value.to_le_bytes().to_vec();
    body.resize(60, number + 1);
    let write = Write::put(key(number), Fields::default(), Bytes::new(), body.into());
    Batch::of(write)
}

/// Another disk with the same bytes, all of them durable.
pub(crate) fn copy_of(disk: &MemoryDisk) -> MemoryDisk {
    disk.crash_image(CrashOptions::everything())
}

/// The segment files of all generations of the log, sorted.
pub(crate) fn segment_files(disk: &dyn Disk) -> Vec<PathBuf> {
    let directory = Path::new("commit_log");
    let mut files = Vec::new();
    for generation in disk.list(directory).unwrap() {
        let generation = directory.join(generation.name);
        let entries = disk.list(&generation).unwrap();
        files.extend(entries.into_iter().map(|entry| generation.join(entry.name)));
    }
    files
}
