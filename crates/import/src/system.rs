//! The interface to the machine: the import itself opens no files and inspects no processes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kvorum_disk::Disk;
use kvorum_runtime::Runtime;

/// The machine.
#[derive(Clone)]
pub struct System {
    /// Disk of the source and of the import's state.
    pub disk: Arc<dyn Disk>,
    /// Time, tasks and sockets.
    pub runtime: Runtime,
    /// A file's permission bits, if available. Riak marks files for deletion with them.
    pub file_mode: fn(&Path) -> Option<u32>,
    /// True if a process with this number runs on this machine.
    pub is_running: fn(u32) -> bool,
    /// The process with a record lock on this file, with which LevelDB guards a store.
    pub lock_holder: fn(&Path) -> Option<u32>,
    /// One of these files that a process has open, and the process, since leveled takes no lock.
    pub open_file: fn(&[PathBuf]) -> Option<(PathBuf, u32)>,
}
