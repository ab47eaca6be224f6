//! Requests of bitcask to the log in each step of upkeep: a request that makes the log search all
//! of its segments is made once, and not for each record.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use kvorum_backend::{Backend, Batch, Durability, Fields, StepBudget, Timestamp, Write};
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings};
use kvorum_disk::{Disk, MemoryDisk};
use kvorum_encoding::StorageKey;
use kvorum_value_log::{Tenant, ValueLog, ValueLogSettings};

const RECORDS: u32 = 500;
const NOW: Timestamp = Timestamp(1_000_000);

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
        garbage_percent_max: 10,
    };
    let (log, _) = ValueLog::open(disk.clone(), Path::new("log"), 1, settings).unwrap();
    let draws = AtomicU64::new(2);
    let draw = Arc::new(move || draws.fetch_add(1, Ordering::Relaxed));
    let mut settings = BitcaskSettings::default();
    settings.merge.small_file_threshold_bytes = 1 << 20;
    let directory = Path::new("store");
    let store = Bitcask::open(disk, directory, settings, draw, Some(log.clone()));
    let store = Arc::new(store.unwrap());
    let tenant: Arc<dyn Tenant> = store.clone();
    log.admit(&[tenant]).unwrap();
    let put = |batch: &Batch| {
        let receipt = store.put(batch, Durability::Grouped).unwrap();
        receipt.wait().unwrap();
    };
    put(&batch(0..RECORDS, |_| true));
    // Half of the first segment is garbage, and there are removals as well.
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
    let asked = log.status().searches;
    assert!(asked < u64::from(RECORDS) / 2, "asked {asked} times");
}
