//! Stores over a value log on a disk that their clients fill: random overwrites, deletes, rests, restarts
//! and power cuts, with the arbiter over virtual time. The disk counts whole blocks, including
//! those of removed files that are still open.
//!
//! Regression: a node whose disk was filled by overwrites refused puts and deletes for good. Merges
//! and collections need room for their copies before they free any, and clients had taken all of
//! it. Other nodes held far more than their live data in segments that were still written, and in
//! removed files that were open.
//!
//! The seed is drawn again in each run; `KVORUM_TEST_SEED` sets it.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kvorum_arbiter::{
    Answer, Arbiter, Budgets, Decision, Ended, Event, Looked, Order, Owner, StepResult,
};
use kvorum_backend::{
    Backend, Batch, Durability, ErrorKind, Fields, Lookup, ReadAt, Reading, StepOutcome, Tag,
    TaskKind, Timestamp, Write,
};
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings, MergePolicy};
use kvorum_backend_hanoidb::{Hanoidb, HanoidbSettings};
use kvorum_backend_innostore::{Innostore, InnostoreSettings};
use kvorum_backend_leveldb::{Leveldb, LeveldbSettings, Shared};
use kvorum_backend_leveled::{LeveledSettings, open as open_leveled};
use kvorum_disk::{CrashOptions, Disk, MemoryDisk};
use kvorum_encoding::StorageKey;
use kvorum_maintenance::{MaintainedLog as _, disk_room, step_name};
use kvorum_runtime::{Moment, Randomness, SeededRandomness};
use kvorum_value_log::{Tenant, ValueLog, ValueLogSettings};

use crate::maintained_value_log::MaintainedValueLog;

const STORES: u16 = 4;
const CAPACITY_BYTES: u64 = 32 << 20;
const BLOCK_BYTES: u64 = 4096;
/// Far more than the disk has room for, and so cut to its room.
const LOG_SEGMENT_BYTES: u64 = 64 << 20;
/// Length of the log's segments on a disk of this size.
const SEGMENT_BYTES: u64 = 1 << 20;
/// Values that mostly stay in the log, and values that are small enough for the tables of leveldb.
const LARGE_VALUE_BYTES: u64 = 16 << 10;
const SMALL_VALUE_BYTES: u64 = 100;
/// Bytes that a store may keep beyond the bound at any amount of live data: garbage that is not worth a
/// merge, and the files that every store has. A node of the usual size has no more of it.
const STORE_BYTES: u64 = 512 << 10;
/// Approximate bytes of an entry without its value: its key, its head and their frame.
const ENTRY_BYTES: u64 = 100;
/// Seconds for which a removal of a small value may be refused.
const WAITS_MAX: u32 = 20;
const BYTES_PER_SECOND: f64 = 50e6;
const REST: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Engine {
    Bitcask,
    Leveldb,
    Leveled,
    Hanoidb,
    Innostore,
}

struct World {
    engine: Engine,
    /// Values have this many bytes at most.
    value_bytes_max: u64,
    seed: u64,
    arbiter: Arbiter,
    stores: Vec<Arc<dyn Backend>>,
    log: MaintainedValueLog,
    disk: MemoryDisk,
    randomness: Arc<SeededRandomness>,
    now: Moment,
    puts: u64,
    refused: u64,
    no_space: u64,
    /// The newest values.
    live: BTreeMap<(usize, u64), Bytes>,
}

impl World {
    fn new(engine: Engine, value_bytes_max: u64, seed: u64) -> Self {
        let disk = MemoryDisk::with_blocks(CAPACITY_BYTES, BLOCK_BYTES);
        let randomness = Arc::new(SeededRandomness::new(seed));
        let (stores, log) = open(engine, &disk, &randomness);
        Self {
            engine,
            value_bytes_max,
            seed,
            arbiter: Arbiter::new(Budgets::default()),
            stores,
            log,
            disk,
            randomness,
            now: Moment::default(),
            puts: 0,
            refused: 0,
            no_space: 0,
            live: BTreeMap::new(),
        }
    }

