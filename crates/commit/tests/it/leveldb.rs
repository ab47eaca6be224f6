//! The suite over leveldb without a log of its own, behind the commit log: a sync of the engine is then
//! a flush.

use std::sync::Arc;

use kvorum_backend::{Backend, Capabilities, Result};
use kvorum_backend_conformance::{EngineUnderTest, Opening, conformance_suite};
use kvorum_backend_leveldb::{Compression, Leveldb, LeveldbSettings, Shared, SyncStrategy};
use kvorum_lsm::policy::PolicySettings;

use crate::suite::Logged;

struct LoggedLeveldb;

impl EngineUnderTest for LoggedLeveldb {
    fn name(&self) -> &str {
        "leveldb behind the commit log"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            persistent: true,
            cheap_heads: true,
            ordered: true,
            indexes: true,
            backups: true,
        }
    }

    fn open(&self, opening: &Opening) -> Result<Box<dyn Backend>> {
        let (disk, draw) = (opening.disk.clone(), opening.draw.clone());
        let shared = Shared::new(64 << 10, 1 << 20);
        let engine = Leveldb::open(disk, &opening.directory, &small_settings(), shared, draw)?;
        Logged::open(Arc::new(engine), opening)
    }

    fn keys_lost_per_flip_max(&self) -> usize {
        10
    }

    /// The log notices when it writes, and what it refuses then is in the memtable already: visible,
    /// and not acknowledged.
    fn works_on_a_full_disk(&self) -> bool {
        false
    }

    fn slowness(&self) -> usize {
        6
    }
}

/// So small that a few dozen writes fill memtables, tables and blob files.
fn small_settings() -> LeveldbSettings {
    LeveldbSettings {
        has_log: false,
        sync: SyncStrategy::None,
        write_buffer_bytes: 3_000,
        block_bytes: 300,
        block_restart_interval: 2,
        blob_threshold_bytes: 600,
        compression: Compression::Lz4,
        policy: PolicySettings {
            levels: 4,
            level_zero_tables: 2,
            base_bytes: 6_000,
            multiplier: 3,
            table_bytes_max: 3_000,
            slow_from_tables: 3,
            slowest_at_tables: 6,
            ..PolicySettings::default()
        },
        ..LeveldbSettings::default()
    }
}

conformance_suite!(LoggedLeveldb);
