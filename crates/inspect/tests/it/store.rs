//! A store of the bitcask engine: every byte of every file.

#![expect(clippy::unwrap_used, reason = "a test that cannot set up has failed")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use kvorum_backend::{
    Backend, Batch, Durability, Fields, StepBudget, Task, TaskKind, Timestamp, Write,
};
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings};
use kvorum_disk::anatomy::Piece;
use kvorum_disk::{Disk, EntryKind, MemoryDisk, OpenMode, read_file, replace_file};
use kvorum_encoding::StorageKey;
use kvorum_inspect::{Checked, Plan, ShowOptions, VerifyOptions, open_pieces, recognise, show};

const STORE: &str = "data/bitcask/0";

fn open(disk: &MemoryDisk) -> Bitcask {
    let draws = AtomicU64::new(7);
    let draw = move || draws.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
    let settings = BitcaskSettings {
        file_bytes_max: 500,
        ..BitcaskSettings::default()
    };
    let disk = Arc::new(disk.clone());
    Bitcask::open(disk, Path::new(STORE), settings, Arc::new(draw), None).unwrap()
}

fn put(store: &Bitcask, write: Write) {
    let receipt = store.put(&Batch::of(write), Durability::Grouped).unwrap();
    receipt.wait().unwrap();
}

fn key(number: u32) -> StorageKey {
    StorageKey::from_encoded(format!("key {number}").into_bytes())
}

fn put_body(store: &Bitcask, number: u32, body: &str) {
    let body = Bytes::from(body.to_owned());
    let head = Bytes::from_static(b"head");
    put(
        store,
        Write::put(key(number), Fields::default(), head, body),
    );
}

/// Sealed segments with hints, an open segment, a checkpoint, and, if requested, records behind the
/// checkpoint.
fn filled(has_tail: bool) -> MemoryDisk {
    let disk = MemoryDisk::new();
    disk.create_directory(Path::new("data")).unwrap();
    let store = open(&disk);
    for number in 0..9 {
        put_body(&store, number % 7, &"body ".repeat(number as usize));
    }
    put(&store, Write::remove(key(3)));
    while let Some(task) = store
        .maintenance_due(Timestamp(1))
        .into_iter()
        .find(|task| task.kind == TaskKind::Hint)
    {
        step(&store, &task);
    }
    store.close().unwrap();
    drop(store);
    if has_tail {
        let store = open(&disk);
        put_body(&store, 1, "behind the checkpoint");
        put(&store, Write::remove(key(2)));
    }
    disk
}

fn step(store: &Bitcask, task: &Task) {
    let budget = StepBudget { bytes: 1 << 20 };
    let _outcome = store.maintenance_step(task, budget, Timestamp(1)).unwrap();
}

fn files(disk: &MemoryDisk) -> Vec<PathBuf> {
    let entries = disk.list(Path::new(STORE)).unwrap();
    let files = entries.into_iter().filter(|it| it.kind == EntryKind::File);
    files.map(|it| Path::new(STORE).join(it.name)).collect()
}

pub(crate) fn verify(disk: &MemoryDisk, directory: &Path) -> Checked {
    let plan = Plan::new(disk, directory, VerifyOptions::default()).unwrap();
    let mut all = Checked::default();
    for unit in &plan.units {
        all.add(plan.run(disk, unit, &|_| {}), "");
    }
    all
}

pub(crate) fn pieces(disk: &MemoryDisk, path: &Path) -> Vec<Piece> {
    let kind = recognise(disk, path).unwrap();
    let pieces = open_pieces(disk, path, kind, 0).unwrap();
    pieces.collect::<Result<_, _>>().unwrap()
}

/// Every byte is in exactly one field.
pub(crate) fn covers(pieces: &[Piece], len: u64, path: &Path) {
    let mut at = 0;
    for field in pieces.iter().flat_map(|piece| &piece.fields) {
        assert_eq!(field.offset, at, "{}: {field:?}", path.display());
        at += field.len;
    }
    assert_eq!(at, len, "{}", path.display());
}

/// Flips a byte, calls `look`, and flips it back.
pub(crate) fn with_each_flip(disk: &MemoryDisk, path: &Path, mut look: impl FnMut(u64)) {
    let bytes = read_file(disk, path, 1 << 20).unwrap();
    let file = disk.open(path, OpenMode::ReadWrite).unwrap();
    for (at, byte) in (0..).zip(&bytes) {
        file.write_at(&[byte ^ 0x20], at).unwrap();
        look(at);
        file.write_at(&[*byte], at).unwrap();
    }
}

pub(crate) fn is_lock(path: &Path) -> bool {
    path.ends_with("lock")
}

