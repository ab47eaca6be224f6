//! Merges of any files in any order: removed keys do not return, and snapshots do not change.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests stop at any failure, as tests do"
)]

use kvorum_backend::{
    Backend, Batch, Durability, Fields, Flow, FoldDetail, FoldFilter, FoldRange, Lease, StepBudget,
    Task, TaskKind, Timestamp, Urgency, Write,
};
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings, SyncStrategy};
use std::path::Path;
use std::time::Duration;

use kvorum_disk::{CrashOptions, Disk, ErrorKind, Fault, FaultyDisk, MemoryDisk, Operation, Rule};

use crate::store::{
    NOW, body_of, do_all, do_task, folded, key, one_file_each, open, put, put_of, remove,
};

const FILES: u64 = 4;

/// Bitcask issue 82: a merge of some files dropped a removal while an older value was in an
/// unmerged file, and a restart brought the value back.
#[test]
fn r13_no_subset_of_files_merged_in_any_order_brings_a_removed_key_back() {
    for script in 0..1u64 << FILES {
        for order in ordered_subsets() {
            for restarts in [false, true] {
                check_merges(script, &order, restarts);
            }
        }
    }
}

/// Bit n of `script` selects a put or a removal of the key for file n.
fn check_merges(script: u64, order: &[u64], restarts: bool) {
    let disk = MemoryDisk::new();
    let mut store = open(&disk, one_file_each());
    let mut expected = None;
    for file in 0..FILES {
        if script >> file & 1 == 1 {
            let body = format!("value {file}");
            put(&store, "k", &body);
            expected = Some(body);
        } else {
            remove(&store, "k");
            expected = None;
        }
    }
    put(&store, "other", "x");
    for file in order {
        do_task(&store, TaskKind::Hint, *file, NOW);
        do_task(&store, TaskKind::Merge, *file, NOW);
        if restarts {
            drop(store);
            disk.crash(CrashOptions::nothing_unsynced());
            store = open(&disk, one_file_each());
        }
        let found = body_of(&store, "k");
        assert_eq!(found, expected, "script {script:b}, {order:?}");
    }
    let shown: Vec<String> = folded(&store, NOW)
        .into_iter()
        .map(|(key, _)| key)
        .collect();
    let both: &[&str] = if expected.is_some() {
        &["k", "other"]
    } else {
        &["other"]
    };
    assert_eq!(shown, both, "script {script:b}, {order:?}");
    drop(store);
    let store = open(&disk, one_file_each());
    assert_eq!(
        body_of(&store, "k"),
        expected,
        "script {script:b}, {order:?}"
    );
    assert!(store.status().lost.is_empty());
}

fn ordered_subsets() -> Vec<Vec<u64>> {
    let mut all = vec![Vec::new()];
    let mut start = 0;
    while start < all.len() {
        let shorter: Vec<u64> = all[start].clone();
        for file in (1..=FILES).filter(|file| !shorter.contains(file)) {
            let mut longer = shorter.clone();
            longer.push(file);
            all.push(longer);
        }
        start += 1;
    }
    all
}

pub(crate) const SIX: u64 = 6;

fn script_name(script: u64) -> String {
    format!("{script:06b}")
}

/// All possible contents of this many files for a key, in one store: bit n of a key's script selects
/// a put or a removal for file n.
pub(crate) fn scripted_files(disk: &MemoryDisk, files: u64) {
    // Each batch of all keys has its own file.
    let store = open(disk, one_file_each());
    for file in 0..files {
        let writes = (0..1u64 << files).map(|script| match script >> file & 1 {
            1 => put_of(&script_name(script), &file.to_string(), Fields::default()),
            _ => Write::remove(key(&script_name(script))),
        });
        let batch = Batch {
            writes: writes.collect(),
        };
        let receipt = store.put(&batch, Durability::Grouped).unwrap();
        receipt.wait().unwrap();
    }
    put(&store, "other", "x");
    (1..=files).for_each(|file| do_task(&store, TaskKind::Hint, file, NOW));
    store.sync().unwrap();
}

/// Keys with the newest values of all scripts, as folds show them.
pub(crate) fn expected_of_scripted(files: u64) -> Vec<(String, String)> {
    let last = files - 1;
    let live = (0..1u64 << files).filter(|script| script >> last & 1 == 1);
    let live = live.map(|script| (script_name(script), last.to_string()));
    live.chain([("other".to_owned(), "x".to_owned())]).collect()
}

