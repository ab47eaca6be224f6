//! Openings: from the checkpoint, from hints, and from data; after a stop, a kill, a failed sync
//! and a full disk.

use std::path::{Path, PathBuf};

use kvorum_backend::{
    Backend, Batch, Durability, ErrorKind, Fields, Receipt, Sequence, StepBudget, Task, TaskKind,
};
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings};
use kvorum_disk::{
    CrashOptions, Disk, ErrorKind as DiskErrorKind, Fault, FaultyDisk, MemoryDisk, Operation, Rule,
    replace_file,
};

use crate::store::{
    NOW, body_of, do_all, folded, one_file_each, open, put, put_of, remove, try_open,
};

fn fill(store: &Bitcask) {
    for round in 0..4 {
        for name in 0..10 {
            put(store, &format!("key {name}"), &format!("round {round}"));
        }
        remove(store, "key 3");
    }
}

fn small() -> BitcaskSettings {
    BitcaskSettings {
        file_bytes_max: 1000,
        ..BitcaskSettings::default()
    }
}

#[test]
fn each_source_leads_to_the_same_store() {
    let disk = MemoryDisk::new();
    let store = open(&disk, small());
    fill(&store);
    do_all(&store, NOW);
    fill(&store);
    let expected = folded(&store, NOW);
    assert_eq!(expected.len(), 9);
    let (live, keys) = (store.status().live_bytes, store.status().keys);
    store.close().unwrap();
    drop(store);
    let directory = Path::new("store");
    for removed in ["", "checkpoint", ".hint"] {
        for entry in disk.list(directory).unwrap() {
            if !removed.is_empty() && entry.name.ends_with(removed) {
                disk.remove_file(&directory.join(&entry.name)).unwrap();
            }
        }
        let image = disk.crash_image(CrashOptions::everything());
        let store = open(&image, small());
        assert_eq!(folded(&store, NOW), expected, "without {removed}");
        let status = store.status();
        assert_eq!(
            (status.live_bytes, status.keys),
            (live, keys),
            "without {removed}"
        );
        assert!(status.lost.is_empty());
        assert_eq!(store.durable(), Sequence(88));
    }
}

/// Version 0.1.0 wrote hints in a layout of their own.
#[test]
fn hints_of_an_earlier_version_are_written_again_without_a_word() {
    let write_hints = |store: &Bitcask| {
        let is_hint = |task: &Task| task.kind == TaskKind::Hint;
        while let Some(task) = store.maintenance_due(NOW).into_iter().find(is_hint) {
            let budget = StepBudget { bytes: 1 << 20 };
            let _outcome = store.maintenance_step(&task, budget, NOW).unwrap();
        }
    };
    let hints = |disk: &MemoryDisk| -> Vec<PathBuf> {
        let entries = disk.list(Path::new("store")).unwrap().into_iter();
        let hints = entries.filter(|it| it.name.ends_with(".hint"));
        hints.map(|it| Path::new("store").join(it.name)).collect()
    };
    let disk = MemoryDisk::new();
    let store = open(&disk, small());
    fill(&store);
    write_hints(&store);
    let expected = folded(&store, NOW);
    store.close().unwrap();
    drop(store);
    let before = hints(&disk);
    assert!(!before.is_empty());
    for hint in &before {
        replace_file(&disk, hint, b"KVbchint and what it said").unwrap();
    }
    for without in ["nothing", "checkpoint"] {
        let image = disk.crash_image(CrashOptions::everything());
        image.remove_file(&Path::new("store").join(without)).ok();
        let store = open(&image, small());
        assert_eq!(hints(&image), Vec::<PathBuf>::new());
        assert_eq!(folded(&store, NOW), expected);
        assert!(store.status().lost.is_empty());
        write_hints(&store);
        assert_eq!(hints(&image), before);
        assert_eq!(folded(&store, NOW), expected);
    }
}

