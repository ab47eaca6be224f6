//! Removals and collections of the value log: segments are collected in any order, with crashes
//! between, and the stores' own files are merged meanwhile; no removed key comes back.
//!
//! The log's own policy would choose the order, so the tests offer segments to the store in the
//! log's way: all records, then the end.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests stop at any failure, as tests do"
)]

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::{
    Batch, Durability, Fields, Flow, FoldDetail, FoldFilter, FoldRange, Lease, Result, StepBudget,
    Task, TaskKind, Timestamp, Urgency, Write,
};
use kvorum_backend_bitcask::BitcaskSettings;
use kvorum_backend_leveldb::LeveldbSettings;
use kvorum_disk::{CrashOptions, Disk, MemoryDisk};
use kvorum_encoding::StorageKey;
use kvorum_segment::{ScanOptions, Scanned, SegmentId, SegmentReader, file_name};
use kvorum_value_log::{LoggedRecord, ValueLog, ValueLogSettings};

use crate::tenants::{Engine, Opened, leveldb_settings, tenants_of};

const SEGMENTS: u32 = 6;
const NOW: Timestamp = Timestamp(1_000_000);
const ALL: StepBudget = StepBudget { bytes: u64::MAX };
/// Each batch is longer than a segment may be, and so gets one of its own.
const LOG: ValueLogSettings = ValueLogSettings {
    segment_bytes: 100,
    garbage_percent_max: 100,
};

pub(crate) struct Node {
    log: ValueLog,
    pub(crate) store: Opened,
    disk: Arc<dyn Disk>,
    kind: Kind,
}

/// The engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Bitcask,
    Leveldb,
}

impl Kind {
    fn engine(self) -> Engine {
        match self {
            // Each file of copies has those of one collection only.
            Self::Bitcask => Engine::Bitcask(BitcaskSettings {
                file_bytes_max: 1,
                checkpoint_after_bytes: 200,
                log_hint_records_min: 2,
                log_hints_merged: 2,
                ..BitcaskSettings::default()
            }),
            // All bodies are in the log, and few keys in a table.
            Self::Leveldb => Engine::Leveldb(LeveldbSettings {
                blob_threshold_bytes: 1,
                ..leveldb_settings()
            }),
        }
    }
}

impl Node {
    pub(crate) fn open(disk: &MemoryDisk, kind: Kind) -> Self {
        Self::open_with(disk, kind, LOG.segment_bytes)
    }

    /// Opens a log with segments of another length.
    pub(crate) fn open_with(disk: &MemoryDisk, kind: Kind, segment_bytes: u64) -> Self {
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        let settings = ValueLogSettings {
            segment_bytes,
            ..LOG
        };
        let (log, _) = ValueLog::open(disk.clone(), Path::new("log"), 5, settings).unwrap();
        let shared: ValueLog = log.clone();
        let (directory, draw) = (Path::new("store"), Arc::new(|| 7));
        let store = kind.engine();
        let store = store.open(disk.clone(), directory, draw, shared).unwrap();
        log.admit(&tenants_of(std::slice::from_ref(&store)))
            .unwrap();
        Self {
            log,
            store,
            disk,
            kind,
        }
    }

    pub(crate) fn put(&self, writes: Vec<Write>) {
        let receipt = self.store.put(&Batch { writes }, Durability::Grouped);
        receipt.unwrap().wait().unwrap();
    }

    /// Offers a segment to the store, and drops unneeded ones.
    fn collect(&self, number: u32) {
        self.try_collect(number, usize::MAX).unwrap();
    }

    /// As [`Node::collect`], this many records at a time, until something fails.
    pub(crate) fn try_collect(&self, number: u32, at_once: usize) -> Result<()> {
        let path = Path::new("log").join(file_name(u64::from(number)));
        let is_there = self.disk.info(&path).unwrap().is_some();
        if is_there {
            // The store decides by the time of this call.
            self.store.maintenance_due(NOW);
            let records = self.records(number, &path);
            let tenant = &self.store.tenant;
            for some in records.chunks(at_once) {
                tenant.relocate(some)?;
            }
            assert!(tenant.settle(number, ALL)?.is_done);
            self.log.usage_changed();
        }
        while self.log.is_chore_due() && self.log.chore_step()? {}
        Ok(())
    }

    /// Offers the first records of a segment to the store, and drops unneeded segments.
    pub(crate) fn collect_first(&self, number: u32, count: usize) -> Result<()> {
        let path = Path::new("log").join(file_name(u64::from(number)));
        let records = self.records(number, &path);
        self.store.maintenance_due(NOW);
        let first = &records[..count.min(records.len())];
        self.store.tenant.relocate(first)?;
        self.log.usage_changed();
        while self.log.is_chore_due() && self.log.chore_step()? {}
        Ok(())
    }

    /// One step of each due task of the store.
    pub(crate) fn upkeep(&self) {
        for task in self.store.maintenance_due(NOW) {
            self.store.maintenance_step(&task, ALL, NOW).unwrap();
        }
    }

    /// The closed segments.
    pub(crate) fn closed_segments(&self) -> Vec<u32> {
        let names = self.disk.list(Path::new("log")).unwrap_or_default();
        let numbers = names
            .iter()
            .filter_map(|it| kvorum_segment::parse_file_name(&it.name));
        let newest = u64::from(self.log.newest_segment());
        let closed = numbers.filter(|number| *number < newest);
        closed.map(|it| u32::try_from(it).unwrap()).collect()
    }