    /// Closes everything, and opens it again.
    fn restart(&mut self) {
        for store in self.stores.drain(..) {
            store.close().unwrap();
        }
        self.log.values.stop();
        self.open_again();
    }

    /// Cuts the power: some unsynced writes are gone.
    fn cut_power(&mut self) {
        let options = CrashOptions::drawn(self.randomness.next_u64());
        let image = self.disk.crash_image(options);
        self.log.values.stop();
        self.stores.clear();
        self.disk = image;
        self.open_again();
    }

    fn open_again(&mut self) {
        let (stores, log) = open(self.engine, &self.disk, &self.randomness);
        (self.stores, self.log) = (stores, log);
        self.arbiter = Arbiter::new(Budgets::default());
    }

    /// Restarts the node, cuts its power, or does neither.
    fn stop_or_go_on(&mut self) {
        match self.below(3) {
            0 => self.restart(),
            1 => self.cut_power(),
            _ => {}
        }
    }

    fn below(&self, bound: u64) -> u64 {
        self.randomness.next_u64() % bound
    }

    fn wall_time(&self) -> Timestamp {
        let micros = u64::try_from(self.now.elapsed().as_micros()).unwrap();
        Timestamp(1_700_000_000_000_000 + micros)
    }

    fn fields(&self, tag: Tag) -> Fields {
        Fields {
            segment: 1,
            last_modified: self.wall_time(),
            expiry: None,
            tag,
        }
    }

    /// Puts a value that does not compress under each key, in one batch; false when the disk is full.
    fn put(&mut self, store: usize, keys: &[u64], len: u64) -> bool {
        let head = Bytes::from_static(b"head");
        let mut batch = Batch::default();
        let mut bodies = Vec::new();
        for key in keys {
            let words = (0..len.div_ceil(8)).flat_map(|_| self.randomness.next_u64().to_le_bytes());
            let body: Bytes = words.collect::<Vec<u8>>().into();
            let fields = self.fields(Tag(0));
            batch
                .writes
                .push(Write::put(name(*key), fields, head.clone(), body.clone()));
            bodies.push(((store, *key), body));
        }
        let is_put = self.write(store, &batch);
        if is_put {
            self.live.extend(bodies);
        } else {
            self.refused += 1;
        }
        is_put
    }

    /// The keys of one put. Small values are put many at a time, to keep the test short.
    fn keys(&self, mut next: impl FnMut() -> u64) -> Vec<u64> {
        let count = match self.value_bytes_max {
            SMALL_VALUE_BYTES => 16,
            _ => 1,
        };
        (0..count).map(|_| next()).collect()
    }

    /// Deletes a key as clients do, by a tombstone that is removed later, or at once.
    fn delete(&mut self, store: usize, key: u64) {
        let fields = self.fields(Tag::TOMBSTONE);
        let tombstone = Write::put(name(key), fields, Bytes::from_static(b"head"), Bytes::new());
        for write in [tombstone, Write::remove(name(key))] {
            let batch = Batch::of(write);
            let is_small = self.value_bytes_max == SMALL_VALUE_BYTES;
            let mut is_taken = self.write(store, &batch);
            // Removals of small values take nearly the bytes that they free, and may have to wait for
            // upkeep.
            for _ in 0..WAITS_MAX {
                if is_taken || !is_small {
                    break;
                }
                self.run(Duration::from_secs(1));
                is_taken = self.write(store, &batch);
            }
            assert!(
                is_taken,
                "{}: a delete was refused; {}",
                self.answer(),
                self.listed()
            );
        }
        self.live.remove(&(store, key));
    }

    /// False when the disk is full.
    fn write(&mut self, store: usize, batch: &Batch) -> bool {
        self.puts += 1;
        let put = self.stores[store].put(batch, Durability::Grouped);
        match put.and_then(kvorum_backend::Receipt::wait) {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::Full => false,
            Err(error) => panic!("{}: {error}", self.answer()),
        }
    }