#[test]
fn a_clean_stop_reads_no_data_when_it_is_opened_again() {
    let memory = MemoryDisk::new();
    let store = open(&memory, small());
    fill(&store);
    do_all(&store, NOW);
    store.close().unwrap();
    drop(store);
    let disk = FaultyDisk::over_memory(&memory);
    let store = open(&disk, small());
    let segment_bytes: usize = disk
        .log()
        .iter()
        .filter(|it| it.operation == Operation::Read)
        .filter(|it| it.path.extension().is_some_and(|it| it == "segment"))
        .map(|it| it.bytes)
        .sum();
    let per_segment = 32 + 64 + 32;
    let files = usize::try_from(store.status().files).unwrap();
    assert!(
        segment_bytes <= files * per_segment,
        "{segment_bytes} of {files}"
    );
}

#[test]
fn a_store_is_opened_once_at_a_time() {
    let disk = MemoryDisk::new();
    let store = open(&disk, small());
    let second = try_open(&disk, small());
    assert_eq!(second.err().map(|it| it.kind()), Some(ErrorKind::Locked));
    store.close().unwrap();
    open(&disk, small());
}

/// A sync that fails once and then succeeds may have lost its data: nothing is acknowledged
/// afterwards, and an opening rewrites the pages that the page cache still has.
#[test]
fn r29_after_a_failed_sync_nothing_is_acknowledged_until_the_store_is_opened_again() {
    let memory = MemoryDisk::new();
    let disk = FaultyDisk::over_memory(&memory);
    let store = open(&disk, small());
    put(&store, "a", "1");
    let device = Fault::Error(DiskErrorKind::Device);
    disk.add_rule(Rule::new(device).on(Operation::Sync).nth(1));
    let batch = Batch::of(put_of("b", "1", Fields::default()));
    let receipt = store.put(&batch, Durability::Grouped).unwrap();
    assert_eq!(receipt.wait().unwrap_err().kind(), ErrorKind::Failed);
    for durability in [Durability::Grouped, Durability::Buffered] {
        let refused = store.put(&batch, durability);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Failed);
    }
    assert_eq!(body_of(&store, "a").as_deref(), Some("1"));
    drop(store);
    let store = open(&disk, small());
    put(&store, "c", "1");
    drop(store);
    memory.crash(CrashOptions::nothing_unsynced());
    let store = open(&memory, small());
    let keys: Vec<String> = folded(&store, NOW)
        .into_iter()
        .map(|(key, _)| key)
        .collect();
    assert_eq!(keys, ["a", "b", "c"]);
}

#[test]
fn r29_what_an_opening_could_not_sync_is_written_again_by_the_next() {
    let memory = MemoryDisk::new();
    let disk = FaultyDisk::over_memory(&memory);
    {
        let store = open(&disk, small());
        let batch = Batch::of(put_of("a", "1", Fields::default()));
        let _not_synced = store.put(&batch, Durability::Buffered).unwrap();
    }
    let device = Fault::Error(DiskErrorKind::Device);
    disk.add_rule(Rule::new(device).on(Operation::Sync));
    assert!(try_open(&disk, small()).is_err());
    disk.heal();
    let store = open(&disk, small());
    store.sync().unwrap();
    drop(store);
    memory.crash(CrashOptions::nothing_unsynced());
    assert_eq!(body_of(&open(&memory, small()), "a").as_deref(), Some("1"));
}

#[test]
fn r28_a_full_disk_refuses_puts_serves_reads_and_resumes_by_itself() {
    let memory = MemoryDisk::new();
    let disk = FaultyDisk::over_memory(&memory);
    let store = open(&disk, one_file_each());
    put(&store, "a", "1");
    let full = Rule::new(Fault::Error(DiskErrorKind::NoSpace)).on(Operation::Write);
    disk.add_rule(full.clone());
    let batch = Batch::of(put_of("b", "1", Fields::default()));
    for _ in 0..3 {
        let refused = store.put(&batch, Durability::Grouped);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Full);
    }
    assert_eq!(body_of(&store, "a").as_deref(), Some("1"));
    store.close().unwrap();
    drop(store);
    let store = open(&disk, one_file_each());
    assert_eq!(body_of(&store, "a").as_deref(), Some("1"));
    disk.heal();
    put(&store, "b", "2");
    drop(store);
    let store = open(&disk, one_file_each());
    assert_eq!(folded(&store, NOW).len(), 2);
    assert!(store.status().lost.is_empty());
}

