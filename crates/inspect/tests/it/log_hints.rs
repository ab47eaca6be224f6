//! Log hints of a bitcask store over the value log: every byte, and their entries against the
//! records that they name.

#![expect(clippy::unwrap_used, reason = "a test that cannot set up has failed")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use kvorum_backend::{Backend, Batch, Durability, Fields, StepBudget, TaskKind, Timestamp, Write};
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings};
use kvorum_disk::anatomy::Piece;
use kvorum_disk::{Disk, MemoryDisk, OpenMode, read_file};
use kvorum_encoding::StorageKey;
use kvorum_inspect::{Checked, Finding, Kind, Plan, VerifyOptions, recognise};
use kvorum_segment::file_name;
use kvorum_value_log::{Tenant, ValueLog, ValueLogSettings};

use crate::store::{covers, pieces, verify, with_each_flip};

const DATA: &str = "data";
const LOG_ID: u64 = 0x77;
const LOG: &str = "data/value_log";
const STORE: &str = "data/bitcask/0";
const ALL: StepBudget = StepBudget { bytes: u64::MAX };
const NOW: Timestamp = Timestamp(1);

struct Node {
    log: ValueLog,
    store: Arc<dyn Backend>,
}

impl Node {
    fn open(disk: &MemoryDisk, log_id: u64) -> Self {
        let shared_disk = Arc::new(disk.clone());
        let settings = ValueLogSettings {
            segment_bytes: 700,
            garbage_percent_max: 30,
        };
        let log = ValueLog::open(shared_disk.clone(), Path::new(LOG), log_id, settings);
        let log = log.unwrap().0;
        let draws = AtomicU64::new(1);
        let draw = Arc::new(move || draws.fetch_add(1, Ordering::Relaxed));
        let settings = BitcaskSettings {
            log_hint_records_min: 4,
            ..BitcaskSettings::default()
        };
        let (directory, shared) = (Path::new(STORE), log.clone());
        let store = Bitcask::open(shared_disk, directory, settings, draw, Some(shared));
        let store = Arc::new(store.unwrap());
        let tenant: Arc<dyn Tenant> = store.clone();
        log.admit(&[tenant]).unwrap();
        Self { log, store }
    }

    fn write(&self, write: Write) {
        let put = self
            .store
            .put(&Batch::of(write), Durability::BackendDefault);
        put.unwrap().wait().unwrap();
    }

    fn put(&self, number: u32) {
        let (head, body) = (Bytes::from_static(b"head"), Bytes::from(vec![b'v'; 60]));
        self.write(Write::put(key(number), Fields::default(), head, body));
    }

    /// Collects the log: live records are copied out of segments with few of them.
    fn collect(&self) {
        for _ in 0..100 {
            self.store.sync().unwrap();
            self.log.usage_changed();
            for _ in 0..4 {
                let _outcome = self.log.upkeep_step(ALL).unwrap();
            }
        }
    }

    fn write_hints(&self) {
        loop {
            let mut due = self.store.maintenance_due(NOW).into_iter();
            let Some(task) = due.find(|task| task.kind == TaskKind::Hint) else {
                break;
            };
            let _outcome = self.store.maintenance_step(&task, ALL, NOW).unwrap();
        }
    }

    fn close(&self) {
        while self.log.is_chore_due() && self.log.chore_step().unwrap() {}
        self.store.close().unwrap();
    }
}

fn key(number: u32) -> StorageKey {
    StorageKey::from_encoded(format!("key {number:03}").into_bytes())
}

/// A store with a log hint of the records that were copied to its own segment, and one of the log,
/// with a removal. With `is_reversed` the keys are in the reverse order, so that their places
/// differ.
fn filled(log_id: u64, is_reversed: bool) -> MemoryDisk {
    let turned = |number: u32, count: u32| match is_reversed {
        true => count - 1 - number,
        false => number,
    };
    let disk = MemoryDisk::new();
    disk.create_directory(Path::new(DATA)).unwrap();
    let node = Node::open(&disk, log_id);
    for number in 0..6 {
        // Most of each segment becomes garbage.
        node.put(turned(number, 6));
        (0..4).for_each(|_| node.put(500));
    }
    node.collect();
    (0..4).for_each(|number| node.put(600 + turned(number, 4)));
    node.write(Write::remove(key(600)));
    node.store.sync().unwrap();
    node.write_hints();
    node.close();
    disk
}

