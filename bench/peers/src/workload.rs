//! Workloads of a store: the six published workloads, steady overwrite, and small values by kind of
//! operation.
//!
//! Keys, values and weights are those of `bench/configs`; key spaces are scaled to the machine, in
//! proportion. Stores are called directly, without a network, so that only the engine counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, anyhow};
use bytes::Bytes;
use kvorum_bench::erlang_hash::phash2_integer;
use kvorum_bench::random::{Seed, WorkerRandom};
use kvorum_bench::value_generator::{BlockSettings, SourceBlocks, ValueGenerator};
use kvorum_erlang_terms::Term;

use crate::contender::Sync;

/// The choice of keys.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Keys {
    /// Four of five operations use one fifth of the key space.
    EightyTwenty,
    /// Unique, rising keys; gets read written keys.
    KeyOrder,
    /// Unique keys in scattered places; gets read written keys.
    SkewOrder,
    /// All keys of the space are equally likely.
    Uniform,
}

/// A workload as published.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Its name in arguments and tables.
    pub name: &'static str,
    /// A description in one line.
    pub about: &'static str,
    keys: Keys,
    value: Value,
    gets: u64,
    puts: u64,
    read: Read,
    /// True if the whole key space is written before measuring.
    pub is_preloaded: bool,
    /// The sync mode, as published.
    pub sync: Sync,
}

/// The reads of a workload.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Read {
    /// A key drawn like the keys of puts.
    Written,
    /// A missing key between keys of puts.
    Absent,
    /// This many values in order from a key on.
    Scan(u64),
    /// The keys of this many terms of an index, in order from a term on.
    Query(u64),
}

#[derive(Clone, Copy, Debug)]
enum Value {
    SemiCompressible(u64),
    Random(u64),
}

/// The block of random bytes whose slices are the values, as in basho_bench.
const RANDOM_BLOCK_BYTES: usize = 100_663_296;

/// Gets for each put in tests 1 to 3, which the published page does not state: see `bench/configs`.
const GETS_ASSUMED: u64 = 5;

/// The six published workloads, and workloads that measure merging.
pub const ALL: &[Workload] = &[
    published("test1", "8 KB and more, 80/20, no sync", 8_000, Sync::None),
    published(
        "test2",
        "8 KB and more, 80/20, synced",
        8_000,
        Sync::Grouped,
    ),
    published("test3", "4 KB and more, 80/20, no sync", 4_000, Sync::None),
    unique(
        "test4",
        "8 KB unique, scattered, 3:1",
        8_000,
        Keys::SkewOrder,
        3,
    ),
    unique(
        "test5",
        "4 KB unique, in order, 3:1",
        4_000,
        Keys::KeyOrder,
        3,
    ),
    unique(
        "test6",
        "2 KB unique, in order, 1:1",
        2_000,
        Keys::KeyOrder,
        1,
    ),
    Workload {
        name: "overwrite",
        about: "4 KB, every key as likely, puts only",
        keys: Keys::Uniform,
        value: Value::Random(4_000),
        gets: 0,
        puts: 1,
        read: Read::Written,
        is_preloaded: true,
        sync: Sync::None,
    },
    Workload {
        name: "overwrite-80-20",
        about: "4 KB, 80/20, puts only",
        keys: Keys::EightyTwenty,
        value: Value::Random(4_000),
        gets: 0,
        puts: 1,
        read: Read::Written,
        is_preloaded: true,
        sync: Sync::None,
    },
    loaded("insert", "1 KB unique, in order, puts only", 1_000),
    loaded("insert-100", "100 B unique, in order, puts only", 100),
    small(
        "overwrite-1k",
        "1 KB, every key as likely, puts only",
        1_000,
        0,
        1,
        Read::Written,
    ),
    small(
        "mixed-1k",
        "1 KB, every key as likely, 1:1",
        1_000,
        1,
        1,
        Read::Written,
    ),
    small("hit-100", "100 B, gets that hit", 100, 1, 0, Read::Written),
    small("hit-1k", "1 KB, gets that hit", 1_000, 1, 0, Read::Written),
    small("miss-100", "100 B, gets that miss", 100, 1, 0, Read::Absent),
    small("miss-1k", "1 KB, gets that miss", 1_000, 1, 0, Read::Absent),
    small(
        "scan-100",
        "100 B, 50 values in order",
        100,
        1,
        0,
        Read::Scan(50),
    ),
    small(
        "scan-1k",
        "1 KB, 50 values in order",
        1_000,
        1,
        0,
        Read::Scan(50),
    ),
    small(
        "query-100",
        "100 B with a term each, the keys of 50 terms in order",
        100,
        1,
        0,
        Read::Query(50),
    ),
    small(
        "scan-long",
        "1 KB, 10,000 values in order",
        1_000,
        1,
        0,
        Read::Scan(10_000),
    ),
];

