//! Measures the opening of 64 bitcasks with their entries in one value log, as the server runs
//! them: after a clean stop, after a kill (with as much of the log behind the checkpoints as
//! possible), with the checkpoint of one store missing, and with all of them missing. `open_time`
//! of `kvorum-backend-bitcask` does the same for stores with entries in files of their own.
//!
//! Stores are opened two at a time and admitted to the log together, by two threads. The bytes read
//! are the system's count for the process, cached or not.
//!
//! ```text
//! cargo run --release -p kvorum-value-log --example tenant_open_time -- [DIRECTORY] [KEYS] [VALUE_BYTES]
//! ```
//!
//! The directory is removed at the end; it holds all keys twice.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measuring tool reads the clock, prints, and gives up when something fails"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use kvorum_backend::{Backend, Batch, Durability, Fields, Write};
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings};
use kvorum_disk::{Disk, RealDisk};
use kvorum_encoding::StorageKey;
use kvorum_value_log::{Admission, Tenant, ValueLog, ValueLogOpening, ValueLogSettings};
use parking_lot::Mutex;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const STORES: u64 = 64;
const AT_ONCE: u64 = 2;
const ADMISSION_THREADS: usize = 2;
/// The server's defaults: `value_log.segment_bytes`, and `value_log.bytes_max` in segments.
const SEGMENT_BYTES: u64 = 64 << 20;
const SEGMENTS_BEHIND_MAX: u32 = 16;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next();
    let directory = PathBuf::from(directory.unwrap_or("/tmp/kvorum-tenant-open-time".to_owned()));
    let keys = arguments.next().map_or(2_000_000, |it| it.parse().unwrap());
    let value_bytes = arguments.next().map_or(1_000, |it| it.parse().unwrap());
    let body = Bytes::from(vec![7; value_bytes]);

    let started = Instant::now();
    let node = Node::open(&directory);
    node.driven(|| (0..keys).for_each(|number| node.put(number, &body)));
    node.close();
    let built = started.elapsed().as_secs_f64();
    println!("built {keys} keys with values of {value_bytes} bytes in {built:.1} s");
    time_opening("after a clean stop", &directory, keys).close();

    let node = Node::open(&directory);
    let replayed = node.driven(|| {
        let until = node.log.newest_segment() + SEGMENTS_BEHIND_MAX;
        // Steps with no factor in common with most numbers of keys, so that hardly any key recurs.
        let mut overwritten = (0..).map(|number| number * 7_919 % keys);
        let mut put = 0;
        while node.log.newest_segment() < until {
            node.put(overwritten.next().unwrap(), &body);
            put += 1;
        }
        put
    });
    // Dropped without being closed, as after a kill.
    drop(node);
    println!("{replayed} records in {SEGMENTS_BEHIND_MAX} segments behind the checkpoints");
    time_opening("after a kill", &directory, keys).close();

    remove_checkpoint(&directory, 0);
    time_opening("with one checkpoint gone", &directory, keys).close();
    (0..STORES).for_each(|store| remove_checkpoint(&directory, store));
    drop(time_opening("with all checkpoints gone", &directory, keys));
    RealDisk.remove_directory(&directory).unwrap();
}

/// The stores of a node and its log.
struct Node {
    log: ValueLog,
    stores: Vec<Arc<Bitcask>>,
    found: ValueLogOpening,
    admitted: Admission,
}

/// Admits the stores as a node does.
fn admit(log: &ValueLog, stores: &[Arc<Bitcask>]) -> Admission {
    let mut all = Admission::default();
    let tenants = tenants_of(stores);
    std::thread::scope(|scope| {
        let shares = tenants.chunks(tenants.len() / ADMISSION_THREADS);
        let threads: Vec<_> = shares
            .map(|share| scope.spawn(move || log.admit_some(share).unwrap()))
            .collect();
        for thread in threads {
            all.add(thread.join().unwrap());
        }
    });
    log.settle_erasures();
    assert_eq!(all.failed, Vec::new());
    all
}

impl Node {
    fn open(directory: &Path) -> Self {
        let settings = ValueLogSettings {
            segment_bytes: SEGMENT_BYTES,
            // Overwritten entries stay, so that opening has to distinguish them from live ones.
            garbage_percent_max: 100,
        };
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let path = directory.join("value_log");
        let (log, found) = ValueLog::open(disk, &path, 1, settings).unwrap();
        let stores = open_stores(directory, &log);
        let admitted = admit(&log, &stores);
        Self {
            log,
            stores,
            found,
            admitted,
        }
    }

