//! Corruption: damaged records are lost and reported, and all others are served.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot damage its store has failed"
)]

use std::path::{Path, PathBuf};
use std::time::Duration;

use kvorum_backend::{Backend, ErrorKind, StepBudget, TaskKind, Timestamp};
use kvorum_backend_bitcask::check::identity_of;
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings};
use kvorum_disk::{CrashOptions, Disk, MemoryDisk, OpenMode, Reading};
use kvorum_segment::{BatchPlace, EncodedBack, Record, SegmentId, SegmentWriter};

use crate::store::{NOW, at, body_of, do_all, do_task, folded, key, open, put, try_open};

fn settings() -> BitcaskSettings {
    BitcaskSettings {
        file_bytes_max: 1500,
        ..BitcaskSettings::default()
    }
}

fn segment(number: u64) -> PathBuf {
    Path::new("store").join(format!("{number:010}.segment"))
}

fn flip(disk: &MemoryDisk, path: &Path, offset: u64) {
    let file = disk.open(path, OpenMode::ReadWrite).unwrap();
    let mut byte = [0];
    assert_eq!(
        file.read_at(&mut byte, offset, Reading::MayBlock).unwrap(),
        1
    );
    file.write_at(&[byte[0] ^ 0x40], offset).unwrap();
}

fn filled(disk: &MemoryDisk) -> Bitcask {
    let store = open(disk, settings());
    for number in 0..30 {
        put(
            &store,
            &format!("key {number:02}"),
            &format!("body {number}"),
        );
    }
    store
}

fn readable(store: &Bitcask) -> usize {
    let names = (0..30).map(|number| format!("key {number:02}"));
    names
        .filter(|name| {
            store
                .get(&key(name), at(NOW))
                .is_ok_and(|it| matches!(it, kvorum_backend::Lookup::Found(_)))
        })
        .count()
}

#[test]
fn r24_a_flipped_byte_costs_one_key_which_says_so() {
    for offset in [40, 70, 90, 150, 400, 1000] {
        let disk = MemoryDisk::new();
        let store = filled(&disk);
        do_all(&store, NOW);
        store.close().unwrap();
        drop(store);
        flip(&disk, &segment(1), offset);
        let store = open(&disk, settings());
        assert!(readable(&store) >= 29, "{offset}");
        assert!(folded(&store, NOW).len() >= 29, "{offset}");
        let errors = (0..30)
            .filter_map(|number| store.get(&key(&format!("key {number:02}")), at(NOW)).err())
            .map(|error| error.kind());
        let expected = if readable(&store) == 29 { 1 } else { 0 };
        assert_eq!(
            errors.collect::<Vec<_>>(),
            vec![ErrorKind::Corrupt; expected]
        );
    }
}

#[test]
fn r25_corruption_before_what_was_synced_is_reported_and_not_cut() {
    let disk = MemoryDisk::new();
    drop(filled(&disk));
    let last = disk
        .list(Path::new("store"))
        .unwrap()
        .into_iter()
        .filter_map(|entry| kvorum_segment::parse_file_name(&entry.name))
        .max()
        .unwrap();
    flip(&disk, &segment(last), 100);
    flip(&disk, &segment(1), 300);
    disk.crash(CrashOptions::everything());
    let store = open(&disk, settings());
    assert_eq!(readable(&store), 28);
    assert_eq!(folded(&store, NOW).len(), 28);
    let status = store.status();
    assert_eq!(status.lost.len(), 2, "{:?}", status.lost);
    put(&store, "key 30", "goes on");
    drop(store);
    let store = open(&disk, settings());
    assert_eq!(readable(&store), 28);
    assert_eq!(store.status().lost, status.lost);
    assert_eq!(body_of(&store, "key 30").as_deref(), Some("goes on"));
}

#[test]
fn r27_a_merge_passes_over_corruption_and_comes_to_its_end() {
    let disk = MemoryDisk::new();
    let store = filled(&disk);
    do_task(&store, TaskKind::Hint, 2, NOW);
    flip(&disk, &segment(1), 300);
    flip(&disk, &segment(2), 600);
    for number in [1, 2] {
        do_task(&store, TaskKind::Merge, number, NOW);
    }
    assert_eq!(readable(&store), 28);
    assert_eq!(folded(&store, NOW).len(), 28);
    let status = store.status();
    assert_eq!((status.keys, status.lost.len()), (28, 2));
    let kept = disk.list(Path::new("store/lost")).unwrap();
    assert_eq!(kept.len(), 3);
}