    /// Runs background work for some time.
    fn run(&mut self, duration: Duration) {
        let end = self.now.plus(duration);
        while self.now < end {
            match self.arbiter.decide(self.now) {
                Decision::Look => self.look(),
                Decision::Ask(owner) => {
                    let answer = self.due(owner);
                    self.arbiter
                        .step(Event::Answered { owner, answer }, self.now);
                }
                Decision::Step(order) => self.work(order),
                Decision::Syncs(orders) => orders.into_iter().for_each(|order| self.work(order)),
                Decision::Rest(rest) => self.now = self.now.plus(rest),
            }
        }
    }

    fn look(&mut self) {
        let stores = (0..STORES).map(|at| (Owner::Store(at), self.puts));
        let log = (Owner::ValueLog, self.log.batches());
        let looked = Looked {
            written: stores.chain([log]).collect(),
            disk: disk_room(self.log.values.reserve()),
            ..Looked::default()
        };
        self.arbiter.step(Event::Looked(looked), self.now);
    }

    fn due(&self, owner: Owner) -> Answer {
        let Owner::Store(at) = owner else {
            return self.log.due(self.wall_time());
        };
        let store = &self.stores[usize::from(at)];
        let status = store.status();
        Answer {
            tasks: store.maintenance_due(self.wall_time()),
            put_bytes: status.put_bytes,
            backlog_bytes: status.backlog_bytes,
            memory_bytes: status.memory_bytes,
        }
    }

    fn work(&mut self, order: Order) {
        let now = self.wall_time();
        let step = match order.owner {
            Owner::ValueLog => self.log.step(&order.task, order.budget),
            Owner::Store(at) => {
                let store = &self.stores[usize::from(at)];
                match order.task.kind {
                    TaskKind::Sync => store.sync().map(|_| StepOutcome::nothing_left()),
                    _ => store.maintenance_step(&order.task, order.budget, now),
                }
            }
        };
        let result = match step {
            Ok(outcome) => StepResult::Done(outcome),
            Err(error) if error.kind() == ErrorKind::Full => StepResult::NoSpace,
            Err(error) => panic!("{}: {}: {error}", self.answer(), step_name(&order)),
        };
        self.no_space += u64::from(result == StepResult::NoSpace);
        let bytes = match result {
            StepResult::Done(outcome) => outcome.cost_bytes,
            StepResult::Failed | StepResult::NoSpace => 0,
        };
        let took = Duration::from_secs_f64(bytes as f64 / BYTES_PER_SECOND + 1e-4);
        self.now = self.now.plus(took);
        let cpu = took / 2;
        let ended = Ended { result, took, cpu };
        self.arbiter.step(Event::Ended { order, ended }, self.now);
    }

    fn used_bytes(&self) -> u64 {
        let space = self.disk.space(Path::new("")).unwrap();
        space.total - space.available
    }

    fn live_bytes(&self) -> u64 {
        let of = |body: &Bytes| body.len() as u64 + ENTRY_BYTES;
        self.live.values().map(of).sum()
    }

    /// The least live bytes on a disk that refuses puts.
    fn live_bytes_expected(&self) -> u64 {
        match self.engine {
            // With keys in random order, leaves of a tree are two thirds full, and some half full.
            Engine::Innostore => CAPACITY_BYTES * 3 / 8,
            Engine::Bitcask | Engine::Leveldb | Engine::Leveled | Engine::Hanoidb => {
                CAPACITY_BYTES / 2
            }
        }
    }

    fn check_bound(&self) {
        let (used, live) = (self.used_bytes(), self.live_bytes());
        // Superseded entries in older tables of leveldb count as used until these are merged.
        let bound = match self.engine {
            Engine::Bitcask => live * 3 / 2,
            Engine::Leveldb | Engine::Leveled | Engine::Hanoidb | Engine::Innostore => live * 3,
        };
        let bound = bound + 4 * SEGMENT_BYTES + u64::from(STORES) * STORE_BYTES;
        assert!(
            used <= bound,
            "{}: {used} bytes are used and {bound} expected at most, with {live} that live; {}",
            self.answer(),
            self.listed(),
        );
    }

