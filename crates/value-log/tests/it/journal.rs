//! Leveled over its journal: collections write no table, removals stay as long as the entries that
//! they remove, and a lost ledger is rebuilt.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests stop at any failure, as tests do"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use kvorum_backend::{
    Backend, ErrorKind, Flow, FoldDetail, FoldEnd, FoldFilter, FoldRange, Lease, Lookup, ReadAt,
    Reading, Result, Visited,
};
use kvorum_backend_leveldb::Leveldb;
use kvorum_backend_leveled::repair::{Repair, RepairReport, RepairVerdict};
use kvorum_backend_leveled::{Compression, CompressionPoint, LeveledSettings, Shared};
use kvorum_disk::{Disk, Fault, FaultyDisk, MemoryDisk, OpenMode, Operation, Rule};

use crate::leveled_node::{
    BODY_BYTES, Draw, KEYS, NOW, Node, STORE, close, drawn, files, flip, key_of, open_log,
    read_file, remove_files, settings,
};
use crate::tenants::leveldb_settings;

#[test]
fn a_collection_moves_records_and_leaves_every_table_as_it_is() {
    let disk = MemoryDisk::new();
    let node = Node::open(&disk);
    (0..KEYS).for_each(|key| node.put(key, 1));
    (0..KEYS)
        .filter(|key| key % 4 != 0)
        .for_each(|key| node.put(key, 2));
    node.flush();
    node.keep_store();
    let (tables, expected) = (files(&disk, ".sst"), node.values());
    let segments = node.log.status().segments;
    node.collect();
    assert!(
        node.log.status().segments < segments,
        "nothing was collected"
    );
    assert!(node.detail("journal_files") > 0);
    assert_eq!(files(&disk, ".sst"), tables);
    assert_eq!(node.values(), expected);
    // Small files are merged, and tables do not change.
    let before = node.detail("journal_files");
    node.keep_store();
    assert!(node.detail("journal_files") < before.max(2));
    assert_eq!(files(&disk, ".sst"), tables);
    assert_eq!(node.values(), expected);
    close(node);
    let node = Node::open(&disk);
    assert_eq!(node.values(), expected);
    assert_eq!(node.store.status().lost, []);
}

/// Puts, removes and does upkeep for this many steps.
fn live(node: &Node, draw: &mut Draw, steps: usize, expected: &mut BTreeMap<usize, u8>) {
    for _ in 0..steps {
        let key = draw.below(KEYS);
        match draw.below(10) {
            0..=4 => {
                let value = u8::try_from(draw.below(250)).unwrap();
                node.put(key, value);
                expected.insert(key, value);
            }
            5..=7 => {
                node.remove(key);
                expected.remove(&key);
            }
            8 => node.keep_store(),
            _ => node.collect(),
        }
    }
}