#[test]
fn r23_a_grouped_put_is_acknowledged_after_its_sync_and_its_files_name() {
    let memory = MemoryDisk::new();
    let disk = FaultyDisk::over_memory(&memory);
    let store = open(&disk, one_file_each());
    disk.clear_log();
    put(&store, "a", "1");
    let log = disk.log();
    let of_segment = |operation| {
        move |it: &&kvorum_disk::LoggedOperation| {
            it.operation == operation && it.path.extension().is_some_and(|it| it == "segment")
        }
    };
    let record = log
        .iter()
        .filter(of_segment(Operation::Write))
        .nth(1)
        .unwrap();
    let synced = log.iter().rfind(of_segment(Operation::Sync)).unwrap();
    let named = log
        .iter()
        .find(|it| it.operation == Operation::SyncDirectory)
        .unwrap();
    assert!(named.number < record.number && record.number < synced.number);
    memory.crash(CrashOptions::nothing_unsynced());
    drop(store);
    assert_eq!(body_of(&open(&memory, small()), "a").as_deref(), Some("1"));
}

#[test]
fn an_erased_store_is_empty_and_another_one() {
    let disk = MemoryDisk::new();
    let store = open(&disk, small());
    fill(&store);
    do_all(&store, NOW);
    let identity = store.identity();
    store.erase().unwrap();
    assert_ne!(store.identity(), identity);
    assert!(folded(&store, NOW).is_empty());
    assert!(store.status().disk_bytes < 1000);
    put(&store, "new", "1");
    drop(store);
    disk.crash(CrashOptions::nothing_unsynced());
    let store = open(&disk, small());
    assert_eq!(folded(&store, NOW).len(), 1);
    assert_ne!(store.identity(), identity);
}

#[test]
fn a_checkpoint_taken_while_puts_and_merges_go_on_is_right() {
    use kvorum_backend::{StepBudget, Task, Urgency};
    let disk = MemoryDisk::new();
    let store = open(&disk, small());
    fill(&store);
    let checkpoint = Task {
        kind: TaskKind::Checkpoint,
        subject: 0,
        urgency: Urgency::Normal,
        cost_bytes: 0,
    };
    let mut number = 0;
    loop {
        let step = store.maintenance_step(&checkpoint, StepBudget { bytes: 1 }, NOW);
        if step.unwrap().is_done {
            break;
        }
        put(&store, &format!("key {}", number % 10), "later");
        if number % 5 == 0 {
            crate::store::do_task(&store, TaskKind::Hint, 1 + number / 5, NOW);
            crate::store::do_task(&store, TaskKind::Merge, 1 + number / 5, NOW);
        }
        number += 1;
    }
    assert!(number > 5, "the checkpoint took {number} steps");
    remove(&store, "key 5");
    let expected = folded(&store, NOW);
    drop(store);
    disk.crash(CrashOptions::nothing_unsynced());
    let store = open(&disk, small());
    for (name, body) in &expected {
        assert_eq!(body_of(&store, name).as_ref(), Some(body));
    }
    assert_eq!(store.status().keys, expected.len() as u64);
}

#[test]
fn a_put_that_rolls_waits_for_no_device_when_the_next_segment_was_prepared() {
    let memory = MemoryDisk::new();
    let disk = FaultyDisk::over_memory(&memory);
    let store = open(&disk, one_file_each());
    put(&store, "a", "1");
    do_all(&store, NOW);
    disk.clear_log();
    let batch = Batch::of(put_of("b", "1", Fields::default()));
    let _buffered = store.put(&batch, Durability::Buffered).unwrap();
    let waits = |operation| {
        matches!(
            operation,
            Operation::Sync | Operation::SyncDirectory | Operation::Open | Operation::Rename
        )
    };
    let waited: Vec<Operation> = disk
        .log()
        .iter()
        .map(|it| it.operation)
        .filter(|operation| waits(*operation))
        .collect();
    assert!(waited.is_empty(), "{waited:?}");
    assert_eq!(body_of(&store, "b").as_deref(), Some("1"));
}

