//! What bitcask asks of the node's log for each step of upkeep: answers that take the log a look at all of
//! its segments are asked for once, and not for each record.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use kvorum_backend::{
    Appended, Backend, Batch, Durability, Fields, LogPromise, LogRecord, Purpose, Result, Sequence,
    SharedLog, SharedSegment, StepBudget, StoreId, Timestamp, Whereabouts, Write,
};
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings};
use kvorum_commit::{ValueLog, ValueLogSettings};
use kvorum_disk::{Disk, Headroom, MemoryDisk};
use kvorum_encoding::StorageKey;

const RECORDS: u32 = 500;
const NOW: Timestamp = Timestamp(1_000_000);

/// The log, counting how often it was asked for the oldest segment of a store.
struct CountedLog {
    log: ValueLog,
    asked: AtomicU64,
}

impl SharedLog for CountedLog {
    fn log_id(&self) -> u64 {
        self.log.log_id()
    }

    fn wait_for_room(&self) -> Result<()> {
        self.log.wait_for_room()
    }

    fn append(
        &self,
        store: StoreId,
        sequence: Sequence,
        records: Vec<LogRecord>,
        purpose: Purpose,
        promise: LogPromise,
    ) -> Result<Appended> {
        self.log.append(store, sequence, records, purpose, promise)
    }

    fn headroom(&self) -> Headroom {
        self.log.headroom()
    }

    fn segments_behind_max(&self, most: u32) -> u32 {
        self.log.segments_behind_max(most)
    }

    fn segment(&self, number: u32) -> Option<Arc<dyn SharedSegment>> {
        SharedLog::segment(&self.log, number)
    }

    fn whereabouts(&self, store: StoreId, number: u32) -> Whereabouts {
        self.log.whereabouts(store, number)
    }

    fn newest_segment(&self) -> u32 {
        self.log.newest_segment()
    }

    fn oldest_segment_of(&self, store: StoreId) -> Option<u32> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.log.oldest_segment_of(store)
    }

    fn sync(&self) -> Result<()> {
        self.log.sync()
    }

    fn usage_changed(&self) {
        self.log.usage_changed();
    }

    fn usage_fell(&self, bytes: u64) {
        self.log.usage_fell(bytes);
    }

    fn roll(&self) -> Result<()> {
        self.log.roll()
    }

    fn link(&self, number: u32, path: &Path) -> Result<()> {
        self.log.link(number, path)
    }

    fn announce_erasure(&self, store: StoreId) -> Result<()> {
        self.log.announce_erasure(store)
    }

    fn forget(&self, erased: StoreId, now: StoreId) -> Result<()> {
        self.log.forget(erased, now)
    }
}

/// A batch of one put or removal for each of many keys.
fn batch(numbers: impl Iterator<Item = u32>, is_put: impl Fn(u32) -> bool) -> Batch {
    let write = |number: u32| {
        let key = StorageKey::from_encoded(number.to_be_bytes().to_vec());
        if is_put(number) {
            Write::put(key, Fields::default(), Bytes::new(), vec![1; 100].into())
        } else {
            Write::remove(key)
        }
    };
    Batch {
        writes: numbers.map(write).collect(),
    }
}

#[test]
fn a_step_of_upkeep_asks_for_the_oldest_segment_once_and_not_for_each_record() {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
    let settings = ValueLogSettings {
        segment_bytes: 1 << 20,
        dead_percent_max: 10,
    };
    let (log, _) = ValueLog::open(disk.clone(), Path::new("log"), 1, settings).unwrap();
    let counted = Arc::new(CountedLog {
        log: log.clone(),
        asked: AtomicU64::new(0),
    });
    let draws = AtomicU64::new(2);
    let draw = Arc::new(move || draws.fetch_add(1, Ordering::Relaxed));
    let mut settings = BitcaskSettings::default();
    settings.merge.small_file_threshold_bytes = 1 << 20;
    let directory = Path::new("store");
    let store = Bitcask::open_adopting(disk, directory, settings, draw, counted.clone()).unwrap();
    let store: Arc<dyn Backend> = Arc::new(store);
    log.admit(std::slice::from_ref(&store)).unwrap();
    let put = |batch: &Batch| {
        let receipt = store.put(batch, Durability::Grouped).unwrap();
        receipt.wait().unwrap();
    };
    put(&batch(0..RECORDS, |_| true));
    // Of the first segment a half is dead, and there are removals as well.
    put(&batch(0..RECORDS, |number| number % 2 == 0));
    log.roll().unwrap();
    put(&batch(0..10, |_| true));
    let is_collected = || log.segment(1).is_none();
    assert!(!is_collected());
    let budget = StepBudget { bytes: 1 << 20 };
    for _ in 0..20 {
        log.upkeep_step(budget).unwrap();
    }
    assert!(is_collected());
    for _ in 0..10 {
        for task in store.maintenance_due(NOW) {
            store.maintenance_step(&task, budget, NOW).unwrap();
        }
    }
    let asked = counted.asked.load(Ordering::Relaxed);
    assert!(asked < u64::from(RECORDS) / 2, "asked {asked} times");
}