/// No answer is wrong before upkeep has rebuilt the ledger, and none is missing afterwards.
fn expect_healed(node: &Node, expected: &BTreeMap<usize, u8>, story: &str) {
    for key in 0..KEYS {
        match node.value(key) {
            Ok(value) => assert_eq!(value, expected.get(&key).copied(), "{story}, {key}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "{story}"),
        }
    }
    node.keep_store();
    assert_eq!(node.values(), *expected, "{story}");
    assert_eq!(node.indexed().unwrap(), *expected, "{story}");
}

#[test]
fn a_lost_ledger_is_made_again_and_nothing_comes_back() {
    for seed in 0..60 {
        let (mut draw, disk) = (Draw(seed), MemoryDisk::new());
        let (mut node, mut expected) = (Node::open(&disk), BTreeMap::new());
        for life in 0..3 {
            let steps = draw.below(200) + 30;
            live(&node, &mut draw, steps, &mut expected);
            if draw.below(2) == 0 {
                node.keep_all();
            }
            if draw.below(2) == 0 {
                node.store.close().unwrap();
            }
            drop(node);
            let story = format!("seed {seed}, life {life}");
            if files(&disk, ".sst").is_empty() {
                node = Node::open(&disk);
                continue;
            }
            remove_files(&disk, ".sst");
            node = Node::open(&disk);
            expect_healed(&node, &expected, &story);
        }
    }
}

#[test]
fn removals_go_with_what_they_remove_however_long_others_stay() {
    let disk = MemoryDisk::new();
    let node = Node::open(&disk);
    // Entries that stay in the log for good, since their segments have no garbage.
    (0..KEYS / 2).for_each(|key| node.put(key, 1));
    let mut sizes = Vec::new();
    for round in 0..60_u8 {
        for key in (1..=20).map(|it| KEYS + 20 * usize::from(round) + it) {
            node.put(key, round);
            node.remove(key);
        }
        node.keep_all();
        let table_bytes: u64 = files(&disk, ".sst")
            .iter()
            .map(|it| disk.info(it).unwrap().unwrap().len)
            .sum();
        sizes.push(node.log.status().bytes + node.detail("journal_bytes") + table_bytes);
    }
    let most = |sizes: &[u64]| sizes.iter().copied().max().unwrap();
    let (early, late) = (most(&sizes[..20]), most(&sizes[40..]));
    assert!(late <= early + early / 4, "{sizes:?}");
    assert_eq!(node.values().len(), KEYS / 2);
}

#[test]
fn a_damaged_body_in_the_journal_is_damaged_and_its_head_is_there() {
    let disk = MemoryDisk::new();
    let node = Node::open(&disk);
    (0..KEYS).for_each(|key| node.put(key, 1));
    (0..KEYS)
        .filter(|key| key % 4 != 0)
        .for_each(|key| node.put(key, 2));
    node.keep_all();
    close(node);
    let path = files(&disk, ".journal").into_iter().next().unwrap();
    let file = disk.open(&path, OpenMode::ReadWrite).unwrap();
    let len = disk.info(&path).unwrap().unwrap().len;
    let mut byte = [0];
    file.read_at(&mut byte, len / 3, kvorum_disk::Reading::MayBlock)
        .unwrap();
    file.write_at(&[byte[0] ^ 1], len / 3).unwrap();
    drop(file);
    let node = Node::open(&disk);
    let read: Vec<Result<Option<u8>>> = (0..KEYS).map(|key| node.value(key)).collect();
    let failed: Vec<usize> = (0..KEYS).filter(|key| read[*key].is_err()).collect();
    assert_eq!(failed.len(), 1, "{read:?}");
    assert_eq!(
        read[failed[0]].as_ref().unwrap_err().kind(),
        ErrorKind::Corrupt
    );
    let at = ReadAt {
        reading: Reading::MayBlock,
        now: NOW,
    };
    let head = node.store.head(&key_of(failed[0]), at).unwrap();
    assert!(matches!(head, Lookup::Found(_)));
    assert!(
        node.store
            .status()
            .lost
            .iter()
            .any(|it| it.file.ends_with(".journal"))
    );
}

#[test]
fn stores_of_leveldb_and_of_leveled_are_not_taken_for_one_another() {
    let disk = MemoryDisk::new();
    close(Node::open(&disk));
    let arc: Arc<dyn Disk> = Arc::new(disk.clone());
    let shared = || Shared::new(1 << 20, 1 << 20);
    let log = open_log(&arc).0;
    let path = Path::new(STORE);
    let taken = Leveldb::open(
        arc.clone(),
        path,
        &leveldb_settings(),
        shared(),
        drawn(),
        Some(log.clone()),
    );
    let error = taken.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Misuse);
    assert!(error.to_string().contains("leveled"), "{error}");
    let other = Path::new("other");
    Leveldb::open(
        arc.clone(),
        other,
        &leveldb_settings(),
        shared(),
        drawn(),
        None,
    )
    .unwrap()
    .close()
    .unwrap();
    let taken = kvorum_backend_leveled::open(arc, other, &settings(), shared(), drawn(), log);
    let error = taken.err().unwrap();
    assert!(error.to_string().contains("leveldb"), "{error}");
}

/// Repairs a store that is not open.
fn repair(disk: &MemoryDisk) -> RepairReport {
    let arc: Arc<dyn Disk> = Arc::new(disk.clone());
    let options = kvorum_backend_leveled::repair::options(false, false);
    let repair = Repair::begin(arc, Path::new(STORE), options).unwrap();
    loop {
        for unit in repair.units() {
            repair.run(unit, &|_| {}).unwrap();
        }
        if !repair.next_stage().unwrap() {
            return repair.report();
        }
    }
}

/// Puts, removes and does upkeep, damages the closed store, and repairs it. After that, definite
/// answers are right, and in the end all are definite.
fn nothing_is_lost_and_nothing_comes_back(harm: impl Fn(&MemoryDisk)) {
    for seed in 100..120 {
        let (mut draw, disk) = (Draw(seed), MemoryDisk::new());
        let (mut node, mut expected) = (Node::open(&disk), BTreeMap::new());
        for life in 0..3 {
            let steps = draw.below(150) + 60;
            live(&node, &mut draw, steps, &mut expected);
            node.keep_all();
            close(node);
            let story = format!("seed {seed}, life {life}");
            let journal = files(&disk, ".journal");
            harm(&disk);
            assert_eq!(repair(&disk).verdict, RepairVerdict::Repaired, "{story}");
            assert_eq!(files(&disk, ".journal"), journal, "{story}");
            node = Node::open(&disk);
            expect_healed(&node, &expected, &story);
            close(node);
            node = Node::open(&disk);
            node.keep_all();
            assert_eq!(node.values(), expected, "{story}");
        }
    }
}

fn remove_manifests(disk: &MemoryDisk) {
    for name in ["manifest-0", "manifest-1"] {
        disk.remove_file(&Path::new(STORE).join(name)).unwrap();
    }
}

#[test]
fn a_repair_without_a_manifest_lists_the_journal_again() {
    nothing_is_lost_and_nothing_comes_back(remove_manifests);
}

#[test]
fn a_repair_without_a_manifest_and_tables_has_the_ledger_made_again() {
    nothing_is_lost_and_nothing_comes_back(|disk| {
        remove_manifests(disk);
        remove_files(disk, ".sst");
    });
}

