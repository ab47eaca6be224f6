//! A level below 0 with overlapping tables. No store writes one, but a wrong manifest with a right
//! checksum could list one. The store is not opened, and is repaired by the sequences of the
//! entries.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use kvorum_backend::{
    Durability, ErrorKind, Fields, FoldFilter, Lease, Lookup, ReadAt, Reading, StepBudget,
    Timestamp, Written,
};
use kvorum_disk::{CrashOptions, Disk, MemoryDisk, OpenMode};
use kvorum_lsm::manifest;
use kvorum_lsm::policy::PolicySettings;
use kvorum_lsm::{
    Body, Lsm, LsmSettings, Op, ScanRange, ScanStep, Shared, TreeEntry, TreeView, Value,
};

use crate::{Repair, RepairOptions, RepairReport, RepairVerdict};

const NOW: Timestamp = Timestamp(1_000);
const STORE: &str = "store";
const KEYS: usize = 90;

type Map = BTreeMap<Bytes, Bytes>;

fn settings() -> LsmSettings {
    LsmSettings {
        memtable_bytes: 4_000,
        block_bytes: 300,
        index_block_bytes: 200,
        blob_threshold_bytes: 400,
        policy: PolicySettings {
            levels: 4,
            level_zero_tables: 2,
            base_bytes: 6_000,
            multiplier: 3,
            table_bytes_max: 3_000,
            ..PolicySettings::default()
        },
        ..LsmSettings::default()
    }
}

fn open(disk: &MemoryDisk) -> kvorum_backend::Result<Lsm> {
    let shared = Shared::new(1 << 20, 1 << 30);
    let state = AtomicU64::new(11);
    let draw = Arc::new(move || state.fetch_add(1, Ordering::Relaxed));
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Lsm::open(disk, Path::new(STORE), settings(), shared, draw, None)
}

fn key(number: usize) -> Bytes {
    Bytes::from(format!("key {number:04}"))
}

fn put(number: usize, round: usize) -> Op {
    // Some bodies go to blob files.
    let times = if number.is_multiple_of(5) { 90 } else { 8 };
    let body = format!("{round} {number} ").repeat(times);
    Op::Put {
        key: key(number),
        value: Value {
            fields: Fields::default(),
            extra: Bytes::new(),
            head: Bytes::from_static(b"head"),
            body: Body::Inline(body.into()),
        },
    }
}

fn write(store: &Lsm, op: Op) {
    let _receipt = store.write(&[op], Durability::Buffered, NOW).unwrap();
}

fn do_all(store: &Lsm) {
    while let Some(task) = store.maintenance_due(NOW).into_iter().next() {
        let budget = StepBudget { bytes: 5_000 };
        while !store.maintenance_step(&task, budget, NOW).unwrap().is_done {}
    }
}

fn everything(store: &Lsm) -> Map {
    let all = ScanRange {
        from: Bound::Unbounded,
        to: Bound::Unbounded,
    };
    let mut seen = Map::new();
    let snapshot = store.snapshot(Lease::Unlimited);
    let scanned = snapshot.scan(&all, &FoldFilter::unexpired(NOW), &mut |shown| {
        if let Ok(body) = shown.body() {
            seen.insert(Bytes::copy_from_slice(shown.key()), body);
        }
        ScanStep::Next
    });
    scanned.unwrap();
    seen
}

/// A store with tables on several levels, and a manifest with all of them on one.
fn overlapping(level: u64) -> (MemoryDisk, Map) {
    let disk = MemoryDisk::new();
    let store = open(&disk).unwrap();
    for round in 0..4 {
        let rewritten = (0..KEYS).filter(|it| round == 0 || (it + round) % 4 != 0);
        rewritten.for_each(|number| write(&store, put(number, round)));
        do_all(&store);
    }
    let removed = (0..KEYS).filter(|it| it % 7 == 5);
    removed.for_each(|number| write(&store, Op::Remove { key: key(number) }));
    let (from, to) = (key(40), key(50));
    write(&store, Op::RemoveRange { from, to });
    let again = (0..KEYS).filter(|it| it % 11 == 3);
    again.for_each(|number| write(&store, put(number, 9)));
    store.close().unwrap();
    let expected = everything(&open(&disk).unwrap());
    let found = manifest::read_in(&disk, Path::new(STORE)).unwrap();
    let mut manifest = found.content.unwrap();
    let levels: Vec<u64> = manifest.tables.iter().map(|it| it.level).collect();
    assert!(levels.contains(&0) && levels.iter().any(|it| *it > 0));
    manifest.generation += 1;
    manifest.tables.iter_mut().for_each(|it| it.level = level);
    let written = manifest::write(&disk, Path::new(STORE), &manifest);
    assert!(matches!(written, Written::Both));
    (disk, expected)
}

