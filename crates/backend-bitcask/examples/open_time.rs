//! Measures how long 64 stores take to open, two at a time: after a clean stop, after a kill with
//! the most records to replay, and from hint files alone.
//!
//! Run with `cargo run --release -p kvorum-backend-bitcask --example open_time [DIRECTORY] [KEYS]`. The
//! directory is removed at the end. Targets for 10 million keys: about 2 s, 2 s and 10 s.
//!
//! These stores have their entries in files of their own; `tenant_open_time` of `kvorum-value-log` opens
//! stores with entries in the value log.

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
use kvorum_backend::{Backend, Batch, Durability, Fields, StepBudget, TaskKind, Timestamp, Write};
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings};
use kvorum_disk::{Disk, RealDisk};
use kvorum_encoding::StorageKey;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const STORES: u64 = 64;
const AT_ONCE: u64 = 2;
const NOW: Timestamp = Timestamp(1_000_000);
const VALUE: &[u8] = &[7; 100];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments
        .next()
        .unwrap_or("/tmp/kvorum-open-time".to_owned());
    let directory = PathBuf::from(directory);
    let keys: u64 = arguments
        .next()
        .map_or(10_000_000, |it| it.parse().unwrap());
    let each = keys / STORES;
    let started = Instant::now();
    in_pairs(|store| build(&directory, store, each));
    println!(
        "built {keys} keys in {:.1} s",
        started.elapsed().as_secs_f64()
    );

    time_opening("after a clean stop", &directory, each);

    // The most records between two checkpoints, all of them overwrites.
    let replayed = (32 << 10).max(each / 4).min(each) - 1;
    in_pairs(|store| {
        let open = open(&directory, store);
        (0..replayed).for_each(|number| put(&open, store, number * 4 % each));
        // Dropped without being closed, as after a kill.
    });
    println!("{} records behind the checkpoints", replayed * STORES);
    time_opening("after a kill", &directory, each);

    in_pairs(|store| {
        let path = of_store(&directory, store).join("checkpoint");
        RealDisk.remove_file(&path).unwrap();
        finish_segment(&open_sealing(&directory, store), store);
        let path = of_store(&directory, store).join("checkpoint");
        if RealDisk.info(&path).unwrap().is_some() {
            RealDisk.remove_file(&path).unwrap();
        }
    });
    time_opening("from hint files alone", &directory, each);
    RealDisk.remove_directory(&directory).unwrap();
}

/// Calls `work` for every store, two at a time.
fn in_pairs(work: impl Fn(u64) + Sync) {
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let store = next.fetch_add(1, Ordering::Relaxed);
                    if store >= STORES {
                        break;
                    }
                    work(store);
                }
            });
        }
    });
}

fn time_opening(what: &str, directory: &Path, each: u64) {
    let found = AtomicU64::new(0);
    let micros = AtomicU64::new(0);
    let (started, cpu_before) = (Instant::now(), cpu_seconds());
    in_pairs(|store| {
        let began = Instant::now();
        let opened = open(directory, store);
        let took = u64::try_from(began.elapsed().as_micros()).unwrap();
        micros.fetch_add(took, Ordering::Relaxed);
        found.fetch_add(opened.status().keys, Ordering::Relaxed);
    });
    assert!(found.into_inner() >= each * STORES);
    println!(
        "{what}: {:.2} s in all, {:.2} s of CPU, {} ms a store",
        started.elapsed().as_secs_f64(),
        cpu_seconds() - cpu_before,
        micros.into_inner() / STORES / 1000
    );
}

/// CPU time of the process so far: on a busy machine elapsed time includes other processes.
fn cpu_seconds() -> f64 {
    const TICKS_A_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let behind_name = stat.rsplit(')').next().unwrap();
    let fields = behind_name.split_whitespace().skip(11).take(2);
    let ticks: u64 = fields.map(|it| it.parse::<u64>().unwrap()).sum();
    ticks as f64 / TICKS_A_SECOND
}

fn build(directory: &Path, store: u64, each: u64) {
    let opened = open(directory, store);
    (0..each).for_each(|number| put(&opened, store, number));
    opened.close().unwrap();
}

/// Finishes the only segment of a store, with a hint, and does not close the store.
fn finish_segment(opened: &Bitcask, store: u64) {
    put(opened, store, u64::MAX);
    for task in opened.maintenance_due(NOW) {
        if task.kind == TaskKind::Hint {
            let budget = StepBudget { bytes: u64::MAX };
            opened.maintenance_step(&task, budget, NOW).unwrap();
        }
    }
}

fn of_store(directory: &Path, store: u64) -> PathBuf {
    directory.join(store.to_string())
}

fn open(directory: &Path, store: u64) -> Bitcask {
    open_with(directory, store, BitcaskSettings::default())
}

/// Opens a store with settings by which its segment is full.
fn open_sealing(directory: &Path, store: u64) -> Bitcask {
    let settings = BitcaskSettings {
        file_bytes_max: 1,
        ..BitcaskSettings::default()
    };
    open_with(directory, store, settings)
}

fn open_with(directory: &Path, store: u64, settings: BitcaskSettings) -> Bitcask {
    let draw = Arc::new(move || store + 42);
    let path = of_store(directory, store);
    Bitcask::open(Arc::new(RealDisk), &path, settings, draw, None).unwrap()
}

fn put(opened: &Bitcask, store: u64, number: u64) {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let key = format!("\0\x01bucket\0\x01{mixed:016x}{store:02}{number:040}");
    let key = StorageKey::from_encoded(key.into_bytes());
    let value = Bytes::from_static(VALUE);
    let write = Write::put(key, Fields::default(), Bytes::new(), value);
    let _buffered = opened.put(&Batch::of(write), Durability::Buffered).unwrap();
}