#[test]
fn a_repair_gives_a_damaged_table_up_for_what_the_journal_has() {
    nothing_is_lost_and_nothing_comes_back(|disk| {
        let tables = files(disk, ".sst");
        let path = tables.first().unwrap();
        flip(disk, path, read_file(disk, path).len() / 3);
    });
}

#[test]
fn heads_and_what_is_read_before_a_write_are_of_the_ledger_alone() {
    let memory = MemoryDisk::new();
    let node = Node::open(&memory);
    (0..KEYS).for_each(|key| node.put(key, 1));
    (0..KEYS)
        .filter(|key| key % 4 != 0)
        .for_each(|key| node.put(key, 2));
    node.keep_all();
    close(node);
    let faulty = FaultyDisk::over_memory(&memory);
    let node = Node::open_on(Arc::new(faulty.clone()), &settings());
    // No body can be read.
    let rule = || Rule::new(Fault::Error(kvorum_disk::ErrorKind::Device)).on(Operation::Read);
    let rules = [
        faulty.add_rule(rule().path_contains("log/")),
        faulty.add_rule(rule().path_ends_with(".journal")),
    ];
    let at = ReadAt {
        reading: Reading::MayBlock,
        now: NOW,
    };
    for key in 0..KEYS {
        let head = node.store.head(&key_of(key), at).unwrap();
        assert!(matches!(head, Lookup::Found(head) if head.body_len == BODY_BYTES as u64));
        node.put(key, 3);
    }
    let snapshot = node.store.snapshot(Lease::Unlimited).unwrap();
    let (filter, mut heads) = (FoldFilter::unexpired(NOW), 0);
    let visit = &mut |_: Visited<'_>| {
        heads += 1;
        Flow::Continue
    };
    let folded = snapshot.fold(FoldDetail::Heads, &FoldRange::all(), &filter, visit);
    assert_eq!((folded, heads), (Ok(FoldEnd::Complete), KEYS));
    assert_eq!(rules.map(|it| faulty.fired(it)), [0, 0]);
    assert_eq!(node.indexed().unwrap().len(), KEYS);
}

#[test]
fn bodies_may_be_compressed_when_they_are_collected() {
    let ways = [
        (CompressionPoint::OnReceipt, Compression::None),
        (CompressionPoint::OnReceipt, Compression::Lz4),
        (CompressionPoint::OnCompact, Compression::Lz4),
    ];
    let sizes = ways.map(|(point, compression)| {
        let settings = LeveledSettings {
            compression,
            compression_point: point,
            ..settings()
        };
        let disk = MemoryDisk::new();
        let node = Node::open_with(&disk, &settings);
        (0..KEYS).for_each(|key| node.put(key, 1));
        let logged = node.log.status().bytes;
        (0..KEYS)
            .filter(|key| key % 4 != 0)
            .for_each(|key| node.put(key, 2));
        node.keep_all();
        let expected = (0..KEYS).map(|key| (key, if key % 4 == 0 { 1 } else { 2 }));
        assert_eq!(node.values(), expected.collect());
        (logged, node.detail("journal_bytes"))
    });
    let [plain, receipt, compact] = sizes;
    assert_eq!(compact.0, plain.0, "{sizes:?}");
    assert!(3 * receipt.0 < plain.0, "{sizes:?}");
    assert!(
        receipt.1 > 0 && compact.1 > 0 && 2 * compact.1 < plain.1,
        "{sizes:?}"
    );
}

#[test]
fn of_a_damaged_segment_only_what_was_not_moved_is_lost() {
    let disk = MemoryDisk::new();
    let node = Node::open(&disk);
    (0..KEYS).for_each(|key| node.put(key, 1));
    (0..KEYS)
        .filter(|key| key % 2 != 0)
        .for_each(|key| node.put(key, 2));
    node.keep_store();
    close(node);
    // A body in the middle of the oldest segment, where every other one is live.
    let log = disk.list(Path::new("log")).unwrap().into_iter();
    let mut segments: Vec<String> = log.map(|it| it.name).collect();
    segments.retain(|it| it.ends_with(".segment"));
    segments.sort();
    let path = Path::new("log").join(&segments[0]);
    let bytes = read_file(&disk, &path);
    let body = [1; BODY_BYTES];
    let starts = bytes.windows(BODY_BYTES).enumerate();
    let bodies: Vec<usize> = starts
        .filter(|(_, it)| *it == body)
        .map(|(at, _)| at)
        .collect();
    flip(&disk, &path, bodies[2] + BODY_BYTES / 2);
    let node = Node::open(&disk);
    node.keep_all();
    let lost = node.store.status().lost;
    let reported = lost
        .iter()
        .filter(|it| it.held.starts_with("the body of the key"));
    let reported = reported.count();
    let read = (0..KEYS).map(|key| node.value(key));
    assert_eq!(reported, read.filter(Result::is_err).count(), "{lost:?}");
    assert_eq!(reported, 1);
}
