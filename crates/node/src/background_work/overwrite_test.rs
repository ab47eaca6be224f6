//! Steady overwriting of real stores over a real value log, driven by the arbiter over virtual time on
//! a disk that counts: the size of the disk's files, the bytes written, and the cost of steps against
//! their declarations.
//!
//! The size is the length of every file: records, seals, contents, hints, checkpoints. The live
//! bytes are the records of the newest values. Everything is about a hundredth of a node's size, so
//! parts of fixed size are larger here in proportion to the data.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kvorum_arbiter::{
    Answer, Arbiter, Budgets, Decision, Ended, Event, Latency, Looked, Order, Owner, StepResult,
};
use kvorum_backend::{
    Backend, Batch, Durability, Fields, StepOutcome, Tag, TaskKind, Timestamp, Write,
};
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings, MergePolicy, MergeSettings, SyncStrategy};
use kvorum_disk::{Disk, EntryKind, FaultyDisk, MemoryDisk, Operation};
use kvorum_encoding::StorageKey;
use kvorum_maintenance::{MaintainedLog as _, step_name};
use kvorum_runtime::{Moment, Randomness, SeededRandomness};
use kvorum_value_log::{ValueLog, ValueLogSettings};

use crate::maintained_value_log::MaintainedValueLog;

const STORES: u16 = 4;
const KEYS: u64 = 1500;
const LOG_SEGMENT_BYTES: u64 = 128 << 10;
/// Bytes of live entries in a file that a store merges; a file is a quarter of a store.
const COPIES_BYTES: u64 = 512 << 10;
/// Approximate bytes of record, front and alignment around a value.
const RECORD_BYTES: u64 = 32 + 28 + 12 + 4 + 8;

/// The choice of the next key to overwrite.
#[derive(Clone, Copy, Debug)]
enum Choice {
    /// All keys alike.
    Even,
    /// Four of five times a key of the same fifth.
    EightyTwenty,
}

struct World {
    arbiter: Arbiter,
    stores: Vec<Arc<dyn Backend>>,
    log: Option<MaintainedValueLog>,
    has_worked: bool,
    disk: FaultyDisk,
    randomness: Arc<SeededRandomness>,
    now: Moment,
    bytes_per_second: f64,
    puts: u64,
    /// Lengths of the newest values.
    live: BTreeMap<(usize, u64), u64>,
    counts: Counts,
}

/// Counts since the last reset.
#[derive(Clone, Debug, Default)]
struct Counts {
    /// Bytes of values.
    put: u64,
    /// Bytes written to the disk, by puts and by steps.
    written: u64,
    steps: BTreeMap<String, u64>,
    /// Steps that moved more than twice their declaration: the order, the cost that the step reported,
    /// and the bytes read and written.
    overruns: Vec<(Order, u64, u64)>,
    disk_bytes_max: u64,
}

impl World {
    fn new(bytes_per_second: f64, is_logged: bool) -> Self {
        let randomness = Arc::new(SeededRandomness::new(7));
        let disk = FaultyDisk::over_memory(&MemoryDisk::new());
        let seam: Arc<dyn Disk> = Arc::new(disk.clone());
        let log_settings = ValueLogSettings {
            segment_bytes: LOG_SEGMENT_BYTES,
            garbage_percent_max: 30,
        };
        let log = is_logged.then(|| {
            ValueLog::open(seam.clone(), Path::new("log"), 3, log_settings)
                .unwrap()
                .0
        });
        let open = |number: u16| -> Arc<Bitcask> {
            let directory = PathBuf::from(format!("store-{number}"));
            let drawn = randomness.clone();
            let draw = Arc::new(move || drawn.next_u64());
            let (seam, own) = (seam.clone(), own_settings());
            Arc::new(Bitcask::open(seam, &directory, own, draw, log.clone()).unwrap())
        };
        let stores: Vec<_> = (0..STORES).map(open).collect();
        if let Some(log) = &log {
            let tenants: Vec<_> = stores.iter().map(|it| it.clone() as _).collect();
            log.admit(&tenants).unwrap();
        }
        Self {
            arbiter: Arbiter::new(Budgets::default()),
            stores: stores.into_iter().map(|it| it as _).collect(),
            log: log.map(|values| MaintainedValueLog {
                values,
                merges: MergePolicy::Always,
            }),
            has_worked: false,
            disk,
            randomness,
            now: Moment::default(),
            bytes_per_second,
            puts: 0,
            live: BTreeMap::new(),
            counts: Counts::default(),
        }
    }

