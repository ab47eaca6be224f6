//! Small files of a store that belong to another store, are older, missing, zeroed or flipped, one
//! at a time, among several stores over one value log. Earlier acknowledged writes are present,
//! later ones survive a power cut, and no other store is affected.
//!
//! Regression: a copy of a partition's identity was overwritten by another partition's, as by a restore
//! into the wrong directory. It was the newer of the two copies, so it was used. Both stores then had one
//! identity, logged their entries under it, and lost every later acknowledged write.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests stop at any failure, as tests do"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use kvorum_backend::{
    Backend, Batch, Belonging, Durability, ErrorKind, Fields, Lookup, ReadAt, Reading, Result,
    StepBudget, StoreId, Timestamp, Write,
};
use kvorum_backend_bitcask::BitcaskSettings;
use kvorum_backend_leveldb::LeveldbSettings;
use kvorum_disk::{
    CrashOptions, Disk, MemoryDisk, copy_file, create_directory_durably, read_file, replace_file,
};
use kvorum_encoding::StorageKey;
use kvorum_value_log::{ValueLog, ValueLogSettings};
use proptest::prelude::*;

use crate::tenants::{Engine, Opened, bitcask_settings, leveldb_settings, tenants_of};

const STORES: usize = 3;
const KEYS: usize = 12;
const NOW: Timestamp = Timestamp(1_000_000);
const EARLIER: &str = "earlier";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Bitcask,
    Leveldb,
}

impl Kind {
    /// The copies of the identity or of the manifest.
    fn copies(self) -> [&'static str; 2] {
        match self {
            Self::Bitcask => ["store-0", "store-1"],
            Self::Leveldb => ["manifest-0", "manifest-1"],
        }
    }

    fn small_files(self) -> &'static [&'static str] {
        match self {
            Self::Bitcask => &["store-0", "store-1", "checkpoint"],
            Self::Leveldb => &["manifest-0", "manifest-1"],
        }
    }

    fn engine(self, belonging: Belonging) -> Engine {
        match self {
            Self::Bitcask => Engine::Bitcask(BitcaskSettings {
                belonging,
                file_bytes_max: 2_000,
                checkpoint_after_bytes: 3_000,
                log_segments_behind_max: 2,
                ..bitcask_settings()
            }),
            Self::Leveldb => Engine::Leveldb(LeveldbSettings {
                belonging,
                write_buffer_bytes: 2_000,
                blob_threshold_bytes: 100,
                log_segments_behind_max: 2,
                ..leveldb_settings()
            }),
        }
    }
}

/// The opener's record of its stores.
#[derive(Clone, Copy, Debug)]
enum Knows {
    Nothing,
    Labels,
    Identities,
    Both,
}

const ALL_KNOW: [Knows; 4] = [
    Knows::Nothing,
    Knows::Labels,
    Knows::Identities,
    Knows::Both,
];