#[test]
fn a_whole_store_has_no_findings() {
    for has_tail in [false, true] {
        let disk = filled(has_tail);
        let checked = verify(&disk, Path::new(STORE));
        assert_eq!(checked.findings, [], "{has_tail}");
        assert!(checked.slots >= 6, "{checked:?}");
        assert_eq!(checked.keys, if has_tail { 5 } else { 6 });
        let from_above = verify(&disk, Path::new("data"));
        assert_eq!(from_above, checked);
    }
}

#[test]
fn every_byte_of_every_file_is_in_one_field() {
    let disk = filled(true);
    let names: Vec<_> = files(&disk);
    for kind in ["segment", "hint"] {
        let has = |path: &&PathBuf| path.extension().is_some_and(|it| it == kind);
        assert!(names.iter().filter(has).count() > 1, "{names:?}");
    }
    for path in names {
        let len = disk.info(&path).unwrap().unwrap().len;
        let pieces = pieces(&disk, &path);
        covers(&pieces, len, &path);
        assert!(!pieces.iter().any(Piece::is_damaged), "{}", path.display());
    }
}

#[test]
fn every_flipped_byte_is_shown_as_damage_and_what_follows_is_still_shown() {
    let disk = filled(true);
    for path in files(&disk).into_iter().filter(|path| !is_lock(path)) {
        let whole = pieces(&disk, &path);
        let len = disk.info(&path).unwrap().unwrap().len;
        with_each_flip(&disk, &path, |at| {
            let now = pieces(&disk, &path);
            covers(&now, len, &path);
            // Reserved zeros belong to no record: other bytes there are a torn tail.
            let what = format!("{} at {at}", path.display());
            assert!(now.iter().any(Piece::is_damaged), "{what}");
            let is_segment = path.extension().is_some_and(|it| it == "segment");
            if is_segment && at >= 32 {
                let kept = whole.iter().filter(|piece| now.contains(piece)).count();
                assert!(kept + 1 >= whole.len(), "{what}");
            }
        });
    }
}

#[test]
fn every_flipped_byte_is_found_by_a_check_or_harms_nobody() {
    for has_tail in [false, true] {
        let disk = filled(has_tail);
        for path in files(&disk) {
            let whole = pieces(&disk, &path);
            with_each_flip(&disk, &path, |at| {
                let is_found = !verify(&disk, Path::new(STORE)).findings.is_empty();
                let why = harmless(&path, &whole, at);
                assert!(is_found || why.is_some(), "{} at {at}", path.display());
            });
        }
    }
}

/// The reason why a flip at this byte breaks no promise.
pub(crate) fn harmless(path: &Path, whole: &[Piece], at: u64) -> Option<&'static str> {
    if is_lock(path) {
        return Some("the lock is the system's; what the file says is for people");
    }
    let index = whole.iter().position(|piece| at < piece.end())?;
    let piece = &whole[index];
    let field = piece.fields.iter().find(|it| at < it.offset + it.len)?;
    let is_last = whole[index + 1..]
        .iter()
        .all(|it| matches!(it.title.as_str(), "mark" | "reserved and not written"));
    match (piece.title.as_str(), field.name.as_str()) {
        (_, "gap") => Some("no reader looks at the zeros between records"),
        ("reserved and not written", _) => Some("nothing was written there yet"),
        ("mark", _) if is_last => {
            Some("a mark carries nothing but proof of what was synced; the records stand before it")
        }
        _ => None,
    }
}

/// Two stores of one identity with equal files except for the places of keys.
fn twins() -> (MemoryDisk, MemoryDisk) {
    let filled = |numbers: &[u32]| {
        let disk = MemoryDisk::new();
        let store = open(&disk);
        for number in numbers {
            put_body(&store, *number, "a body of one length for all keys");
        }
        while let Some(task) = store
            .maintenance_due(Timestamp(1))
            .into_iter()
            .find(|task| task.kind == TaskKind::Hint)
        {
            step(&store, &task);
        }
        store.close().unwrap();
        disk
    };
    (
        filled(&[1, 2, 3, 4, 5, 6, 7, 8]),
        filled(&[8, 7, 6, 5, 4, 3, 2, 1]),
    )
}

#[test]
fn a_whole_hint_or_checkpoint_that_says_something_else_is_found() {
    let (mine, other) = twins();
    assert_eq!(verify(&mine, Path::new(STORE)).findings, []);
    assert_eq!(verify(&other, Path::new(STORE)).findings, []);
    for name in ["checkpoint", "0000000001.hint"] {
        let path = Path::new(STORE).join(name);
        let own = read_file(&mine, &path, 1 << 20).unwrap();
        let foreign = read_file(&other, &path, 1 << 20).unwrap();
        assert_eq!(own.len(), foreign.len(), "{name}");
        let file = mine.open(&path, OpenMode::ReadWrite).unwrap();
        file.write_at(&foreign, 0).unwrap();
        let findings = verify(&mine, Path::new(STORE)).findings;
        assert_eq!(findings.len(), 1, "{name}: {findings:?}");
        assert!(findings[0].file.ends_with(name) && !findings[0].keys.is_empty());
        file.write_at(&own, 0).unwrap();
    }
}

