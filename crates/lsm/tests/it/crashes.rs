//! The power is cut after each disk operation of a script: synced writes survive whole, and removed
//! keys do not return.

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use kvorum_backend::{Durability, ErrorKind};
use kvorum_disk::{CrashOptions, Disk, Fault, FaultyDisk, MemoryDisk, Operation, Rule};
use kvorum_lsm::policy::PolicySettings;
use kvorum_lsm::{Lsm, LsmSettings, Op};
use kvorum_tiers::Tiers;

use crate::support::{NOW, do_all, get, key, open, put, put_op, scanned, settings, try_open};

const KEYS: usize = 12;

/// Possible values of each key after a crash: the value at the last sync and every later value.
#[derive(Default)]
struct Allowed {
    values: BTreeMap<usize, Vec<Option<Vec<u8>>>>,
}

impl Allowed {
    fn put(&mut self, number: usize, value: Option<Vec<u8>>) {
        let values = self.values.entry(number).or_insert_with(|| vec![None]);
        values.push(value);
    }

    fn synced(&mut self) {
        for values in self.values.values_mut() {
            values.drain(..values.len() - 1);
        }
    }
}

/// Writes, flushes, merges and collects until the disk fails. Only synced writes are promised.
fn play(store: &Lsm, allowed: &mut Allowed) -> kvorum_backend::Result<()> {
    for round in 0..6usize {
        for number in 0..KEYS {
            let body = format!("{round} {number} ").repeat(1 + 20 * (number % 4));
            if (round + number) % 5 == 4 {
                allowed.put(number, None);
                let ops = [Op::Remove { key: key(number) }];
                let _receipt = store.write(&ops, Durability::Buffered, NOW)?;
            } else {
                allowed.put(number, Some(body.clone().into_bytes()));
                let ops = [put_op(number, body.as_bytes())];
                let _receipt = store.write(&ops, Durability::Buffered, NOW)?;
            }
        }
        store.sync()?;
        allowed.synced();
        for _ in 0..3 {
            for task in store.maintenance_due(NOW) {
                let budget = kvorum_backend::StepBudget { bytes: 1_500 };
                while !store.maintenance_step(&task, budget, NOW)?.is_done {}
            }
        }
    }
    store.close()
}

fn check(store: &Lsm, allowed: &Allowed, story: &str) {
    for (number, values) in &allowed.values {
        let got = get(store, *number).unwrap().map(|it| it.to_vec());
        assert!(values.contains(&got), "key {number} is {got:?} {story}");
    }
    let shown: Vec<Bytes> = scanned(store).into_iter().map(|(key, _)| key).collect();
    let got: Vec<Bytes> = (0..KEYS)
        .filter(|number| get(store, *number).unwrap().is_some())
        .map(key)
        .collect();
    assert_eq!(shown, got, "{story}");
}

/// Cuts the power after each `step`th operation.
fn sweep(settings: &LsmSettings, step: usize) {
    let whole = MemoryDisk::new();
    let store = open(&whole, settings.clone());
    play(&store, &mut Allowed::default()).unwrap();
    let operations = whole.operations();
    assert!(operations > 100, "{operations}");
    for cut in (0..operations).step_by(step) {
        let disk = MemoryDisk::new();
        disk.cut_after(cut);
        let mut allowed = Allowed::default();
        if let Ok(store) = try_open(&disk, settings.clone()) {
            let _cut_somewhere = play(&store, &mut allowed);
        }
        for options in [
            CrashOptions::nothing_unsynced(),
            CrashOptions::everything(),
            CrashOptions::drawn(cut),
        ] {
            let story = format!("after operation {cut} of {operations}, {options:?}");
            let image = disk.crash_image(options);
            let store = open(&image, settings.clone());
            check(&store, &allowed, &story);
            assert!(
                store.status(&crate::support::everything()).lost.is_empty(),
                "{story}"
            );
            let put = store.write(&[put_op(0, b"goes on")], Durability::Grouped, NOW);
            put.and_then(kvorum_backend::Receipt::wait).unwrap();
            drop(store);
            let again = image.crash_image(CrashOptions::nothing_unsynced());
            let got = get(&open(&again, settings.clone()), 0).unwrap();
            assert_eq!(got.as_deref(), Some(&b"goes on"[..]), "{story}");
        }
    }
}

#[test]
fn r26_a_power_cut_anywhere_leaves_a_store_that_opens() {
    sweep(&settings(), 1);
}

#[test]
fn over_two_directories_that_holds_after_operations_in_either() {
    let tiered = LsmSettings {
        tiers: Some(Tiers {
            slow_directory: "slow/store".into(),
            from_level: 2,
        }),
        policy: PolicySettings {
            base_bytes: 600,
            multiplier: 2,
            table_bytes_max: 700,
            ..settings().policy
        },
        memtable_bytes: 1_200,
        blob_threshold_bytes: 150,
        ..settings()
    };
    let whole = MemoryDisk::new();
    play(&open(&whole, tiered.clone()), &mut Allowed::default()).unwrap();
    let slow = whole.list(Path::new("slow/store")).unwrap();
    for suffix in [".sst", ".blob"] {
        assert!(slow.iter().any(|it| it.name.ends_with(suffix)), "{slow:?}");
    }
    sweep(&tiered, 5);
}

/// Operations that a full disk refuses: writing and allocating, or creating files.
const FULL: [&[Operation]; 2] = [&[Operation::Write, Operation::Allocate], &[Operation::Open]];

