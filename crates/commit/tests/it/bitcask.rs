//! The suite over bitcask behind the commit log.

use std::sync::Arc;

use kvorum_backend::{Backend, Capabilities, Result};
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings, MergeSettings, SyncStrategy};
use kvorum_backend_conformance::{EngineUnderTest, Opening, conformance_suite};

use crate::suite::Logged;

struct LoggedBitcask;

impl EngineUnderTest for LoggedBitcask {
    fn name(&self) -> &str {
        "bitcask behind the commit log"
    }

    /// Own segments, into which the log's batches are applied.
    fn left_out_after_kill(&self) -> &'static [&'static str] {
        &["*.segment"]
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            persistent: true,
            cheap_heads: true,
            ordered: false,
            indexes: false,
            backups: true,
        }
    }

    fn open(&self, opening: &Opening) -> Result<Box<dyn Backend>> {
        let (disk, draw) = (opening.disk.clone(), opening.draw.clone());
        let engine = Bitcask::open(disk, &opening.directory, settings(), draw)?;
        Logged::open(Arc::new(engine), opening)
    }

    fn slowness(&self) -> usize {
        2
    }
}

/// Small files, and upkeep all the time.
pub(crate) fn settings() -> BitcaskSettings {
    BitcaskSettings {
        sync: SyncStrategy::None,
        file_bytes_max: 4096,
        checkpoint_after_bytes: 8192,
        merge: MergeSettings {
            fragmentation_trigger_percent: 20,
            dead_bytes_trigger: 512,
            store_dead_trigger_percent: 20,
            fragmentation_threshold_percent: 10,
            dead_bytes_threshold: 256,
            small_file_threshold_bytes: 1024,
            ..MergeSettings::default()
        },
        log_hint_records_min: 3,
        log_hints_merged: 2,
        ..BitcaskSettings::default()
    }
}

conformance_suite!(LoggedBitcask);
