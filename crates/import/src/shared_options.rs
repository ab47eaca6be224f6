//! Options common to all importers.

use std::path::PathBuf;
use std::time::Duration;

use kvorum_disk::{Disk, DiskLock};
use kvorum_runtime::Runtime;

use crate::error::ImportError;
use crate::state_directory::StateDirectory;
use crate::target::{ImportTarget, Target};

/// Source, target and options of an import.
#[derive(Clone, Debug)]
pub struct SharedOptions {
    /// Directories with stores, directly or further below.
    pub directories: Vec<PathBuf>,
    /// Directory of the import's state.
    pub state_directory: PathBuf,
    /// The server, and its name for comparison with later runs; `None` for a dry run.
    pub target: Option<ImportTarget>,
    /// Import despite a running process that seems to use a store.
    pub ignore_locks: bool,
    /// Skip tombstones. Safe if all replicas of all objects are imported at once.
    pub leave_out_tombstones: bool,
    /// Connections, each with one put at a time.
    pub connections: usize,
    /// Maximum time for which the server may be unreachable or refuse puts.
    pub patience: Duration,
    /// Remove the state of an earlier import.
    pub restart: bool,
}

impl SharedOptions {
    /// The server's name in the import's state.
    pub fn target_name(&self) -> Option<String> {
        self.target.as_ref().map(|target| target.name.clone())
    }

    /// Locks the directory of the state, for as long as the lock is held.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn take_directory(
        &self,
        disk: &dyn Disk,
    ) -> Result<(StateDirectory, Box<dyn DiskLock>), ImportError> {
        let path = match self.target {
            Some(_) => self.state_directory.clone(),
            None => StateDirectory::of_dry_run(&self.state_directory),
        };
        let (directory, lock) = StateDirectory::take(disk, &path)?;
        if self.restart {
            directory.forget(disk)?;
        }
        Ok((directory, lock))
    }

    /// Connects to the server and checks that it has these bucket types; `None` for a dry run.
    ///
    /// # Errors
    /// [`ImportError::MissingTypes`], and [`ImportError::Unavailable`] when the time for connecting has passed.
    pub async fn reach_target(
        &self,
        runtime: &Runtime,
        bucket_types: &[String],
    ) -> Result<Option<Target>, ImportError> {
        let Some(target) = &self.target else {
            return Ok(None);
        };
        let (address, connections) = (target.address, self.connections);
        let target = Target::new(runtime.clone(), address, connections, self.patience);
        let names = target.missing_types(bucket_types).await?;
        match names.is_empty() {
            true => Ok(Some(target)),
            false => Err(ImportError::MissingTypes { names }),
        }
    }
}