#[test]
fn a_prepared_segment_is_used_by_the_next_opening_and_goes_with_an_erasure() {
    let disk = MemoryDisk::new();
    let segments = || {
        let names = disk.list(Path::new("store")).unwrap().into_iter();
        names.filter(|it| it.name.ends_with(".segment")).count()
    };
    let store = open(&disk, small());
    while segments() < 2 {
        put(&store, "a", "1");
        do_all(&store, NOW);
    }
    let held = store.status().files;
    drop(store);
    disk.crash(CrashOptions::nothing_unsynced());
    let store = open(&disk, small());
    assert_eq!((store.status().files, segments()), (held, 2));
    assert!(do_all(&store, NOW).is_empty(), "nothing is retired early");
    for name in 0..20 {
        put(&store, &format!("key {name}"), "1");
    }
    assert!(segments() > 2);
    do_all(&store, NOW);
    store.erase().unwrap();
    assert_eq!(segments(), 0);
}

#[test]
fn places_are_used_again_once_nobody_can_mean_what_had_them() {
    let disk = MemoryDisk::new();
    let mut settings = small();
    settings.merge.small_file_threshold_bytes = 500;
    let store = open(&disk, settings.clone());
    let body = |round: u32, name: u32| format!("{round} {name} {}", "x".repeat(100));
    for round in 0..60 {
        let snapshot = store.snapshot(kvorum_backend::Lease::Unlimited).unwrap();
        for name in 0..8 {
            put(&store, &format!("key {name}"), &body(round, name));
        }
        do_all(&store, NOW);
        drop(snapshot);
    }
    for name in 0..8 {
        assert_eq!(
            body_of(&store, &format!("key {name}")),
            Some(body(59, name))
        );
    }
    drop(store);
    let store = open(&disk, settings);
    for name in 0..8 {
        assert_eq!(
            body_of(&store, &format!("key {name}")),
            Some(body(59, name))
        );
    }
    assert!(store.status().lost.is_empty());
    assert_eq!(store.status().corrupt_reads, 0);
}

/// A slot in a checkpoint refers to a segment by its place. If the place were given to another
/// segment before the checkpoint was finished, the slot would refer to a record there.
#[test]
fn places_mean_one_segment_each_for_as_long_as_a_checkpoint_is_written() {
    use kvorum_backend::{StepBudget, Task, Urgency};
    let disk = MemoryDisk::new();
    let store = open(&disk, one_file_each());
    for name in ["a", "b", "c", "d", "e"] {
        put(&store, name, "1");
    }
    let checkpoint = Task {
        kind: TaskKind::Checkpoint,
        subject: 0,
        urgency: Urgency::Normal,
        cost_bytes: 0,
    };
    let step = || {
        let step = store.maintenance_step(&checkpoint, StepBudget { bytes: 1 }, NOW);
        step.unwrap().is_done
    };
    assert!(!step() && !step() && !step());
    for file in 1..=4 {
        crate::store::do_task(&store, TaskKind::Hint, file, NOW);
        crate::store::do_task(&store, TaskKind::Merge, file, NOW);
    }
    for name in ["f", "g", "h", "i"] {
        put(&store, name, "1");
    }
    while !step() {}
    drop(store);
    disk.crash(CrashOptions::nothing_unsynced());
    let store = open(&disk, one_file_each());
    assert_eq!(store.status().keys, 9);
    assert_eq!(folded(&store, NOW).len(), 9);
    assert_eq!(store.status().corrupt_reads, 0);
}

