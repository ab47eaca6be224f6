//! Small stores and their upkeep.

use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::{
    Durability, ErrorKind, Fields, FoldFilter, Lease, Lookup, ReadAt, Reading, StepBudget,
    TaskKind, Timestamp,
};
use kvorum_disk::{Disk, MemoryDisk, OpenMode};
use kvorum_lsm::policy::PolicySettings;
use kvorum_lsm::{
    Body, Lsm, LsmSettings, Op, ScanEnd, ScanRange, ScanStep, Shared, TreeEntry, TreeView, Value,
};

pub(crate) const NOW: Timestamp = Timestamp(1_000);

pub(crate) fn settings() -> LsmSettings {
    LsmSettings {
        memtable_bytes: 4_000,
        block_bytes: 300,
        restart_interval: 4,
        index_block_bytes: 200,
        blob_threshold_bytes: 400,
        compression: vec![kvorum_lsm::Compression::None],
        policy: PolicySettings {
            levels: 4,
            level_zero_tables: 2,
            base_bytes: 6_000,
            multiplier: 3,
            table_bytes_max: 3_000,
            slow_from_tables: 4,
            slowest_at_tables: 8,
            ..PolicySettings::default()
        },
        ..LsmSettings::default()
    }
}

pub(crate) fn try_open(disk: &dyn AsDisk, settings: LsmSettings) -> kvorum_backend::Result<Lsm> {
    let shared = Shared::new(1 << 20, 1 << 30);
    let state = std::sync::atomic::AtomicU64::new(11);
    let draw = Arc::new(move || state.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
    let directory = Path::new("store");
    Lsm::open(disk.as_disk(), directory, settings, shared, draw, None)
}

pub(crate) fn open(disk: &dyn AsDisk, settings: LsmSettings) -> Lsm {
    try_open(disk, settings).unwrap()
}

pub(crate) trait AsDisk {
    fn as_disk(&self) -> Arc<dyn Disk>;
}

impl AsDisk for MemoryDisk {
    fn as_disk(&self) -> Arc<dyn Disk> {
        Arc::new(self.clone())
    }
}

impl AsDisk for kvorum_disk::FaultyDisk {
    fn as_disk(&self) -> Arc<dyn Disk> {
        Arc::new(self.clone())
    }
}

pub(crate) fn key(number: usize) -> Bytes {
    Bytes::from(format!("key {number:04}"))
}

pub(crate) fn put_op(number: usize, body: &[u8]) -> Op {
    Op::Put {
        key: key(number),
        value: Value {
            fields: Fields {
                last_modified: Timestamp(number as u64),
                ..Fields::default()
            },
            extra: Bytes::new(),
            head: Bytes::from_static(b"head"),
            body: Body::Inline(Bytes::copy_from_slice(body)),
        },
    }
}

pub(crate) fn write(store: &Lsm, ops: &[Op]) {
    let _receipt = store.write(ops, Durability::Buffered, NOW).unwrap();
}

pub(crate) fn put(store: &Lsm, number: usize, body: &[u8]) {
    write(store, &[put_op(number, body)]);
}

pub(crate) fn remove(store: &Lsm, number: usize) {
    write(store, &[Op::Remove { key: key(number) }]);
}

pub(crate) fn get(store: &Lsm, number: usize) -> kvorum_backend::Result<Option<Bytes>> {
    let at = ReadAt {
        reading: Reading::MayBlock,
        now: NOW,
    };
    Ok(match store.get(&key(number), at)? {
        Lookup::Found((_, _, body)) => Some(body),
        Lookup::Absent => None,
        Lookup::WouldBlock => panic!("a read that may block would block"),
    })
}

pub(crate) fn everything() -> ScanRange {
    ScanRange {
        from: Bound::Unbounded,
        to: Bound::Unbounded,
    }
}

/// Everything that a scan shows.
pub(crate) fn scanned(store: &Lsm) -> Vec<(Bytes, Bytes)> {
    try_scanned(store).unwrap()
}

/// The same for a device that may fail.
pub(crate) fn try_scanned(store: &Lsm) -> kvorum_backend::Result<Vec<(Bytes, Bytes)>> {
    let mut failed = None;
    let mut seen = Vec::new();
    let filter = FoldFilter::unexpired(NOW);
    let end = store
        .snapshot(Lease::Unlimited)
        .scan(&everything(), &filter, &mut |shown| {
            match shown.body() {
                Ok(body) => seen.push((Bytes::copy_from_slice(shown.key()), body)),
                Err(error) if error.kind() == ErrorKind::Corrupt => {}
                Err(error) => failed = Some(error),
            }
            ScanStep::Next
        });
    if let Some(error) = failed {
        return Err(error);
    }
    assert_eq!(end?, ScanEnd::Complete);
    assert!(seen.is_sorted_by(|a, b| a.0 < b.0), "out of order");
    Ok(seen)
}

/// Does all due upkeep.
pub(crate) fn do_all(store: &Lsm) {
    try_do_all(store).unwrap();
}

/// Does upkeep until nothing is due, or until a step fails.
pub(crate) fn try_do_all(store: &Lsm) -> kvorum_backend::Result<()> {
    for _ in 0..100 {
        let due = store.maintenance_due(NOW);
        if due.is_empty() {
            return Ok(());
        }
        for task in due {
            let budget = StepBudget { bytes: 5_000 };
            let mut steps = 0;
            while !store.maintenance_step(&task, budget, NOW)?.is_done {
                steps += 1;
                assert!(steps < 1_000, "{task:?} never ends");
            }
        }
    }
    panic!("upkeep never ends: {:?}", store.maintenance_due(NOW));
}

pub(crate) fn is_due(store: &Lsm, kind: TaskKind) -> bool {
    store.maintenance_due(NOW).iter().any(|it| it.kind == kind)
}

/// Files of the store with this suffix.
pub(crate) fn files(disk: &MemoryDisk, suffix: &str) -> Vec<PathBuf> {
    let entries = disk.list(Path::new("store")).unwrap().into_iter();
    let named = entries.filter(|it| it.name.ends_with(suffix));
    named.map(|it| Path::new("store").join(it.name)).collect()
}

pub(crate) fn flip(disk: &MemoryDisk, path: &Path, offset: u64) {
    let file = disk.open(path, OpenMode::ReadWrite).unwrap();
    let mut byte = [0];
    let read = file.read_at(&mut byte, offset, kvorum_disk::Reading::MayBlock);
    assert_eq!(read.unwrap(), 1);
    file.write_at(&[byte[0] ^ 0x40], offset).unwrap();
}
