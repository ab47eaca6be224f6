//! Cost and gain of compressing values in bitcask: CPU time of a put, a get and a head, and bytes
//! on disk. Measured with the values of published tests and with documents like those of
//! applications.
//!
//! Run with `cargo run --release -p kvorum-bench --example value_compression [DIRECTORY]
//! [MEGABYTES]`. Nothing is synced, so that only the processor's time counts. The directory is
//! removed at the end.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measuring tool prints, and gives up when something fails"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::{
    Backend, Batch, Durability, Fields, Lookup, ReadAt, Reading, Timestamp, Write,
};
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings, Compression};
use kvorum_bench::process::ProcessUsage;
use kvorum_bench::random::{Seed, WorkerRandom};
use kvorum_bench::value_generator::{BlockSettings, SourceBlocks, ValueGenerator};
use kvorum_disk::{Disk, RealDisk};
use kvorum_encoding::StorageKey;
use kvorum_erlang_terms::parse_term;

const GENERATORS: [&str; 5] = [
    "{fixed_bin, 1000}",
    "{semi_compressible, 2000, 2000}",
    "{semi_compressible, 4000, 4000}",
    "{semi_compressible, 8000, 8000}",
    "{semi_compressible, 8000, 8000, 10, 0.1}",
];
const CODECS: [(&str, Compression); 3] = [
    ("none", Compression::None),
    ("lz4", Compression::Lz4),
    ("zstd", Compression::Zstd(1)),
];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().unwrap_or("/tmp/kvorum-compression".into());
    let directory = PathBuf::from(directory);
    let megabytes: usize = arguments.next().map_or(200, |it| it.parse().unwrap());
    println!("values | codec | bytes on disk | us a put | us a get | us a head");
    for generator in GENERATORS {
        compare(
            &directory,
            generator,
            &published(generator, megabytes << 20),
        );
    }
    compare(&directory, "documents of 1 KB", &documents(megabytes << 20));
}

fn published(generator: &str, bytes: usize) -> Vec<Bytes> {
    let blocks = SourceBlocks::new(BlockSettings {
        random_bytes: 96 << 20,
        blob_file: None,
        seed: Seed([1, 2, 3]),
    });
    let generator = ValueGenerator::build(&parse_term(generator).unwrap(), &blocks).unwrap();
    let mut random = WorkerRandom::new(Seed([42, 23, 12]));
    let mut left = bytes;
    let next = || {
        let value = generator.next(&mut random).into_bytes();
        left = left.checked_sub(value.len())?;
        Some(value)
    };
    std::iter::from_fn(next).collect()
}

/// Orders in JSON: names repeat, values do not.
fn documents(bytes: usize) -> Vec<Bytes> {
    let document = |number: usize| {
        let lines: Vec<String> = (0..8)
            .map(|line| {
                let drawn = (number * 8 + line).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
                format!(
                    r#"{{"sku":"{drawn:012x}","quantity":{},"unit_price":{}.{:02},"currency":"EUR"}}"#,
                    drawn % 9 + 1,
                    drawn % 977,
                    drawn % 100
                )
            })
            .collect();
        format!(
            r#"{{"type":"order","id":{number},"customer":{{"id":{},"tier":"standard"}},"lines":[{}],"status":"shipped","warehouse":"north-{}"}}"#,
            number * 7919 % 100_003,
            lines.join(","),
            number % 17
        )
    };
    let mut left = bytes;
    let sized = (0..).map(document).map_while(|document| {
        left = left.checked_sub(document.len())?;
        Some(Bytes::from(document))
    });
    sized.collect()
}

fn compare(directory: &Path, name: &str, values: &[Bytes]) {
    for (codec, compression) in CODECS {
        let settings = BitcaskSettings {
            compression,
            ..BitcaskSettings::default()
        };
        let disk = Arc::new(RealDisk);
        let store = Bitcask::open(disk, directory, settings, Arc::new(|| 42), None).unwrap();
        let put = cpu_micros(values.len(), || {
            for (number, value) in values.iter().enumerate() {
                let (fields, head) = (Fields::default(), Bytes::from_static(&[7; 64]));
                let write = Write::put(key(number), fields, head, value.clone());
                let _buffered = store.put(&Batch::of(write), Durability::Buffered).unwrap();
            }
        });
        let at = ReadAt {
            reading: Reading::MayBlock,
            now: Timestamp(1),
        };
        let scattered = || (0..values.len()).map(|number| number * 7919 % values.len());
        let get = cpu_micros(values.len(), || {
            for number in scattered() {
                assert!(matches!(store.get(&key(number), at), Ok(Lookup::Found(_))));
            }
        });
        let head = cpu_micros(values.len(), || {
            for number in scattered() {
                assert!(matches!(store.head(&key(number), at), Ok(Lookup::Found(_))));
            }
        });
        let raw: usize = values.iter().map(Bytes::len).sum();
        let stored = store.status().live_bytes as f64 / raw as f64;
        println!("{name} | {codec} | {stored:.3} | {put:.1} | {get:.1} | {head:.1}");
        drop(store);
        RealDisk.remove_directory(directory).unwrap();
    }
}

fn key(number: usize) -> StorageKey {
    StorageKey::from_encoded(format!("\x00\x01bucket\x00\x01key {number:012}").into_bytes())
}

/// CPU time of one call, as the mean of this many calls.
fn cpu_micros(calls: usize, work: impl FnOnce()) -> f64 {
    let used = || ProcessUsage::of(std::process::id()).unwrap().cpu;
    let before = used();
    work();
    (used() - before).as_secs_f64() * 1e6 / calls as f64
}