    /// Does `work` while the log's thread writes, and then the remaining upkeep.
    fn driven<T>(&self, work: impl FnOnce() -> T) -> T {
        let done = std::thread::scope(|scope| {
            scope.spawn(|| self.log.drive());
            let done = work();
            self.log.stop();
            done
        });
        self.log.sync().unwrap();
        self.keep_log();
        done
    }

    /// Seals segments that were closed, as the server's upkeep does within seconds.
    fn keep_log(&self) {
        while self.log.is_chore_due() && self.log.chore_step().unwrap() {}
    }

    /// Keys go to the stores in turn, so that each store has records in every segment.
    fn put(&self, number: u64, body: &Bytes) {
        let store = number % STORES;
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let key = format!("\0\x01bucket\0\x01{mixed:016x}{store:02}{number:039}");
        let key = StorageKey::from_encoded(key.into_bytes());
        let write = Write::put(key, Fields::default(), Bytes::new(), body.clone());
        let store = &self.stores[usize::try_from(store).unwrap()];
        self.log.wait_for_room().unwrap();
        let _buffered = store.put(&Batch::of(write), Durability::Buffered).unwrap();
        if number.is_multiple_of(10_000) {
            self.keep_log();
        }
    }

    fn close(&self) {
        self.stores.iter().for_each(|store| store.close().unwrap());
    }
}

fn open_stores(directory: &Path, log: &ValueLog) -> Vec<Arc<Bitcask>> {
    let next = AtomicU64::new(0);
    let opened = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let store = next.fetch_add(1, Ordering::Relaxed);
                    if store >= STORES {
                        break;
                    }
                    let open = open_store(directory, store, log);
                    opened.lock().push((store, open));
                }
            });
        }
    });
    let mut opened = opened.into_inner();
    opened.sort_by_key(|(store, _)| *store);
    opened.into_iter().map(|(_, store)| store).collect()
}

fn open_store(directory: &Path, store: u64, log: &ValueLog) -> Arc<Bitcask> {
    let drawn = AtomicU64::new(1 + store * 1_000);
    let draw = Arc::new(move || drawn.fetch_add(1, Ordering::Relaxed));
    let settings = BitcaskSettings {
        log_segments_behind_max: SEGMENTS_BEHIND_MAX,
        ..BitcaskSettings::default()
    };
    let (disk, log) = (Arc::new(RealDisk), log.clone());
    let path = directory.join(store.to_string());
    Arc::new(Bitcask::open(disk, &path, settings, draw, Some(log)).unwrap())
}

fn remove_checkpoint(directory: &Path, store: u64) {
    let path = directory.join(store.to_string()).join("checkpoint");
    RealDisk.remove_file(&path).unwrap();
}

fn time_opening(what: &str, directory: &Path, keys: u64) -> Node {
    let (started, cpu_before, read_before) = (Instant::now(), cpu_seconds(), read_bytes());
    let node = Node::open(directory);
    let (took, cpu) = (started.elapsed(), cpu_seconds() - cpu_before);
    let read = (read_bytes() - read_before) >> 20;
    let found: u64 = node.stores.iter().map(|it| it.status().keys).sum();
    assert_eq!(found, keys);
    println!(
        "{what}: {:.2} s in all, {cpu:.2} s of CPU, {read} MB read; of {} segments {} read for their end and {} for stores",
        took.as_secs_f64(),
        node.log.status().segments,
        node.found.segments_read,
        node.admitted.segments_read,
    );
    node
}

/// CPU time of the process so far: on a busy machine the clock includes other processes.
fn cpu_seconds() -> f64 {
    const TICKS_A_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let behind_name = stat.rsplit(')').next().unwrap();
    let fields = behind_name.split_whitespace().skip(11).take(2);
    let ticks: u64 = fields.map(|it| it.parse::<u64>().unwrap()).sum();
    ticks as f64 / TICKS_A_SECOND
}

/// Bytes that the process has read from files so far, from the page cache too.
fn read_bytes() -> u64 {
    let counts = std::fs::read_to_string("/proc/self/io").unwrap();
    let line = counts.lines().find_map(|it| it.strip_prefix("rchar: "));
    line.unwrap().parse().unwrap()
}

/// The stores as tenants of the log.
fn tenants_of(stores: &[Arc<Bitcask>]) -> Vec<Arc<dyn Tenant>> {
    stores.iter().map(|it| it.clone() as _).collect()
}