    fn check_values(&self) {
        let at = ReadAt {
            reading: Reading::MayBlock,
            now: self.wall_time(),
        };
        for ((store, key), body) in &self.live {
            match self.stores[*store].get(&name(*key), at) {
                Ok(Lookup::Found(entry)) if entry.body == *body => {}
                other => panic!("{}: key {key} of store {store}: {other:?}", self.answer()),
            }
        }
    }

    fn answer(&self) -> String {
        format!(
            "{:?}, KVORUM_TEST_SEED={}, {} writes, {} refused, {} steps without space",
            self.engine, self.seed, self.puts, self.refused, self.no_space
        )
    }

    /// A listing of the disk, for people.
    fn listed(&self) -> String {
        let mut left = vec![PathBuf::new()];
        let mut sums = BTreeMap::<String, (u64, u64)>::new();
        while let Some(directory) = left.pop() {
            for entry in self.disk.list(&directory).unwrap_or_default() {
                let path = directory.join(&entry.name);
                match self.disk.info(&path).unwrap() {
                    Some(info) if info.kind == kvorum_disk::EntryKind::File => {
                        let of = format!("{}/{:?}", directory.display(), path.extension());
                        let sum = sums.entry(of).or_default();
                        *sum = (sum.0 + 1, sum.1 + info.len);
                    }
                    _ => left.push(path),
                }
            }
        }
        let due = self.arbiter.report(self.now).due;
        let log = self.log.values.status();
        let headroom = self.log.values.reserve().seen();
        format!("{sums:?}; {log:?}; {headroom:?}; due: {due:?}")
    }
}

fn name(key: u64) -> StorageKey {
    StorageKey::from_encoded(format!("key {key:08}").into_bytes())
}

fn open(
    engine: Engine,
    disk: &MemoryDisk,
    randomness: &Arc<SeededRandomness>,
) -> (Vec<Arc<dyn Backend>>, MaintainedValueLog) {
    let seam: Arc<dyn Disk> = Arc::new(disk.clone());
    let settings = ValueLogSettings {
        segment_bytes: LOG_SEGMENT_BYTES,
        garbage_percent_max: 30,
    };
    let (values, _) = ValueLog::open(seam.clone(), Path::new("log"), 3, settings).unwrap();
    let shared = Shared::new(1 << 20, 64 << 20);
    let open = |number: u16| -> (Arc<dyn Backend>, Arc<dyn Tenant>) {
        let directory = PathBuf::from(format!("store-{number}"));
        let drawn = randomness.clone();
        let draw = Arc::new(move || drawn.next_u64());
        let (seam, log) = (seam.clone(), values.clone());
        match engine {
            Engine::Bitcask => {
                let own = BitcaskSettings::default();
                let store = Bitcask::open(seam, &directory, own, draw, Some(log));
                let store = Arc::new(store.unwrap());
                (store.clone(), store)
            }
            Engine::Leveldb => {
                let (own, shared) = (LeveldbSettings::default(), shared.clone());
                let store = Leveldb::open(seam, &directory, &own, shared, draw, Some(log));
                let store = store.unwrap();
                let tenant = store.tenant();
                (Arc::new(store), tenant)
            }
            Engine::Hanoidb => {
                let (own, shared) = (HanoidbSettings::default(), shared.clone());
                let store = Hanoidb::open(seam, &directory, &own, shared, draw, Some(log));
                let store = store.unwrap();
                let tenant = store.tenant();
                (Arc::new(store), tenant)
            }
            Engine::Innostore => {
                let own = InnostoreSettings::default();
                let shared = kvorum_backend_innostore::Shared::new(1 << 20);
                let store = Innostore::open(seam, &directory, &own, shared, draw, log).unwrap();
                let tenant = store.tenant();
                (Arc::new(store), tenant)
            }
            Engine::Leveled => {
                let (own, shared) = (LeveledSettings::default(), shared.clone());
                let store = open_leveled(seam, &directory, &own, shared, draw, log);
                let store = store.unwrap();
                let tenant = store.tenant();
                (Arc::new(store), tenant)
            }
        }
    };
    let (stores, tenants): (Vec<_>, Vec<_>) = (0..STORES).map(open).unzip();
    values.admit(&tenants).unwrap();
    let log = MaintainedValueLog {
        values,
        merges: MergePolicy::Always,
    };
    (stores, log)
}