fn merge_at_once(store: &Bitcask, file: u64) {
    let task = Task {
        kind: TaskKind::Merge,
        subject: file,
        urgency: Urgency::Normal,
        cost_bytes: 0,
    };
    let budget = StepBudget { bytes: u64::MAX };
    let step = store.maintenance_step(&task, budget, NOW);
    assert!(step.unwrap().is_done);
}

/// Merges one more of the files in every possible way, after a crash each time. Returns the number
/// of merges.
fn merge_on(before: &MemoryDisk, merged: &mut Vec<u64>, expected: &[(String, String)]) -> u64 {
    let mut merges = 0;
    for file in (1..=SIX).rev() {
        if merged.contains(&file) {
            continue;
        }
        merged.push(file);
        let disk = before.crash_image(CrashOptions::nothing_unsynced());
        let store = open(&disk, one_file_each());
        merge_at_once(&store, file);
        assert_eq!(folded(&store, NOW), expected, "{merged:?}");
        assert!(store.status().lost.is_empty());
        drop(store);
        merges += 1 + merge_on(&disk, merged, expected);
        merged.pop();
    }
    merges
}

/// The same for every order of every subset of six files, every script at once, and a crash after
/// each merge.
#[test]
fn r13_no_subset_of_six_files_merged_in_any_order_with_crashes_brings_a_removed_key_back() {
    let disk = MemoryDisk::new();
    scripted_files(&disk, SIX);
    let merges = merge_on(&disk, &mut Vec::new(), &expected_of_scripted(SIX));
    // Every ordered subset but the empty one.
    assert_eq!(merges, 1956);
}

#[test]
fn a_removal_goes_when_nothing_is_left_for_it_to_hide() {
    let disk = MemoryDisk::new();
    let store = open(&disk, one_file_each());
    put(&store, "k", "old");
    remove(&store, "k");
    put(&store, "other", "x");
    let removals = |store: &Bitcask| {
        let details = store.status().details;
        let found = details.into_iter().find(|(name, _)| *name == "removals");
        found.map(|(_, count)| count)
    };
    for file in [1, 2] {
        do_task(&store, TaskKind::Hint, file, NOW);
    }
    do_task(&store, TaskKind::Merge, 2, NOW);
    assert_eq!(
        removals(&store).as_deref(),
        Some("1"),
        "the value is still there"
    );
    do_task(&store, TaskKind::Merge, 1, NOW);
    let copied = 4;
    store.close().unwrap();
    drop(store);
    let store = open(&disk, one_file_each());
    do_task(&store, TaskKind::Merge, copied, NOW);
    assert_eq!(removals(&store).as_deref(), Some("0"));
}

#[test]
fn r14_a_snapshot_shows_its_moment_while_its_files_are_merged_away() {
    let disk = MemoryDisk::new();
    let store = open(&disk, one_file_each());
    for (name, body) in [("a", "1"), ("b", "1"), ("c", "1"), ("a", "2")] {
        put(&store, name, body);
    }
    remove(&store, "b");
    let before = folded(&store, NOW);
    let snapshot = store.snapshot(Lease::Unlimited).unwrap();
    put(&store, "a", "3");
    put(&store, "b", "3");
    remove(&store, "c");
    put(&store, "d", "3");
    do_all(&store, NOW);
    for file in 1..=8 {
        do_task(&store, TaskKind::Merge, file, NOW);
    }
    assert!(store.status().pinned_bytes > 0);
    let mut seen = Vec::new();
    let end = snapshot.fold(
        FoldDetail::Entries,
        &FoldRange::all(),
        &FoldFilter::unexpired(NOW),
        &mut |visited| {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            seen.push((text(visited.key.as_bytes()), text(&visited.body)));
            Flow::Continue
        },
    );
    end.unwrap();
    assert_eq!(seen, before);
    assert_eq!(seen.len(), 2);
    drop(snapshot);
    assert_eq!(store.status().pinned_bytes, 0);
    let now: Vec<String> = folded(&store, NOW)
        .into_iter()
        .map(|(key, _)| key)
        .collect();
    assert_eq!(now, ["a", "b", "d"]);
}

