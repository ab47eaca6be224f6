//! Doubling levels on a disk: no put waits, no other engine opens the store, and a restart
//! continues merges.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use kvorum_backend::{
    Backend, Batch, Durability, Fields, Lookup, ReadAt, Reading, StepBudget, Timestamp, Write,
};
use kvorum_backend_hanoidb::repair::{Repair, RepairVerdict, options};
use kvorum_backend_hanoidb::{Hanoidb, HanoidbSettings, LEVELS, SHARE_PER_BYTE};
use kvorum_disk::{Disk, FaultyDisk, MemoryDisk, Operation};
use kvorum_encoding::StorageKey;
use kvorum_lsm::LsmSettings;

use crate::engine::{shared, small_settings};

const DIRECTORY: &str = "store";
const NOW: Timestamp = Timestamp(1_000);

fn open(disk: &Arc<dyn Disk>, settings: impl Into<LsmSettings>) -> kvorum_backend::Result<Hanoidb> {
    let state = AtomicU64::new(11);
    let draw = Arc::new(move || state.fetch_add(1, Ordering::Relaxed));
    Hanoidb::open(
        disk.clone(),
        Path::new(DIRECTORY),
        settings,
        shared(),
        draw,
        None,
    )
}

fn key(number: u32) -> StorageKey {
    StorageKey::from_encoded(format!("key {number:08}").into_bytes())
}

fn put(store: &Hanoidb, number: u32, body: &[u8]) {
    let (head, body) = (Bytes::from_static(b"head"), Bytes::copy_from_slice(body));
    let batch = Batch::of(Write::put(key(number), Fields::default(), head, body));
    let _receipt = store.put(&batch, Durability::Buffered).unwrap();
}

fn get(store: &Hanoidb, number: u32) -> Option<Bytes> {
    let at = ReadAt {
        reading: Reading::MayBlock,
        now: NOW,
    };
    match store.get(&key(number), at).unwrap() {
        Lookup::Found(found) => Some(found.body),
        _ => None,
    }
}

fn detail(store: &Hanoidb, name: &str) -> String {
    let details = store.status().details;
    details.into_iter().find(|it| it.0 == name).unwrap().1
}

/// The number of tables on each of the tree's levels.
fn tables(store: &Hanoidb) -> Vec<usize> {
    let text = detail(store, "tables_per_level");
    text.split(' ').map(|it| it.parse().unwrap()).collect()
}

fn do_all(store: &Hanoidb) {
    for _ in 0..1_000 {
        let due = store.maintenance_due(NOW);
        if due.is_empty() {
            return;
        }
        for task in due {
            let budget = StepBudget { bytes: 5_000 };
            while !store.maintenance_step(&task, budget, NOW).unwrap().is_done {}
        }
    }
    let due = store.maintenance_due(NOW);
    assert!(due.is_empty(), "upkeep never ends: {due:?}");
}

/// Without upkeep, the bounds hold too.
#[test]
fn writers_alone_keep_a_store_in_its_bounds() {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
    let store = open(&disk, &small_settings(1)).unwrap();
    let (mut flushes_max, mut deepest) = (0, 0);
    for number in 0..6_000 {
        put(&store, number * 7_919 % 3_000, &[1; 60]);
        if number % 40 == 0 {
            let tables = tables(&store);
            flushes_max = flushes_max.max(tables[0]);
            let used = tables.iter().rposition(|it| *it > 0);
            deepest = deepest.max(used.unwrap_or(0));
        }
    }
    assert!(flushes_max <= 8, "{flushes_max} flushes");
    assert!(deepest > 9, "only the tree's levels up to {deepest}");
    for number in 0..3_000 {
        assert_eq!(get(&store, number).unwrap(), vec![1; 60]);
    }
}

/// The bytes that one put reads and writes are its share for each level, and the mechanism's
/// read-ahead.
#[test]
fn no_put_does_more_than_its_share() {
    const READ_AHEAD_BYTES: usize = 256 << 10;
    let memory = MemoryDisk::new();
    let faulty = FaultyDisk::over_memory(&memory);
    let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
    let settings = HanoidbSettings {
        unit_bytes: 64 << 10,
        write_buffer_bytes: 64 << 10,
        ..HanoidbSettings::default()
    };
    let store = open(&disk, &settings).unwrap();
    let (mut most, mut all) = (0, 0);
    for number in 0..30_000_u32 {
        faulty.clear_log();
        put(&store, number.wrapping_mul(7_919) % 20_000, &[3; 100]);
        let is_of_data = |it: &Operation| matches!(it, Operation::Read | Operation::Write);
        let log = faulty.log().into_iter();
        let bytes: usize = log
            .filter(|it| is_of_data(&it.operation))
            .map(|it| it.bytes)
            .sum();
        most = most.max(bytes);
        all += bytes;
    }
    assert!(all > 4 * 30_000 * 100, "{all}: nothing was merged");
    // A put pays for at most 256 KiB of other puts' charges; runs of two levels may be read ahead
    // at the same time.
    let bound = (256 << 10) + 3 * READ_AHEAD_BYTES;
    assert!(most <= bound, "{most} bytes at one put");
}