const fn small(
    name: &'static str,
    about: &'static str,
    bytes: u64,
    gets: u64,
    puts: u64,
    read: Read,
) -> Workload {
    Workload {
        name,
        about,
        keys: Keys::Uniform,
        value: Value::Random(bytes),
        gets,
        puts,
        read,
        is_preloaded: true,
        sync: Sync::None,
    }
}

const fn loaded(name: &'static str, about: &'static str, bytes: u64) -> Workload {
    unique(name, about, bytes, Keys::KeyOrder, 0)
}

const fn published(name: &'static str, about: &'static str, bytes: u64, sync: Sync) -> Workload {
    Workload {
        name,
        about,
        keys: Keys::EightyTwenty,
        value: Value::SemiCompressible(bytes),
        gets: GETS_ASSUMED,
        puts: 1,
        read: Read::Written,
        is_preloaded: true,
        sync,
    }
}

const fn unique(
    name: &'static str,
    about: &'static str,
    bytes: u64,
    keys: Keys,
    gets: u64,
) -> Workload {
    Workload {
        name,
        about,
        keys,
        value: Value::Random(bytes),
        gets,
        puts: 1,
        read: Read::Written,
        is_preloaded: false,
        sync: Sync::None,
    }
}

impl Workload {
    /// True if only contenders with an order can take part.
    pub fn scans(&self) -> bool {
        matches!(self.read, Read::Scan(_) | Read::Query(_))
    }

    /// True if writes have a term in an index.
    pub fn is_indexed(&self) -> bool {
        matches!(self.read, Read::Query(_))
    }
}

/// The workload with this name.
pub fn named(name: &str) -> Result<Workload> {
    let found = ALL.iter().find(|workload| workload.name == name).copied();
    found.ok_or_else(|| {
        let known: Vec<&str> = ALL.iter().map(|workload| workload.name).collect();
        anyhow!("no workload {name:?}; there are {}", known.join(", "))
    })
}

/// The next operation.
pub enum Operation {
    /// Read this key; the flag is true if it was written.
    Get(Bytes, bool),
    /// Read this many values in order from this key on.
    Scan(Bytes, u64),
    /// Read the keys of this many terms in order from this term on.
    Query(u64, u64),
    /// Write this key.
    Put(Bytes, Bytes),
}

/// The state that all workers of a run share: value bytes, and the written unique keys.
pub struct Source {
    workload: Workload,
    keys: u64,
    values: ValueGenerator,
    next: AtomicU64,
    written: Arc<Written>,
}

/// The number below which every unique key was acknowledged, and the acknowledged keys above it.
#[derive(Default)]
struct Written {
    below: AtomicU64,
    above: parking_lot::Mutex<std::collections::BTreeSet<u64>>,
}

impl Written {
    fn note(&self, counter: u64) {
        let mut above = self.above.lock();
        above.insert(counter);
        let mut below = self.below.load(Ordering::Relaxed);
        while above.remove(&below) {
            below += 1;
        }
        self.below.store(below, Ordering::Release);
    }
}

