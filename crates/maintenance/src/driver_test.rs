//! Steps of real stores, driven by the arbiter over virtual time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use kvorum_backend::{Backend, Batch, Durability, Fields, Tag, Write};
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings, MergeSettings, SyncStrategy};
use kvorum_backend_leveldb::{Leveldb, LeveldbSettings, PolicySettings, Shared};
use kvorum_disk::{Disk, MemoryDisk};
use kvorum_encoding::StorageKey;
use kvorum_runtime::{Randomness, SeededRandomness};
use kvorum_stats::Histogram;

use super::*;

const STORES: u16 = 4;
const KEYS: u64 = 600;

/// Random numbers of a store.
type Draw = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Stores on a disk in memory, and a device that takes time for their reads and writes.
struct World<S = Bitcask> {
    arbiter: Arbiter,
    stores: Vec<S>,
    puts: Vec<u64>,
    randomness: Arc<SeededRandomness>,
    now: Moment,
    bytes_per_second: f64,
    /// The number of steps, and the declared and true costs of those that cost more than twice as
    /// much as declared.
    steps: u64,
    overruns: Vec<(Order, u64)>,
    kinds: BTreeMap<TaskKind, u64>,
}

impl World {
    fn new(bytes_per_second: f64, settings: &BitcaskSettings, budgets: Budgets) -> Self {
        Self::of(bytes_per_second, budgets, |disk, directory, draw| {
            Bitcask::open(disk, directory, settings.clone(), draw, None).unwrap()
        })
    }
}

impl World<Leveldb> {
    fn of_leveldb(bytes_per_second: f64, settings: &LeveldbSettings) -> Self {
        let shared = Shared::new(1 << 20, 64 << 20);
        Self::of(
            bytes_per_second,
            Budgets::default(),
            |disk, directory, draw| {
                Leveldb::open(disk, directory, settings, shared.clone(), draw, None).unwrap()
            },
        )
    }
}

impl<S: Backend> World<S> {
    fn of(
        bytes_per_second: f64,
        budgets: Budgets,
        open: impl Fn(Arc<dyn Disk>, &Path, Draw) -> S,
    ) -> Self {
        let randomness = Arc::new(SeededRandomness::new(7));
        let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
        let open = |number: u16| {
            let directory = PathBuf::from(format!("/store-{number}"));
            let drawn = randomness.clone();
            let draw = Arc::new(move || drawn.next_u64());
            open(disk.clone(), &directory, draw)
        };
        Self {
            arbiter: Arbiter::new(budgets),
            stores: (0..STORES).map(open).collect(),
            puts: vec![0; usize::from(STORES)],
            randomness,
            now: Moment::default(),
            bytes_per_second,
            steps: 0,
            overruns: Vec::new(),
            kinds: BTreeMap::new(),
        }
    }

    fn random_below(&self, bound: u64) -> u64 {
        self.randomness.next_u64() % bound
    }

    fn wall_time(&self) -> Timestamp {
        let micros = u64::try_from(self.now.elapsed().as_micros()).unwrap();
        Timestamp(1_700_000_000_000_000 + micros)
    }

    /// Overwrites some key of each store with a value of 100 bytes to 8 KB.
    fn put(&mut self, times: u64) {
        for _ in 0..times {
            let key = self.random_below(KEYS);
            let value = vec![b'v'; 100 + usize::try_from(self.random_below(8000)).unwrap()];
            let key = StorageKey::from_encoded(format!("key {key:08}").into_bytes());
            let fields = Fields {
                segment: 1,
                last_modified: self.wall_time(),
                expiry: None,
                tag: Tag(1),
            };
            let write = Write::put(key, fields, Bytes::from_static(b"head"), value.into());
            let batch = Batch::of(write);
            let store = usize::try_from(self.random_below(u64::from(STORES))).unwrap();
            let _receipt = self.stores[store]
                .put(&batch, Durability::Buffered)
                .unwrap();
            self.puts[store] += 1;
        }
    }