/// The bound on the average is a fixed amount for each level and byte, for any load.
#[test]
fn all_puts_together_merge_no_more_than_their_shares() {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
    let store = open(&disk, &small_settings(1)).unwrap();
    for number in 0..8_000_u32 {
        put(&store, number.wrapping_mul(7_919) % 500, &[1; 60]);
    }
    do_all(&store);
    let status = store.status();
    let levels = tables(&store)
        .iter()
        .rposition(|it| *it > 0)
        .unwrap_or(0)
        .div_ceil(3) as u64;
    // In addition to the share: the log, the flush, and the overhead of entries of a hundred bytes.
    let factor = status.written_bytes / status.put_bytes;
    let bound = 2 * (2 + SHARE_PER_BYTE * (levels + 1));
    assert!(
        factor <= bound,
        "{factor} bytes written for each, {levels} levels"
    );
}

#[test]
fn a_restart_goes_on_where_merges_were() {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
    for round in 0..40 {
        let store = open(&disk, &small_settings(0)).unwrap();
        (0..60).for_each(|it| put(&store, it * 37 % 500, &[round; 90]));
        // Does a part of the due upkeep.
        for task in store.maintenance_due(NOW) {
            let _done = store
                .maintenance_step(&task, StepBudget { bytes: 700 }, NOW)
                .unwrap();
        }
        store.close().unwrap();
    }
    let store = open(&disk, &small_settings(0)).unwrap();
    do_all(&store);
    (0..60).for_each(|it| assert_eq!(get(&store, it * 37 % 500).unwrap(), vec![39; 90]));
    let runs = tables(&store).iter().skip(1).filter(|it| **it > 0).count();
    assert!(runs <= LEVELS, "{runs} runs at rest");
}

/// A store with doubling levels does not open as one of another engine over the same tree.
#[test]
fn a_store_opens_as_what_it_is() {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
    drop(open(&disk, &small_settings(0)).unwrap());
    let refused = open(&disk, LsmSettings::default())
        .err()
        .unwrap()
        .to_string();
    let said = "has a store with doubling levels, of the engine hanoidb, and was opened as lsm";
    assert!(refused.contains(said), "{refused}");
    let other: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
    drop(open(&other, LsmSettings::default()).unwrap());
    let refused = open(&other, &small_settings(0)).err().unwrap().to_string();
    let said = "has a store without a journal, of the engine leveldb, and was opened as hanoidb";
    assert!(refused.contains(said), "{refused}");
}

/// A rebuilt manifest records the meaning of its levels.
#[test]
fn a_repaired_store_is_still_one_of_doubling_levels() {
    let memory = MemoryDisk::new();
    let disk: Arc<dyn Disk> = Arc::new(memory);
    let store = open(&disk, &small_settings(0)).unwrap();
    (0..400).for_each(|it| put(&store, it, &[7; 90]));
    store.close().unwrap();
    drop(store);
    for name in kvorum_lsm::manifest::NAMES {
        disk.remove_file(&Path::new(DIRECTORY).join(name)).unwrap();
    }
    let options = options(false, false);
    let repair = Repair::begin(disk.clone(), Path::new(DIRECTORY), options).unwrap();
    loop {
        for unit in repair.units() {
            repair.run(unit, &|_| {}).unwrap();
        }
        if !repair.next_stage().unwrap() {
            break;
        }
    }
    assert_eq!(repair.report().verdict, RepairVerdict::Repaired);
    drop(repair);
    let store = open(&disk, &small_settings(0)).unwrap();
    (0..400).for_each(|it| assert_eq!(get(&store, it).unwrap(), vec![7; 90]));
    do_all(&store);
    (400..800).for_each(|it| put(&store, it, &[7; 90]));
    do_all(&store);
    (0..800).for_each(|it| assert_eq!(get(&store, it).unwrap(), vec![7; 90]));
}
