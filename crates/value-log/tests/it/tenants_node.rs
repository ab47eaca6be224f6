//! Four bitcasks with their entries in one value log, with the upkeep of all, for tests of the kept
//! segments and of the segments that are read.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests stop at any failure, as tests do"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use kvorum_backend::{Batch, Durability, Fields, StepBudget, Timestamp, Write};
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings};
use kvorum_disk::Disk;
use kvorum_encoding::StorageKey;
use kvorum_value_log::{ValueLog, ValueLogSettings};

use crate::tenants::{Opened, tenants_of};

pub(crate) const STORES: usize = 4;
pub(crate) const LOG_DIRECTORY: &str = "log";
pub(crate) const SEGMENT_BYTES: u64 = 64 << 10;
const VALUE_BYTES: usize = 2_000;

pub(crate) struct TenantsNode {
    pub(crate) log: ValueLog,
    pub(crate) stores: Vec<Opened>,
    disk: Arc<dyn Disk>,
}

impl TenantsNode {
    /// Segments are collected when this much of the log is garbage; 100 for never.
    pub(crate) fn open(
        disk: &Arc<dyn Disk>,
        settings: &BitcaskSettings,
        garbage_percent_max: u8,
    ) -> Self {
        let log_settings = ValueLogSettings {
            segment_bytes: SEGMENT_BYTES,
            garbage_percent_max,
        };
        let directory = Path::new(LOG_DIRECTORY);
        let (log, _) = ValueLog::open(disk.clone(), directory, 7, log_settings).unwrap();
        let open = |number: usize| -> Opened {
            let drawn = AtomicU64::new(1_000 * (1 + number as u64));
            let draw = Arc::new(move || drawn.fetch_add(1, Ordering::Relaxed));
            let (disk, shared) = (disk.clone(), log.clone());
            let directory = directory_of(number);
            let settings = settings.clone();
            Bitcask::open(disk, &directory, settings, draw, Some(shared))
                .unwrap()
                .into()
        };
        let stores: Vec<_> = (0..STORES).map(open).collect();
        log.admit(&tenants_of(&stores)).unwrap();
        Self {
            log,
            stores,
            disk: disk.clone(),
        }
    }

    pub(crate) fn key(number: usize) -> StorageKey {
        StorageKey::from_encoded(format!("key {number:08}").into_bytes())
    }

    pub(crate) fn put(&self, number: usize, fields: Fields) {
        let body = Bytes::from(vec![b'v'; VALUE_BYTES]);
        let batch = Batch::of(Write::put(Self::key(number), fields, Bytes::new(), body));
        let receipt = self.stores[number % STORES].put(&batch, Durability::Grouped);
        receipt.unwrap().wait().unwrap();
    }

    /// Puts new keys until the log has this many more segments, with the upkeep that is due at `now`.
    /// Returns the number of the next key.
    pub(crate) fn fill(
        &self,
        first: usize,
        segments: u32,
        now: Timestamp,
        fields_of: impl Fn(usize) -> Fields,
    ) -> usize {
        let until = self.log.newest_segment() + segments;
        let mut number = first;
        while self.log.newest_segment() < until {
            self.put(number, fields_of(number));
            self.upkeep(now);
            number += 1;
        }
        number
    }

    /// Does one step of each due task.
    pub(crate) fn upkeep(&self, now: Timestamp) {
        let budget = StepBudget { bytes: u64::MAX };
        while self.log.is_upkeep_due() {
            let step = self.log.upkeep_step(budget).unwrap();
            if step.is_done {
                break;
            }
        }
        for store in &self.stores {
            for task in store.maintenance_due(now) {
                store.maintenance_step(&task, budget, now).unwrap();
            }
        }
    }

    pub(crate) fn keys(&self) -> u64 {
        self.stores.iter().map(|it| it.status().keys).sum()
    }

    /// Bytes in segments of the stores' own.
    pub(crate) fn own_bytes(&self) -> u64 {
        let directories = (0..STORES).map(directory_of);
        let of_store = |directory: PathBuf| {
            let entries = self.disk.list(&directory).unwrap().into_iter();
            let paths = entries.map(move |it| directory.join(it.name));
            paths.filter(|it| it.extension().is_some_and(|it| it == "segment"))
        };
        let infos = directories.flat_map(of_store).map(|it| self.disk.info(&it));
        infos.map(|it| it.unwrap().unwrap().len).sum()
    }
}

fn directory_of(store: usize) -> PathBuf {
    PathBuf::from(format!("stores/{store}"))
}
