//! Measures writing a table, point reads (hit, miss) or a scan. Each run measures one mode, so that
//! an instruction counter can wrap it.
//!
//! Run with `cargo run --release -p kvorum-sst --example table_reads [MODE] [KEYS] [VALUE_BYTES]`.
//! MODE is `write`, `hit`, `hit-plain` (no hash index), `miss` or `scan`.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measuring tool reads the clock, prints, and gives up when something fails"
)]

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use kvorum_disk::MemoryDisk;
use kvorum_sst::{
    Block, BlockCache, CacheKey, Facts, FilterKind, IgnoreDamage, ReadContext, ScanItem,
    ScanOptions, Table, TableId, TableOptions, TableScan, TableWriter, hash_key,
};

/// A cache that keeps all blocks.
#[derive(Default)]
struct Everything(Mutex<HashMap<CacheKey, Arc<Block>>>);

impl BlockCache for Everything {
    fn get(&self, key: &CacheKey) -> Option<Arc<Block>> {
        self.0.lock().unwrap().get(key).cloned()
    }

    fn insert(&self, key: CacheKey, block: &Arc<Block>) {
        self.0.lock().unwrap().insert(key, block.clone());
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("user:{:012}", number * 2).into_bytes()
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mode = arguments.next().unwrap_or("hit".to_owned());
    let count: u64 = arguments.next().map_or(200_000, |it| it.parse().unwrap());
    let value_bytes: usize = arguments.next().map_or(100, |it| it.parse().unwrap());
    let options = TableOptions {
        has_hash_index: mode != "hit-plain",
        filter: FilterKind::Bloom { bits_per_key: 10 },
        ..TableOptions::default()
    };
    let disk = MemoryDisk::new();
    let id = TableId {
        store: 1,
        number: 1,
    };
    let value = vec![7; value_bytes];
    let started = Instant::now();
    let mut writer = TableWriter::create(&disk, Path::new("t"), id, options).unwrap();
    for number in 0..count {
        writer.add(&key(number), &value, &Facts::default()).unwrap();
    }
    let written = writer.finish().unwrap();
    report("write", started, count);
    println!("{} bytes for {count} entries", written.file_len);
    let table = Table::open(&disk, Path::new("t"), written, 1, &IgnoreDamage).unwrap();
    let table = Arc::new(table);
    let cache = Everything::default();
    let context = ReadContext {
        cache: &cache,
        ..ReadContext::default()
    };
    let keys: Vec<Vec<u8>> = (0..count)
        .map(|number| key(number * 7919 % count))
        .collect();
    if mode == "scan" {
        let started = Instant::now();
        let context = ReadContext {
            fills_cache: false,
            ..ReadContext::default()
        };
        let mut scan = TableScan::new(table, ScanOptions::default());
        let mut seen = 0;
        while scan.advance(&context).unwrap() == ScanItem::Entry {
            seen += scan.value().len().min(1) as u64;
        }
        report("scan", started, seen);
        return;
    }
    if mode.starts_with("hit") || mode == "miss" {
        for key in &keys {
            let _warm = table.get(key, hash_key(key), &context).unwrap();
        }
        let started = Instant::now();
        let mut found = 0;
        for key in &keys {
            let mut key = key.clone();
            if mode == "miss" {
                *key.last_mut().unwrap() += 1;
            }
            found += u64::from(table.get(&key, hash_key(&key), &context).unwrap().is_some());
        }
        report(&mode, started, count);
        println!("{found} found");
    }
}

fn report(what: &str, started: Instant, count: u64) {
    let nanos = started.elapsed().as_nanos() / u128::from(count.max(1));
    println!("{what}: {nanos} ns each");
}
