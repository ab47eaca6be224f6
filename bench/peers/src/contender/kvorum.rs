//! Kvorum's engines as in a node: 64 stores, one log for all of them, upkeep in the background.
//!
//! With syncs, bitcask's entries and leveldb's large bodies stay in the value log; without syncs
//! bitcask writes to its own files and leveldb to its own log. Writers are slowed by the arbiter's
//! rule as the backlog grows; a simple loop replaces the arbiter's other decisions.

use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Result, bail};
use bytes::Bytes;
use kvorum_arbiter::put_delay;
use kvorum_backend::{
    Backend, Batch, Durability, Fields, Flow, FoldDetail, FoldEnd, FoldFilter, FoldRange,
    IndexEntry, IndexRange, Lease, Lookup, OldEntry, ReadAt, Reading, StepBudget, Timestamp,
    Urgency, Write,
};
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings, Compression, ReadCache, SyncStrategy};
use kvorum_backend_leveldb::{Leveldb, LeveldbSettings, Shared};
use kvorum_disk::{Disk, RealDisk};
use kvorum_encoding::{Bucket, BucketType, Key, StorageKey};
use kvorum_value_log::{Tenant, ValueLog, ValueLogSettings};
use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

use super::{Contender, Opening, Sync};

const STORES: usize = 64;
/// The node's defaults.
const VALUE_LOG: ValueLogSettings = ValueLogSettings {
    segment_bytes: 64 << 20,
    garbage_percent_max: 30,
};
/// The node's default: write buffers may take two fifths of leveldb's memory, and their sizes
/// differ, so that they do not all flush at once.
const WRITE_BUFFERS_PERCENT: u64 = 40;
const WRITE_BUFFER_BYTES_MIN: u64 = 30 << 20;
const WRITE_BUFFER_BYTES_MORE: u64 = 30 << 20;
/// The distance that a store may be behind the value log: as in a node, from 512 MB to 1 GB.
const SEGMENTS_BEHIND_MIN: u32 = 8;
const SEGMENTS_BEHIND_MORE: u32 = 9;
const STEP: StepBudget = StepBudget { bytes: 1 << 20 };
/// The period of the node's maintenance.
const MEMORY_GIVEN_BACK_EVERY: Duration = Duration::from_secs(1);
const IDLE_PAUSE: Duration = Duration::from_millis(50);
const REST_MAX: Duration = Duration::from_millis(20);
/// Puts are slowed from half of this backlog on, and by `DELAY_MAX` when it is reached.
const BACKLOG_BYTES_MAX: f64 = 4e9;
const DELAY_MAX: Duration = Duration::from_millis(20);
const SCAN_LEASE_MICROS: u64 = 60_000_000;
const INDEX: &[u8] = b"term_int";

