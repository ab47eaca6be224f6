//! Moves of a bucket from child to child under writes, removals and expiry, cut at operations of
//! the disk and continued afterwards: acknowledged entries are readable at any time, and in the end
//! the target has all.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use kvorum_backend::{
    Backend, Batch, Durability, Fields, Flow, FoldDetail, FoldFilter, FoldRange, IndexEntry,
    IndexRange, Lease, Lookup, MoveStatus, ReadAt, StepBudget, Tag, Timestamp, Write,
};
use kvorum_backend_multi::{DrawNumber, MultiBackend, RouteTable, Routes};
use kvorum_disk::{CrashOptions, Disk, MemoryDisk};
use kvorum_encoding::{Bucket, BucketType, Key, StorageKey, bucket_prefix};
use parking_lot::Mutex;

use crate::children::{self, Engine};

const BEFORE: Timestamp = Timestamp(5);
/// The time at which some entries have expired.
const AFTER: Timestamp = Timestamp(500);
const EXPIRY: Timestamp = Timestamp(100);
const KEYS: u8 = 60;
/// Every engine to every other one, without a value log if neither needs it, and over one.
fn pairs() -> Vec<(Engine, Engine, bool)> {
    let mut pairs = Vec::new();
    for from in Engine::ALL {
        for to in Engine::ALL {
            let over_log = [Engine::Bitcask, Engine::Hanoidb, Engine::Leveldb];
            if from != to {
                pairs.push((from, to, false));
            }
            if from != to && over_log.contains(&from) && over_log.contains(&to) {
                pairs.push((from, to, true));
            }
        }
    }
    assert_eq!(pairs.iter().filter(|it| !it.2).count(), 30);
    pairs
}

#[expect(
    clippy::disallowed_methods,
    reason = "tests are asked for more rounds by it"
)]
fn is_long() -> bool {
    std::env::var("KVORUM_TEST_LONG").is_ok()
}

struct Switched(Mutex<(u64, Arc<RouteTable>)>);

impl Routes for Switched {
    fn version(&self) -> u64 {
        self.0.lock().0
    }

    fn table(&self) -> (u64, Arc<RouteTable>) {
        self.0.lock().clone()
    }
}

fn names() -> (BucketType, Bucket) {
    (BucketType::default_type(), Bucket::from("moving"))
}

fn key(number: u8) -> StorageKey {
    let (of_type, bucket) = names();
    StorageKey::new(
        &of_type,
        &bucket,
        &Key::from(format!("k{number:03}").into_bytes()),
    )
}

fn elsewhere(number: u8) -> StorageKey {
    let of_type = BucketType::default_type();
    StorageKey::new(
        &of_type,
        &Bucket::from("staying"),
        &Key::from(format!("k{number}").into_bytes()),
    )
}

/// The head of the entries here is the term of their index entry.
fn entries_of(_: Tag, head: &Bytes, _: &Bytes) -> Vec<IndexEntry> {
    vec![IndexEntry {
        field: Bytes::from_static(b"f_bin"),
        term: head.clone(),
    }]
}

/// The possible entries of a key: the last acknowledged one, and those of failed puts since.
#[derive(Clone, Debug, Default)]
struct May {
    values: Vec<Option<u8>>,
    expires: bool,
}

