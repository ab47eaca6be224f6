//! Stores that share a block cache and a budget for memtables, as in a node.

use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use kvorum_backend::{Durability, FoldFilter, Lease, Lookup, ReadAt, Reading, Timestamp};
use kvorum_disk::{Fault, FaultyDisk, MemoryDisk, Operation, Rule};
use kvorum_lsm::{Lsm, LsmSettings, ScanRange, ScanStep, Shared, TreeView};

use crate::support::{NOW, get, key, put, put_op, scanned, settings};

fn open_many(disk: &FaultyDisk, count: u64, settings: &LsmSettings, shared: &Shared) -> Vec<Lsm> {
    let drawn = Arc::new(AtomicU64::new(1));
    let one = |number: u64| {
        let drawn = drawn.clone();
        let draw = Arc::new(move || drawn.fetch_add(1, Ordering::Relaxed));
        let directory = PathBuf::from(format!("store-{number}"));
        let (disk, shared) = (Arc::new(disk.clone()), shared.clone());
        Lsm::open(disk, &directory, settings.clone(), shared, draw, None).unwrap()
    };
    (0..count).map(one).collect()
}

fn read(store: &Lsm, key: &Bytes, reading: Reading) -> bool {
    let at = ReadAt { reading, now: NOW };
    matches!(store.get(key, at).unwrap(), Lookup::Found(_))
}

#[test]
fn what_is_read_often_stays_whatever_is_folded_or_read_once_in_any_store() {
    let disk = FaultyDisk::over_memory(&MemoryDisk::new());
    let settings = LsmSettings {
        blob_threshold_bytes: usize::MAX,
        ..settings()
    };
    let shared = Shared::new(120_000, 1 << 30);
    let stores = open_many(&disk, 3, &settings, &shared);
    for store in &stores {
        (0..1_500).for_each(|number| put(store, number, &[3; 100]));
        store.sync().unwrap();
        store.close().unwrap();
    }
    let hot = || (700..715).map(key);
    for _ in 0..3 {
        hot().for_each(|key| assert!(read(&stores[0], &key, Reading::MayBlock)));
    }
    for store in &stores {
        assert_eq!(scanned(store).len(), 1_500);
    }
    // Each block is read once: together several times the size of the cache.
    for store in &stores[1..] {
        for number in (0..1_500).step_by(3) {
            assert!(read(store, &key(number), Reading::MayBlock));
        }
    }
    assert!(shared.cache.bytes() <= shared.cache.bytes_max());
    let cold = Fault::Error(kvorum_disk::ErrorKind::WouldBlock);
    disk.add_rule(Rule::new(cold).on(Operation::Read));
    for key in hot() {
        assert!(read(&stores[0], &key, Reading::CachedOnly), "{key:?}");
    }
}

#[test]
fn what_a_fold_reads_first_is_kept_for_the_next_one_and_the_rest_is_not() {
    let disk = FaultyDisk::over_memory(&MemoryDisk::new());
    let settings = LsmSettings {
        blob_threshold_bytes: usize::MAX,
        ..settings()
    };
    let shared = Shared::new(1 << 20, 1 << 30);
    let filled = open_many(&disk, 1, &settings, &shared);
    (0..1_500).for_each(|number| put(&filled[0], number, &[3; 100]));
    filled[0].close().unwrap();
    drop(filled);
    let shared = Shared::new(1 << 20, 1 << 30);
    let stores = open_many(&disk, 1, &settings, &shared);
    assert_eq!(scanned(&stores[0]).len(), 1_500);
    let cold = Fault::Error(kvorum_disk::ErrorKind::WouldBlock);
    disk.add_rule(Rule::new(cold).on(Operation::Read));
    let is_kept = |number: usize| {
        let range = ScanRange {
            from: Bound::Included(key(number)),
            to: Bound::Unbounded,
        };
        let filter = FoldFilter::unexpired(NOW);
        let view = stores[0].snapshot(Lease::Unlimited);
        view.scan(&range, &filter, &mut |_| ScanStep::Stop).is_ok()
    };
    let kept = (0..1_500).filter(|it| is_kept(*it)).count();
    assert!(is_kept(0) && kept < 750, "{kept} of 1,500 keys");
}

