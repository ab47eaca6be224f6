//! The log of a simulated node: the one that the server has for its engine, driven by a task.
//!
//! A simulation has no threads. The task lets as much virtual time pass as a device would take, and
//! commits the group that has gathered meanwhile.

use std::path::Path;
use std::sync::Arc;

use kvorum_backend::{Backend, BackendError, Durability, StepBudget, StepOutcome, StoreId};
use kvorum_commit::{
    CommitLog, CommitLogSettings, Committed, TaskDriver, ValueLog, ValueLogSettings,
};
use kvorum_disk::Disk;

const COMMIT_LOG_DIRECTORY: &str = "/node/commit_log";
const VALUE_LOG_DIRECTORY: &str = "/node/value_log";
/// Small, so that a run of some thousand writes closes, syncs and drops many.
const COMMIT_LOG_SETTINGS: CommitLogSettings = CommitLogSettings {
    segment_bytes: 64 << 10,
    bytes_max: 512 << 10,
};
/// Smaller still: what lives in one is collected before a run ends. As much may be dead as by default.
const VALUE_LOG_SETTINGS: ValueLogSettings = ValueLogSettings {
    segment_bytes: 16 << 10,
    dead_percent_max: 30,
};
const UPKEEP_STEPS_MAX: usize = 8;

/// The log of one run of a node. Cheap to clone.
#[derive(Clone)]
pub(crate) enum NodeLog {
    /// Batches stay until their stores have synced them.
    Commit(CommitLog),
    /// Entries stay, for stores that were opened with it.
    Value(ValueLog),
}

/// Where the commit logs are.
pub(crate) fn commit_log_directory() -> &'static Path {
    Path::new(COMMIT_LOG_DIRECTORY)
}

impl NodeLog {
    /// Begins a commit log, behind what those of earlier runs had for the stores.
    pub(crate) fn create_commit_log(disk: Arc<dyn Disk>, id: u64) -> Result<Self, BackendError> {
        let directory = commit_log_directory();
        let log = CommitLog::create(disk, directory, id, COMMIT_LOG_SETTINGS)?;
        Ok(Self::Commit(log))
    }

    /// Opens the value log, before the stores whose entries are in it; what is damaged, in words.
    pub(crate) fn open_value_log(
        disk: Arc<dyn Disk>,
        id: u64,
    ) -> Result<(Self, Vec<String>), BackendError> {
        let directory = Path::new(VALUE_LOG_DIRECTORY);
        let (log, found) = ValueLog::open(disk, directory, id, VALUE_LOG_SETTINGS)?;
        Ok((Self::Value(log), found.damage))
    }

    /// The store as writers use it.
    pub(crate) fn over(&self, store: Arc<dyn Backend>) -> Arc<dyn Backend> {
        match self {
            Self::Commit(log) => Arc::new(Committed::new(store, log.clone(), Durability::Grouped)),
            Self::Value(_) => store,
        }
    }

    pub(crate) fn task_driver(&self) -> TaskDriver {
        match self {
            Self::Commit(log) => log.task_driver(),
            Self::Value(log) => log.task_driver(),
        }
    }

    /// All stores that the node has are open.
    pub(crate) fn all_admitted(&self) {
        if let Self::Value(log) = self {
            log.settle_erasures();
        }
    }

    /// A store was erased. The value log was told by the store itself.
    pub(crate) fn forget(&self, store: StoreId) {
        if let Self::Commit(log) = self {
            log.forget(store);
        }
    }

    /// Does some of what is due; what fails is tried again. How many segments of the value log were
    /// collected.
    pub(crate) fn upkeep(&self, budget: StepBudget) -> u64 {
        let mut collections = 0;
        for _ in 0..UPKEEP_STEPS_MAX {
            let done = match self {
                Self::Commit(log) if log.is_upkeep_due() => log.upkeep_step(),
                Self::Value(log) if log.is_chore_due() => {
                    log.chore_step().map(|_| StepOutcome::nothing_left())
                }
                Self::Value(log) if log.collection_due().is_some() => {
                    let stepped = log.collection_step(budget);
                    let is_done = stepped.as_ref().is_ok_and(|step| step.is_done);
                    collections += u64::from(is_done);
                    stepped
                }
                _ => break,
            };
            if done.is_err() {
                break;
            }
        }
        collections
    }

    /// What upkeep found damaged, in words.
    pub(crate) fn take_damage(&self) -> Vec<String> {
        match self {
            Self::Commit(_) => Vec::new(),
            Self::Value(log) => log.take_damage(),
        }
    }

    /// Every store was closed.
    pub(crate) fn finish(&self) -> Result<(), BackendError> {
        match self {
            Self::Commit(log) => {
                log.stop();
                log.remove()
            }
            Self::Value(log) => {
                log.stop();
                Ok(())
            }
        }
    }
}
