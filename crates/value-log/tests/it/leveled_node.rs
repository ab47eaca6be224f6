//! One store of leveled over its journal, with small files and upkeep by hand, and with damage to
//! its files.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests stop at any failure, as tests do"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use kvorum_backend::{
    Batch, Durability, Fields, Flow, FoldEnd, IndexEntry, IndexRange, Lease, Lookup, ReadAt,
    Reading, Result, StepBudget, StepOutcome, Task, TaskKind, Timestamp, Urgency, Write,
};
use kvorum_backend_leveled::{LeveledSettings, Shared};
use kvorum_disk::{Disk, MemoryDisk, OpenMode};
use kvorum_encoding::{Bucket, BucketType, Key, StorageKey, bucket_prefix};
use kvorum_value_log::{ValueLog, ValueLogOpening, ValueLogSettings};

use crate::tenants::{Opened, leveled_settings, tenants_of};

pub(crate) const STORE: &str = "store";
pub(crate) const NOW: Timestamp = Timestamp(1_000_000);
pub(crate) const ALL: StepBudget = StepBudget { bytes: u64::MAX };
pub(crate) const SMALL: StepBudget = StepBudget { bytes: 1_000 };
pub(crate) const BODY_BYTES: usize = 400;
pub(crate) const KEYS: usize = 40;
pub(crate) const LOG: ValueLogSettings = ValueLogSettings {
    segment_bytes: 4_000,
    garbage_percent_max: 20,
};

pub(crate) struct Node {
    pub(crate) log: ValueLog,
    pub(crate) store: Opened,
    /// Damaged or missing parts of the log, found by opening it.
    pub(crate) damage: Vec<String>,
}

pub(crate) fn settings() -> LeveledSettings {
    LeveledSettings {
        compression: kvorum_backend_leveled::Compression::None,
        ..leveled_settings()
    }
}

pub(crate) fn open_log(disk: &Arc<dyn Disk>) -> (ValueLog, ValueLogOpening) {
    ValueLog::open(disk.clone(), Path::new("log"), 5, LOG).unwrap()
}

pub(crate) fn drawn() -> kvorum_backend_leveled::DrawNumber {
    let drawn = AtomicU64::new(7);
    Arc::new(move || drawn.fetch_add(1, Ordering::Relaxed))
}

impl Node {
    pub(crate) fn open(disk: &MemoryDisk) -> Self {
        Self::open_with(disk, &settings())
    }

    pub(crate) fn open_with(disk: &MemoryDisk, settings: &LeveledSettings) -> Self {
        Self::open_on(Arc::new(disk.clone()), settings)
    }

    pub(crate) fn open_on(disk: Arc<dyn Disk>, settings: &LeveledSettings) -> Self {
        let (log, found) = open_log(&disk);
        let shared = Shared::new(1 << 20, 1 << 20);
        let path = Path::new(STORE);
        let store =
            kvorum_backend_leveled::open(disk, path, settings, shared, drawn(), log.clone());
        let store: Opened = store.unwrap().into();
        let tenants = tenants_of(std::slice::from_ref(&store));
        let admitted = log.admit(&tenants).unwrap();
        let lost = admitted.lost.iter();
        let lost = lost.map(|(_, to)| format!("batches up to {}", to.0));
        let damage = found.damage.into_iter().chain(admitted.damage).chain(lost);
        let damage = damage.collect();
        Self { log, store, damage }
    }

    pub(crate) fn put(&self, key: usize, value: u8) {
        self.put_with(key, value, Fields::default());
    }

    pub(crate) fn put_with(&self, key: usize, value: u8, fields: Fields) {
        let body = Bytes::from(vec![value; BODY_BYTES]);
        let entry = IndexEntry {
            field: Bytes::from_static(b"f_int"),
            term: Bytes::from(vec![value]),
        };
        let write = Write::Put {
            key: key_of(key),
            fields,
            head: Bytes::from(vec![value]),
            body,
            index_entries: vec![entry],
            old: kvorum_backend::OldEntry::UNKNOWN,
        };
        let receipt = self.store.put(&Batch::of(write), Durability::Grouped);
        receipt.unwrap().wait().unwrap();
    }

    pub(crate) fn remove(&self, key: usize) {
        let batch = Batch::of(Write::remove(key_of(key)));
        let receipt = self.store.put(&batch, Durability::Grouped);
        receipt.unwrap().wait().unwrap();
    }

    pub(crate) fn value(&self, key: usize) -> Result<Option<u8>> {
        self.value_at(key, NOW)
    }

    pub(crate) fn value_at(&self, key: usize, now: Timestamp) -> Result<Option<u8>> {
        let at = ReadAt {
            reading: Reading::MayBlock,
            now,
        };
        let head = self.store.head(&key_of(key), at)?;
        Ok(match self.store.get(&key_of(key), at)? {
            Lookup::Found(entry) => {
                assert_eq!(entry.body, vec![entry.body[0]; BODY_BYTES]);
                assert!(matches!(head, Lookup::Found(head) if head.head[0] == entry.body[0]));
                Some(entry.body[0])
            }
            _ => {
                assert_eq!(head, Lookup::Absent);
                None
            }
        })
    }