fn seed() -> u64 {
    let given = std::env::var("KVORUM_TEST_SEED").ok();
    let fresh = || std::hash::RandomState::new().build_hasher().finish();
    given
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(fresh)
}

/// Overwrites at full speed until the disk is full or much was put, with some deletes, and rests:
/// each rest frees space again.
fn overwrites_fill_it_and_it_heals(engine: Engine, value_bytes_max: u64) {
    let mut world = World::new(engine, value_bytes_max, seed());
    // Live data takes a third of the disk at most.
    let keys = (2 << 20) / value_bytes_max;
    let keys = keys + world.below(keys);
    for _ in 0..3 {
        let mut written = 0;
        let most = CAPACITY_BYTES / 2 + world.below(2 * CAPACITY_BYTES);
        let pause = Duration::from_micros(world.below(4_000));
        while written < most {
            let store = usize::try_from(world.below(STORES.into())).unwrap();
            if world.below(20) == 0 {
                world.delete(store, world.below(keys));
                continue;
            }
            let some = world.keys(|| world.below(keys));
            let len = 1 + world.below(value_bytes_max);
            if !world.put(store, &some, len) && world.below(100) == 0 {
                break;
            }
            written += some.len() as u64 * (len + ENTRY_BYTES);
            world.run(pause);
        }
        world.stop_or_go_on();
        world.check_values();
        world.run(REST);
        world.check_bound();
        let is_put = world.put(0, &[0], value_bytes_max);
        assert!(
            is_put,
            "{}: puts are refused after a rest; {}",
            world.answer(),
            world.listed()
        );
    }
    world.check_values();
}

/// Fills the disk with live data, so that nothing can be freed: puts are refused, and deletes are
/// not and soon free room for puts.
fn deletes_make_room_on_a_disk_full_of_what_lives(engine: Engine, value_bytes_max: u64) {
    let mut world = World::new(engine, value_bytes_max, seed());
    let mut keys = 0_u64;
    let mut refused = 0;
    while refused < 20 {
        let store = usize::try_from(world.below(STORES.into())).unwrap();
        let mut next = keys;
        // Keys from the whole range.
        let some = world.keys(|| {
            next += 1;
            next.reverse_bits() >> 40
        });
        match world.put(store, &some, value_bytes_max) {
            true => keys = next,
            false => refused += 1,
        }
        world.run(Duration::from_millis(5));
    }
    world.run(REST);
    let is_put = world.put(0, &[0], 1);
    let live = world.live_bytes();
    assert!(
        !is_put || live > world.live_bytes_expected(),
        "{}: puts were refused with {live} bytes that live; {}",
        world.answer(),
        world.listed()
    );
    let all: Vec<(usize, u64)> = world.live.keys().copied().collect();
    world.stop_or_go_on();
    for (at, (store, key)) in all.into_iter().enumerate() {
        if at % 3 == 0 {
            world.delete(store, key);
        }
        if at % 100 == 0 {
            world.run(Duration::from_millis(20));
        }
    }
    world.stop_or_go_on();
    world.run(REST);
    world.check_values();
    for key in 0..20 {
        let is_put = world.put(1, &[u64::MAX - key], value_bytes_max);
        assert!(
            is_put,
            "{}: puts are refused; {}",
            world.answer(),
            world.listed()
        );
    }
    world.check_values();
}

