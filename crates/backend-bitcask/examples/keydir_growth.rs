//! Measures the effect of the key directories' growth on puts: 64 stores grow from 1 to 12 million
//! keys of 67 bytes under an open loop. A put's time is counted from its due time, so that a pause
//! adds to all later puts. Prints the p99.9 of windows with and without growth of a directory, and
//! the maximum of memory for each key.
//!
//! Run with `MIMALLOC_ALLOW_THP=0 cargo run --release -p kvorum-backend-bitcask --example
//! keydir_growth [DIRECTORY] [KEYS] [PUTS_PER_SECOND]`. The directory is removed at the end. Up to
//! a million keys are put as fast as possible; the rest takes KEYS / PUTS_PER_SECOND, by default 3
//! minutes. Keep the rate at half of the machine's maximum or less: a loop that falls behind
//! measures its own queue. Target: the two p99.9 are alike, and a key takes at most 24 bytes.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measuring tool asks the system, prints, and gives up when something fails"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use kvorum_backend::{Backend, Batch, Durability, Fields, Write};
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings};
use kvorum_disk::{Disk, RealDisk};
use kvorum_encoding::StorageKey;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const STORES: u64 = 64;
const PAGE_BYTES: u64 = 4096;
/// The length of a window. The directories grew in each window that raised their memory.
const WINDOW: Duration = Duration::from_millis(5);

/// Memory of the directories at the end of a window.
struct Sample {
    reckoned_bytes: u64,
    resident_bytes: u64,
    keys: u64,
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments
        .next()
        .unwrap_or("/tmp/kvorum-keydir-growth".to_owned());
    let directory = PathBuf::from(directory);
    let mut number = |otherwise: u64| arguments.next().map_or(otherwise, |it| it.parse().unwrap());
    let (count, per_second) = (number(12_000_000), number(60_000));
    // The targets are for a million keys and more.
    let first = (count / 2).min(1_000_000);
    let stores: Vec<Bitcask> = (0..STORES).map(|store| open(&directory, store)).collect();
    // The measurement's own memory is allocated and touched before memory is counted.
    let mut took_nanos = vec![(0u32, 1u32); usize::try_from(count - first).unwrap()];
    let before_bytes = resident_bytes();
    (0..first).for_each(|it| put(&stores, it));

    let (done, is_over) = (AtomicU64::new(first), AtomicBool::new(false));
    let begun = Instant::now();
    let samples = std::thread::scope(|scope| {
        let (stores, done, is_over) = (&stores, &done, &is_over);
        let sampler = scope.spawn(move || sample(stores, begun, before_bytes, done, is_over));
        let period = 1_000_000_000 / per_second;
        for (index, key) in (0..).zip(first..count) {
            let due = Duration::from_nanos(period * index);
            while begun.elapsed() < due {
                std::hint::spin_loop();
            }
            put(stores, key);
            done.store(key + 1, Ordering::Relaxed);
            let now = begun.elapsed();
            let window = u32::try_from(now.as_nanos() / WINDOW.as_nanos()).unwrap();
            let nanos = u32::try_from((now - due).as_nanos()).unwrap_or(u32::MAX);
            took_nanos[usize::try_from(index).unwrap()] = (window, nanos);
        }
        is_over.store(true, Ordering::Relaxed);
        sampler.join().unwrap()
    });
    print(&samples, &took_nanos, begun.elapsed());
    drop(stores);
    RealDisk.remove_directory(&directory).unwrap();
}

/// A sample at the end of each window until it is over.
fn sample(
    stores: &[Bitcask],
    begun: Instant,
    before_bytes: u64,
    done: &AtomicU64,
    is_over: &AtomicBool,
) -> Vec<Sample> {
    let mut samples = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let end = WINDOW * u32::try_from(samples.len() + 1).unwrap();
        std::thread::sleep(end.saturating_sub(begun.elapsed()));
        let sample = Sample {
            reckoned_bytes: stores.iter().map(|it| it.status().memory_bytes).sum(),
            resident_bytes: resident_bytes().saturating_sub(before_bytes),
            keys: done.load(Ordering::Relaxed),
        };
        samples.push(sample);
    }
    samples
}

fn print(samples: &[Sample], took_nanos: &[(u32, u32)], elapsed: Duration) {
    let grew: Vec<bool> = std::iter::once(false)
        .chain(
            samples
                .windows(2)
                .map(|it| it[1].reckoned_bytes > it[0].reckoned_bytes),
        )
        .collect();
    let in_window = |window: u32, is_growing: bool| {
        let window = usize::try_from(window).unwrap();
        grew.get(window).is_some_and(|it| *it == is_growing)
    };
    let windows = grew.iter().filter(|it| **it).count();
    println!(
        "{} puts in {:.1} s; directories grew in {windows} of {} windows of {} ms",
        took_nanos.len(),
        elapsed.as_secs_f64(),
        grew.len(),
        WINDOW.as_millis()
    );
    for (name, is_growing) in [("growing", true), ("steady", false)] {
        let of_windows = took_nanos
            .iter()
            .filter(|(window, _)| in_window(*window, is_growing));
        let mut nanos: Vec<u32> = of_windows.map(|(_, nanos)| *nanos).collect();
        nanos.sort_unstable();
        let at = |thousandths: usize| {
            let place = nanos.len() * thousandths / 1000;
            let nanos = nanos.get(place.min(nanos.len().saturating_sub(1)));
            f64::from(nanos.copied().unwrap_or(0)) / 1e3
        };
        println!(
            "{name:>8}: {} puts, p50 {:.1} us, p99 {:.1} us, p99.9 {:.1} us, longest {:.1} us",
            nanos.len(),
            at(500),
            at(990),
            at(999),
            at(1000)
        );
    }
    for (name, bytes_of) in [
        ("reckoned", (|it| it.reckoned_bytes) as fn(&Sample) -> u64),
        ("resident", |it| it.resident_bytes),
    ] {
        let each = |it: &Sample| bytes_of(it) as f64 / it.keys as f64;
        let worst = samples
            .iter()
            .max_by(|one, other| each(one).total_cmp(&each(other)));
        if let Some(worst) = worst {
            let (bytes, keys) = (each(worst), worst.keys);
            println!("worst, {name}: {bytes:.2} bytes a key at {keys} keys");
        }
    }
}

fn open(directory: &Path, store: u64) -> Bitcask {
    let directory = directory.join(store.to_string());
    let draw = Arc::new(move || store + 42);
    let settings = BitcaskSettings::default();
    Bitcask::open(Arc::new(RealDisk), &directory, settings, draw, None).unwrap()
}

fn put(stores: &[Bitcask], number: u64) {
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
