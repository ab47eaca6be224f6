//! Measures a store on the real disk with one thread: first puts into memory and the log, and short
//! scans of memory; then a bulk load, random overwrites with their merges, point reads that hit and
//! that miss, short and long scans.
//!
//! Run with `cargo run --release -p kvorum-lsm --example lsm_operations [DIRECTORY] [KEYS] [BYTES]
//! [THRESHOLD]`. Bodies of THRESHOLD bytes or more go to blob files. The directory is removed at
//! the end. Steps of upkeep run between puts, as under an arbiter.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measuring tool reads the clock, prints, and gives up when something fails"
)]

use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use kvorum_backend::{
    Durability, Fields, FoldFilter, Lease, Lookup, ReadAt, Reading, StepBudget, Timestamp,
};
use kvorum_disk::{Disk, RealDisk};
use kvorum_lsm::{Body, Lsm, LsmSettings, Op, ScanRange, ScanStep, Shared, TreeView, Value};

const NOW: Timestamp = Timestamp(1_000_000);

fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().unwrap_or("/tmp/kvorum-lsm".to_owned());
    let directory = PathBuf::from(directory);
    let count: u64 = arguments.next().map_or(300_000, |it| it.parse().unwrap());
    let bytes: usize = arguments.next().map_or(1_000, |it| it.parse().unwrap());
    let threshold: usize = arguments.next().map_or(4096, |it| it.parse().unwrap());
    let disk = Arc::new(RealDisk);
    let _gone_or_not = disk.remove_directory(&directory);
    let open = |memtable_bytes: u64| {
        let settings = LsmSettings {
            memtable_bytes,
            blob_threshold_bytes: threshold,
            ..LsmSettings::default()
        };
        let shared = Shared::new(256 << 20, 256 << 20);
        let draw = Arc::new(|| 77);
        Lsm::open(disk.clone(), &directory, settings, shared, draw, None).unwrap()
    };
    let mut state = 88_172_645_463_325_252u64;
    let noise = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    });
    let noise: Vec<u8> = noise.take((8 << 20) + bytes).collect();
    let body = |number: u64| {
        let at = usize::try_from(number * 104_729 % (8 << 20)).unwrap();
        &noise[at..at + bytes]
    };

    let store = open(u64::MAX);
    let scattered = |number: u64| number * 104_729 % count;
    per_call("put, into memory and the log", count, || {
        for number in 0..count {
            put(&store, scattered(number), body(number));
        }
    });
    per_call("scan, 50 entries in memory", 20_000, || {
        for number in 0..20_000 {
            scan(&store, Bound::Included(key(scattered(number * 31))), 50);
        }
    });
    store.close().unwrap();
    drop(store);
    disk.remove_directory(&directory).unwrap();
    let store = open(16 << 20);
    per_call("put, ascending", count, || {
        for number in 0..count {
            put(&store, number, body(number));
            maintain(&store, number);
        }
    });
    drain(&store);
    amplification(&store);
    per_call("put, random overwrites", count, || {
        for number in 0..count {
            put(&store, number * 7919 % count, body(number + 1));
            maintain(&store, number);
        }
    });
    drain(&store);
    amplification(&store);
    let at = ReadAt {
        reading: Reading::MayBlock,
        now: NOW,
    };
    let keys: Vec<Bytes> = (0..count).map(|it| key(it * 104_729 % count)).collect();
    per_call("scan, 10 entries of few that are asked for", 10_000, || {
        for key in keys.iter().take(500).cycle().take(10_000) {
            scan(&store, Bound::Included(key.clone()), 10);
        }
    });
    for _ in 0..2 {
        per_call("get, hit", count, || {
            for key in &keys {
                assert!(matches!(store.get(key, at).unwrap(), Lookup::Found(_)));
            }
        });
    }
    let absent: Vec<Bytes> = keys
        .iter()
        .map(|it| [it, &b"x"[..]].concat().into())
        .collect();
    per_call("get, miss", count, || {
        for key in &absent {
            assert!(matches!(store.get(key, at).unwrap(), Lookup::Absent));
        }
    });
    per_call("scan, 10 entries", 10_000, || {
        for key in keys.iter().take(10_000) {
            scan(&store, Bound::Included(key.clone()), 10);
        }
    });
    per_call("scan, each entry", count, || {
        scan(&store, Bound::Unbounded, u64::MAX);
    });
    let range = everything();
    println!("{:#?}", store.status(&range).details);
    store.close().unwrap();
    drop(store);
    disk.remove_directory(&directory).unwrap();
}

fn key(number: u64) -> Bytes {
    Bytes::from(format!("user:{number:012}"))
}

fn put(store: &Lsm, number: u64, body: &[u8]) {
    let op = Op::Put {
        key: key(number),
        value: Value {
            fields: Fields::default(),
            extra: Bytes::new(),
            head: Bytes::from_static(b"a head of some 40 bytes, as vnodes have.."),
            body: Body::Inline(Bytes::copy_from_slice(body)),
        },
    };
    let _receipt = store.write(&[op], Durability::Buffered, NOW).unwrap();
}

/// Runs a step of upkeep at every 64th put.
fn maintain(store: &Lsm, number: u64) {
    if !number.is_multiple_of(64) {
        return;
    }
    if let Some(task) = store.maintenance_due(NOW).first() {
        let budget = StepBudget { bytes: 2 << 20 };
        store.maintenance_step(task, budget, NOW).unwrap();
    }
}

fn drain(store: &Lsm) {
    store.sync().unwrap();
    while let Some(task) = store.maintenance_due(NOW).first() {
        let budget = StepBudget { bytes: 8 << 20 };
        store.maintenance_step(task, budget, NOW).unwrap();
    }
}

fn everything() -> ScanRange {
    ScanRange {
        from: Bound::Unbounded,
        to: Bound::Unbounded,
    }
}

fn scan(store: &Lsm, from: Bound<Bytes>, count: u64) {
    let range = ScanRange {
        from,
        ..everything()
    };
    let mut left = count;
    let view = store.snapshot(Lease::Unlimited);
    let filter = FoldFilter::unexpired(NOW);
    let end = view.scan(&range, &filter, &mut |_| {
        left -= 1;
        match left {
            0 => ScanStep::Stop,
            _ => ScanStep::Next,
        }
    });
    end.unwrap();
}

fn amplification(store: &Lsm) {
    let status = store.status(&everything());
    let ratio = status.written_bytes as f64 / status.put_bytes as f64;
    println!(
        "write amplification {ratio:.2}, {} MB on disk, {} files",
        status.disk_bytes >> 20,
        status.files
    );
}

/// Processor time is a better measure than the clock on a machine that does other work too.
fn per_call(what: &str, count: u64, work: impl FnOnce()) {
    let (started, before) = (Instant::now(), processor_micros());
    work();
    let micros = started.elapsed().as_secs_f64() * 1e6 / count as f64;
    let processor = (processor_micros() - before) / count as f64;
    println!("{what}: {micros:.2} us each, {processor:.2} us of processor time");
}

fn processor_micros() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}
