//! The engine with settings so small that a few dozen writes fill memtables, tables, blob files,
//! and five levels.

use std::time::Duration;

use kvorum_backend::{Backend, Capabilities, Result};
use kvorum_backend_conformance::{EngineUnderTest, Opening};
use kvorum_backend_hanoidb::{Compression, Hanoidb, HanoidbSettings, Shared, SyncStrategy};

/// Hanoidb for the suite.
pub(crate) struct Engine;

impl EngineUnderTest for Engine {
    fn name(&self) -> &str {
        "hanoidb"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            persistent: true,
            cheap_heads: true,
            ordered: true,
            indexes: true,
            backups: true,
            drops_entries: false,
        }
    }

    fn open(&self, opening: &Opening) -> Result<Box<dyn Backend>> {
        let settings = small_settings(opening.variation);
        let (disk, draw) = (opening.disk(), opening.draw.clone());
        let store = Hanoidb::open(disk, &opening.directory, &settings, shared(), draw, None)?;
        Ok(Box::new(store))
    }

    /// The store's own segments, which are the log of a store without a value log.
    fn left_out_after_kill(&self) -> &'static [&'static str] {
        &["*.segment"]
    }

    fn variations(&self) -> u32 {
        3
    }

    /// Many small files, and a manifest that is written twice for each change.
    fn slowness(&self) -> usize {
        3
    }

    /// The keys of a block, which has many keys that share most of their bytes.
    fn keys_lost_per_flip_max(&self) -> usize {
        10
    }
}

/// A cache and a budget for one store.
pub(crate) fn shared() -> Shared {
    Shared::new(64 << 10, 1 << 20)
}

pub(crate) fn small_settings(variation: u32) -> HanoidbSettings {
    let eager = HanoidbSettings {
        unit_bytes: 1_500,
        write_buffer_bytes: 3_000,
        block_bytes: 300,
        blob_threshold_bytes: 600,
        compression: Compression::Lz4,
        table_bytes_max: 2_000,
        ..HanoidbSettings::default()
    };
    match variation {
        0 => eager,
        // Everything inline, larger units, one table for each run.
        1 => HanoidbSettings {
            blob_threshold_bytes: usize::MAX,
            write_buffer_bytes: 8_000,
            unit_bytes: 4_000,
            block_bytes: 500,
            table_bytes_max: 1 << 20,
            compression: Compression::Zstd(1),
            sync: SyncStrategy::None,
            ..eager
        },
        // All bodies apart. All tables have filters: without a filter, a lost block hides every key
        // in its range, also those of older layers.
        _ => HanoidbSettings {
            scrub_period: Some(Duration::from_micros(2_500)),
            blob_threshold_bytes: 1,
            block_bytes: 120,
            compression: Compression::None,
            ..eager
        },
    }
}