    fn below(&self, bound: u64) -> u64 {
        self.randomness.next_u64() % bound
    }

    fn wall_time(&self) -> Timestamp {
        let micros = u64::try_from(self.now.elapsed().as_micros()).unwrap();
        Timestamp(1_700_000_000_000_000 + micros)
    }

    /// Puts a value of 100 bytes to 8 KB.
    fn put(&mut self, store: usize, key: u64) {
        let len = 100 + self.below(8_000);
        let body = Bytes::from(vec![b'v'; usize::try_from(len).unwrap()]);
        let name = StorageKey::from_encoded(format!("key {key:08}").into_bytes());
        let fields = Fields {
            segment: 1,
            last_modified: self.wall_time(),
            expiry: None,
            tag: Tag(0),
        };
        let write = Write::put(name, fields, Bytes::from_static(b"head"), body);
        let batch = Batch::of(write);
        let receipt = self.stores[store].put(&batch, Durability::BackendDefault);
        receipt.unwrap().wait().unwrap();
        self.puts += 1;
        self.live.insert((store, key), len);
        self.counts.put += len;
        self.counts.written += self.moved(&[Operation::Write]);
    }

    fn fill(&mut self) {
        for key in 0..KEYS {
            (0..usize::from(STORES)).for_each(|store| self.put(store, key));
            self.run(Duration::from_millis(5));
        }
    }

    /// Overwrites the live bytes this many times. Each time takes about 50 seconds, like 5 GB at
    /// 100 MB a second.
    fn overwrite(&mut self, choice: Choice, times: u64) {
        let until = self.counts.put + times * self.live_bytes();
        while self.counts.put < until {
            for _ in 0..30 {
                let store = usize::try_from(self.below(u64::from(STORES))).unwrap();
                let key = match choice {
                    Choice::Even => self.below(KEYS),
                    Choice::EightyTwenty if self.below(5) < 4 => self.below(KEYS / 5),
                    Choice::EightyTwenty => KEYS / 5 + self.below(KEYS - KEYS / 5),
                };
                self.put(store, key);
            }
            self.run(Duration::from_millis(250));
            if self.puts.is_multiple_of(60) {
                let bytes = self.disk_bytes();
                self.counts.disk_bytes_max = self.counts.disk_bytes_max.max(bytes);
            }
        }
    }

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
        let log = self.log.as_ref();
        let log = log.map(|log| (Owner::ValueLog, log.batches()));
        // Every step slows requests, so in the long run only steps that the backlog needs are done.
        let millis = if std::mem::take(&mut self.has_worked) {
            100
        } else {
            1
        };
        let felt = Latency {
            count: 1000,
            mean: Duration::from_millis(millis),
            p99: Duration::from_millis(millis),
        };
        let looked = Looked {
            written: stores.chain(log).collect(),
            reads: felt,
            ..Looked::default()
        };
        self.arbiter.step(Event::Looked(looked), self.now);
    }

    fn due(&self, owner: Owner) -> Answer {
        let Owner::Store(at) = owner else {
            let log = self.log.as_ref();
            return log.map_or_else(Answer::default, |log| log.due(self.wall_time()));
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
        let before = self.moved(&[Operation::Read, Operation::Write]);
        assert_eq!(before, 0, "puts and questions are counted apart");
        let outcome = match (order.owner, &self.log) {
            (Owner::ValueLog, Some(log)) => log.step(&order.task, order.budget).unwrap(),
            (Owner::ValueLog, None) => unreachable!("there is no log"),
            (Owner::Store(at), _) if order.task.kind == TaskKind::Sync => {
                self.stores[usize::from(at)].sync().unwrap();
                StepOutcome::nothing_left()
            }
            (Owner::Store(at), _) => {
                let store = &self.stores[usize::from(at)];
                store
                    .maintenance_step(&order.task, order.budget, now)
                    .unwrap()
            }
        };
        let done = self.disk.log();
        let bytes = |operation| -> u64 {
            let done = done.iter().filter(|it| it.operation == operation);
            done.map(|it| it.bytes as u64).sum()
        };
        let (read, written) = (bytes(Operation::Read), bytes(Operation::Write));
        self.disk.clear_log();
        self.counts.written += written;
        if order.task.kind != TaskKind::Sync {
            self.has_worked = true;
            *self.counts.steps.entry(step_name(&order)).or_default() += 1;
            if read + written > 2 * order.declared_bytes {
                let overrun = (order.clone(), outcome.cost_bytes, read + written);
                self.counts.overruns.push(overrun);
            }
        }
        let seconds = (read + written) as f64 / self.bytes_per_second + 30e-6;
        let took = Duration::from_secs_f64(seconds);
        self.now = self.now.plus(took);
        let ended = Ended {
            result: StepResult::Done(outcome),
            took,
            cpu: took / 2,
        };
        self.arbiter.step(Event::Ended { order, ended }, self.now);
    }

    /// Bytes of operations since the last call.
    fn moved(&self, operations: &[Operation]) -> u64 {
        let done = self.disk.log();
        self.disk.clear_log();
        let done = done.iter().filter(|it| operations.contains(&it.operation));
        done.map(|it| it.bytes as u64).sum()
    }

    fn live_bytes(&self) -> u64 {
        self.live.values().map(|len| len + RECORD_BYTES).sum()
    }

    fn disk_bytes(&self) -> u64 {
        let mut left = vec![PathBuf::from("log")];
        left.extend((0..STORES).map(|at| PathBuf::from(format!("store-{at}"))));
        let mut bytes = 0;
        while let Some(directory) = left.pop() {
            for entry in self.disk.list(&directory).unwrap_or_default() {
                let path = directory.join(entry.name);
                match self.disk.info(&path).unwrap() {
                    Some(info) if info.kind == EntryKind::File => bytes += info.len,
                    Some(_) => left.push(path),
                    None => {}
                }
            }
        }
        self.disk.clear_log();
        bytes
    }
}

