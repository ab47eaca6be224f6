//! Measures how 64 stores share group commits, side by side in one run.
//!
//! 64 threads write values of 1 KB and 8 KB to 64 stores, each write acknowledged when durable:
//!
//! - `straw man`: one file; a write is appended to it, and one sync serves a group. No format, no
//!   index: the limit of the device and the system.
//! - `file each`: every store syncs its own file, in groups, in parallel with the others.
//! - `adopted`: the real engine with its entries in the value log, as the server runs it.
//! - `values`: our value log with the least possible tenant, a hash map of places: the cost of
//!   entries that stay where they were logged.
//!
//! Rounds are interleaved, medians and their ratios to the straw man are printed:
//!
//! ```text
//! cargo run --release -p kvorum-value-log --example group_commit -- [SECONDS] [ROUNDS] [DIRECTORY] [ONLY]
//! ```
//!
//! With `ONLY`, only the contenders of these names run (separated by commas).

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a measuring program: it starts threads, reads the clock and stops at any failure"
)]

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use kvorum_backend::{
    Backend, Batch, Durability, Fields, Purpose, Sequence, StepBudget, StoreId, Write,
};
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings, Compression, SyncStrategy};
use kvorum_disk::{Disk, RealDisk};
use kvorum_encoding::StorageKey;
use kvorum_segment::{EncodedBack, StoredBack};
use kvorum_value_log::{LogPlace, LogPromise, LogRecord, Tenant, ValueLog, ValueLogSettings};
use parking_lot::{Condvar, Mutex};

/// The server's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const CLIENTS: usize = 64;
const STORES: usize = 64;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().map_or(3, |text| text.parse().unwrap());
    let rounds = arguments.next().map_or(5, |text| text.parse().unwrap());
    let directory = arguments
        .next()
        .unwrap_or_else(|| "target/group-commit".into());
    let directory = PathBuf::from(directory);
    let only = arguments.next();
    let time = Duration::from_secs(seconds);
    for size in [1_000, 8_000] {
        measure(size, time, rounds, &directory, only.as_deref());
    }
}

