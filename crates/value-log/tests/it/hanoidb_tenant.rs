//! The suite over hanoidb, with its large bodies in the value log.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kvorum_backend::{Backend, Capabilities, Result, Status};
use kvorum_backend_conformance::{EngineUnderTest, Opening, conformance_suite};
use kvorum_backend_hanoidb::{Compression, Hanoidb, HanoidbSettings, Shared, SyncStrategy};

use crate::tenants::{LOG, TenantBackend, hanoidb_settings, is_incomplete};

/// Hanoidb as the server runs it.
pub(crate) struct HanoidbTenant;

impl EngineUnderTest for HanoidbTenant {
    fn name(&self) -> &str {
        "hanoidb with its large bodies in the value log"
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
            ordered: true,
            indexes: true,
            backups: true,
            drops_entries: false,
        }
    }

    fn open(&self, opening: &Opening) -> Result<Box<dyn Backend>> {
        let settings = HanoidbSettings {
            sync: SyncStrategy::Grouped,
            log_segments_behind_max: opening.variation + 1,
            ..hanoidb_settings()
        };
        let settings = match opening.variation {
            0 => settings,
            // Stores cover nothing for being far behind, and compress nothing.
            1 => HanoidbSettings {
                log_segments_behind_max: 1 << 30,
                compression: Compression::None,
                sync: SyncStrategy::None,
                ..settings
            },
            _ => HanoidbSettings {
                sync: SyncStrategy::Interval(Duration::from_secs(1)),
                scrub_period: Some(Duration::from_micros(2_500)),
                ..settings
            },
        };
        let (disk, draw) = (opening.disk(), opening.draw.clone());
        let shared = Shared::new(64 << 10, 1 << 20);
        TenantBackend::open(opening, |log| {
            Hanoidb::open(disk, &opening.directory, &settings, shared, draw, Some(log))
        })
    }

    fn directories(&self, opening: &Opening) -> Vec<PathBuf> {
        vec![opening.directory.clone(), PathBuf::from(LOG)]
    }

    fn variations(&self) -> u32 {
        3
    }

    fn default_tickets_are_durable(&self, variation: u32) -> bool {
        variation == 0
    }

    fn keys_lost_per_flip_max(&self) -> usize {
        10
    }

    /// A put for which the log finds no space stays visible, and later ones are refused until it is
    /// written.
    fn works_on_a_full_disk(&self) -> bool {
        false
    }

    fn slowness(&self) -> usize {
        6
    }
}

conformance_suite!(HanoidbTenant);