    /// Carries out the arbiter's decisions for this long.
    fn run(&mut self, duration: Duration) {
        let end = self.now.plus(duration);
        while self.now < end {
            match self.arbiter.decide(self.now) {
                Decision::Look => {
                    let numbered = (0..).zip(&self.puts);
                    let written = numbered.map(|(at, puts)| (Owner::Store(at), *puts));
                    let looked = Looked {
                        written: written.collect(),
                        ..Looked::default()
                    };
                    self.arbiter.step(Event::Looked(looked), self.now);
                }
                Decision::Ask(owner) => {
                    let store = self.store(owner);
                    let status = store.status();
                    let answer = Answer {
                        tasks: store.maintenance_due(self.wall_time()),
                        put_bytes: status.put_bytes,
                        backlog_bytes: status.backlog_bytes,
                        memory_bytes: status.memory_bytes,
                    };
                    self.arbiter
                        .step(Event::Answered { owner, answer }, self.now);
                }
                Decision::Step(order) => self.work(order),
                Decision::Syncs(orders) => orders.into_iter().for_each(|order| self.work(order)),
                Decision::Rest(rest) => self.now = self.now.plus(rest),
            }
        }
    }

    fn work(&mut self, order: Order) {
        let now = self.wall_time();
        let store = self.store(order.owner);
        let outcome = if order.task.kind == TaskKind::Sync {
            store.sync().unwrap();
            StepOutcome::nothing_left()
        } else {
            store
                .maintenance_step(&order.task, order.budget, now)
                .unwrap()
        };
        if order.task.kind != TaskKind::Sync {
            self.steps += 1;
            *self.kinds.entry(order.task.kind).or_default() += 1;
            if outcome.cost_bytes > 2 * order.declared_bytes {
                self.overruns.push((order.clone(), outcome.cost_bytes));
            }
        }
        let seconds = outcome.cost_bytes as f64 / self.bytes_per_second + 30e-6;
        let took = Duration::from_secs_f64(seconds);
        self.now = self.now.plus(took);
        let ended = Ended {
            result: StepResult::Done(outcome),
            took,
            cpu: took / 2,
        };
        self.arbiter.step(Event::Ended { order, ended }, self.now);
    }

    fn store(&self, owner: Owner) -> &S {
        let Owner::Store(at) = owner else {
            panic!("there is no log");
        };
        &self.stores[usize::from(at)]
    }

    /// Overwrites until there were this many steps.
    fn overwrite_until(&mut self, steps: u64) {
        for _ in 0..20_000 {
            if self.steps >= steps {
                return;
            }
            self.put(40);
            self.run(Duration::from_millis(40));
        }
        panic!("only {} steps: {:?}", self.steps, self.kinds);
    }
}

fn small_segments() -> BitcaskSettings {
    BitcaskSettings {
        sync: SyncStrategy::None,
        file_bytes_max: 1 << 20,
        checkpoint_after_bytes: 4 << 20,
        merge: MergeSettings {
            small_file_threshold_bytes: 64 << 10,
            ..MergeSettings::default()
        },
        ..BitcaskSettings::default()
    }
}

/// Memtables and tables of a quarter of a megabyte; values of 4 KB and more are kept apart from
/// their keys.
fn small_tables() -> LeveldbSettings {
    LeveldbSettings {
        write_buffer_bytes: 256 << 10,
        blob_threshold_bytes: 4 << 10,
        policy: PolicySettings {
            levels: 4,
            base_bytes: 1 << 20,
            multiplier: 4,
            table_bytes_max: 256 << 10,
            ..PolicySettings::default()
        },
        ..LeveldbSettings::default()
    }
}

fn check_costs<S>(world: &World<S>, kinds: &[TaskKind]) {
    let missing: Vec<_> = kinds
        .iter()
        .filter(|kind| !world.kinds.contains_key(kind))
        .collect();
    assert!(missing.is_empty(), "no {missing:?} in {:?}", world.kinds);
    let overruns = world.overruns.len() as u64;
    assert!(
        overruns * 1000 <= world.steps,
        "{overruns} of {} steps, such as {:?}",
        world.steps,
        &world.overruns[..world.overruns.len().min(5)],
    );
}

