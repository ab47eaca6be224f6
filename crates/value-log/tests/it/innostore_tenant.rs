//! The suite over innostore, with the value log as its redo log.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kvorum_backend::{Backend, Capabilities, Result, Status};
use kvorum_backend_conformance::{EngineUnderTest, Opening, conformance_suite};
use kvorum_backend_innostore::{Innostore, InnostoreSettings, Shared, SyncStrategy};

use crate::tenants::{LOG, TenantBackend, innostore_settings, is_incomplete};

/// Innostore as a server runs it.
pub(crate) struct InnostoreTenant;

impl EngineUnderTest for InnostoreTenant {
    fn name(&self) -> &str {
        "innostore"
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
        let settings = InnostoreSettings {
            sync: SyncStrategy::Grouped,
            log_segments_behind_max: opening.variation + 1,
            ..innostore_settings()
        };
        let settings = match opening.variation {
            0 => settings,
            // Stores move nothing for being far behind, and have no bodies apart.
            1 => InnostoreSettings {
                log_segments_behind_max: 1 << 30,
                body_apart_bytes: usize::MAX,
                sync: SyncStrategy::None,
                ..settings
            },
            // Puts are moved at once, and memory keeps hardly any pages that were read.
            _ => InnostoreSettings {
                dirty_age_max: Duration::ZERO,
                sync: SyncStrategy::Interval(Duration::from_secs(1)),
                ..settings
            },
        };
        let (disk, draw) = (opening.disk(), opening.draw.clone());
        let shared = Shared::new(if opening.variation < 2 {
            64 << 10
        } else {
            1_000
        });
        TenantBackend::open(opening, |log| {
            Innostore::open(disk, &opening.directory, &settings, shared, draw, log)
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

conformance_suite!(InnostoreTenant);
