//! Kvorum's bitcask as the node runs it: 64 stores behind one commit log, upkeep in the background.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Result, bail};
use bytes::Bytes;
use kvorum_backend::{
    Backend, Batch, Durability, Fields, Lookup, ReadAt, Reading, StepBudget, Timestamp, Urgency,
    Write,
};
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings, SyncStrategy};
use kvorum_commit::{CommitLog, CommitLogSettings, Committed};
use kvorum_disk::{Disk, RealDisk};
use kvorum_encoding::StorageKey;
use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

use super::{Contender, Opening, Sync};

const STORES: usize = 64;
/// As the node's defaults.
const LOG: CommitLogSettings = CommitLogSettings {
    segment_bytes: 64 << 20,
    bytes_max: 1 << 30,
};
const STEP: StepBudget = StepBudget { bytes: 1 << 20 };
const IDLE_PAUSE: Duration = Duration::from_millis(50);
const REST_MAX: Duration = Duration::from_millis(20);

struct Node {
    stores: Vec<Arc<dyn Backend>>,
    log: Option<CommitLog>,
    durability: Durability,
    is_closing: AtomicBool,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

pub(super) fn open(opening: &Opening<'_>) -> Result<Arc<dyn Contender>> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let numbers = Arc::new(AtomicU64::new(seed()));
    let log = match opening.sync {
        Sync::None => None,
        Sync::Grouped => Some(CommitLog::create(
            disk.clone(),
            &opening.directory.join("commit_log"),
            numbers.fetch_add(1, Ordering::Relaxed),
            LOG,
        )?),
    };
    let open_store = |number: usize| -> Result<Arc<dyn Backend>> {
        let path: PathBuf = opening.directory.join(format!("bitcask/{number}"));
        let settings = BitcaskSettings {
            sync: SyncStrategy::None,
            ..BitcaskSettings::default()
        };
        let numbers = numbers.clone();
        let draw =
            Arc::new(move || xxh3_64(&numbers.fetch_add(1, Ordering::Relaxed).to_le_bytes()));
        let engine: Arc<dyn Backend> =
            Arc::new(Bitcask::open(disk.clone(), &path, settings, draw)?);
        Ok(match &log {
            Some(log) => Arc::new(Committed::new(engine, log.clone(), Durability::Grouped)),
            None => engine,
        })
    };
    let node = Arc::new(Node {
        stores: (0..STORES).map(open_store).collect::<Result<_>>()?,
        durability: match opening.sync {
            Sync::None => Durability::Buffered,
            Sync::Grouped => Durability::Grouped,
        },
        log,
        is_closing: AtomicBool::new(false),
        threads: Mutex::default(),
    });
    start_threads(&node);
    Ok(node)
}

fn start_threads(node: &Arc<Node>) {
    let mut threads = node.threads.lock();
    if let Some(log) = node.log.clone() {
        threads.push(std::thread::spawn(move || log.drive()));
    }
    let tending = node.clone();
    threads.push(std::thread::spawn(move || tending.tend()));
}

fn seed() -> u64 {
    now().0
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

    /// Background work, at most half of one core's time as long as nothing is pressing.
    fn tend(&self) {
        while !self.is_closing.load(Ordering::Acquire) {
            if !self.tend_once() {
                std::thread::sleep(IDLE_PAUSE);
            }
        }
    }

    fn tend_once(&self) -> bool {
        let mut was_busy = false;
        if let Some(log) = self.log.as_ref().filter(|log| log.is_upkeep_due()) {
            let is_pressing = log.is_upkeep_pressing();
            was_busy |= timed(is_pressing, || log.upkeep_step().is_ok());
        }
        for store in &self.stores {
            let now = now();
            if let Some(task) = store.maintenance_due(now).first() {
                let is_pressing = task.urgency == Urgency::Pressing;
                was_busy |= timed(is_pressing, || {
                    store.maintenance_step(task, STEP, now).is_ok()
                });
            }
        }
        was_busy
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

impl Contender for Node {
    fn put(&self, key: &[u8], value: &Bytes) -> Result<()> {
        let fields = Fields {
            last_modified: now(),
            ..Fields::default()
        };
        let storage_key = StorageKey::from_encoded(key.to_vec());
        let write = Write::put(storage_key, fields, Bytes::new(), value.clone());
        let receipt = self.store(key).put(&Batch::of(write), self.durability)?;
        receipt.wait()?;
        Ok(())
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