fn repair(disk: &MemoryDisk) -> kvorum_backend::Result<RepairReport> {
    let options = RepairOptions {
        unit_bytes: 4_000,
        settings: settings(),
        ..RepairOptions::default()
    };
    let repair = Repair::begin(Arc::new(disk.clone()), Path::new(STORE), options)?;
    loop {
        for unit in repair.units() {
            repair.run(unit, &|_| {})?;
        }
        if !repair.next_stage()? {
            return Ok(repair.report());
        }
    }
}

#[test]
fn overlapping_tables_are_not_opened_and_repaired_to_what_they_hold() {
    for level in [1, 3] {
        let (disk, expected) = overlapping(level);
        let refused = open(&disk).err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::Corrupt);
        assert!(refused.to_string().contains("overlap"), "{refused}");
        let report = repair(&disk).unwrap();
        assert_eq!(report.verdict, RepairVerdict::Repaired);
        let why = report.rebuilt.as_deref().unwrap();
        assert_eq!(why, format!("tables of level {level} overlap"));
        assert!(report.doubts.is_empty() && report.bodiless.is_empty());
        assert_eq!(repair(&disk).unwrap().verdict, RepairVerdict::Sound);
        let store = open(&disk).unwrap();
        assert_eq!(everything(&store), expected);
        assert_eq!(
            store
                .status(&ScanRange {
                    from: Bound::Unbounded,
                    to: Bound::Unbounded
                })
                .lost,
            []
        );
        (0..KEYS).for_each(|number| write(&store, put(number, 10)));
        do_all(&store);
        assert_eq!(everything(&store).len(), KEYS);
    }
}

/// A damaged block may have had the newest entries: no older entries of its keys are served.
#[test]
fn of_overlapping_tables_with_damage_nothing_older_is_served() {
    let (whole, expected) = overlapping(1);
    let entries = whole.list(Path::new(STORE)).unwrap().into_iter();
    let tables: Vec<_> = entries.filter(|it| it.name.ends_with(".sst")).collect();
    let mut lost = 0;
    for table in tables {
        let path = Path::new(STORE).join(table.name);
        let len = whole.info(&path).unwrap().unwrap().len;
        for at in (60..len).step_by(997) {
            let disk = whole.crash_image(CrashOptions::everything());
            let file = disk.open(&path, OpenMode::ReadWrite).unwrap();
            file.write_at(&[0xa5; 3], at).unwrap();
            let report = repair(&disk).unwrap();
            let store = open(&disk).unwrap();
            for number in 0..KEYS {
                let at = ReadAt {
                    reading: Reading::MayBlock,
                    now: NOW,
                };
                let name = key(number);
                match store.get(&name, at) {
                    Ok(Lookup::Found((_, _, body))) => {
                        assert_eq!(Some(&body), expected.get(&name), "{path:?} {at:?}");
                    }
                    Ok(_) => assert!(!expected.contains_key(&name), "{name:?} {report:?}"),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Corrupt);
                        let mut doubts = report.doubts.iter();
                        assert!(doubts.any(|it| it.from <= name && name < it.to));
                        lost += 1;
                    }
                }
            }
        }
    }
    assert!(lost > 0);
}

#[test]
fn a_repair_of_overlapping_tables_that_is_killed_goes_on() {
    let (broken, expected) = overlapping(2);
    let straight = broken.crash_image(CrashOptions::everything());
    let before = straight.operations();
    repair(&straight).unwrap();
    let operations = straight.operations() - before;
    for cut in (0..operations).step_by(3) {
        let disk = broken.crash_image(CrashOptions::everything());
        disk.cut_after(disk.operations() + cut);
        let _cut_somewhere = repair(&disk);
        let image = disk.crash_image(CrashOptions::drawn(cut));
        repair(&image).unwrap();
        assert_eq!(everything(&open(&image).unwrap()), expected, "{cut}");
    }
}