/// Blocks that a filter rules out are not read, and not only not shown.
#[test]
fn a_filtered_fold_reads_less_than_a_whole_one() {
    let disk = FaultyDisk::over_memory(&MemoryDisk::new());
    let settings = LsmSettings {
        memtable_bytes: 1 << 20,
        blob_threshold_bytes: usize::MAX,
        ..settings()
    };
    let store = &open_many(&disk, 1, &settings, &Shared::new(0, 1 << 30))[0];
    (0..3_000).for_each(|number| put(store, number, &[3; 100]));
    store.close().unwrap();
    let bytes_of = |filter: &FoldFilter| {
        disk.clear_log();
        let mut seen = 0;
        let view = store.snapshot(Lease::Unlimited);
        let everything = crate::support::everything();
        let end = view.scan(&everything, filter, &mut |_| {
            seen += 1;
            ScanStep::Next
        });
        end.unwrap();
        let reads = disk.log().into_iter();
        let reads = reads.filter(|it| it.operation == Operation::Read);
        (seen, reads.map(|it| it.bytes).sum::<usize>())
    };
    let (all, all_bytes) = bytes_of(&FoldFilter::unexpired(NOW));
    let lately = FoldFilter {
        last_modified: Some(Timestamp(2_900)..=Timestamp(2_950)),
        ..FoldFilter::unexpired(NOW)
    };
    let (some, some_bytes) = bytes_of(&lately);
    assert_eq!((all, some), (3_000, 51));
    assert!(some_bytes < all_bytes / 4, "{some_bytes} of {all_bytes}");
}

#[test]
fn memtables_of_all_stores_together_stay_near_their_budget() {
    const BUDGET: u64 = 64_000;
    let disk = FaultyDisk::over_memory(&MemoryDisk::new());
    // No store would flush by itself.
    let settings = LsmSettings {
        memtable_bytes: 1 << 20,
        ..settings()
    };
    let shared = Shared::new(1 << 20, BUDGET);
    let stores = open_many(&disk, 8, &settings, &shared);
    let mut most = 0;
    for number in 0..8_000 {
        // One store gets half of all puts, the other stores the rest.
        let store = match number % 2 {
            0 => &stores[0],
            _ => &stores[number / 2 % 8],
        };
        put(store, number, &[1; 60]);
        most = most.max(shared.memory.used());
    }
    assert!(most > BUDGET / 2, "{most} bytes: nothing was tested");
    assert!(most < BUDGET * 3 / 2, "{most} bytes of {BUDGET}");
    assert!(get(&stores[0], 4_000).unwrap().is_some());
    for store in stores {
        store.close().unwrap();
    }
    assert_eq!(shared.memory.used(), 0);
}

#[test]
fn a_store_that_is_dropped_or_erased_gives_its_share_back() {
    let disk = FaultyDisk::over_memory(&MemoryDisk::new());
    let shared = Shared::new(1 << 20, 1 << 20);
    let mut stores = open_many(&disk, 2, &settings(), &shared);
    for store in &stores {
        let op = put_op(1, &[1; 60]);
        drop(store.write(&[op], Durability::Buffered, NOW).unwrap());
    }
    let both = shared.memory.used();
    drop(stores.pop());
    assert_eq!(shared.memory.used(), both / 2);
    stores[0].erase().unwrap();
    assert_eq!(shared.memory.used(), 0);
}

#[test]
fn what_is_made_ahead_for_the_next_memtable_counts_while_it_is_empty() {
    let disk = FaultyDisk::over_memory(&MemoryDisk::new());
    let shared = Shared::new(1 << 20, 1 << 20);
    let settings = LsmSettings {
        memtable_bytes: 1 << 20,
        ..settings()
    };
    let stores = open_many(&disk, 1, &settings, &shared);
    let filled = |copy: &str| {
        (0..2_000).for_each(|number| put(&stores[0], number, b"value"));
        // A copy consists of tables alone, and so begins with a flush.
        stores[0].backup(Path::new(copy)).unwrap();
        shared.memory.used()
    };
    let ahead = filled("first");
    assert!(ahead > 2_000 * 8, "{ahead} bytes");
    assert_eq!(filled("second"), ahead);
    drop(stores);
    assert_eq!(shared.memory.used(), 0);
}