fn whole() -> MemoryDisk {
    filled(LOG_ID, false)
}

fn hints(disk: &MemoryDisk) -> Vec<PathBuf> {
    let names = disk.list(Path::new(STORE)).unwrap().into_iter();
    let names = names.filter(|it| it.name.ends_with(".loghint"));
    names.map(|it| Path::new(STORE).join(it.name)).collect()
}

/// The entries of a log hint, as displayed.
fn entries(disk: &MemoryDisk, path: &Path) -> Vec<String> {
    let pieces = pieces(disk, path);
    let fields = pieces.iter().flat_map(|piece| &piece.fields);
    let named = fields.filter(|it| it.name == "entry");
    named.map(|it| it.value.clone()).collect()
}

fn verify_live(disk: &MemoryDisk) -> Checked {
    let live = VerifyOptions { is_live: true };
    let plan = Plan::new(disk, Path::new(DATA), live).unwrap();
    let mut all = Checked::default();
    for unit in &plan.units {
        all.add(plan.run(disk, unit, &|_| {}), "");
    }
    all
}

#[test]
fn whole_log_hints_have_no_findings() {
    let disk = whole();
    let hints = hints(&disk);
    assert!(hints.len() > 1, "{hints:?}");
    for of in ["of the value log front", "of the store front", "removal"] {
        let is_there = |path: &PathBuf| entries(&disk, path).iter().any(|it| it.contains(of));
        assert!(hints.iter().any(is_there), "{of}");
    }
    let checked = verify(&disk, Path::new(DATA));
    assert_eq!(checked.findings, []);
    assert_eq!(verify_live(&disk).findings, []);
    // Only the store.
    let checked = verify(&disk, Path::new(STORE));
    assert_eq!(checked.findings, []);
    let is_reported = |note: &String| note.contains("not among the checked files");
    assert_eq!(checked.notes.iter().filter(|it| is_reported(it)).count(), 1);
}

#[test]
fn every_byte_of_a_log_hint_is_in_one_field_and_a_flip_is_shown_and_found() {
    let disk = whole();
    for path in hints(&disk) {
        assert!(matches!(recognise(&disk, &path).unwrap(), Kind::Store(_)));
        let len = disk.info(&path).unwrap().unwrap().len;
        covers(&pieces(&disk, &path), len, &path);
        assert!(!pieces(&disk, &path).iter().any(Piece::is_damaged));
        with_each_flip(&disk, &path, |at| {
            let what = format!("{} at {at}", path.display());
            let now = pieces(&disk, &path);
            covers(&now, len, &path);
            assert!(now.iter().any(Piece::is_damaged), "{what}");
            for checked in [verify(&disk, Path::new(DATA)), verify_live(&disk)] {
                let mut findings = checked.findings.iter();
                assert!(findings.any(|it| path.ends_with(&it.file)), "{what}");
            }
        });
    }
}

/// Findings of verify about log hints, for a store that is not in use and for one in use.
fn said_of_hints(disk: &MemoryDisk) -> [Vec<Finding>; 2] {
    [verify(disk, Path::new(DATA)), verify_live(disk)].map(|checked| {
        let findings = checked.findings.into_iter();
        let of_hints = findings.filter(|it| it.file.ends_with(".loghint"));
        of_hints.collect()
    })
}

/// The checksums of a wrongly written hint, or of another store's, are right.
#[test]
fn a_whole_log_hint_that_says_something_else_is_found() {
    let (mine, other) = (whole(), filled(LOG_ID, true));
    assert_eq!(verify(&other, Path::new(DATA)).findings, []);
    for path in hints(&mine) {
        let [own, foreign] = [&mine, &other].map(|disk| read_file(disk, &path, 1 << 20).unwrap());
        kvorum_disk::replace_file(&mine, &path, &foreign).unwrap();
        for said in said_of_hints(&mine) {
            let [finding] = &said[..] else {
                unreachable!("{said:?}");
            };
            assert!(path.ends_with(&finding.file), "{finding:?}");
            assert!(
                finding.what.contains("differ from their records"),
                "{finding:?}"
            );
            assert!(finding.keys.len() >= 3, "{finding:?}");
        }
        kvorum_disk::replace_file(&mine, &path, &own).unwrap();
    }
    assert_eq!(said_of_hints(&mine), [vec![], vec![]]);
}

