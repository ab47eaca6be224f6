//! Opening a store, which always has a value log as its journal.

use std::path::Path;
use std::sync::Arc;

use kvorum_backend::Result;
use kvorum_disk::Disk;
use kvorum_lsm::{DrawNumber, Shared};
use kvorum_lsm_engine::LsmEngine;
use kvorum_value_log::ValueLog;

use crate::LeveledSettings;

/// Opens a store, creating it if it is missing, over the value log that is its journal.
/// [`Tenant`](kvorum_value_log::Tenant) describes the steps before its use.
///
/// # Errors
/// Those of [`LsmEngine::open`]; [`kvorum_backend::ErrorKind::Misuse`] for a store of `leveldb`.
pub fn open(
    disk: Arc<dyn Disk>,
    directory: &Path,
    settings: &LeveledSettings,
    shared: Shared,
    draw: DrawNumber,
    journal: ValueLog,
) -> Result<LsmEngine> {
    LsmEngine::open(disk, directory, settings, shared, draw, Some(journal))
}