struct Trial {
    disk: MemoryDisk,
    engines: [(&'static str, Engine); 2],
    routes: Arc<Switched>,
    draw: DrawNumber,
    is_over_log: bool,
    store: MultiBackend,
    model: BTreeMap<StorageKey, May>,
    now: Timestamp,
    puts: u8,
}

fn open(
    disk: &MemoryDisk,
    engines: &[(&'static str, Engine); 2],
    routes: &Arc<Switched>,
    draw: &DrawNumber,
    is_over_log: bool,
) -> kvorum_backend::Result<MultiBackend> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let (routes, moves) = (routes.clone(), Box::new(entries_of));
    let place = Path::new("s");
    children::open_with(
        &disk,
        place,
        engines,
        routes,
        draw,
        Some(moves),
        is_over_log,
    )
}

impl Trial {
    fn new((source, target, is_over_log): (Engine, Engine, bool)) -> Self {
        let drawn = AtomicU64::new(1);
        let draw: DrawNumber = Arc::new(move || drawn.fetch_add(1, Ordering::Relaxed));
        let (disk, engines) = (
            MemoryDisk::with_capacity(64 << 20),
            [("from", source), ("to", target)],
        );
        let routes = Arc::new(Switched(Mutex::new((0, Arc::new(RouteTable::to(0))))));
        let store = open(&disk, &engines, &routes, &draw, is_over_log).unwrap();
        let mut trial = Self {
            disk,
            engines,
            routes,
            draw,
            is_over_log,
            store,
            model: BTreeMap::new(),
            now: BEFORE,
            puts: 0,
        };
        for number in 0..KEYS {
            assert!(trial.put(key(number), number.is_multiple_of(5)));
            assert!(trial.put(elsewhere(number % 4), false));
        }
        trial
    }

    fn route(&self, child: usize) {
        let (of_type, bucket) = names();
        let mut table = RouteTable::to(0);
        table.route_bucket(&of_type, &bucket, child);
        let mut routes = self.routes.0.lock();
        *routes = (routes.0 + 1, Arc::new(table));
    }

    /// True when it was acknowledged.
    fn write(&mut self, key: StorageKey, value: Option<u8>, expires: bool) -> bool {
        let write = match value {
            None => Write::remove(key.clone()),
            Some(value) => {
                let head = Bytes::from(vec![value]);
                Write::Put {
                    key: key.clone(),
                    fields: Fields {
                        expiry: expires.then_some(EXPIRY),
                        ..Fields::default()
                    },
                    index_entries: entries_of(Tag::default(), &head, &head),
                    head,
                    body: Bytes::from(vec![value; 100 + 10 * usize::from(value % 80)]),
                    old: kvorum_backend::OldEntry::UNKNOWN,
                }
            }
        };
        let put = self.store.put(&Batch::of(write), Durability::Grouped);
        let is_ok = put.is_ok_and(|it| it.wait().is_ok());
        let may = self.model.entry(key).or_default();
        if is_ok {
            may.values.clear();
        } else if may.values.is_empty() {
            may.values.push(None);
        }
        may.values.push(value);
        may.expires = expires || (!is_ok && may.expires);
        is_ok
    }

    fn put(&mut self, key: StorageKey, expires: bool) -> bool {
        self.puts = self.puts.wrapping_add(1);
        self.write(key, Some(self.puts), expires)
    }

    /// A step of upkeep and a write after each; false when a call failed, or nothing is due any
    /// more.
    fn turn(&mut self, number: u8) -> bool {
        let due = self.store.maintenance_due(self.now);
        let Some(task) = due.first() else {
            return false;
        };
        let budget = StepBudget { bytes: 3_000 };
        if self.store.maintenance_step(task, budget, self.now).is_err() {
            return false;
        }
        let key = key(number.wrapping_mul(7) % KEYS);
        match number % 4 {
            0 => self.write(key, None, false),
            1 => self.put(key, number.is_multiple_of(3)),
            _ => true,
        }
    }

    fn value(&self, key: &StorageKey) -> Option<u8> {
        match self.store.get(key, ReadAt::may_block(self.now)).unwrap() {
            Lookup::Found(entry) => Some(entry.head[0]),
            _ => None,
        }
    }

    fn look(&self) {
        let snapshot = self.store.snapshot(Lease::Unlimited).unwrap();
        let mut folded = BTreeMap::new();
        let filter = FoldFilter::unexpired(self.now);
        let end = snapshot.fold(FoldDetail::Heads, &FoldRange::all(), &filter, &mut |it| {
            folded.insert(it.key.clone(), it.head[0]);
            Flow::Continue
        });
        end.unwrap();
        for (key, may) in &self.model {
            let value = self.value(key);
            let has_expired = may.expires && self.now >= EXPIRY;
            let is_allowed = may.values.contains(&value) || (has_expired && value.is_none());
            assert!(
                is_allowed,
                "{key:?} is {value:?} instead of {may:?} in {:?}",
                self.engines
            );
            assert_eq!(folded.get(key).copied(), value, "{key:?}");
        }
    }

    /// Takes the present entries of uncertain keys for the truth.
    fn settle(&mut self) {
        let keys: Vec<StorageKey> = self.model.keys().cloned().collect();
        for key in keys {
            let value = self.value(&key);
            let may = self.model.entry(key).or_default();
            let has_expired = may.expires && self.now >= EXPIRY;
            if !has_expired {
                may.values = vec![value];
            }
        }
    }

    fn crash(&mut self, options: CrashOptions) {
        self.disk = self.disk.crash_image(options);
        self.reopen();
        for (_, engine) in self.engines {
            if engine == Engine::Memory {
                self.forget();
            }
        }
        self.look();
        self.settle();
    }

    fn reopen(&mut self) {
        let (engines, is_over_log) = (&self.engines, self.is_over_log);
        self.store = open(&self.disk, engines, &self.routes, &self.draw, is_over_log).unwrap();
    }

    /// Forgets the entries that only memory had.
    fn forget(&mut self) {
        for may in self.model.values_mut() {
            may.values.push(None);
        }
    }

    fn finish(&self) {
        let budget = StepBudget { bytes: 1 << 16 };
        for _ in 0..2_000 {
            let Some(task) = self.store.maintenance_due(self.now).into_iter().next() else {
                return;
            };
            self.store
                .maintenance_step(&task, budget, self.now)
                .unwrap();
        }
        panic!(
            "upkeep does not end: {:?}",
            self.store.maintenance_due(self.now)
        );
    }

    /// Keys of the bucket in a child, expired ones included.
    fn keys_in(&self, child: usize) -> usize {
        let (of_type, bucket) = names();
        let store = &self.store.children()[child].store;
        let snapshot = store.snapshot(Lease::Unlimited).unwrap();
        let range = FoldRange::prefix(&bucket_prefix(&of_type, &bucket));
        let (mut keys, filter) = (0, FoldFilter::unexpired(self.now));
        let end = snapshot.fold(FoldDetail::Keys, &range, &filter, &mut |_| {
            keys += 1;
            Flow::Continue
        });
        end.map(|_| keys).unwrap()
    }

    fn indexed(&self) -> Option<usize> {
        let (of_type, bucket) = names();
        let prefix = bucket_prefix(&of_type, &bucket);
        let range = IndexRange {
            bucket_prefix: prefix.clone().into(),
            field: Bytes::from_static(b"f_bin"),
            from: std::ops::Bound::Unbounded,
            to: std::ops::Bound::Unbounded,
            after: None,
        };
        let indexes = self.store.indexes_of(&prefix)?;
        let mut count = 0;
        let end = indexes.fold_index(&range, Lease::Unlimited, self.now, &mut |_, _| {
            count += 1;
            Flow::Continue
        });
        end.map(|_| count).ok()
    }

    fn moves(&self) -> Vec<MoveStatus> {
        self.store.moves().unwrap().moves()
    }

    /// All entries of the bucket are in this child, with its index entries if it has any.
    fn check_all_in(&self, child: usize) {
        self.look();
        let there = |key: &StorageKey| self.value(key).is_some();
        let wanted = (0..KEYS).filter(|it| there(&key(*it))).count();
        assert!(wanted > 0 || self.engines[0].1 == Engine::Memory);
        assert_eq!((self.keys_in(child), self.keys_in(1 - child)), (wanted, 0));
        if let Some(indexed) = self.indexed() {
            assert_eq!(indexed, wanted);
        }
        let none_waits = self.moves().iter().all(MoveStatus::has_ended);
        assert!(none_waits, "{:?}", self.moves());
    }
}

#[test]
fn a_bucket_moves_under_writes_and_its_index_comes_along() {
    for pair in pairs() {
        let mut trial = Trial::new(pair);
        trial.finish();
        assert_eq!(trial.moves(), []);
        trial.route(1);
        for number in 0..60 {
            trial.turn(number);
            trial.look();
        }
        trial.now = AFTER;
        trial.finish();
        trial.check_all_in(1);
        let moves = trial.moves();
        assert_eq!(moves[0].phase, "moved", "{pair:?}: {moves:?}");
        assert!(
            moves[0].keys_copied > 0 && moves[0].bytes_estimate > 0,
            "{moves:?}"
        );
    }
}

#[test]
fn a_cut_in_the_middle_of_a_move_loses_nothing_and_the_move_goes_on() {
    let rounds = match is_long() {
        true => 12,
        false => 3,
    };
    for pair in pairs() {
        let mut whole = Trial::new(pair);
        let before = whole.disk.operations();
        whole.route(1);
        (0..60).all(|number| whole.turn(number));
        let operations = whole.disk.operations() - before;
        let stride = (operations / rounds).max(1);
        for cut in (0..operations).step_by(usize::try_from(stride).unwrap()) {
            let mut trial = Trial::new(pair);
            trial.disk.cut_after(trial.disk.operations() + cut);
            trial.route(1);
            (0..60).all(|number| trial.turn(number));
            let options = match cut % 3 {
                0 => CrashOptions::nothing_unsynced(),
                1 => CrashOptions::everything(),
                _ => CrashOptions::drawn(cut),
            };
            trial.crash(options);
            (0..9).all(|number| trial.turn(number));
            trial.look();
            trial.finish();
            trial.check_all_in(1);
        }
    }
}

#[test]
fn a_move_is_taken_back_when_the_route_goes_back() {
    for pair in pairs() {
        let mut trial = Trial::new(pair);
        trial.route(1);
        for number in 0..40 {
            trial.turn(number);
        }
        trial.route(0);
        for number in 40..60 {
            trial.turn(number);
            trial.look();
        }
        trial.finish();
        trial.check_all_in(0);
    }
}

/// Without room nothing is copied, everything stays visible, and the move begins when there is
/// room.
#[test]
fn a_move_waits_for_room() {
    let mut trial = Trial::new((Engine::Bitcask, Engine::Leveldb, false));
    let estimate = {
        let (of_type, bucket) = names();
        let scope = bucket_prefix(&of_type, &bucket);
        let moves = trial.store.moves().unwrap();
        moves.estimate(&scope, "to", BEFORE).unwrap()
    };
    assert_eq!(estimate.keys, u64::from(KEYS));
    assert!(estimate.bytes > 6_000 && estimate.needed_bytes > estimate.bytes);
    assert!(estimate.available_bytes > estimate.needed_bytes);
    let filler = Filler::leaving(&trial.disk, estimate.needed_bytes / 2);
    trial.route(1);
    for _ in 0..40 {
        trial.turn(2);
    }
    trial.look();
    assert_eq!(trial.keys_in(1), 0);
    assert_eq!(trial.moves()[0].phase, "no_room");
    filler.remove();
    trial.finish();
    trial.check_all_in(1);
}

/// A file that takes most of a disk.
struct Filler(MemoryDisk);

impl Filler {
    const PATH: &str = "filler";

    fn leaving(disk: &MemoryDisk, left_bytes: u64) -> Self {
        let (path, room) = (
            Path::new(Self::PATH),
            disk.space(Path::new("s")).unwrap().available,
        );
        kvorum_disk::replace_file(disk, path, &[]).unwrap();
        let file = disk.open(path, kvorum_disk::OpenMode::ReadWrite).unwrap();
        file.allocate(room - left_bytes).unwrap();
        Self(disk.clone())
    }

    fn remove(self) {
        self.0.remove_file(Path::new(Self::PATH)).unwrap();
    }
}

/// The disk is full once some copies are made. Nothing is lost, acknowledged entries are readable,
/// and the move continues when there is room.
#[test]
fn a_disk_that_fills_in_the_middle_loses_nothing_and_the_move_goes_on() {
    for pair in pairs() {
        let mut trial = Trial::new(pair);
        trial.route(1);
        for turn in 0.. {
            assert!(turn < 200, "nothing is copied: {pair:?}");
            if trial.keys_in(1) >= 12 {
                break;
            }
            trial.turn(2);
        }
        let filler = Filler::leaving(&trial.disk, 200);
        for number in 0..40 {
            trial.turn(number);
            trial.look();
        }
        filler.remove();
        // A store that has failed at the full disk serves again when it is opened again.
        trial.crash(CrashOptions::everything());
        trial.look();
        trial.finish();
        trial.check_all_in(1);
    }
}

/// Consecutive queries without a gap, each longer than a part of the move would wait.
#[test]
fn queries_without_a_break_do_not_hold_off_a_move() {
    let trial = Trial::new((Engine::Leveldb, Engine::Hanoidb, false));
    trial.finish();
    trial.route(1);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let bucket = {
        let (of_type, bucket) = names();
        bucket_prefix(&of_type, &bucket)
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let found = slowly_indexed(&trial.store, &bucket);
                    assert_eq!(found, usize::from(KEYS));
                }
            });
        }
        trial.finish();
        is_over.store(true, Ordering::Relaxed);
    });
    trial.check_all_in(1);
}

