//! Interface to the machine: the import itself opens no files and looks at no processes.

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
    /// A file's permission bits, if they can be had. Riak marks files for deletion by them.
    pub file_mode: fn(&Path) -> Option<u32>,
    /// True if a process of this number runs on this machine.
    pub is_running: fn(u32) -> bool,
    /// The process that holds a record lock on this file, which is how LevelDB guards a store.
    pub lock_holder: fn(&Path) -> Option<u32>,
    /// One of these files that a process has open, and the process. leveled takes no lock of its own.
    pub open_file: fn(&[PathBuf]) -> Option<(PathBuf, u32)>,
}