    pub(crate) fn values(&self) -> BTreeMap<usize, u8> {
        self.values_at(NOW)
    }

    pub(crate) fn values_at(&self, now: Timestamp) -> BTreeMap<usize, u8> {
        let values = (0..KEYS).map(|key| (key, self.value_at(key, now).unwrap()));
        values
            .filter_map(|(key, value)| Some((key, value?)))
            .collect()
    }

    /// The keys that the index has, with their terms.
    pub(crate) fn indexed(&self) -> Result<BTreeMap<usize, u8>> {
        let range = IndexRange {
            bucket_prefix: bucket_prefix(&BucketType::default_type(), &bucket()).into(),
            field: Bytes::from_static(b"f_int"),
            from: Bound::Unbounded,
            to: Bound::Unbounded,
            after: None,
        };
        let mut found = BTreeMap::new();
        let folds = self.store.indexes().unwrap();
        let visit = &mut |term: &Bytes, key: &StorageKey| {
            let key = key.decode().unwrap().key;
            let number = std::str::from_utf8(key.as_bytes()).unwrap();
            found.insert(number.parse().unwrap(), term[0]);
            Flow::Continue
        };
        let end = folds.fold_index(&range, Lease::Unlimited, NOW, visit)?;
        assert_eq!(end, FoldEnd::Complete);
        Ok(found)
    }

    /// All upkeep of the store but syncs, in small steps.
    pub(crate) fn keep_store(&self) {
        self.keep_store_at(NOW);
    }

    pub(crate) fn keep_store_at(&self, now: Timestamp) {
        for _ in 0..10_000 {
            let Some(step) = self.upkeep_step(now) else {
                return;
            };
            step.unwrap();
        }
        panic!("upkeep does not end: {:?}", self.store.maintenance_due(now));
    }

    /// One small step of due upkeep other than syncs.
    pub(crate) fn upkeep_step(&self, now: Timestamp) -> Option<Result<StepOutcome>> {
        let due = self.store.maintenance_due(now);
        let task = due.iter().find(|it| it.kind != TaskKind::Sync)?;
        Some(self.store.maintenance_step(task, SMALL, now))
    }

    /// Moves entries from memory to tables.
    pub(crate) fn flush(&self) {
        let flush = Task {
            kind: TaskKind::Flush,
            subject: 0,
            urgency: Urgency::Normal,
            cost_bytes: 0,
        };
        self.store.maintenance_step(&flush, ALL, NOW).unwrap();
    }

    /// Collects the log until no collection is due.
    pub(crate) fn collect(&self) {
        self.try_to_collect().unwrap();
    }

    /// The same up to the first failure.
    pub(crate) fn try_to_collect(&self) -> Result<()> {
        for _ in 0..1_000 {
            self.log.usage_changed();
            while self.log.is_chore_due() && self.log.chore_step()? {}
            if self.log.collection_due().is_none() {
                break;
            }
            self.log.collection_step(SMALL)?;
        }
        Ok(())
    }

    pub(crate) fn keep_all(&self) {
        self.keep_all_at(NOW);
    }

    pub(crate) fn keep_all_at(&self, now: Timestamp) {
        for _ in 0..4 {
            self.keep_store_at(now);
            self.collect();
        }
    }

    pub(crate) fn detail(&self, name: &str) -> u64 {
        let status = self.store.status();
        let found = status.details.iter().find(|(known, _)| *known == name);
        found.unwrap().1.parse().unwrap()
    }
}

pub(crate) fn key_of(key: usize) -> StorageKey {
    let key = Key::new(format!("{key:04}").into_bytes());
    StorageKey::new(&BucketType::default_type(), &bucket(), &key)
}

pub(crate) fn bucket() -> Bucket {
    Bucket::new(b"people".to_vec())
}

pub(crate) fn files(disk: &MemoryDisk, suffix: &str) -> BTreeSet<PathBuf> {
    let entries = disk.list(Path::new(STORE)).unwrap().into_iter();
    let named = entries.filter(|it| it.name.ends_with(suffix));
    named.map(|it| Path::new(STORE).join(it.name)).collect()
}

pub(crate) fn remove_files(disk: &MemoryDisk, suffix: &str) {
    let found = files(disk, suffix);
    assert!(!found.is_empty(), "no {suffix}");
    found.iter().for_each(|it| disk.remove_file(it).unwrap());
}

pub(crate) fn close(node: Node) {
    node.store.close().unwrap();
    node.log.sync().unwrap();
    drop(node);
}

pub(crate) fn read_file(disk: &MemoryDisk, path: &Path) -> Vec<u8> {
    let len = disk.info(path).unwrap().unwrap().len;
    let mut bytes = vec![0; usize::try_from(len).unwrap()];
    let file = disk.open(path, OpenMode::Read).unwrap();
    file.read_at(&mut bytes, 0, kvorum_disk::Reading::MayBlock)
        .unwrap();
    bytes
}

/// Changes one bit.
pub(crate) fn flip(disk: &MemoryDisk, path: &Path, offset: usize) {
    let byte = read_file(disk, path)[offset] ^ 1;
    let file = disk.open(path, OpenMode::ReadWrite).unwrap();
    file.write_at(&[byte], offset as u64).unwrap();
}

/// Numbers that look random.
pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}