/// Otherwise puts would wait for the device. Openings must not leave one more segment each time.
#[test]
fn upkeep_makes_the_first_segment_of_a_store_once() {
    let disk = MemoryDisk::new();
    let segments = || {
        let names = disk.list(Path::new("store")).unwrap().into_iter();
        let is_segment = |name: &str| name.ends_with(".segment");
        names.filter(|it| is_segment(&it.name)).count()
    };
    for _ in 0..3 {
        let store = open(&disk, BitcaskSettings::default());
        do_all(&store, NOW);
        assert_eq!(segments(), 1);
    }
    let store = open(&disk, BitcaskSettings::default());
    do_all(&store, NOW);
    put(&store, "a", "1");
    assert_eq!(segments(), 1);
    store.erase().unwrap();
    assert_eq!(segments(), 0);
    do_all(&store, NOW);
    put(&store, "a", "2");
    assert_eq!(segments(), 1);
    assert_eq!(body_of(&store, "a").as_deref(), Some("2"));
}

/// On a full disk, for example: a task that changes its name after each failure is retried without
/// a pause.
#[test]
fn a_first_segment_that_cannot_be_made_stays_the_same_task() {
    let disk = FaultyDisk::over_memory(&MemoryDisk::new());
    let store = open(&disk, BitcaskSettings::default());
    let rule = Rule::new(Fault::Error(DiskErrorKind::NoSpace)).on(Operation::Open);
    disk.add_rule(rule.path_contains(".segment"));
    let due = || store.maintenance_due(NOW);
    let before = due();
    assert_eq!(before.len(), 1);
    let step = store.maintenance_step(&before[0], kvorum_backend::StepBudget { bytes: 1 }, NOW);
    assert!(step.is_err());
    assert_eq!(due(), before);
    disk.heal();
    do_all(&store, NOW);
    put(&store, "a", "1");
}

/// Regression: the new identity was in the first copy and not in memory, and the next opening
/// removed puts under the old identity as erased.
#[test]
fn what_is_taken_behind_an_erasure_that_failed_half_way_is_there_later() {
    let mut taken_count = 0;
    for kind in [DiskErrorKind::NoSpace, DiskErrorKind::Device] {
        for operation in [Operation::Write, Operation::Rename] {
            for name in ["store-0", "store-1"] {
                let story = format!("{operation:?} of {name} fails: {kind:?}");
                let memory = MemoryDisk::new();
                let disk = FaultyDisk::over_memory(&memory);
                let store = open(&disk, BitcaskSettings::default());
                put(&store, "before", "1");
                let failing = Rule::new(Fault::Error(kind)).on(operation);
                disk.add_rule(failing.path_contains(name));
                let erased = store.erase();
                disk.heal();
                let after = Batch::of(put_of("after", "2", Fields::default()));
                let put = store.put(&after, Durability::Grouped);
                let taken = put.and_then(Receipt::wait);
                drop(store);
                let store = open(&memory, BitcaskSettings::default());
                taken_count += usize::from(taken.is_ok());
                if taken.is_ok() {
                    assert_eq!(body_of(&store, "after").as_deref(), Some("2"), "{story}");
                }
                if erased.is_ok() {
                    assert_eq!(body_of(&store, "before"), None, "{story}");
                }
            }
        }
    }
    assert!(taken_count >= 2, "{taken_count} puts were taken");
}

/// Regression: a store did not open, since it wrote both copies of its identity before anything
/// else.
#[test]
fn r28_a_store_with_one_copy_of_its_identity_opens_on_a_full_disk() {
    for name in ["store-0", "store-1"] {
        let memory = MemoryDisk::new();
        put(&open(&memory, BitcaskSettings::default()), "before", "1");
        memory.remove_file(&Path::new("store").join(name)).unwrap();
        let full = FaultyDisk::over_memory(&memory);
        let no_space = Fault::Error(DiskErrorKind::NoSpace);
        full.add_rule(Rule::new(no_space).on(Operation::Write));
        let store = open(&full, BitcaskSettings::default());
        assert_eq!(body_of(&store, "before").as_deref(), Some("1"), "{name}");
        full.heal();
        put(&store, "after", "2");
        drop(store);
        memory.crash(CrashOptions::nothing_unsynced());
        let store = open(&memory, BitcaskSettings::default());
        let bodies = ["before", "after"].map(|it| body_of(&store, it));
        assert_eq!(bodies, [Some("1".to_owned()), Some("2".to_owned())]);
    }
}