/// Regression: after a clock was set back by an hour, nothing was synced for an hour.
#[test]
fn what_is_synced_by_interval_is_synced_on_a_clock_that_is_set_back() {
    let settings = BitcaskSettings {
        sync: SyncStrategy::Interval(Duration::from_secs(1)),
        ..BitcaskSettings::default()
    };
    let store = open(&MemoryDisk::new(), settings);
    let batch = Batch::of(put_of("k", "body", Fields::default()));
    let _receipt = store.put(&batch, Durability::Buffered).unwrap();
    let is_due = |seconds: u64| {
        let now = Timestamp(NOW.0 + seconds * 1_000_000);
        let due = store.maintenance_due(now);
        due.iter().any(|it| it.kind == TaskKind::Sync)
    };
    assert!(!is_due(3_600));
    assert!(!is_due(0));
    assert!(is_due(1));
}

#[test]
fn overwriting_keeps_the_disk_bounded_and_upkeep_comes_to_an_end() {
    let disk = MemoryDisk::new();
    let mut settings = one_file_each();
    settings.file_bytes_max = 4096;
    settings.checkpoint_after_bytes = 16 << 10;
    settings.merge.small_file_threshold_bytes = 1024;
    let store = open(&disk, settings.clone());
    let body = "x".repeat(100);
    for round in 0..50 {
        for name in ["a", "b", "c", "d", "e", "f", "g", "h"] {
            put(&store, name, &format!("{body}{round}"));
        }
        do_all(&store, NOW);
    }
    let status = store.status();
    assert_eq!(status.keys, 8);
    assert!(status.disk_bytes < 20_000, "{status:?}");
    store.close().unwrap();
    drop(store);
    let store = open(&disk, settings);
    assert_eq!(body_of(&store, "h"), Some(format!("{body}49")));
    assert_eq!(store.status().live_bytes, status.live_bytes);
}

/// Regression: small stores on a disk with room wrote a file for every 256 KiB, each with a hint
/// file. A put took up to half more processor time.
#[test]
fn a_store_with_little_has_few_files() {
    let disk = MemoryDisk::new();
    let store = open(&disk, BitcaskSettings::default());
    let body = "x".repeat(32 << 10);
    for number in 0..128 {
        put(&store, &format!("key{number}"), &body);
        do_all(&store, NOW);
    }
    let listed = disk.list(Path::new("store")).unwrap();
    let is_data = |name: &str| name.ends_with(".segment") || name.ends_with(".hint");
    let files = listed.iter().filter(|it| is_data(&it.name)).count();
    // The active file, and the next if the active one is half full.
    assert!(files <= 2, "{listed:?}");
}

/// A sector that stays unreadable prevents the merge of its segment, and of no other.
#[test]
fn a_segment_that_cannot_be_read_holds_up_no_other_merge() {
    let memory = MemoryDisk::new();
    let mut settings = one_file_each();
    settings.file_bytes_max = 4_000;
    settings.merge.store_garbage_trigger_percent = 30;
    settings.merge.small_file_threshold_bytes = 100;
    let big = |round: usize| format!("{round} ").repeat(100);
    {
        let store = open(&memory, settings.clone());
        for number in 0..60 {
            put(&store, &format!("key{number:02}"), &big(0));
        }
        do_all(&store, NOW);
    }
    let first = Path::new("store/0000000001.segment");
    let len = memory.info(first).unwrap().unwrap().len;
    let disk = FaultyDisk::over_memory(&memory);
    let store = open(&disk, settings.clone());
    let device = Rule::new(Fault::Error(ErrorKind::Device)).on(Operation::Read);
    disk.add_rule(device.path(first).over(len - 1..len));
    // All but two keys of every file are garbage, including files written meanwhile.
    for round in 1..8 {
        let changed = (0..60).filter(|number| number % 5 > 0);
        changed.for_each(|number| {
            put(&store, &format!("key{number:02}"), &big(round));
        });
        for _ in 0..20 {
            for task in store.maintenance_due(NOW) {
                let budget = StepBudget { bytes: 2_000 };
                while store
                    .maintenance_step(&task, budget, NOW)
                    .is_ok_and(|step| !step.is_done)
                {}
            }
        }
    }
    let status = store.status();
    assert!(
        status.garbage_bytes < 2 * len && status.disk_bytes < 3 * status.live_bytes,
        "{status:?}"
    );
    assert!(memory.info(first).unwrap().is_some());
    drop(store);
    let store = open(&memory, settings);
    do_all(&store, NOW);
    for number in 0..60 {
        let round = if number % 5 > 0 { 7 } else { 0 };
        let body = body_of(&store, &format!("key{number:02}"));
        assert_eq!(body, Some(big(round)), "{number}");
    }
    assert!(memory.info(first).unwrap().is_none());
}
