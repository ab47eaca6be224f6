//! The node's log: what writes are acknowledged by, one for all stores.
//!
//! Which one it is depends on the engine. One that keeps locations in memory leaves its entries where
//! they were logged, in the value log; the others write them a second time, to their own files, and
//! the commit log holds them until then.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use kvorum_backend::{Backend, BackendError, Durability, StepBudget, StepOutcome};
use kvorum_commit::{CommitLog, CommitLogSettings, Committed, ValueLog, ValueLogSettings};
use kvorum_disk::Disk;
use kvorum_runtime::Runtime;
use kvorum_settings::Settings;

/// How much of the value log's closed segments may be dead before some are collected. Percent.
const DEAD_PERCENT_MAX: u8 = 30;
/// What a step of collecting reads and copies at most: it is in memory meanwhile. Bytes.
const COLLECTED_BYTES_MAX: u64 = 4 << 20;

/// The log of a node that has one. Cheap to clone.
#[derive(Clone)]
pub(crate) enum NodeLog {
    /// Batches stay until their stores have synced them.
    Commit(CommitLog),
    /// Entries stay for as long as their stores need them.
    Value(ValueLog),
}

impl NodeLog {
    /// In words.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Commit(_) => "commit log",
            Self::Value(_) => "value log",
        }
    }

    /// The store as writers use it.
    pub(crate) fn over(&self, store: Arc<dyn Backend>, default: Durability) -> Arc<dyn Backend> {
        match self {
            Self::Commit(log) => Arc::new(Committed::new(store, log.clone(), default)),
            Self::Value(_) => store,
        }
    }

    /// Commits groups until [`NodeLog::stop`].
    pub(crate) fn drive(&self) {
        match self {
            Self::Commit(log) => log.drive(),
            Self::Value(log) => log.drive(),
        }
    }

    pub(crate) fn stop(&self) {
        match self {
            Self::Commit(log) => log.stop(),
            Self::Value(log) => log.stop(),
        }
    }

    /// Every store was closed.
    pub(crate) fn finish(&self) -> anyhow::Result<()> {
        match self {
            // Every store is synced: there is nothing to replay.
            Self::Commit(log) => log.remove().context("remove the commit log"),
            Self::Value(_) => Ok(()),
        }
    }

    /// Batches committed since the start.
    pub(crate) fn batches(&self) -> u64 {
        match self {
            Self::Commit(log) => log.status().batches,
            Self::Value(log) => log.status().batches,
        }
    }

    pub(crate) fn is_upkeep_due(&self) -> bool {
        match self {
            Self::Commit(log) => log.is_upkeep_due(),
            Self::Value(log) => log.is_upkeep_due(),
        }
    }

    pub(crate) fn is_upkeep_pressing(&self) -> bool {
        match self {
            Self::Commit(log) => log.is_upkeep_pressing(),
            Self::Value(log) => log.is_upkeep_pressing(),
        }
    }

    pub(crate) fn upkeep_step(&self, budget: StepBudget) -> Result<StepOutcome, BackendError> {
        match self {
            Self::Commit(log) => log.upkeep_step(),
            Self::Value(log) => {
                let bytes = budget.bytes.min(COLLECTED_BYTES_MAX);
                let outcome = log.upkeep_step(StepBudget { bytes });
                for damage in log.take_damage() {
                    tracing::error!(event = "value_log_damaged", damage = %damage);
                }
                outcome
            }
        }
    }
}

/// Starts the commit log of this run.
pub(crate) fn create_commit_log(
    disk: Arc<dyn Disk>,
    directory: &Path,
    log_id: u64,
    settings: CommitLogSettings,
) -> anyhow::Result<CommitLog> {
    CommitLog::create(disk, directory, log_id, settings).context("start the commit log")
}

/// Opens the value log, before the stores whose entries are in it.
pub(crate) fn open_value_log(
    disk: &Arc<dyn Disk>,
    directory: &Path,
    settings: &Settings,
    runtime: &Runtime,
) -> anyhow::Result<ValueLog> {
    let log_settings = ValueLogSettings {
        segment_bytes: settings.commit_log.segment_bytes,
        dead_percent_max: DEAD_PERCENT_MAX,
    };
    let (log, found) = ValueLog::open(disk.clone(), directory, runtime.random_u64(), log_settings)
        .context("open the value log")?;
    if found.torn_bytes > 0 {
        tracing::info!(event = "value_log_cut", torn_bytes = found.torn_bytes);
    }
    for damage in &found.damage {
        tracing::error!(event = "value_log_damaged", damage = %damage);
    }
    Ok(log)
}

/// Gives stores what they have in the value log and do not know of.
pub(crate) fn admit(log: &ValueLog, stores: &[Arc<dyn Backend>]) -> anyhow::Result<()> {
    let found = log.admit(stores).context("replay the value log")?;
    if found.batches_replayed > 0 {
        tracing::info!(
            event = "value_log_replayed",
            segments_read = found.segments_read,
            batches_replayed = found.batches_replayed,
        );
    }
    for damage in &found.damage {
        tracing::error!(event = "value_log_damaged", damage = %damage);
    }
    Ok(())
}