    fn records(&self, number: u32, path: &Path) -> Vec<LoggedRecord> {
        records_of(&*self.disk, self.log.log_id(), number, path)
    }

    /// Merges every finished file of the store's own, or does the due merges of tables.
    pub(crate) fn merge_own(&self) {
        if self.kind == Kind::Leveldb {
            while let Some(task) = self.store.maintenance_due(NOW).first() {
                self.store.maintenance_step(task, ALL, NOW).unwrap();
            }
            return;
        }
        let files = self.disk.list(Path::new("store")).unwrap();
        let numbers = files
            .iter()
            .filter_map(|it| kvorum_segment::parse_file_name(&it.name));
        for subject in numbers {
            let task = Task {
                kind: TaskKind::Merge,
                subject,
                urgency: Urgency::Normal,
                cost_bytes: 0,
            };
            self.store.maintenance_step(&task, ALL, NOW).unwrap();
        }
    }

    pub(crate) fn folded(&self) -> Vec<(String, String)> {
        let snapshot = self.store.snapshot(Lease::Unlimited).unwrap();
        let (range, filter) = (FoldRange::all(), FoldFilter::unexpired(NOW));
        let mut found = Vec::new();
        let fold = snapshot.fold(FoldDetail::Entries, &range, &filter, &mut |visited| {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            found.push((text(visited.key.as_bytes()), text(&visited.body)));
            Flow::Continue
        });
        fold.unwrap();
        found
    }
}

/// The readable records of a segment, as the log offers them.
pub(crate) fn records_of(
    disk: &dyn Disk,
    log_id: u64,
    number: u32,
    path: &Path,
) -> Vec<LoggedRecord> {
    let id = SegmentId {
        log_id,
        number: u64::from(number),
        kind: b'V',
    };
    let reader = SegmentReader::open(disk, path, id).unwrap();
    let scan = reader.scan(ScanOptions::default()).unwrap();
    let records = scan.filter_map(|scanned| match scanned.unwrap() {
        Scanned::Record(record) => LoggedRecord::of(number, record),
        Scanned::Damage(_) => None,
    });
    records.collect()
}

fn name(script: u32) -> String {
    format!("{script:06b}")
}

pub(crate) fn write_of(name: &str, body: Option<u32>) -> Write {
    match body {
        Some(body) => put_with(name, Fields::default(), body),
        None => Write::remove(StorageKey::from_encoded(name.as_bytes().to_vec())),
    }
}

/// A put that has expired by now.
pub(crate) fn expired_write_of(name: &str, body: u32) -> Write {
    let fields = Fields {
        expiry: Some(NOW),
        ..Fields::default()
    };
    put_with(name, fields, body)
}

fn put_with(name: &str, fields: Fields, body: u32) -> Write {
    let key = StorageKey::from_encoded(name.as_bytes().to_vec());
    let body = Bytes::from(body.to_string());
    Write::put(key, fields, Bytes::from_static(b"head"), body)
}

/// Collects one more of the segments in every possible way, with a crash after each; returns the
/// number of collections.
fn collect_on(
    kind: Kind,
    before: &MemoryDisk,
    done: &mut Vec<u32>,
    expected: &[(String, String)],
) -> u64 {
    let mut collections = 0;
    for number in 1..=SEGMENTS {
        if done.contains(&number) {
            continue;
        }
        done.push(number);
        let disk = before.crash_image(CrashOptions::nothing_unsynced());
        let node = Node::open(&disk, kind);
        if done.len().is_multiple_of(2) {
            node.merge_own();
        }
        node.collect(number);
        assert_eq!(node.folded(), expected, "{done:?}");
        assert!(node.store.status().lost.is_empty());
        drop(node);
        collections += 1 + collect_on(kind, &disk, done, expected);
        done.pop();
    }
    collections
}

/// A node whose log has this many segments, each with a put or a removal of each key: bit n of a
/// key's script selects which for segment n. Returns the live entries.
pub(crate) fn write_scripts(disk: &MemoryDisk, kind: Kind, segments: u32) -> Vec<(String, String)> {
    let scripts = 1u32 << segments;
    let node = Node::open(disk, kind);
    for segment in 0..segments {
        let body = |script: u32| (script >> segment & 1 == 1).then_some(segment);
        let writes = (0..scripts).map(|script| write_of(&name(script), body(script)));
        node.put(writes.collect());
    }
    node.put(vec![write_of("other", Some(9))]);
    for segment in 1..=segments {
        let path = Path::new("log").join(file_name(u64::from(segment)));
        assert_eq!(node.records(segment, &path).len(), scripts as usize);
    }
    drop(node);
    let last = segments - 1;
    let live = (0..scripts).filter(|script| script >> last & 1 == 1);
    let live = live.map(|script| (name(script), last.to_string()));
    let expected: Vec<_> = live.chain([("other".into(), "9".into())]).collect();
    assert_eq!(Node::open(disk, kind).folded(), expected);
    expected
}

fn collect_in_any_order(kind: Kind) {
    let disk = MemoryDisk::new();
    let expected = write_scripts(&disk, kind, SEGMENTS);
    let collections = collect_on(kind, &disk, &mut Vec::new(), &expected);
    // Every ordered subset but the empty one.
    assert_eq!(collections, 1956);
}

#[test]
fn r13_no_subset_of_six_log_segments_collected_in_any_order_brings_a_removed_key_back() {
    collect_in_any_order(Kind::Bitcask);
}

#[test]
fn r13_no_subset_of_six_log_segments_collected_from_under_leveldb_brings_a_removed_key_back() {
    collect_in_any_order(Kind::Leveldb);
}