/// Random numbers from one seed.
struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: usize) -> usize {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut drawn = self.0;
        drawn = (drawn ^ (drawn >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        drawn = (drawn ^ (drawn >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((drawn ^ (drawn >> 31)) % bound as u64).unwrap()
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// The expected contents of each store, by key.
type Held = [BTreeMap<usize, u64>; STORES];

struct Node {
    log: ValueLog,
    stores: Vec<Opened>,
}

/// A disk with stores, and the opener's record of them.
struct Machine {
    disk: MemoryDisk,
    kind: Kind,
    knows: Knows,
    drawn: Arc<AtomicU64>,
    identities: Option<Vec<StoreId>>,
    held: Held,
    round: u64,
}

impl Machine {
    fn new(kind: Kind, knows: Knows) -> Self {
        Self {
            disk: MemoryDisk::new(),
            kind,
            knows,
            drawn: Arc::new(AtomicU64::new(1_000)),
            identities: None,
            held: Held::default(),
            round: 0,
        }
    }

    fn belonging(&self, number: usize) -> Belonging {
        let label = format!("{number}00");
        let identity = self.identities.as_ref().map(|it| it[number]);
        match self.knows {
            Knows::Nothing => Belonging::default(),
            Knows::Labels => Belonging {
                label,
                identity: None,
            },
            Knows::Identities => Belonging {
                label: String::new(),
                identity,
            },
            Knows::Both => Belonging { label, identity },
        }
    }

    fn open(&mut self) -> Result<Node> {
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let log_settings = ValueLogSettings {
            segment_bytes: 1_500,
            garbage_percent_max: 20,
        };
        let (log, _) = ValueLog::open(disk.clone(), Path::new("log"), 77, log_settings)?;
        let mut stores = Vec::new();
        for number in 0..STORES {
            let drawn = self.drawn.clone();
            let draw = Arc::new(move || drawn.fetch_add(1, Ordering::Relaxed));
            let shared: ValueLog = log.clone();
            let engine = self.kind.engine(self.belonging(number));
            stores.push(engine.open(disk.clone(), &directory_of(number), draw, shared)?);
        }
        log.admit(&tenants_of(&stores))?;
        let identities = stores.iter().map(|it| it.identity()).collect();
        match &self.identities {
            None => self.identities = Some(identities),
            Some(known) => assert_eq!(*known, identities),
        }
        Ok(Node { log, stores })
    }

    /// Puts and removes, with due upkeep now and then.
    fn write(&mut self, node: &Node, draws: &mut Draws, writes: usize) {
        for _ in 0..writes {
            self.round += 1;
            let (store, number) = (draws.below(STORES), draws.below(KEYS));
            let write = match draws.below(5) {
                0 => {
                    self.held[store].remove(&number);
                    Write::remove(key(number))
                }
                _ => {
                    self.held[store].insert(number, self.round);
                    let body = body(store, number, self.round);
                    Write::put(key(number), Fields::default(), Bytes::new(), body)
                }
            };
            let put = node.stores[store].put(&Batch::of(write), Durability::Grouped);
            put.unwrap().wait().unwrap();
            if draws.below(6) == 0 {
                node.upkeep(draws);
            }
        }
    }

    fn check(&self, node: &Node, story: &str) {
        for (number, store) in node.stores.iter().enumerate() {
            // An older checkpoint names segments that were merged since.
            let is_harmless = |held: &str| {
                let is_merged =
                    held.contains("a missing segment") && story.contains("checkpoint is its own");
                held.contains("nothing is lost") || is_merged
            };
            let lost = store.status().lost;
            let is_any_lost = lost.iter().any(|it| !is_harmless(&it.held));
            assert!(!is_any_lost, "{story}: {lost:?}");
            for at in 0..KEYS {
                let expected = self.held[number].get(&at);
                let expected = expected.map(|round| body(number, at, *round));
                let found = get(&**store, at).unwrap();
                assert_eq!(found, expected, "{story}: store {number}, key {at}");
            }
        }
    }

    fn keep_earlier(&self) {
        for number in 0..STORES {
            let kept = Path::new(EARLIER).join(number.to_string());
            create_directory_durably(&self.disk, &kept).unwrap();
            for name in self.kind.small_files() {
                let (from, to) = (directory_of(number).join(name), kept.join(name));
                if self.disk.info(&from).unwrap().is_some() {
                    let bytes = read_file(&self.disk, &from, 1 << 20).unwrap();
                    replace_file(&self.disk, &to, &bytes).unwrap();
                }
            }
        }
    }

    /// Damages one small file of a store; returns a description of the damage.
    fn damage(&self, draws: &mut Draws) -> String {
        let victim = draws.below(STORES);
        let name = draws.one_of(self.kind.small_files());
        let path = directory_of(victim).join(name);
        let Ok(bytes) = read_file(&self.disk, &path, 1 << 20) else {
            return format!("{} is not there yet", path.display());
        };
        let other = (victim + 1 + draws.below(STORES - 1)) % STORES;
        let is_copy = self.kind.copies().contains(&name);
        let source = match is_copy {
            true => draws.one_of(&self.kind.copies()),
            false => name,
        };
        let (what, bytes) = match draws.below(5) {
            0 => {
                self.disk.remove_file(&path).unwrap();
                self.disk.sync_directory(&directory_of(victim)).unwrap();
                return format!("{} is removed", path.display());
            }
            1 => ("zeroes", vec![0; bytes.len()]),
            2 => {
                let mut flipped = bytes;
                let at = draws.below(flipped.len());
                flipped[at] ^= 1 << draws.below(8);
                ("a flip", flipped)
            }
            3 => {
                let earlier = Path::new(EARLIER).join(victim.to_string()).join(name);
                match read_file(&self.disk, &earlier, 1 << 20) {
                    Ok(earlier) => ("its own of an earlier day", earlier),
                    Err(_) => return "nothing of an earlier day".to_owned(),
                }
            }
            _ => match read_file(&self.disk, &directory_of(other).join(source), 1 << 20) {
                Ok(foreign) => ("another store's", foreign),
                Err(_) => return "nothing of another store".to_owned(),
            },
        };
        replace_file(&self.disk, &path, &bytes).unwrap();
        format!("{} is {what}", path.display())
    }
}

impl Node {
    fn upkeep(&self, draws: &mut Draws) {
        let budget = StepBudget { bytes: 10_000 };
        for _ in 0..=draws.below(4) {
            for store in &self.stores {
                for task in store.maintenance_due(NOW) {
                    store.maintenance_step(&task, budget, NOW).unwrap();
                }
            }
            if self.log.is_upkeep_due() {
                self.log.upkeep_step(budget).unwrap();
            }
        }
    }

    fn close(self) {
        for store in &self.stores {
            store.close().unwrap();
        }
    }
}

fn directory_of(store: usize) -> PathBuf {
    PathBuf::from(format!("stores/{store}"))
}

fn key(number: usize) -> StorageKey {
    StorageKey::from_encoded(format!("key {number}").into_bytes())
}

fn body(store: usize, number: usize, round: u64) -> Bytes {
    // Small and large values: leveldb keeps them in different places.
    let len = if number.is_multiple_of(2) { 30 } else { 150 };
    Bytes::from(format!("{store} {number} {round:0len$}"))
}

fn get(store: &dyn Backend, number: usize) -> Result<Option<Bytes>> {
    let at = ReadAt {
        reading: Reading::MayBlock,
        now: NOW,
    };
    match store.get(&key(number), at)? {
        Lookup::Found(entry) => Ok(Some(entry.body)),
        Lookup::Absent => Ok(None),
        Lookup::WouldBlock => panic!("it may block"),
    }
}

/// Ends a run by a clean stop or a power cut.
fn end(machine: &Machine, node: Node, draws: &mut Draws) {
    match draws.below(2) {
        0 => node.close(),
        _ => {
            drop(node);
            machine.disk.crash(CrashOptions::nothing_unsynced());
        }
    }
}

fn run(kind: Kind, knows: Knows, seed: u64) {
    let mut draws = Draws(seed);
    let mut machine = Machine::new(kind, knows);
    let mut story = format!("{kind:?} that knows {knows:?}");
    for _ in 0..3 {
        let node = machine.open().unwrap();
        let writes = 10 + draws.below(60);
        machine.write(&node, &mut draws, writes);
        if draws.below(2) == 0 {
            machine.keep_earlier();
        }
        let writes = draws.below(30);
        machine.write(&node, &mut draws, writes);
        end(&machine, node, &mut draws);
    }
    for _ in 0..3 {
        let what = machine.damage(&mut draws);
        story = format!("{story}; {what}");
        let node = match machine.open() {
            Ok(node) => node,
            // Without any record, nothing may decide between two copies.
            Err(error) if matches!(knows, Knows::Nothing) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{story}: {error}");
                assert!(
                    error.to_string().contains("belong to two stores"),
                    "{error}"
                );
                return;
            }
            Err(error) => panic!("{story}: {error}"),
        };
        machine.check(&node, &story);
        let writes = draws.below(40);
        machine.write(&node, &mut draws, writes);
        drop(node);
        machine.disk.crash(CrashOptions::nothing_unsynced());
        let node = machine
            .open()
            .unwrap_or_else(|error| panic!("{story}: {error}"));
        machine.check(&node, &story);
        end(&machine, node, &mut draws);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) })]

    #[test]
    fn one_small_file_that_is_not_the_stores_own_costs_nothing(seed in any::<u64>()) {
        for kind in [Kind::Bitcask, Kind::Leveldb] {
            let knows = ALL_KNOW[usize::try_from(seed % 4).unwrap()];
            run(kind, knows, seed);
        }
    }
}

/// If both copies are damaged or another store's, nothing identifies the store.
#[test]
fn two_copies_of_another_store_are_refused_and_named() {
    for kind in [Kind::Bitcask, Kind::Leveldb] {
        let mut machine = Machine::new(kind, Knows::Labels);
        let node = machine.open().unwrap();
        machine.write(&node, &mut Draws(1), 50);
        node.close();
        for name in kind.copies() {
            let (from, to) = (directory_of(0).join(name), directory_of(1).join(name));
            machine.disk.remove_file(&to).unwrap();
            copy_file(&machine.disk, &from, &to).unwrap();
        }
        let Err(refused) = machine.open() else {
            panic!("{kind:?}: it was opened");
        };
        let (text, [one, other]) = (refused.to_string(), kind.copies());
        assert_eq!(refused.kind(), ErrorKind::Corrupt);
        assert!(
            text.contains(&format!("{one} belongs to the store 000")),
            "{text}"
        );
        assert!(
            text.contains(&format!("{other} belongs to the store 000")),
            "{text}"
        );
        assert!(text.contains("stores/1"), "{text}");
    }
}

/// A store of the version before has no label: its first opening binds it, and nothing is lost.
#[test]
fn a_store_without_a_label_is_bound_by_its_first_opening() {
    for kind in [Kind::Bitcask, Kind::Leveldb] {
        let mut machine = Machine::new(kind, Knows::Nothing);
        let node = machine.open().unwrap();
        machine.write(&node, &mut Draws(2), 50);
        node.close();
        machine.knows = Knows::Labels;
        let node = machine.open().unwrap();
        machine.check(&node, "bound");
        drop(node);
        machine.disk.crash(CrashOptions::nothing_unsynced());
        for name in kind.copies() {
            let bytes = read_file(&machine.disk, &directory_of(2).join(name), 1 << 20).unwrap();
            assert!(bytes.ends_with(b"\x03200"), "{kind:?} {name}");
        }
        let node = machine.open().unwrap();
        machine.check(&node, "bound and cut from the power");
    }
}