/// Regression: values of one letter compress to almost nothing. Steps counted them uncompressed,
/// but the declared cost was the length of the files, so four steps in ten cost more than twice as
/// much.
#[test]
fn of_a_thousand_real_steps_of_leveldb_at_most_one_costs_more_than_twice_what_it_declared() {
    for (bytes_per_second, steps) in [(20e6, 3000), (300e6, 1000)] {
        let mut world = World::of_leveldb(bytes_per_second, &small_tables());
        world.overwrite_until(steps);
        let kinds = [TaskKind::Flush, TaskKind::Compact, TaskKind::Collect];
        check_costs(&world, &kinds);
    }
}

#[test]
fn of_a_thousand_real_steps_at_most_one_costs_more_than_twice_what_it_declared() {
    // Budgets of about 40 KB and 600 KB: small ones show every fixed cost.
    for (bytes_per_second, steps) in [(20e6, 3000), (300e6, 1000)] {
        let mut world = World::new(bytes_per_second, &small_segments(), Budgets::default());
        world.overwrite_until(steps);
        let kinds = [TaskKind::Merge, TaskKind::Hint, TaskKind::Checkpoint];
        check_costs(&world, &kinds);
    }
}

#[test]
fn overwritten_stores_are_merged_until_no_backlog_is_left() {
    let mut world = World::new(300e6, &small_segments(), Budgets::default());
    world.put(10_000);
    world.run(Duration::from_secs(60));
    let report = world.arbiter.report(world.now);
    assert_eq!(report.backlog_bytes, 0, "{:?}", report.due);
    for store in &world.stores {
        let status = store.status();
        assert!(status.garbage_bytes < status.live_bytes, "{status:?}");
    }
}

/// Merges keep up with writers: level 0 never has so many tables that writers are slowed.
#[test]
fn an_overwritten_leveldb_is_kept_within_its_level_zero() {
    let settings = small_tables();
    let slow_from = settings.policy.slow_from_tables;
    let mut world = World::of_leveldb(100e6, &settings);
    let mut most = 0;
    for _ in 0..1_000 {
        world.put(10);
        world.run(Duration::from_millis(40));
        let of_store = |store: &Leveldb| {
            let details = store
                .status()
                .details
                .into_iter()
                .collect::<BTreeMap<_, _>>();
            assert_eq!(details["pressure_permille"], "0", "{details:?}");
            let levels = &details["tables_per_level"];
            levels.split(' ').next().unwrap().parse::<usize>().unwrap()
        };
        most = most.max(world.stores.iter().map(of_store).max().unwrap());
    }
    assert!(most > 1 && most < slow_from, "{most} tables");
    assert!(world.kinds[&TaskKind::Compact] > 50, "{:?}", world.kinds);
    world.run(Duration::from_secs(60));
    let report = world.arbiter.report(world.now);
    assert_eq!(report.backlog_bytes, 0, "{:?}", report.due);
}

#[test]
fn every_budget_of_the_settings_reaches_the_arbiter() {
    let loaded = |overrides: &[&str]| {
        let configuration = kvorum_settings::Configuration::load("", overrides).unwrap();
        budgets(&configuration.settings)
    };
    let all = loaded(&[
        "maintenance.io_bytes_per_second_max=7MB",
        "maintenance.cpu_share_max=13",
        "maintenance.step_time=9ms",
        "maintenance.memory_bytes_max=3GB",
        "maintenance.open_files_max=777",
        "durability=interval",
        "durability.interval=200ms",
    ]);
    assert_eq!(all.io_bytes_per_second_max, Some(7 << 20));
    assert_eq!(all.cpu_share_max_percent, 13);
    assert_eq!(all.step_time, Duration::from_millis(9));
    assert_eq!(all.memory_bytes_max, Some(3 << 30));
    assert_eq!(all.open_files_max, Some(777));
    assert_eq!(all.ask_period, Duration::from_millis(50));
    // The shortest interval of several backends, whichever is the default.
    let several = loaded(&[
        "storage_backend=multi",
        "multi_backend.default=b",
        "multi_backend.a.storage_backend=bitcask",
        "multi_backend.a.bitcask.sync.strategy=interval",
        "multi_backend.a.bitcask.sync.interval=400ms",
        "multi_backend.b.storage_backend=leveldb",
    ]);
    assert_eq!(several.ask_period, Duration::from_millis(100));
    let none = loaded(&[]);
    assert_eq!(none.io_bytes_per_second_max, None);
    assert_eq!(none.step_time, Duration::from_millis(2));
    // The machine's own limits.
    assert!(none.memory_bytes_max.is_some_and(|bytes| bytes > 64 << 20));
    assert!(none.open_files_max.is_some_and(|count| count >= 64));
}

