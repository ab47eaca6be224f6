//! Measures puts, gets and heads of 1 KB values on the real disk with one thread, without syncs.
//!
//! Run with `cargo run --release -p kvorum-backend-bitcask --example put_get [DIRECTORY] [KEYS]`. The
//! directory is removed at the end. Targets: under 4 microseconds for a put, under 2.5 for a cached
//! get.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measuring tool reads the clock, prints, and gives up when something fails"
)]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use kvorum_backend::{
    Backend, Batch, Durability, Fields, Flow, FoldDetail, FoldFilter, FoldRange, Lease, Lookup,
    ReadAt, Reading, StepBudget, Timestamp, Write,
};
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings, ReadCache};
use kvorum_disk::{Disk, RealDisk};
use kvorum_encoding::StorageKey;

const NOW: Timestamp = Timestamp(1_000_000);
const VALUE_BYTES: usize = 1024;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().unwrap_or("/tmp/kvorum-put-get".to_owned());
    let directory = PathBuf::from(directory);
    let count: u64 = arguments.next().map_or(200_000, |it| it.parse().unwrap());
    let keys: Vec<StorageKey> = (0..count).map(key).collect();
    let batches: Vec<Batch> = keys.iter().map(batch).collect();
    let store = open(&directory);

    per_call("put, new keys", count, || {
        for batch in &batches {
            let _buffered = store.put(batch, Durability::Buffered).unwrap();
        }
    });
    per_call("put, overwriting", count, || {
        for batch in &batches {
            let _buffered = store.put(batch, Durability::Buffered).unwrap();
        }
    });
    let at = ReadAt {
        reading: Reading::CachedOnly,
        now: NOW,
    };
    per_call("head and put", count, || {
        for key in &keys {
            let Ok(Lookup::Found(found)) = store.head(key, at) else {
                unreachable!("no head");
            };
            let mut batch = batch(key);
            if let Write::Put { old, .. } = &mut batch.writes[0] {
                old.place = found.place;
            }
            let _buffered = store.put(&batch, Durability::Buffered).unwrap();
        }
    });
    let scattered: Vec<&StorageKey> = (0..count)
        .map(|number| &keys[usize::try_from(number * 7919 % count).unwrap()])
        .collect();
    per_call("get, cached", count, || {
        for key in &scattered {
            assert!(matches!(store.get(key, at).unwrap(), Lookup::Found(_)));
        }
    });
    per_call("head, cached", count, || {
        for key in &scattered {
            assert!(matches!(store.head(key, at).unwrap(), Lookup::Found(_)));
        }
    });
    // From here on reads are cached; the first round fills the cache.
    let store = store.with_cache(Arc::new(ReadCache::new(count * 2 * VALUE_BYTES as u64)));
    for name in ["get, to be kept", "get, kept"] {
        per_call(name, count, || {
            for key in &scattered {
                assert!(matches!(store.get(key, at).unwrap(), Lookup::Found(_)));
            }
        });
    }
    per_call("head, kept", count, || {
        for key in &scattered {
            assert!(matches!(store.head(key, at).unwrap(), Lookup::Found(_)));
        }
    });
    fold(&store, count);
    for task in store.maintenance_due(NOW) {
        let name = format!("{} of {}", task.kind.name(), task.subject);
        per_call(&name, count, || {
            let budget = StepBudget { bytes: u64::MAX };
            store.maintenance_step(&task, budget, NOW).unwrap();
        });
    }
    fold(&store, count);
    let status = store.status();
    let per_key = status.memory_bytes / status.keys;
    println!(
        "{per_key} bytes of memory a key, {} bytes on disk",
        status.disk_bytes
    );
    per_call("close", count, || store.close().unwrap());
    drop(store);
    per_call("open", count, || drop(open(&directory)));
    RealDisk.remove_directory(&directory).unwrap();
}

fn open(directory: &std::path::Path) -> Bitcask {
    let settings = BitcaskSettings {
        file_bytes_max: 128 << 20,
        ..BitcaskSettings::default()
    };
    Bitcask::open(
        Arc::new(RealDisk),
        directory,
        settings,
        Arc::new(|| 42),
        None,
    )
    .unwrap()
}

fn key(number: u64) -> StorageKey {
    StorageKey::from_encoded(format!("\x00\x01bucket\x00\x01key {number:012}").into_bytes())
}

fn batch(key: &StorageKey) -> Batch {
    let head = Bytes::from_static(&[7; 64]);
    let body = Bytes::from(vec![9; VALUE_BYTES]);
    Batch::of(Write::put(key.clone(), Fields::default(), head, body))
}

fn fold(store: &Bitcask, count: u64) {
    per_call("fold of keys", count, || {
        let snapshot = store.snapshot(Lease::Unlimited).unwrap();
        let filter = FoldFilter::unexpired(NOW);
        let mut seen = 0;
        let end = snapshot.fold(FoldDetail::Keys, &FoldRange::all(), &filter, &mut |_| {
            seen += 1;
            Flow::Continue
        });
        end.unwrap();
        assert_eq!(seen, count);
    });
}

fn per_call(name: &str, count: u64, work: impl FnOnce()) {
    let start = Instant::now();
    work();
    let nanos = start.elapsed().as_nanos() / u128::from(count);
    let seconds = start.elapsed().as_secs_f64();
    println!("{name:24} {nanos:8} ns a key {seconds:8.3} s in all");
}