fn own_settings() -> BitcaskSettings {
    BitcaskSettings {
        sync: SyncStrategy::None,
        file_bytes_max: 16 << 20,
        checkpoint_after_bytes: 1 << 20,
        log_segments_behind_max: 16,
        merge: MergeSettings {
            small_file_threshold_bytes: 100 << 10,
            ..MergeSettings::default()
        },
        ..BitcaskSettings::default()
    }
}

/// Bytes on the disk that are allowed beyond one and a half times the live ones, here 3 % of these:
/// the file that a store merges, which stays until its copies are durable; the log's segment being
/// written, which cannot be collected yet; and the one being collected. A node with 64 stores has
/// no more of these files.
fn allowance(world: &World) -> u64 {
    let log = world.log.as_ref();
    COPIES_BYTES + log.map_or(0, |_| 2 * LOG_SEGMENT_BYTES)
}

/// Overwrites everything a few times until the figures are steady, and then again with counts.
fn steady(bytes_per_second: f64, is_logged: bool, choice: Choice) -> World {
    let mut world = World::new(bytes_per_second, is_logged);
    world.fill();
    world.overwrite(choice, 2);
    world.counts = Counts::default();
    world.overwrite(choice, 3);
    world
}

fn check(bytes_per_second: f64, is_logged: bool, choice: Choice) {
    let world = steady(bytes_per_second, is_logged, choice);
    let (counts, live) = (&world.counts, world.live_bytes());
    let steps: u64 = counts.steps.values().sum();
    let amplification = counts.written as f64 / counts.put as f64;
    let overruns = &counts.overruns;
    assert!(
        counts.disk_bytes_max <= live * 3 / 2 + allowance(&world),
        "{live} live bytes, and up to {} on disk",
        counts.disk_bytes_max
    );
    assert!(amplification <= 2.5, "{amplification} bytes for each");
    assert!(steps > 400, "{:?}", counts.steps);
    assert!(
        overruns.len() as u64 * 1000 <= steps,
        "{} of {steps} steps: {:?}",
        overruns.len(),
        overruns.iter().take(5).collect::<Vec<_>>()
    );
}

#[test]
fn overwritten_evenly_in_the_value_log_the_disk_holds_half_more_than_lives() {
    check(200e6, true, Choice::Even);
}

#[test]
fn overwritten_unevenly_in_the_value_log_the_disk_holds_half_more_than_lives() {
    check(200e6, true, Choice::EightyTwenty);
}

#[test]
fn overwritten_in_files_of_its_own_the_disk_holds_half_more_than_lives() {
    check(200e6, false, Choice::Even);
    check(200e6, false, Choice::EightyTwenty);
}

#[test]
fn small_steps_on_a_slow_device_keep_to_what_they_declare_and_to_the_bound() {
    check(40e6, true, Choice::EightyTwenty);
}