/// The last hint is of the log.
fn hint_of_log(disk: &MemoryDisk) -> PathBuf {
    let path = hints(disk).pop().unwrap();
    let shown = entries(disk, &path);
    assert!(shown.iter().all(|it| it.contains("of the value log")));
    path
}

/// The log's own damage is reported for the log, and not for a correct hint.
#[test]
fn a_damaged_record_of_the_log_is_no_fault_of_the_hint() {
    let disk = whole();
    let shown = entries(&disk, &hint_of_log(&disk));
    let of_601 = shown.iter().find(|it| it.contains("key 601")).unwrap();
    let word_after = |word: &str| {
        let mut words = of_601.split(' ').skip_while(|it| *it != word);
        words.nth(1).unwrap().parse::<u64>().unwrap()
    };
    let segment = Path::new(LOG).join(file_name(word_after("segment")));
    let file = disk.open(&segment, OpenMode::ReadWrite).unwrap();
    file.write_at(b"!", word_after("at") + 30).unwrap();
    assert_eq!(said_of_hints(&disk), [vec![], vec![]]);
    let findings = verify(&disk, Path::new(DATA)).findings;
    assert!(
        !findings.is_empty() && findings.iter().all(|it| segment.ends_with(&it.file)),
        "{findings:?}"
    );
}

#[test]
fn a_segment_of_the_log_that_a_hint_names_and_that_is_missing_is_reported_with_its_keys() {
    let disk = whole();
    let shown = entries(&disk, &hint_of_log(&disk));
    let of_601 = shown.iter().find(|it| it.contains("key 601")).unwrap();
    let mut words = of_601.split(' ').skip_while(|it| *it != "segment");
    let number: u64 = words.nth(1).unwrap().parse().unwrap();
    disk.remove_file(&Path::new(LOG).join(file_name(number)))
        .unwrap();
    for said in said_of_hints(&disk) {
        let [finding] = &said[..] else {
            unreachable!("{said:?}");
        };
        let what = format!("segment {number} of the value log is not there");
        assert!(finding.what.starts_with(&what), "{finding:?}");
        assert!(finding.keys.iter().any(|it| it.contains("key 601")));
    }
}

#[test]
fn a_log_that_is_another_is_reported() {
    let (disk, other) = (whole(), filled(LOG_ID + 1, false));
    let log = Path::new(LOG);
    for entry in other.list(log).unwrap() {
        let path = log.join(entry.name);
        let bytes = read_file(&other, &path, 1 << 20).unwrap();
        kvorum_disk::replace_file(&disk, &path, &bytes).unwrap();
    }
    for said in said_of_hints(&disk) {
        let [finding] = &said[..] else {
            unreachable!("{said:?}");
        };
        assert!(finding.what.contains("is another"), "{finding:?}");
    }
}

/// Earlier losses are listed in a file, which is inspected like any other.
#[test]
fn the_list_of_what_was_lost_is_taken_apart_and_checked() {
    let disk = whole();
    let segment = Path::new(STORE).join(file_name(1));
    let file = disk.open(&segment, OpenMode::ReadWrite).unwrap();
    file.write_at(b"!", 70).unwrap();
    disk.remove_file(&Path::new(STORE).join("checkpoint"))
        .unwrap();
    let node = Node::open(&disk, LOG_ID);
    node.close();
    let path = Path::new(STORE).join("lost/index");
    let len = disk.info(&path).unwrap().unwrap().len;
    covers(&pieces(&disk, &path), len, &path);
    let is_of_list = |it: &Finding| it.file.ends_with("lost/index");
    assert!(
        !verify(&disk, Path::new(DATA))
            .findings
            .iter()
            .any(is_of_list)
    );
    with_each_flip(&disk, &path, |at| {
        let now = pieces(&disk, &path);
        covers(&now, len, &path);
        assert!(now.iter().any(Piece::is_damaged), "{at}");
        let findings = verify(&disk, Path::new(DATA)).findings;
        assert!(findings.iter().any(is_of_list), "{at}");
    });
}
