//! The engine with settings so small that a few dozen writes fill, merge and expire files.

use std::sync::Arc;
use std::time::Duration;

use kvorum_backend::{Backend, Capabilities, Result};
use kvorum_backend_bitcask::{
    Bitcask, BitcaskSettings, Compression, MergeSettings, ReadCache, SyncStrategy,
};
use kvorum_backend_conformance::{EngineUnderTest, Opening};

/// Bitcask for the suite.
pub(crate) struct Engine;

impl EngineUnderTest for Engine {
    fn name(&self) -> &str {
        "bitcask"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            persistent: true,
            cheap_heads: true,
            ordered: false,
            indexes: false,
            backups: true,
            drops_entries: false,
        }
    }

    fn open(&self, opening: &Opening) -> Result<Box<dyn Backend>> {
        let settings = settings(opening.variation);
        let (disk, draw) = (opening.disk(), opening.draw.clone());
        let store = Bitcask::open(disk, &opening.directory, settings, draw, None)?;
        // A cache large enough for everything, none, and one that evicts most entries.
        let cache = match opening.variation {
            0 => Some(ReadCache::new(64 << 20)),
            2 => Some(ReadCache::new(4096)),
            _ => None,
        };
        let store = match cache {
            Some(cache) => store.with_cache(Arc::new(cache)),
            None => store,
        };
        Ok(Box::new(store))
    }

    /// The store's own segments, which are the log of a store without a value log.
    fn left_out_after_kill(&self) -> &'static [&'static str] {
        &["*.segment"]
    }

    fn variations(&self) -> u32 {
        4
    }

    fn keys_collide(&self, variation: u32) -> bool {
        settings(variation).fingerprint.is_some()
    }
}

fn settings(variation: u32) -> BitcaskSettings {
    let eager = BitcaskSettings {
        file_bytes_max: 4096,
        checkpoint_after_bytes: 8192,
        merge: MergeSettings {
            fragmentation_trigger_percent: 20,
            garbage_bytes_trigger: 512,
            store_garbage_trigger_percent: 20,
            fragmentation_threshold_percent: 10,
            garbage_bytes_threshold: 256,
            small_file_threshold_bytes: 1024,
            ..MergeSettings::default()
        },
        ..BitcaskSettings::default()
    };
    match variation {
        0 => eager,
        // Large files: large replays, and few merges.
        1 => BitcaskSettings {
            file_bytes_max: 64 << 10,
            compression: Compression::Lz4,
            sync: SyncStrategy::Interval(Duration::from_secs(1)),
            ..eager
        },
        // Different keys collide, and every file has a page or two.
        2 => BitcaskSettings {
            scrub_period: Some(Duration::from_micros(2_500)),
            fingerprint: Some(|key| u64::from(key.last().copied().unwrap_or(0) % 3) << 47),
            file_bytes_max: 2048,
            checkpoint_after_bytes: 4096,
            ..eager
        },
        _ => BitcaskSettings {
            compression: Compression::Zstd(1),
            sync: SyncStrategy::None,
            checkpoint_after_bytes: 1 << 30,
            ..eager
        },
    }
}
