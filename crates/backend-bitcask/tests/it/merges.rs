//! Merges of any files in any order: removed keys stay away, snapshots keep what they saw.

use kvorum_backend::{Backend, Flow, FoldDetail, FoldFilter, FoldRange, Lease, TaskKind};
use kvorum_backend_bitcask::Bitcask;
use kvorum_disk::{CrashOptions, MemoryDisk};

use crate::store::{NOW, body_of, do_all, do_task, folded, one_file_each, open, put, remove};

const FILES: u64 = 4;

/// Bitcask issue 82: a merge of some files dropped a removal while an older value stood in a file that
/// was not merged, and a restart brought the value back.
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

/// Bit n of `script` says whether file n holds a put or a removal of the key.
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
