//! Measures the memory of the key directories of 64 stores while they grow from 1 to 12 million
//! keys of 67 bytes, a fold open part of the time. The memory is the growth of the process since
//! before the first put, so that the allocator's waste is included.
//!
//! With `--value-log`, entries stay in a value log, as in a server by default, and the memory that
//! stores and log need for it is included.
//!
//! Run with `MIMALLOC_ALLOW_THP=0 cargo run --release -p kvorum-value-log --example keydir_memory
//! [--value-log] [DIRECTORY] [KEYS]`. The directory is removed at the end. Without the variable the
//! allocator uses huge pages, and the measured size moves in steps of 2 MB: two bytes per key at a
//! million keys. Target: at most 24 bytes per key at the worst moment.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measuring tool asks the system, prints, and gives up when something fails"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::{
    Backend, Batch, Durability, Fields, Flow, FoldDetail, FoldFilter, FoldRange, Lease, StepBudget,
    TaskKind, Timestamp, Write,
};
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings};
use kvorum_disk::{Disk, RealDisk};
use kvorum_encoding::StorageKey;
use kvorum_value_log::{Tenant, ValueLog, ValueLogSettings};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const STORES: u64 = 64;
const COUNTED_FROM: u64 = 1_000_000;
const STEP: u64 = 50_000;
const PAGE_BYTES: u64 = 4096;
const NOW: Timestamp = Timestamp(1_000_000);
/// As in a server.
const LOG: ValueLogSettings = ValueLogSettings {
    segment_bytes: 64 << 20,
    garbage_percent_max: 30,
};

/// The worst seen, with and without an open fold.
#[derive(Default)]
struct Worst {
    plain: (f64, u64),
    folding: (f64, u64),
}

struct Measured {
    stores: Vec<Arc<Bitcask>>,
    log: Option<ValueLog>,
    put: u64,
    before_bytes: u64,
    worst: Worst,
}

fn main() {
    let (flags, arguments): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|it| it == "--value-log");
    let mut arguments = arguments.into_iter();
    let directory = arguments
        .next()
        .unwrap_or("/tmp/kvorum-keydir-memory".to_owned());
    let directory = PathBuf::from(directory);
    let count: u64 = arguments
        .next()
        .map_or(12_000_000, |it| it.parse().unwrap());
    let log = (!flags.is_empty()).then(|| open_log(&directory));
    let open = |store| open(&directory, store, log.as_ref());
    let stores: Vec<Arc<Bitcask>> = (0..STORES).map(open).collect();
    let driver = log.clone().map(|log| {
        log.admit(&tenants_of(&stores)).unwrap();
        std::thread::spawn(move || log.drive())
    });
    let mut measured = Measured {
        stores,
        log,
        put: 0,
        before_bytes: resident_bytes(),
        worst: Worst::default(),
    };
    while measured.put < count {
        // A third of every million keys is put while a fold is open.
        if measured.put % 1_000_000 == 600_000 {
            measured.put_during_fold(350_000.min(count - measured.put));
        } else {
            measured.put_some(STEP);
            measured.note(false);
        }
        if measured.put.is_multiple_of(1_000_000) {
            measured.upkeep();
            measured.print();
        }
    }
    let Worst { plain, folding } = measured.worst;
    println!(
        "worst: {:.2} bytes a key at {} keys; with an open fold {:.2} at {}",
        plain.0, plain.1, folding.0, folding.1
    );
    drop(measured.stores);
    if let (Some(log), Some(driver)) = (measured.log, driver) {
        log.stop();
        driver.join().unwrap();
    }
    RealDisk.remove_directory(&directory).unwrap();
}

impl Measured {
    fn put_some(&mut self, count: u64) {
        for number in self.put..self.put + count {
            put(&self.stores, number);
            // A server counts queued batches separately; they do not belong to the memory of keys.
            if number.is_multiple_of(1_000)
                && let Some(log) = &self.log
            {
                log.sync().unwrap();
            }
        }
        self.put += count;
        if count == STEP {
            self.keep_log();
        }
    }