/// The entries of a query that takes some time for each, in order and without one twice.
#[expect(
    clippy::disallowed_methods,
    reason = "a part of a move waits in the time of the machine"
)]
fn slowly_indexed(store: &MultiBackend, bucket: &[u8]) -> usize {
    let range = IndexRange {
        bucket_prefix: Bytes::copy_from_slice(bucket),
        field: Bytes::from_static(b"f_bin"),
        from: std::ops::Bound::Unbounded,
        to: std::ops::Bound::Unbounded,
        after: None,
    };
    let indexes = store.indexes_of(bucket).unwrap();
    let mut found = Vec::new();
    let end = indexes.fold_index(&range, Lease::Unlimited, BEFORE, &mut |term, key| {
        std::thread::sleep(std::time::Duration::from_micros(300));
        found.push((term.clone(), key.clone()));
        Flow::Continue
    });
    end.unwrap();
    assert!(found.is_sorted_by(|one, next| one < next));
    found.len()
}

/// A pin precedes all routes and outlives a stop, and all goes back when it is removed.
#[test]
fn a_pinned_store_has_all_in_one_child_until_it_is_taken_back() {
    for pair in [
        (Engine::Bitcask, Engine::Leveldb, false),
        (Engine::Leveled, Engine::Innostore, false),
    ] {
        let mut trial = Trial::new(pair);
        trial.finish();
        let moves = trial.store.moves().unwrap();
        assert!(moves.pin(Some("other")).is_err());
        moves.pin(Some("to")).unwrap();
        for number in 0..10 {
            trial.turn(number);
            trial.look();
        }
        trial.crash(CrashOptions::nothing_unsynced());
        let pinned = trial.store.moves().unwrap().pinned().unwrap();
        assert_eq!((&pinned.name[..], pinned.is_there), ("to", true));
        trial.finish();
        trial.check_all_in(1);
        assert_eq!(all_in(&trial, 0), 0, "the other bucket went too");
        trial.store.moves().unwrap().pin(None).unwrap();
        for number in 0..10 {
            trial.turn(number);
            trial.look();
        }
        trial.crash(CrashOptions::everything());
        trial.finish();
        trial.check_all_in(0);
        assert_eq!(all_in(&trial, 1), 0);
        assert_eq!(trial.store.moves().unwrap().pinned(), None);
        // From here on the default moves nothing by itself.
        *trial.routes.0.lock() = (99, Arc::new(RouteTable::to(1)));
        trial.finish();
        assert!(all_in(&trial, 0) > 0);
    }
}

