//! The suite over bitcask with its entries in the value log.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kvorum_backend::{Backend, Capabilities, Result, Status};
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings, Compression, SyncStrategy};
use kvorum_backend_conformance::{EngineUnderTest, Opening, conformance_suite};

use crate::tenants::{LOG, TenantBackend, bitcask_settings, is_incomplete};

/// Bitcask with its entries in the value log, as the server runs it.
struct BitcaskTenant;

impl EngineUnderTest for BitcaskTenant {
    fn name(&self) -> &str {
        "bitcask with its entries in the value log"
    }

    fn log_directory(&self) -> Option<&Path> {
        Some(Path::new(LOG))
    }

    fn is_incomplete(&self, status: &Status) -> bool {
        is_incomplete(status)
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
        let settings = BitcaskSettings {
            sync: SyncStrategy::Grouped,
            log_segments_behind_max: opening.variation + 1,
            ..bitcask_settings()
        };
        let settings = match opening.variation {
            0 => settings,
            // Stores cover nothing before closing, and compress nothing.
            1 => BitcaskSettings {
                checkpoint_after_bytes: 1 << 30,
                log_segments_behind_max: 1 << 30,
                compression: Compression::Lz4,
                sync: SyncStrategy::None,
                ..settings
            },
            // Different keys collide.
            _ => BitcaskSettings {
                sync: SyncStrategy::Interval(Duration::from_secs(1)),
                fingerprint: Some(|key| u64::from(key.last().copied().unwrap_or(0) % 3) << 47),
                ..settings
            },
        };
        let (disk, draw) = (opening.disk(), opening.draw.clone());
        TenantBackend::open(opening, |log| {
            Bitcask::open(disk, &opening.directory, settings, draw, Some(log))
        })
    }

    fn directories(&self, opening: &Opening) -> Vec<PathBuf> {
        vec![opening.directory.clone(), PathBuf::from(LOG)]
    }

    fn variations(&self) -> u32 {
        3
    }

    fn keys_collide(&self, variation: u32) -> bool {
        variation == 2
    }

    fn default_tickets_are_durable(&self, variation: u32) -> bool {
        variation == 0
    }

    fn slowness(&self) -> usize {
        2
    }

    /// In the suite, a write that finds no space in a file with reserved space comes after the put
    /// has become visible. The put stays, and later ones are refused until it is written. Each
    /// value of the suite needs a segment of its own here, so by chance the first put is refused.
    fn works_on_a_full_disk(&self) -> bool {
        false
    }
}

conformance_suite!(BitcaskTenant);