    /// Does a server's upkeep: no batch stays queued in memory, and due log hints are written.
    fn keep_log(&self) {
        let Some(log) = &self.log else {
            return;
        };
        log.sync().unwrap();
        while log.chore_step().unwrap() {}
        for store in &self.stores {
            for task in store.maintenance_due(NOW) {
                if task.kind == TaskKind::Hint {
                    let budget = StepBudget { bytes: u64::MAX };
                    store.maintenance_step(&task, budget, NOW).unwrap();
                }
            }
        }
    }

    /// Puts keys from within a fold of one store.
    fn put_during_fold(&mut self, count: u64) {
        let folded = usize::try_from(self.put / 1_000_000 % STORES).unwrap();
        let snapshot = self.stores[folded].snapshot(Lease::Unlimited).unwrap();
        let filter = FoldFilter::unexpired(NOW);
        let end = self.put + count;
        let visited = self.put / STORES;
        let each = count / visited + 1;
        let folding = snapshot.fold(FoldDetail::Keys, &FoldRange::all(), &filter, &mut |_| {
            for _ in 0..each.min(end - self.put) {
                self.put_some(1);
                if self.put.is_multiple_of(10_000) {
                    self.keep_log();
                    self.note(true);
                }
            }
            Flow::Continue
        });
        folding.unwrap();
        self.put_some(end - self.put);
    }

    fn note(&mut self, is_folding: bool) {
        if self.put < COUNTED_FROM {
            return;
        }
        let taken = resident_bytes().saturating_sub(self.before_bytes);
        let each = taken as f64 / self.put as f64;
        let worst = if is_folding {
            &mut self.worst.folding
        } else {
            &mut self.worst.plain
        };
        if each > worst.0 {
            *worst = (each, self.put);
        }
    }

    fn upkeep(&self) {
        for store in &self.stores {
            for task in store.maintenance_due(NOW) {
                if task.kind != TaskKind::Sync {
                    let budget = StepBudget { bytes: u64::MAX };
                    store.maintenance_step(&task, budget, NOW).unwrap();
                }
            }
        }
    }

    fn print(&self) {
        let reckoned: u64 = self.stores.iter().map(|it| it.status().memory_bytes).sum();
        let taken = resident_bytes().saturating_sub(self.before_bytes);
        let each = |bytes: u64| bytes as f64 / self.put as f64;
        println!(
            "{:>9} keys: {:.2} bytes a key reckoned, {:.2} resident",
            self.put,
            each(reckoned),
            each(taken)
        );
    }
}

fn open_log(directory: &Path) -> ValueLog {
    let opened = ValueLog::open(Arc::new(RealDisk), &directory.join("log"), 41, LOG);
    opened.unwrap().0
}

fn open(directory: &Path, store: u64, log: Option<&ValueLog>) -> Arc<Bitcask> {
    let directory = directory.join(store.to_string());
    let draw = Arc::new(move || store + 42);
    let (disk, settings) = (Arc::new(RealDisk), BitcaskSettings::default());
    let opened = Bitcask::open(disk, &directory, settings, draw, log.cloned());
    Arc::new(opened.unwrap())
}

fn put(stores: &[Arc<Bitcask>], number: u64) {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let key = format!("\0\x01bucket\0\x01{mixed:016x}{number:042}");
    debug_assert_eq!(key.len(), 67);
    let key = StorageKey::from_encoded(key.into_bytes());
    let write = Write::put(key, Fields::default(), Bytes::new(), Bytes::new());
    let store = usize::try_from(number % STORES).unwrap();
    let _buffered = stores[store]
        .put(&Batch::of(write), Durability::Buffered)
        .unwrap();
}

/// Memory of the process.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages = statm.split_whitespace().nth(1).unwrap();
    pages.parse::<u64>().unwrap() * PAGE_BYTES
}

/// The stores as tenants of the log.
fn tenants_of(stores: &[Arc<Bitcask>]) -> Vec<Arc<dyn Tenant>> {
    stores.iter().map(|it| it.clone() as _).collect()
}