/// A record with right checksums that does not decode: its writer has a bug, or is a newer version.
#[test]
fn a_merge_reports_a_record_that_it_cannot_understand_and_copies_the_others() {
    let disk = MemoryDisk::new();
    let store = open(&disk, settings());
    put(&store, "k", "value");
    store.close().unwrap();
    drop(store);
    let log_id = identity_of(&disk, Path::new("store")).unwrap().unwrap();
    let (number, kind) = (7, 1);
    let id = SegmentId {
        log_id,
        number,
        kind,
    };
    let mut writer = SegmentWriter::create(&disk, &segment(number), id).unwrap();
    let garbled = |sequence, kind| Record {
        sequence,
        kind,
        removal: false,
        batch: BatchPlace::Alone,
        front: b"no front",
        back: EncodedBack::empty(),
    };
    let records = [garbled(2, 1), garbled(3, 77)];
    writer.append(&records, &mut Vec::new()).unwrap();
    writer.seal().unwrap();
    let store = open(&disk, settings());
    put(&store, "later", "value");
    for number in [1, number] {
        do_task(&store, TaskKind::Hint, number, NOW);
        do_task(&store, TaskKind::Merge, number, NOW);
    }
    assert_eq!(folded(&store, NOW).len(), 2);
    assert_eq!(disk.info(&segment(7)).unwrap(), None);
    let lost = store.status().lost;
    let file = "0000000007.segment";
    assert_eq!(lost.len(), records.len(), "{lost:?}");
    assert!(
        lost.iter()
            .all(|it| it.file == file && it.held.contains("understood"))
    );
}

#[test]
fn damage_to_what_only_saves_time_costs_nothing_but_time() {
    for name in [
        "checkpoint",
        "store-0",
        "store-1",
        "0000000001.hint",
        "0000000002.hint",
        "lock",
    ] {
        for offset in [0, 9, 13, 20, 60, 100] {
            let disk = MemoryDisk::new();
            let store = filled(&disk);
            do_all(&store, NOW);
            store.close().unwrap();
            drop(store);
            let path = Path::new("store").join(name);
            if disk.info(&path).unwrap().unwrap().len > offset {
                flip(&disk, &path, offset);
            }
            let store = open(&disk, settings());
            assert_eq!(readable(&store), 30, "{name} at {offset}");
            assert_eq!(folded(&store, NOW).len(), 30, "{name} at {offset}");
        }
    }
}

#[test]
fn a_missing_segment_is_reported() {
    let disk = MemoryDisk::new();
    let store = filled(&disk);
    store.close().unwrap();
    drop(store);
    disk.remove_file(&segment(2)).unwrap();
    let store = open(&disk, settings());
    assert!(readable(&store) < 30);
    let lost = store.status().lost;
    assert_eq!(lost.len(), 1);
    assert_eq!(lost[0].file, "0000000002.segment");
}

#[test]
fn a_store_without_its_identity_is_not_guessed_at() {
    let disk = MemoryDisk::new();
    drop(filled(&disk));
    for name in ["store-0", "store-1"] {
        flip(&disk, &Path::new("store").join(name), 30);
    }
    let refused = try_open(&disk, settings()).err().map(|it| it.kind());
    assert_eq!(refused, Some(ErrorKind::Corrupt));
}

/// Does all due scrubs in small steps; returns the number of files.
fn scrub(store: &Bitcask, now: Timestamp) -> usize {
    let due = || {
        let tasks = store.maintenance_due(now);
        tasks.into_iter().find(|it| it.kind == TaskKind::Scrub)
    };
    let mut files = std::collections::BTreeSet::new();
    while let Some(task) = due() {
        files.insert(task.subject);
        let budget = StepBudget { bytes: 200 };
        store.maintenance_step(&task, budget, now).unwrap();
    }
    files.len()
}

#[test]
fn a_scrub_finds_corruption_before_a_reader_does_and_reports_it_once() {
    const PERIOD: Duration = Duration::from_secs(100);
    let settings = BitcaskSettings {
        scrub_period: Some(PERIOD),
        ..settings()
    };
    let disk = MemoryDisk::new();
    drop(filled(&disk));
    let store = open(&disk, settings.clone());
    do_all(&store, NOW);
    flip(&disk, &segment(1), 90);
    assert_eq!(scrub(&store, NOW), 0);
    let after = |periods: u64| Timestamp(NOW.0 + periods * PERIOD.as_secs() * 1_000_000);
    assert_eq!(store.status().lost, []);
    let files = scrub(&store, after(1));
    assert!(files >= 1, "{files}");
    let status = store.status();
    assert_eq!(status.lost.len(), 1, "{:?}", status.lost);
    assert_eq!(status.lost[0].file, "0000000001.segment");
    assert_eq!(status.corrupt_reads, 1);
    // One cycle begins and ends.
    scrub(&store, after(2));
    scrub(&store, after(3));
    assert_eq!(store.status().lost.len(), 1);
    assert!(readable(&store) >= 29);
    store.close().unwrap();
    drop(store);
    // Files that this cycle has read are not read again.
    let store = open(&disk, settings);
    assert_eq!(scrub(&store, after(3)), 0);
    assert_eq!(store.status().lost.len(), 1);
}