/// The pin of a partition that comes from another node may name a backend that this node declares
/// later: until then the routes count, and from then on everything goes there.
#[test]
fn a_pin_that_is_taken_over_counts_once_its_child_is_there() {
    let mut trial = Trial::new((Engine::Bitcask, Engine::Memory, false));
    trial.finish();
    let moves = trial.store.moves().unwrap();
    moves.take_over_pin(Some("later")).unwrap();
    let pinned = moves.pinned().unwrap();
    assert_eq!((&pinned.name[..], pinned.is_there), ("later", false));
    trial.finish();
    trial.check_all_in(0);
    trial.engines[1] = ("later", Engine::Leveldb);
    trial.crash(CrashOptions::nothing_unsynced());
    let pinned = trial.store.moves().unwrap().pinned().unwrap();
    assert_eq!((&pinned.name[..], pinned.is_there), ("later", true));
    trial.finish();
    trial.check_all_in(1);
    assert_eq!(all_in(&trial, 0), 0, "the other bucket went too");
    trial.store.moves().unwrap().take_over_pin(None).unwrap();
    trial.finish();
    trial.check_all_in(0);
    assert_eq!(trial.store.moves().unwrap().pinned(), None);
}

/// Keys in a child, of any bucket.
fn all_in(trial: &Trial, child: usize) -> usize {
    let store = &trial.store.children()[child].store;
    let snapshot = store.snapshot(Lease::Unlimited).unwrap();
    let (mut keys, filter) = (0, FoldFilter::unexpired(trial.now));
    let end = snapshot.fold(FoldDetail::Keys, &FoldRange::all(), &filter, &mut |_| {
        keys += 1;
        Flow::Continue
    });
    end.map(|_| keys).unwrap()
}