/// Version 0.1.0 wrote hints in a layout of their own; the next opening rewrites them.
#[test]
fn a_hint_of_an_earlier_version_is_distinguished_from_damage() {
    let disk = filled(false);
    for (name, content) in [
        ("0000000001.hint", b"KVbchint and what it said"),
        ("0000000001.loghint", b"KVlghint and what it said"),
    ] {
        let path = Path::new(STORE).join(name);
        replace_file(&disk, &path, content).unwrap();
        let pieces = pieces(&disk, &path);
        covers(&pieces, content.len() as u64, &path);
        assert!(!pieces.iter().any(Piece::is_damaged));
    }
    assert_eq!(verify(&disk, Path::new(STORE)).findings, []);
}

#[test]
fn a_missing_segment_is_found() {
    let (disk, _) = twins();
    let path = Path::new(STORE).join("0000000001.segment");
    disk.remove_file(&path).unwrap();
    let findings = verify(&disk, Path::new(STORE)).findings;
    assert!(
        findings.iter().any(|it| it.what.contains("missing")),
        "{findings:?}"
    );
}

#[test]
fn keys_that_are_lost_are_named_by_the_hint() {
    let disk = filled(false);
    let path = Path::new(STORE).join("0000000001.segment");
    let file = disk.open(&path, OpenMode::ReadWrite).unwrap();
    file.write_at(b"!", 70).unwrap();
    let checked = verify(&disk, Path::new(STORE));
    let [finding] = &checked.findings[..] else {
        unreachable!("{checked:?}");
    };
    assert!(finding.file.ends_with("0000000001.segment"));
    assert_eq!(finding.keys, ["\"key 0\""]);
}

#[test]
fn a_directory_in_use_is_checked_only_where_it_is_finished() {
    let disk = filled(true);
    let store = open(&disk);
    let locked = Plan::new(&disk, Path::new(STORE), VerifyOptions::default());
    assert!(locked.is_err());
    let live = VerifyOptions { is_live: true };
    let plan = Plan::new(&disk, Path::new(STORE), live).unwrap();
    let checked = plan.run(&disk, &plan.units[0], &|_| {});
    assert_eq!(checked.findings, []);
    assert!(
        checked
            .notes
            .iter()
            .any(|note| note.contains("being written"))
    );
    drop(store);
}

#[test]
fn a_check_writes_nothing() {
    let disk = filled(true);
    let path = Path::new(STORE).join("0000000001.segment");
    let file = disk.open(&path, OpenMode::ReadWrite).unwrap();
    file.write_at(b"!", 70).unwrap();
    let image = || -> Vec<_> {
        let names = files(&disk).into_iter().filter(|path| !is_lock(path));
        names
            .map(|path| (read_file(&disk, &path, 1 << 20).unwrap(), path))
            .collect()
    };
    let before = image();
    let _found = verify(&disk, Path::new("data"));
    assert_eq!(image(), before);
}

#[test]
fn pieces_are_shown_from_an_offset_up_to_a_limit() {
    let disk = filled(false);
    let path = Path::new(STORE).join("0000000001.segment");
    let text = |options| {
        let mut out = Vec::new();
        let shown = show(&disk, &path, options, &mut out).unwrap();
        (shown, String::from_utf8(out).unwrap())
    };
    let (all, plain) = text(ShowOptions::default());
    assert!(all.pieces > 3 && all.damaged == 0, "{plain}");
    assert!(plain.starts_with("segment at 0, 32 bytes\n"), "{plain}");
    assert!(plain.contains("\"key 0\""), "{plain}");
    let options = ShowOptions {
        from: 40,
        limit: Some(1),
        is_json: true,
        ..ShowOptions::default()
    };
    let (one, json) = text(options);
    assert_eq!(one.pieces, 1);
    assert!(json.contains("\"offset\":32"), "{json}");
    let only_damaged = ShowOptions {
        only_damaged: true,
        ..ShowOptions::default()
    };
    assert_eq!(text(only_damaged).0.pieces, 0);
}

#[test]
fn a_file_of_nobody_is_refused() {
    let disk = MemoryDisk::new();
    let file = disk.open(Path::new("x"), OpenMode::CreateNew).unwrap();
    file.write_at(b"hello", 0).unwrap();
    assert!(recognise(&disk, Path::new("x")).is_err());
    assert!(recognise(&disk, Path::new("y")).is_err());
}