impl Source {
    /// A source over a key space of `keys`, for workloads that have one.
    pub fn new(workload: Workload, keys: u64) -> Result<Self> {
        let term = match workload.value {
            Value::SemiCompressible(bytes) => {
                format!("{{semi_compressible, {bytes}, {bytes}, 10, 0.1}}")
            }
            Value::Random(bytes) => format!("{{fixed_bin, {bytes}}}"),
        };
        let term: Term =
            kvorum_erlang_terms::parse_term(&term).map_err(|error| anyhow!("{error}"))?;
        let blocks = SourceBlocks::new(BlockSettings {
            random_bytes: RANDOM_BLOCK_BYTES,
            blob_file: None,
            seed: Seed([42, 23, 12]),
        });
        let values = ValueGenerator::build(&term, &blocks).map_err(|error| anyhow!(error))?;
        Ok(Self {
            workload,
            keys,
            values,
            next: AtomicU64::new(0),
            written: Arc::default(),
        })
    }

    /// The key with a number to write before measuring, and its value.
    pub fn preload(&self, number: u64, random: &mut WorkerRandom) -> (Bytes, Bytes) {
        (decimal(number + 1), self.value(random))
    }

    /// True if these keys are written with a term.
    pub fn is_indexed(&self) -> bool {
        self.workload.is_indexed()
    }

    /// The number of keys that are written before measuring.
    pub fn preload_count(&self) -> u64 {
        if self.workload.is_preloaded {
            self.keys
        } else {
            0
        }
    }

    /// The next operation of a worker.
    pub fn next(&self, random: &mut WorkerRandom) -> (Operation, Option<u64>) {
        let draw = random.uniform(self.workload.gets + self.workload.puts);
        let is_get = draw <= self.workload.gets;
        match self.workload.keys {
            Keys::EightyTwenty => (
                self.on(decimal(eighty_twenty(self.keys, random)), is_get, random),
                None,
            ),
            Keys::Uniform => (
                self.on(decimal(random.uniform(self.keys)), is_get, random),
                None,
            ),
            Keys::KeyOrder | Keys::SkewOrder => self.unique(is_get, random),
        }
    }

    fn on(&self, key: Bytes, is_get: bool, random: &mut WorkerRandom) -> Operation {
        if !is_get {
            return Operation::Put(key, self.value(random));
        }
        match self.workload.read {
            Read::Written => Operation::Get(key, self.workload.is_preloaded),
            // A key after this one and before the next.
            Read::Absent => Operation::Get([&key[..], b"-"].concat().into(), false),
            Read::Scan(count) => Operation::Scan(key, count),
            Read::Query(count) => Operation::Query(term_of(&key), count),
        }
    }

    fn unique(&self, is_get: bool, random: &mut WorkerRandom) -> (Operation, Option<u64>) {
        let below = self.written.below.load(Ordering::Acquire);
        if is_get && below > 0 {
            let counter = random.uniform(below) - 1;
            return (Operation::Get(self.unique_key(counter), true), None);
        }
        let counter = self.next.fetch_add(1, Ordering::Relaxed);
        let put = Operation::Put(self.unique_key(counter), self.value(random));
        (put, Some(counter))
    }

    /// Notes that a unique key was acknowledged.
    pub fn note_written(&self, counter: u64) {
        self.written.note(counter);
    }

    fn unique_key(&self, counter: u64) -> Bytes {
        let place = match self.workload.keys {
            Keys::SkewOrder => {
                u64::from(phash2_integer(i64::try_from(counter).unwrap_or(i64::MAX)))
            }
            _ => counter,
        };
        // The counter distinguishes keys with the same scattered place.
        Bytes::from(format!("{place:09}{counter:09}"))
    }

    fn value(&self, random: &mut WorkerRandom) -> Bytes {
        self.values.next(random).into_bytes()
    }
}

/// A worker's stream of random numbers.
pub fn random(run: u32, worker: usize) -> WorkerRandom {
    let worker = i64::try_from(worker).unwrap_or(0);
    WorkerRandom::new(Seed([42 + worker, 23 + i64::from(run), 12]))
}

fn decimal(number: u64) -> Bytes {
    Bytes::from(number.to_string())
}

/// The term of a key; the order of terms differs from the order of keys.
pub fn term_of(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

/// A draw by basho_bench's `eightytwenty_int`.
fn eighty_twenty(keys: u64, random: &mut WorkerRandom) -> u64 {
    let step = (keys / 5).max(1);
    if random.uniform(5) <= 4 {
        random.uniform(step)
    } else {
        step + random.uniform(4 * step)
    }
}