struct Node {
    stores: Vec<Arc<dyn Backend>>,
    log: Option<ValueLog>,
    durability: Durability,
    delay_micros: AtomicU64,
    is_closing: AtomicBool,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

pub(super) fn open_bitcask(opening: &Opening<'_>) -> Result<Arc<dyn Contender>> {
    keep_memory_until_given_back();
    let (disk, draw) = (disk(), draws());
    let log = open_log(opening, &disk, draw())?;
    let cache = Arc::new(ReadCache::new(opening.cache_bytes));
    let tenants: Mutex<Vec<Arc<dyn Tenant>>> = Mutex::default();
    let open_store = |directory: &Path| -> Result<Arc<dyn Backend>> {
        let settings = BitcaskSettings {
            sync: match opening.sync {
                Sync::None => SyncStrategy::None,
                Sync::Grouped => SyncStrategy::Grouped,
            },
            compression: Compression::Lz4,
            log_segments_behind_max: segments_behind_max(draw()),
            ..BitcaskSettings::default()
        };
        let (disk, log) = (disk.clone(), log.clone());
        let store = Bitcask::open(disk, directory, settings, draw.clone(), log)?;
        let store = Arc::new(store.with_cache(cache.clone()));
        tenants.lock().push(store.clone());
        Ok(store)
    };
    let stores = stores(opening.directory, open_store)?;
    if let Some(log) = &log {
        log.admit(&tenants.into_inner())?;
    }
    Ok(start(stores, log, opening.sync))
}

fn segments_behind_max(drawn: u64) -> u32 {
    let more = drawn % u64::from(SEGMENTS_BEHIND_MORE);
    SEGMENTS_BEHIND_MIN + u32::try_from(more).unwrap_or(0)
}

fn open_log(opening: &Opening<'_>, disk: &Arc<dyn Disk>, id: u64) -> Result<Option<ValueLog>> {
    if opening.sync == Sync::None {
        return Ok(None);
    }
    let directory = opening.directory.join("value_log");
    let (log, _found) = ValueLog::open(disk.clone(), &directory, id, VALUE_LOG)?;
    Ok(Some(log))
}

pub(super) fn open_leveldb(opening: &Opening<'_>) -> Result<Arc<dyn Contender>> {
    leveldb(opening, LeveldbSettings::default().blob_threshold_bytes)
}

pub(super) fn open_leveldb_inline(opening: &Opening<'_>) -> Result<Arc<dyn Contender>> {
    leveldb(opening, usize::MAX)
}

fn leveldb(opening: &Opening<'_>, blob_threshold_bytes: usize) -> Result<Arc<dyn Contender>> {
    keep_memory_until_given_back();
    let (disk, draw) = (disk(), draws());
    let log = open_log(opening, &disk, draw())?;
    let write_buffers = opening.cache_bytes / 100 * WRITE_BUFFERS_PERCENT;
    let shared = Shared::new(opening.cache_bytes - write_buffers, write_buffers);
    let tenants: Mutex<Vec<Arc<dyn Tenant>>> = Mutex::default();
    let open_store = |directory: &Path| -> Result<Arc<dyn Backend>> {
        let settings = LeveldbSettings {
            sync: match opening.sync {
                Sync::None => kvorum_backend_leveldb::SyncStrategy::None,
                Sync::Grouped => kvorum_backend_leveldb::SyncStrategy::Grouped,
            },
            write_buffer_bytes: WRITE_BUFFER_BYTES_MIN + draw() % WRITE_BUFFER_BYTES_MORE,
            log_segments_behind_max: segments_behind_max(draw()),
            blob_threshold_bytes,
            ..LeveldbSettings::default()
        };
        let (disk, log) = (disk.clone(), log.clone());
        let (shared, draw) = (shared.clone(), draw.clone());
        let store = Leveldb::open(disk, directory, &settings, shared, draw, log)?;
        tenants.lock().push(store.tenant());
        Ok(Arc::new(store))
    };
    let stores = stores(opening.directory, open_store)?;
    if let Some(log) = &log {
        log.admit(&tenants.into_inner())?;
    }
    Ok(start(stores, log, opening.sync))
}

fn disk() -> Arc<dyn Disk> {
    Arc::new(RealDisk)
}

/// Numbers for the identities of stores, which have to differ.
fn draws() -> Arc<dyn Fn() -> u64 + Send + std::marker::Sync> {
    let numbers = AtomicU64::new(now().0);
    Arc::new(move || xxh3_64(&numbers.fetch_add(1, Ordering::Relaxed).to_le_bytes()))
}

fn stores(
    directory: &Path,
    open: impl Fn(&Path) -> Result<Arc<dyn Backend>>,
) -> Result<Vec<Arc<dyn Backend>>> {
    let path = |number: usize| -> PathBuf { directory.join(format!("stores/{number}")) };
    (0..STORES).map(|number| open(&path(number))).collect()
}

/// Lets the thread of upkeep return freed memory to the system, as in a node, whose module
/// `allocator` has the reason.
fn keep_memory_until_given_back() {
    const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;
    const PURGE_DELAY_MILLIS: std::ffi::c_long = 60_000;
    // SAFETY: sets a number; no other thread allocates yet.
    unsafe { libmimalloc_sys::mi_option_set_default(PURGE_DELAY, PURGE_DELAY_MILLIS) };
}

fn give_back_memory() {
    // SAFETY: touches memory that is not allocated, and pages of this thread's own.
    unsafe { libmimalloc_sys::mi_collect(true) };
}

fn start(stores: Vec<Arc<dyn Backend>>, log: Option<ValueLog>, sync: Sync) -> Arc<dyn Contender> {
    let node = Arc::new(Node {
        stores,
        log,
        durability: match sync {
            Sync::None => Durability::Buffered,
            Sync::Grouped => Durability::Grouped,
        },
        delay_micros: AtomicU64::new(0),
        is_closing: AtomicBool::new(false),
        threads: Mutex::default(),
    });
    // Creates the files for puts now, as other contenders do at their opening, and a node's upkeep
    // does soon after the node's start.
    node.tend_once();
    let (driving, tending) = (node.clone(), node.clone());
    node.threads.lock().extend([
        std::thread::spawn(move || driving.drive()),
        std::thread::spawn(move || tending.tend()),
    ]);
    node
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let micros = since.unwrap_or_default().as_micros();
    Timestamp(u64::try_from(micros).unwrap_or(u64::MAX))
}

impl Node {
    fn store(&self, key: &[u8]) -> &Arc<dyn Backend> {
        let hash = usize::try_from(xxh3_64(key)).unwrap_or(0);
        &self.stores[hash % STORES]
    }

