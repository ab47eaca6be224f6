//! Measures repairs on the real disk against a plain reading of the same files. A sound store is
//! only read; the tables of a store without its manifest are merged again.
//!
//! Run with `cargo run --release -p kvorum-lsm --example lsm_repair [DIRECTORY] [KEYS] [BYTES]
//! [THRESHOLD] [THREADS]`. Bodies of THRESHOLD bytes or more go to blob files. The directory is
//! removed at the end.

#![expect(
    clippy::cast_precision_loss,
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measuring tool reads the clock, prints, and gives up when something fails"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use bytes::Bytes;
use kvorum_backend::{Durability, Fields, StepBudget, Timestamp};
use kvorum_disk::{Disk, OpenMode, Reading, RealDisk};
use kvorum_lsm::{Body, Lsm, LsmSettings, Op, Shared, Value};
use kvorum_lsm_repair::{Repair, RepairOptions};

const NOW: Timestamp = Timestamp(1_000_000);

fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().unwrap_or("/tmp/kvorum-repair".to_owned());
    let directory = PathBuf::from(directory);
    let mut number = |default: usize| arguments.next().map_or(default, |it| it.parse().unwrap());
    let (keys, bytes) = (number(2_000_000), number(1_000));
    let (threshold, threads) = (number(512), number(2));
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let _gone_or_not = disk.remove_directory(&directory);
    let settings = LsmSettings {
        blob_threshold_bytes: threshold,
        ..LsmSettings::default()
    };
    fill(&disk, &directory, &settings, keys, bytes);
    measured("plain reading", || plain(&*disk, &directory));
    measured("plain reading", || plain(&*disk, &directory));
    let repair = || repair(&disk, &directory, &settings, threads);
    measured("repair, sound", repair);
    for name in ["manifest-0", "manifest-1"] {
        disk.remove_file(&directory.join(name)).unwrap();
    }
    measured("repair, no manifest", repair);
    measured("repair, sound", repair);
    disk.remove_directory(&directory).unwrap();
}

/// Puts keys in a random order, each once, and a tenth of them again.
fn fill(disk: &Arc<dyn Disk>, directory: &Path, settings: &LsmSettings, keys: usize, bytes: usize) {
    let shared = Shared::new(64 << 20, 256 << 20);
    let store = Lsm::open(
        disk.clone(),
        directory,
        settings.clone(),
        shared,
        Arc::new(|| 77),
        None,
    );
    let store = store.unwrap();
    let mut state = 88_172_645_463_325_252u64;
    let mut noise = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let body: Vec<u8> = (0..bytes + 4096)
        .map(|_| noise().to_le_bytes()[3])
        .collect();
    for _ in 0..keys + keys / 10 {
        let (at, key) = (noise() % 4096, noise() % (keys as u64 * 2));
        let at = usize::try_from(at).unwrap();
        let body = Bytes::copy_from_slice(&body[at..at + bytes]);
        let op = Op::Put {
            key: Bytes::from(format!("bucket/key/{key:016}")),
            value: Value {
                fields: Fields::default(),
                extra: Bytes::new(),
                head: Bytes::from_static(&[7; 40]),
                body: Body::Inline(body),
            },
        };
        let _receipt = store.write(&[op], Durability::Buffered, NOW).unwrap();
        for task in store.maintenance_due(NOW) {
            let budget = StepBudget { bytes: 4 << 20 };
            let _outcome = store.maintenance_step(&task, budget, NOW).unwrap();
        }
    }
    store.close().unwrap();
}

/// Reads all files from beginning to end; returns the number of bytes.
fn plain(disk: &dyn Disk, directory: &Path) -> u64 {
    let mut all = 0;
    let mut buffer = vec![0; 1 << 20];
    for entry in disk.list(directory).unwrap() {
        let path = directory.join(entry.name);
        if disk.info(&path).unwrap().unwrap().len == 0 {
            continue;
        }
        let Ok(file) = disk.open(&path, OpenMode::Read) else {
            continue;
        };
        let mut at = 0;
        while let Ok(read @ 1..) = file.read_at(&mut buffer, at, Reading::MayBlock) {
            at += read as u64;
        }
        all += at;
    }
    all
}

fn repair(disk: &Arc<dyn Disk>, directory: &Path, settings: &LsmSettings, threads: usize) -> u64 {
    let options = RepairOptions {
        settings: settings.clone(),
        ..RepairOptions::default()
    };
    let repair = Repair::begin(disk.clone(), directory, options).unwrap();
    loop {
        let units = repair.units();
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while let Some(unit) = units.get(next.fetch_add(1, Ordering::Relaxed)) {
                        repair.run(*unit, &|_| {}).unwrap();
                    }
                });
            }
        });
        if !repair.next_stage().unwrap() {
            break;
        }
    }
    let report = repair.report();
    println!(
        "    {:?}, {} files, {} MB written",
        report.verdict,
        report.files,
        report.written_bytes / 1_000_000
    );
    report.bytes
}

fn measured(what: &str, work: impl FnOnce() -> u64) {
    let (began, cpu) = (Instant::now(), cpu_seconds());
    let bytes = work() as f64;
    let (seconds, cpu) = (began.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    println!(
        "{what:<20} {:>8.0} MB  {:>7.0} MB/s  {:>6.2} CPU seconds a GB",
        bytes / 1e6,
        bytes / 1e6 / seconds,
        cpu / (bytes / 1e9)
    );
}

/// CPU time of this process, in user and system mode; in hundredths.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat[stat.rfind(')').unwrap()..].split(' ').collect();
    let ticks = |at: usize| fields[at].parse::<f64>().unwrap();
    (ticks(12) + ticks(13)) / 100.0
}