/// Hints and the checkpoint are copies of segments' data: corruption there costs nothing once it is
/// found.
#[test]
fn a_scrub_finds_corruption_in_hints_and_the_checkpoint_reports_it_and_has_them_written_again() {
    const PERIOD: Duration = Duration::from_secs(100);
    let settings = BitcaskSettings {
        scrub_period: Some(PERIOD),
        checkpoint_after_bytes: 1,
        ..settings()
    };
    let disk = MemoryDisk::new();
    drop(filled(&disk));
    let store = open(&disk, settings.clone());
    do_all(&store, NOW);
    do_task(&store, TaskKind::Checkpoint, 0, NOW);
    drop(store);
    // The cycle begins again with all files.
    disk.remove_file(Path::new("store/scrub")).ok();
    let store = open(&disk, settings.clone());
    assert_eq!(scrub(&store, NOW), 0);
    let (hint, checkpoint) = (
        Path::new("store/0000000001.hint"),
        Path::new("store/checkpoint"),
    );
    let whole = |path: &Path| kvorum_disk::read_file(&disk, path, 1 << 20).unwrap();
    let before = whole(hint);
    let middle = |path: &Path| disk.info(path).unwrap().unwrap().len / 2;
    for offset in [middle(hint), 20, before.len() as u64 - 1] {
        flip(&disk, hint, offset);
    }
    flip(&disk, checkpoint, middle(checkpoint));
    scrub(&store, Timestamp(NOW.0 + PERIOD.as_secs() * 1_000_000));
    let status = store.status();
    let files: Vec<&str> = status.lost.iter().map(|it| &*it.file).collect();
    assert_eq!(
        files,
        ["checkpoint", "0000000001.hint"],
        "{:?}",
        status.lost
    );
    assert!(
        status
            .lost
            .iter()
            .all(|it| it.held.contains("nothing is lost"))
    );
    assert_eq!(status.corrupt_reads, 2);
    assert_eq!(readable(&store), 30);
    // Their rewriting is due at once.
    let done = do_all(&store, NOW);
    assert!(done.contains(&TaskKind::Checkpoint), "{done:?}");
    assert!(done.contains(&TaskKind::Hint), "{done:?}");
    assert_eq!(whole(hint), before);
    drop(store);
    let store = open(&disk, settings);
    assert_eq!(readable(&store), 30);
    assert_eq!(store.status().lost.len(), 2, "{:?}", store.status().lost);
}

/// The same for every byte of hints and the checkpoint.
#[test]
fn no_flip_of_a_hint_or_a_checkpoint_escapes_a_scrub() {
    const PERIOD: Duration = Duration::from_secs(100);
    let settings = BitcaskSettings {
        scrub_period: Some(PERIOD),
        ..settings()
    };
    let first = MemoryDisk::new();
    let store = open(&first, settings.clone());
    put(&store, "key", "body");
    drop(store);
    let store = open(
        &first,
        BitcaskSettings {
            file_bytes_max: 1,
            ..settings.clone()
        },
    );
    put(&store, "other", "body");
    do_all(&store, NOW);
    do_task(&store, TaskKind::Checkpoint, 0, NOW);
    drop(store);
    for name in ["0000000001.hint", "checkpoint"] {
        let path = Path::new("store").join(name);
        let len = first.info(&path).unwrap().unwrap().len;
        for offset in 0..len {
            let disk = first.crash_image(CrashOptions::everything());
            let store = open(&disk, settings.clone());
            flip(&disk, &path, offset);
            scrub(&store, NOW);
            scrub(&store, Timestamp(NOW.0 + PERIOD.as_secs() * 1_000_000));
            let lost = store.status().lost;
            let is_reported = lost.iter().any(|it| it.file == name);
            assert!(is_reported, "byte {offset} of {len} of {name}: {lost:?}");
        }
    }
}