#[test]
fn bitcask_heals_a_disk_that_overwrites_have_filled() {
    overwrites_fill_it_and_it_heals(Engine::Bitcask, LARGE_VALUE_BYTES);
}

#[test]
fn leveldb_heals_a_disk_that_overwrites_have_filled() {
    overwrites_fill_it_and_it_heals(Engine::Leveldb, LARGE_VALUE_BYTES);
}

#[test]
fn bitcask_heals_a_disk_that_small_overwrites_have_filled() {
    overwrites_fill_it_and_it_heals(Engine::Bitcask, SMALL_VALUE_BYTES);
}

#[test]
fn leveldb_heals_a_disk_that_small_overwrites_have_filled() {
    overwrites_fill_it_and_it_heals(Engine::Leveldb, SMALL_VALUE_BYTES);
}

#[test]
fn hanoidb_heals_a_disk_that_overwrites_have_filled() {
    overwrites_fill_it_and_it_heals(Engine::Hanoidb, LARGE_VALUE_BYTES);
}

#[test]
fn hanoidb_heals_a_disk_that_small_overwrites_have_filled() {
    overwrites_fill_it_and_it_heals(Engine::Hanoidb, SMALL_VALUE_BYTES);
}

#[test]
fn hanoidb_takes_deletes_on_a_disk_full_of_what_lives() {
    deletes_make_room_on_a_disk_full_of_what_lives(Engine::Hanoidb, LARGE_VALUE_BYTES);
}

#[test]
fn hanoidb_takes_deletes_on_a_disk_full_of_small_values() {
    deletes_make_room_on_a_disk_full_of_what_lives(Engine::Hanoidb, SMALL_VALUE_BYTES);
}

#[test]
fn innostore_heals_a_disk_that_overwrites_have_filled() {
    overwrites_fill_it_and_it_heals(Engine::Innostore, LARGE_VALUE_BYTES);
}

#[test]
fn innostore_heals_a_disk_that_small_overwrites_have_filled() {
    overwrites_fill_it_and_it_heals(Engine::Innostore, SMALL_VALUE_BYTES);
}

#[test]
fn innostore_takes_deletes_on_a_disk_full_of_what_lives() {
    deletes_make_room_on_a_disk_full_of_what_lives(Engine::Innostore, LARGE_VALUE_BYTES);
}

#[test]
fn innostore_takes_deletes_on_a_disk_full_of_small_values() {
    deletes_make_room_on_a_disk_full_of_what_lives(Engine::Innostore, SMALL_VALUE_BYTES);
}

#[test]
fn leveled_heals_a_disk_that_overwrites_have_filled() {
    overwrites_fill_it_and_it_heals(Engine::Leveled, LARGE_VALUE_BYTES);
}

#[test]
fn leveled_takes_deletes_on_a_disk_full_of_what_lives() {
    deletes_make_room_on_a_disk_full_of_what_lives(Engine::Leveled, LARGE_VALUE_BYTES);
}

#[test]
fn bitcask_takes_deletes_on_a_disk_full_of_what_lives() {
    deletes_make_room_on_a_disk_full_of_what_lives(Engine::Bitcask, LARGE_VALUE_BYTES);
}

#[test]
fn leveldb_takes_deletes_on_a_disk_full_of_what_lives() {
    deletes_make_room_on_a_disk_full_of_what_lives(Engine::Leveldb, LARGE_VALUE_BYTES);
}

#[test]
fn leveldb_takes_deletes_on_a_disk_full_of_small_values() {
    deletes_make_room_on_a_disk_full_of_what_lives(Engine::Leveldb, SMALL_VALUE_BYTES);
}

/// Regression: hints took the room reserved for removals, and deletes stayed refused.
#[test]
fn bitcask_takes_deletes_on_a_disk_full_of_small_values() {
    deletes_make_room_on_a_disk_full_of_what_lives(Engine::Bitcask, SMALL_VALUE_BYTES);
}