    fn drive(&self) {
        if let Some(log) = &self.log {
            log.drive();
        }
    }

    /// Background work, at most half of one core's time unless work is urgent.
    fn tend(&self) {
        let mut given_back = Instant::now();
        while !self.is_closing.load(Ordering::Acquire) {
            if !self.tend_once() {
                std::thread::sleep(IDLE_PAUSE);
            }
            if given_back.elapsed() >= MEMORY_GIVEN_BACK_EVERY {
                give_back_memory();
                given_back = Instant::now();
            }
        }
    }

    fn tend_once(&self) -> bool {
        let mut was_busy = self.tend_log();
        let mut backlog_bytes = 0;
        for store in &self.stores {
            let now = now();
            let tasks = store.maintenance_due(now);
            backlog_bytes += tasks.iter().map(|task| task.cost_bytes).sum::<u64>();
            if let Some(task) = tasks.first() {
                let is_pressing = task.urgency == Urgency::Pressing;
                was_busy |= timed(is_pressing, || {
                    store.maintenance_step(task, STEP, now).is_ok()
                });
            }
        }
        let delay = put_delay(backlog_bytes as f64 / BACKLOG_BYTES_MAX, DELAY_MAX);
        let delay_micros = u64::try_from(delay.as_micros()).unwrap_or(0);
        self.delay_micros.store(delay_micros, Ordering::Relaxed);
        was_busy
    }

    fn tend_log(&self) -> bool {
        match &self.log {
            Some(log) if log.is_upkeep_due() => timed(false, || log.upkeep_step(STEP).is_ok()),
            _ => false,
        }
    }
}

fn timed(is_pressing: bool, step: impl FnOnce() -> bool) -> bool {
    let from = Instant::now();
    let was_done = step();
    if !is_pressing {
        std::thread::sleep(from.elapsed().min(REST_MAX));
    }
    was_done
}

impl Node {
    fn write(&self, place: &[u8], write: Write) -> Result<()> {
        let delay_micros = self.delay_micros.load(Ordering::Relaxed);
        if delay_micros > 0 {
            std::thread::sleep(Duration::from_micros(delay_micros));
        }
        let receipt = self.store(place).put(&Batch::of(write), self.durability)?;
        if self.durability == Durability::Grouped {
            receipt.wait()?;
        }
        Ok(())
    }
}

fn fields() -> Fields {
    Fields {
        last_modified: now(),
        ..Fields::default()
    }
}

/// A key in the only bucket with an index.
fn indexed_key(key: &[u8]) -> StorageKey {
    let (bucket, key) = (Bucket::from("b"), Key::from(key.to_vec()));
    StorageKey::new(&BucketType::default_type(), &bucket, &key)
}

impl Contender for Node {
    fn put(&self, key: &[u8], value: &Bytes) -> Result<()> {
        let storage_key = StorageKey::from_encoded(key.to_vec());
        let write = Write::put(storage_key, fields(), Bytes::new(), value.clone());
        self.write(key, write)
    }