fn measure(size: usize, time: Duration, rounds: usize, directory: &Path, only: Option<&str>) {
    type Contender = (&'static str, fn(&Path) -> Arc<dyn Stores>);
    let mut contenders: Vec<Contender> = vec![
        ("straw man", |directory| Arc::new(StrawMan::open(directory))),
        ("file each", |directory| Arc::new(FileEach::open(directory))),
        ("adopted", |directory| {
            Arc::new(TenantStores::open(directory))
        }),
        ("values", |directory| Arc::new(ValueStores::open(directory))),
    ];
    contenders.retain(|(name, _)| only.is_none_or(|only| only.split(',').any(|it| it == *name)));
    let mut rates = vec![Vec::new(); contenders.len()];
    let mut costs = rates.clone();
    for _ in 0..rounds {
        for (place, (_, open)) in contenders.iter().enumerate() {
            let _may_be_missing = std::fs::remove_dir_all(directory);
            std::fs::create_dir_all(directory).unwrap();
            let stores = open(directory);
            let (rate, cpu_micros) = load(&stores, size, time);
            rates[place].push(rate);
            costs[place].push(cpu_micros);
            stores.stop();
        }
    }
    let _gone = std::fs::remove_dir_all(directory);
    let rates: Vec<f64> = rates.into_iter().map(median).collect();
    let costs: Vec<f64> = costs.into_iter().map(median).collect();
    println!(
        "{CLIENTS} clients, {size} bytes, median of {rounds} rounds of {} s",
        time.as_secs()
    );
    for (((name, _), rate), cost) in contenders.iter().zip(&rates).zip(&costs) {
        let ratio = rate / rates[0];
        println!(
            "  {name:<10} {rate:>9.0} writes/s   {ratio:.2} of the straw man   {cost:>5.1} us of CPU a write"
        );
    }
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

/// Runs the clients for a while. Returns writes per second and microseconds of CPU per write, with
/// those of the system where it works for this process.
fn load(stores: &Arc<dyn Stores>, size: usize, time: Duration) -> (f64, f64) {
    let cpu_before = cpu_micros();
    let writes = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    let started = Instant::now();
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (writes, is_over) = (&writes, &is_over);
            scope.spawn(move || {
                let mut random = client as u64 + 1;
                let value = incompressible(&mut random, size);
                while !is_over.load(Ordering::Relaxed) {
                    advance(&mut random);
                    let store = usize::try_from(random >> 33).unwrap() % STORES;
                    stores.write(store, random, &value);
                    writes.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        std::thread::sleep(time);
        is_over.store(true, Ordering::Relaxed);
    });
    let writes = writes.load(Ordering::Relaxed) as f64;
    let rate = writes / started.elapsed().as_secs_f64();
    (rate, (cpu_micros() - cpu_before) / writes)
}

fn advance(random: &mut u64) {
    *random = random
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1);
}

/// Bytes that the engine's compression does not shorten, so that every contender writes the same amount.
fn incompressible(random: &mut u64, size: usize) -> Bytes {
    let mut draw = |_| {
        advance(random);
        random.to_be_bytes()[0]
    };
    (0..size).map(&mut draw).collect()
}

/// The CPU time of this process so far, at a resolution of a hundredth of a second.
fn cpu_micros() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let ticks = fields.split_whitespace().skip(11).take(2);
    ticks.map(|it| it.parse::<f64>().unwrap()).sum::<f64>() * 10_000.0
}

trait Stores: Send + Sync {
    /// Returns when the write is durable.
    fn write(&self, store: usize, key: u64, value: &Bytes);

    fn stop(&self) {}
}

/// A file whose appends share syncs: a writer that finds no leader leads.
struct GroupFile {
    file: File,
    state: Mutex<GroupState>,
    synced: Condvar,
}

#[derive(Default)]
struct GroupState {
    waiting: Vec<u8>,
    /// The buffer of the last group, to be filled again.
    spare: Vec<u8>,
    offset: u64,
    appended: u64,
    durable: u64,
    has_leader: bool,
}

impl GroupFile {
    fn create(path: &Path) -> Self {
        let file = File::create(path).unwrap();
        Self {
            file,
            state: Mutex::default(),
            synced: Condvar::new(),
        }
    }

    fn append(&self, value: &[u8]) {
        let mut state = self.state.lock();
        state.waiting.extend_from_slice(value);
        state.appended += 1;
        let mine = state.appended;
        while state.durable < mine {
            if state.has_leader {
                self.synced.wait(&mut state);
                continue;
            }
            state.has_leader = true;
            let spare = std::mem::take(&mut state.spare);
            let mut group = std::mem::replace(&mut state.waiting, spare);
            let (offset, last) = (state.offset, state.appended);
            state.offset += group.len() as u64;
            drop(state);
            self.file.write_all_at(&group, offset).unwrap();
            self.file.sync_data().unwrap();
            state = self.state.lock();
            group.clear();
            state.spare = group;
            state.has_leader = false;
            state.durable = last;
            self.synced.notify_all();
        }
    }
}

struct StrawMan(GroupFile);

impl StrawMan {
    fn open(directory: &Path) -> Self {
        Self(GroupFile::create(&directory.join("log")))
    }
}

impl Stores for StrawMan {
    fn write(&self, _store: usize, _key: u64, value: &Bytes) {
        self.0.append(value);
    }
}

struct FileEach(Vec<GroupFile>);

impl FileEach {
    fn open(directory: &Path) -> Self {
        let create = |store| GroupFile::create(&directory.join(format!("store-{store}")));
        Self((0..STORES).map(create).collect())
    }
}

impl Stores for FileEach {
    fn write(&self, store: usize, _key: u64, value: &Bytes) {
        self.0[store].append(value);
    }
}

/// The value log and its threads.
struct RunningValueLog {
    log: ValueLog,
    threads: Mutex<Vec<std::thread::JoinHandle<()>>>,
    is_over: Arc<AtomicBool>,
}

/// The value log, and a hash map of places for each store.
struct ValueStores {
    running: RunningValueLog,
    stores: Vec<Mutex<ValueStore>>,
}

#[derive(Default)]
struct ValueStore {
    sequence: u64,
    places: HashMap<u64, LogPlace>,
}

impl RunningValueLog {
    fn open(directory: &Path) -> Self {
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let settings = ValueLogSettings {
            segment_bytes: 64 << 20,
            garbage_percent_max: 30,
        };
        let (log, _) = ValueLog::open(disk, directory, 1, settings).unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let driver = log.clone();
        let (upkeep, over) = (log.clone(), is_over.clone());
        let threads = vec![
            std::thread::spawn(move || driver.drive()),
            std::thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let budget = StepBudget { bytes: 1 << 20 };
                    upkeep.upkeep_step(budget).unwrap();
                    std::thread::sleep(Duration::from_millis(5));
                }
            }),
        ];
        Self {
            log,
            threads: Mutex::new(threads),
            is_over,
        }
    }

    fn stop(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.log.stop();
        for thread in self.threads.lock().drain(..) {
            thread.join().unwrap();
        }
    }
}

