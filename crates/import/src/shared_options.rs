//! What every import is told, whatever it reads.

use std::path::PathBuf;
use std::time::Duration;

use kvorum_disk::{Disk, DiskLock};
use kvorum_runtime::Runtime;

use crate::error::ImportError;
use crate::state_directory::StateDirectory;
use crate::target::{ImportTarget, Target};

/// From where to where an import goes, and how.
#[derive(Clone, Debug)]
pub struct SharedOptions {
    /// Directories with stores, or with directories that have them.
    pub directories: Vec<PathBuf>,
    /// Where the import's state is kept.
    pub state_directory: PathBuf,
    /// The server, and the name by which a later run knows it as the same; none for a dry run.
    pub target: Option<ImportTarget>,
    /// Import though a running process seems to use a store.
    pub ignore_locks: bool,
    /// Do not import tombstones. Sound where all replicas of all objects are imported at once.
    pub leave_out_tombstones: bool,
    /// Connections, each with one put at a time.
    pub connections: usize,
    /// How long the server may be away or refuse.
    pub patience: Duration,
    /// Forget the state of an earlier import.
    pub restart: bool,
}

impl SharedOptions {
    /// The server's name, as the import's state has it.
    pub fn target_name(&self) -> Option<String> {
        self.target.as_ref().map(|target| target.name.clone())
    }

    /// Takes the directory of the state, for as long as the lock is held.
    ///
    /// # Errors
    /// Those of the disk.
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

    /// The server, which has all of these bucket types; none for a dry run.
    ///
    /// # Errors
    /// [`ImportError::MissingTypes`], and [`ImportError::Unavailable`] after the patience is over.
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