fn fill(disk: &FaultyDisk, operations: &[Operation]) {
    let no_space = Fault::Error(kvorum_disk::ErrorKind::NoSpace);
    for operation in operations {
        disk.add_rule(Rule::new(no_space).on(*operation));
    }
}

#[test]
fn r28_a_full_disk_refuses_puts_and_they_resume_when_there_is_room() {
    FULL.into_iter().for_each(fill_and_heal);
}

fn fill_and_heal(operations: &[Operation]) {
    let memory = MemoryDisk::new();
    let disk = FaultyDisk::over_memory(&memory);
    let store = open(&disk, settings());
    (0..30).for_each(|number| put(&store, number, &[1; 300]));
    store.sync().unwrap();
    let are_there = |store: &Lsm| {
        (0..30).for_each(|number| assert_eq!(get(store, number).unwrap().unwrap(), [1; 300][..]));
    };
    fill(&disk, operations);
    let put_durably = |number| {
        let ops = [put_op(number, &[2; 300])];
        let receipt = store.write(&ops, Durability::Grouped, NOW)?;
        receipt.wait()
    };
    // An open log takes puts even if no new file can be made.
    let mut taken = Vec::new();
    for number in 40..80 {
        match put_durably(number) {
            Ok(_) => taken.push(number),
            Err(refused) => assert_eq!(refused.kind(), ErrorKind::Full, "{refused}"),
        }
    }
    let needs_no_file = operations == FULL[1];
    assert_eq!(taken.len(), if needs_no_file { 40 } else { 0 });
    for task in store.maintenance_due(NOW) {
        let budget = kvorum_backend::StepBudget { bytes: u64::MAX };
        match store.maintenance_step(&task, budget, NOW) {
            Err(error) => assert_eq!(error.kind(), ErrorKind::Full, "{error}"),
            Ok(stepped) => assert!(stepped.is_done),
        }
    }
    are_there(&store);
    let other = memory.crash_image(CrashOptions::everything());
    let full = FaultyDisk::over_memory(&other);
    fill(&full, FULL[0]);
    are_there(&open(&full, settings()));
    disk.heal();
    put_durably(101).unwrap();
    taken.push(101);
    do_all(&store);
    are_there(&store);
    let image = memory.crash_image(CrashOptions::nothing_unsynced());
    let opened = open(&image, settings());
    are_there(&opened);
    for number in taken {
        assert_eq!(get(&opened, number).unwrap().unwrap(), [2; 300][..]);
    }
}

#[test]
fn r29_what_an_opening_could_not_sync_is_written_again_by_the_next() {
    let memory = MemoryDisk::new();
    let disk = FaultyDisk::over_memory(&memory);
    put(&open(&disk, settings()), 1, b"not synced");
    let device = Fault::Error(kvorum_disk::ErrorKind::Device);
    disk.add_rule(Rule::new(device).on(Operation::Sync));
    assert!(try_open(&disk, settings()).is_err());
    disk.heal();
    let store = open(&disk, settings());
    store.sync().unwrap();
    drop(store);
    let image = memory.crash_image(CrashOptions::nothing_unsynced());
    assert!(get(&open(&image, settings()), 1).unwrap().is_some());
}

#[test]
fn r29_after_a_failed_sync_nothing_is_acknowledged_until_it_is_opened_again() {
    let memory = MemoryDisk::new();
    let disk = FaultyDisk::over_memory(&memory);
    let store = open(&disk, settings());
    put(&store, 1, b"synced");
    store.sync().unwrap();
    put(&store, 2, b"not synced");
    let device = Fault::Error(kvorum_disk::ErrorKind::Device);
    disk.add_rule(Rule::new(device).on(Operation::Sync));
    assert!(store.sync().is_err());
    disk.heal();
    assert!(store.sync().is_err());
    let refused = store.write(&[put_op(3, b"x")], Durability::Grouped, NOW);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Failed);
    assert!(get(&store, 1).unwrap().is_some());
    drop(store);
    let store = open(&disk, settings());
    store.sync().unwrap();
    let shown = get(&store, 2).unwrap().is_some();
    let image = memory.crash_image(CrashOptions::nothing_unsynced());
    let after = open(&image, settings());
    assert!(get(&after, 1).unwrap().is_some());
    assert_eq!(get(&after, 2).unwrap().is_some(), shown);
}

#[test]
fn what_puts_pay_for_behind_a_manifest_that_was_half_written_costs_nothing() {
    let device = Fault::Error(kvorum_disk::ErrorKind::Device);
    let mut failed = 0;
    for nth in 1..12 {
        let memory = MemoryDisk::new();
        let disk = FaultyDisk::over_memory(&memory);
        let store = open(&disk, settings());
        let second = Rule::new(device).on(Operation::Rename);
        disk.add_rule(second.path_ends_with("manifest-1").nth(nth));
        // No upkeep runs, so that puts flush and merge.
        let is_taken = |number: &usize| {
            let ops = [put_op(*number, &[1; 9_000])];
            store.write(&ops, Durability::Buffered, NOW).is_ok()
        };
        let taken: Vec<usize> = (0..100).take_while(is_taken).collect();
        failed += usize::from(taken.len() < 100);
        drop(store);
        let opened = open(&memory, settings());
        for number in taken {
            let found = get(&opened, number).unwrap();
            assert!(found.is_some(), "{number} is lost, failure {nth}");
        }
    }
    assert!(failed > 8, "{failed} runs met a failure");
}
