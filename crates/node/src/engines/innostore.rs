//! The innostore engine's settings from `innostore.*`: memory for all of its stores, and the settings
//! of each store.

use std::path::Path;

use anyhow::bail;
use kvorum_backend_innostore::InnostoreSettings;
use kvorum_disk::Disk;
use kvorum_settings::{self as settings, Settings};

use super::shared_settings::{segments_behind_max, sync_strategy};
use super::tree_memory::{Allowance, Memory};

/// Maximum bytes of a store that are in no page yet: after a crash they are read from the log.
const DIRTY_BYTES_MAX: u64 = 32 << 20;
/// The minimum, for a node with many partitions and little memory. Bytes.
const DIRTY_BYTES_MIN: u64 = 64 << 10;
/// While a store's memory is moved to pages, the same amount may be put.
const DIRTY_EACH: u64 = 2;
/// Larger pages would be read and written for a few bytes.
const PAGE_BYTES_MAX: u64 = 1 << 20;
/// Bodies from this part of a page on have pages of their own.
const BODY_APART_PART: u64 = 4;

/// The engine's memory by use on a node, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pool {
    /// Pages that were read, of all stores.
    pub(super) cache: u64,
    /// Bytes of a store outside of pages at which they are moved to pages.
    pub(super) dirty_each: u64,
}

impl Pool {
    /// `machine` is the memory of the machine or the container, if that is known.
    pub(super) fn of(
        innostore: &settings::InnostoreSettings,
        machine: Option<u64>,
        partitions: u64,
    ) -> Self {
        let allowed = Allowance {
            percent_max: innostore.pool_percent_max,
            bytes_max: innostore.pool_bytes_max,
            limit: u64::MAX,
            buffer: (0, 0),
        };
        let all = Memory::of(allowed, machine, partitions).cache;
        let dirty = all / 100 * u64::from(innostore.dirty_percent_max);
        let stores = DIRTY_EACH * partitions.max(1);
        let dirty_each = (dirty / stores).clamp(DIRTY_BYTES_MIN, DIRTY_BYTES_MAX);
        Self {
            cache: all.saturating_sub(dirty_each * stores).max(all / 4),
            dirty_each,
        }
    }
}

/// The settings of one store; `drawn` is a random number, so that not all move their entries at once.
pub(super) fn settings_of(settings: &Settings, pool: &Pool, drawn: u64) -> InnostoreSettings {
    let innostore = &settings.innostore;
    let page_bytes = innostore.page_bytes.min(PAGE_BYTES_MAX);
    let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    InnostoreSettings {
        sync: sync_strategy(&settings.innostore_durability()),
        expiry: innostore.expiry(),
        scrub_period: settings.maintenance.scrub_period,
        page_bytes: bytes(page_bytes),
        body_apart_bytes: bytes(page_bytes / BODY_APART_PART),
        dirty_bytes_max: pool.dirty_each - drawn % (pool.dirty_each / 4 + 1),
        log_segments_behind_max: segments_behind_max(settings, drawn >> 32),
        ..InnostoreSettings::default()
    }
}

/// Refuses the directory of stores of the original, whose files would be mixed with ours.
pub(super) fn refuse_original(disk: &dyn Disk, root: &Path) -> anyhow::Result<()> {
    if disk.info(root)?.is_none() {
        return Ok(());
    }
    let entries = disk.list(root)?;
    if let Some(found) = entries.iter().find(|it| is_of_original(&it.name)) {
        bail!(
            "{} has {}, a file of Innostore, whose stores are not imported: name another directory as \
             innostore.data_home_dir, and put the objects there as a client does",
            root.display(),
            found.name
        );
    }
    Ok(())
}

/// The system tablespace, the redo logs, and the directory of the tables.
fn is_of_original(name: &str) -> bool {
    name == "innokeystore" || name.starts_with("ibdata") || name.starts_with("ib_logfile")
}

#[cfg(test)]
#[path = "innostore_test.rs"]
mod tests;