/// Bytes that steps processed in ten seconds after merges had become due.
fn done_with(overrides: &[&str]) -> (World, f64) {
    done_by(&small_segments(), overrides)
}

fn done_by(stores: &BitcaskSettings, overrides: &[&str]) -> (World, f64) {
    let configuration = kvorum_settings::Configuration::load("", overrides).unwrap();
    let budgets = Budgets {
        cores: 1,
        ..budgets(&configuration.settings)
    };
    let mut world = World::new(100e6, stores, budgets);
    world.put(20_000);
    world.run(Duration::from_secs(10));
    let steps = world.arbiter.report(world.now).all_steps();
    (world, steps.bytes as f64)
}

#[test]
fn an_io_ceiling_slows_merges() {
    let (_, free) = done_with(&[]);
    assert!(free > 60e6, "{free}");
    let (_, held) = done_with(&["maintenance.io_bytes_per_second_max=2MB"]);
    assert!(held < 10.2 * 2.0 * 1048576.0 && held > 16e6, "{held}");
}

#[test]
fn a_processor_share_slows_merges() {
    // Merges for the bound on a store's garbage press, and pressing work may take more.
    let mut stores = small_segments();
    stores.merge.store_garbage_trigger_percent = 100;
    let (_, free) = done_by(&stores, &[]);
    assert!(free > 60e6, "{free}");
    // A step computes for half of its time: 1 % of a core is 2 MB/s here.
    let (_, held) = done_by(&stores, &["maintenance.cpu_share_max=1"]);
    assert!(held < 22e6 && held > 10e6, "{held}");
}

#[test]
fn the_time_of_a_step_is_kept_to() {
    let (world, _) = done_with(&["maintenance.step_time=5ms"]);
    let longest = world.arbiter.report(world.now).longest_step;
    assert!(
        longest > Duration::from_millis(4) && longest < Duration::from_millis(10),
        "{longest:?}"
    );
    let (world, _) = done_with(&["maintenance.step_time=1ms"]);
    // The first step has a budget without any measurement.
    let mean = world.arbiter.report(world.now).all_steps();
    assert!(mean.bytes / mean.count < 100_000, "{mean:?}");
}

#[test]
fn stores_that_hold_nine_tenths_of_the_memory_are_scarce_of_it() {
    let (world, _) = done_with(&["maintenance.memory_bytes_max=16MB"]);
    assert_eq!(world.arbiter.is_scarce(), (false, false));
    let mut world = World::new(
        100e6,
        &small_segments(),
        Budgets {
            memory_bytes_max: Some(1000),
            ..Budgets::default()
        },
    );
    world.put(100);
    world.run(Duration::from_secs(3));
    assert_eq!(world.arbiter.is_scarce(), (true, false));
}

#[test]
fn few_requests_are_counted_until_they_say_something() {
    let at = |seconds| Moment::from_start(Duration::from_secs(seconds));
    let times = Histogram::default();
    let mut last = LastReading::default();
    assert_eq!(latency_of(times.totals(), &mut last, at(6)).count, 0);
    let record = |count: u32, micros: u64| {
        (0..count).for_each(|_| times.record_time(Duration::ZERO, Duration::from_micros(micros)));
    };
    record(15, 100);
    assert_eq!(latency_of(times.totals(), &mut last, at(7)).count, 15);
    record(15, 100);
    assert_eq!(latency_of(times.totals(), &mut last, at(8)).count, 30);
    record(3, 100);
    assert_eq!(latency_of(times.totals(), &mut last, at(9)).count, 3);
    assert_eq!(latency_of(times.totals(), &mut last, at(14)).count, 3);
    assert_eq!(latency_of(times.totals(), &mut last, at(15)).count, 0);
}