impl ValueStores {
    fn open(directory: &Path) -> Self {
        Self {
            running: RunningValueLog::open(directory),
            stores: (0..STORES).map(|_| Mutex::default()).collect(),
        }
    }
}

impl Stores for ValueStores {
    fn write(&self, store: usize, key: u64, value: &Bytes) {
        let mut front = LogRecord::front_for(36);
        front.extend_from_slice(&[0; 28]);
        front.extend_from_slice(&key.to_be_bytes());
        let record = LogRecord {
            kind: 1,
            removal: false,
            front,
            back: StoredBack::of(EncodedBack::plain(value), value),
        };
        let log = &self.running.log;
        log.wait_for_room().unwrap();
        let appended = {
            let mut open = self.stores[store].lock();
            open.sequence += 1;
            let (id, sequence) = (StoreId(store as u64), Sequence(open.sequence));
            let appended = log
                .append(
                    id,
                    sequence,
                    vec![record],
                    Purpose::Store,
                    LogPromise::Durable,
                )
                .unwrap();
            open.places.insert(key, appended.places[0]);
            appended
        };
        appended.ticket.wait().unwrap();
    }

    fn stop(&self) {
        self.running.stop();
    }
}

/// 64 bitcasks with their entries in one value log.
struct TenantStores {
    running: RunningValueLog,
    stores: Vec<Arc<Bitcask>>,
}

impl TenantStores {
    fn open(directory: &Path) -> Self {
        let running = RunningValueLog::open(&directory.join("value_log"));
        let open = |store: usize| -> Arc<Bitcask> {
            let settings = BitcaskSettings {
                sync: SyncStrategy::Grouped,
                compression: Compression::Lz4,
                ..BitcaskSettings::default()
            };
            let drawn = AtomicU64::new(1 + (store as u64) * 1_000);
            let draw = Arc::new(move || drawn.fetch_add(1, Ordering::Relaxed));
            let path = directory.join(store.to_string());
            let log = running.log.clone();
            let disk = Arc::new(RealDisk);
            Arc::new(Bitcask::open(disk, &path, settings, draw, Some(log)).unwrap())
        };
        let stores: Vec<_> = (0..STORES).map(open).collect();
        running.log.admit(&tenants_of(&stores)).unwrap();
        Self { running, stores }
    }
}

impl Stores for TenantStores {
    fn write(&self, store: usize, key: u64, value: &Bytes) {
        let receipt = self.stores[store]
            .put(&batch(key, value), Durability::Grouped)
            .unwrap();
        receipt.wait().unwrap();
    }

    fn stop(&self) {
        self.running.stop();
        for store in &self.stores {
            store.close().unwrap();
        }
    }
}

fn batch(key: u64, value: &Bytes) -> Batch {
    let key = StorageKey::from_encoded(key.to_be_bytes().to_vec());
    Batch::of(Write::put(
        key,
        Fields::default(),
        Bytes::new(),
        value.clone(),
    ))
}

/// The stores as tenants of the log.
fn tenants_of(stores: &[Arc<Bitcask>]) -> Vec<Arc<dyn Tenant>> {
    stores.iter().map(|it| it.clone() as _).collect()
}