    fn put_indexed(&self, key: &[u8], value: &Bytes, term: u64) -> Result<()> {
        let entry = IndexEntry {
            field: Bytes::from_static(INDEX),
            term: Bytes::copy_from_slice(&term.to_be_bytes()),
        };
        let write = Write::Put {
            key: indexed_key(key),
            fields: fields(),
            head: Bytes::new(),
            body: value.clone(),
            index_entries: vec![entry],
            old: OldEntry::UNKNOWN,
        };
        self.write(key, write)
    }

    /// Queries the vnode of the term's bytes, as a query asks each vnode for its part.
    fn query(&self, from: u64, count: u64) -> Result<Option<u64>> {
        let from = Bytes::copy_from_slice(&from.to_be_bytes());
        let Some(indexes) = self.store(&from).indexes() else {
            return Ok(None);
        };
        let now = now();
        let key = indexed_key(b"");
        let prefix_len = key.bucket_prefix_len().unwrap_or(0);
        let range = IndexRange {
            bucket_prefix: Bytes::copy_from_slice(&key.as_bytes()[..prefix_len]),
            field: Bytes::from_static(INDEX),
            from: Bound::Included(from),
            to: Bound::Unbounded,
            after: None,
        };
        let mut visited = 0;
        let mut visit = |_: &Bytes, key: &StorageKey| {
            std::hint::black_box(key);
            visited += 1;
            match visited == count {
                true => Flow::Stop,
                false => Flow::Continue,
            }
        };
        let lease = Lease::Until(Timestamp(now.0 + SCAN_LEASE_MICROS));
        match indexes.fold_index(&range, lease, now, &mut visit)? {
            FoldEnd::LeaseExpired(_) => bail!("a query took longer than its lease"),
            FoldEnd::Complete | FoldEnd::Stopped(_) => Ok(Some(visited)),
        }
    }

    fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        let storage_key = StorageKey::from_encoded(key.to_vec());
        let at = ReadAt {
            now: now(),
            reading: Reading::MayBlock,
        };
        match self.store(key).get(&storage_key, at)? {
            Lookup::Found(entry) => Ok(Some(entry.body)),
            Lookup::Absent => Ok(None),
            Lookup::WouldBlock => bail!("a get that may block answered that it would"),
        }
    }

    /// Scans the vnode of the first key, as a range query asks each vnode for its part.
    fn scan(&self, from: &[u8], count: u64) -> Result<Option<u64>> {
        let store = self.store(from);
        if !store.capabilities().ordered {
            return Ok(None);
        }
        let now = now();
        let snapshot = store.snapshot(Lease::Until(Timestamp(now.0 + SCAN_LEASE_MICROS)))?;
        let range = FoldRange::all().resumed_at(&StorageKey::from_encoded(from.to_vec()));
        let mut visited = 0;
        let mut visit = |entry: kvorum_backend::Visited<'_>| {
            std::hint::black_box(entry.body);
            visited += 1;
            if visited == count {
                Flow::Stop
            } else {
                Flow::Continue
            }
        };
        let filter = FoldFilter::unexpired(now);
        match snapshot.fold(FoldDetail::Entries, &range, &filter, &mut visit)? {
            FoldEnd::LeaseExpired(_) => bail!("a scan took longer than its lease"),
            FoldEnd::Complete | FoldEnd::Stopped(_) => Ok(Some(visited)),
        }
    }

    fn close(&self) -> Result<()> {
        self.is_closing.store(true, Ordering::Release);
        if let Some(log) = &self.log {
            log.stop();
        }
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                bail!("a background thread panicked");
            }
        }
        for store in &self.stores {
            store.close()?;
        }
        Ok(())
    }
}
