//! The node's log: what writes are acknowledged by, one for all stores.
//!
//! Which one it is depends on the engine. One that keeps locations in memory leaves its entries where
//! they were logged, in the value log; the others write them a second time, to their own files, and
//! the commit log holds them until then.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use kvorum_arbiter::Told;
use kvorum_backend::{
    Backend, BackendError, Durability, StepBudget, StepOutcome, Task, TaskKind, Timestamp, Urgency,
};
use kvorum_backend_bitcask::MergePolicy;
use kvorum_commit::{
    CollectionDue, CommitLog, CommitLogSettings, Committed, ValueLog, ValueLogSettings,
};
use kvorum_disk::Disk;
use kvorum_runtime::Runtime;
use kvorum_settings::Settings;

/// What a step of collecting reads and copies at most: it is in memory meanwhile. Bytes.
const COLLECTED_BYTES_MAX: u64 = 4 << 20;

/// The log of a node that has one. Cheap to clone.
#[derive(Clone)]
pub(crate) enum NodeLog {
    /// Batches stay until their stores have synced them.
    Commit(CommitLog),
    /// Entries stay for as long as their stores need them; when some are copied out of the log, the
    /// stores' policy of merging says.
    Value(ValueLog, MergePolicy),
}

impl NodeLog {
    /// In words.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Commit(_) => "commit log",
            Self::Value(..) => "value log",
        }
    }

    /// The store as writers use it.
    pub(crate) fn over(&self, store: Arc<dyn Backend>, default: Durability) -> Arc<dyn Backend> {
        match self {
            Self::Commit(log) => Arc::new(Committed::new(store, log.clone(), default)),
            Self::Value(..) => store,
        }
    }

    /// Commits groups until [`NodeLog::stop`].
    pub(crate) fn drive(&self) {
        match self {
            Self::Commit(log) => log.drive(),
            Self::Value(log, _) => log.drive(),
        }
    }

    /// Lets what ready tasks write share a group, until [`NodeLog::stop`].
    pub(crate) async fn call_driver(self, runtime: Runtime) {
        match &self {
            Self::Commit(log) => log.call_driver(&runtime).await,
            Self::Value(log, _) => log.call_driver(&runtime).await,
        }
    }

    pub(crate) fn stop(&self) {
        match self {
            Self::Commit(log) => log.stop(),
            Self::Value(log, _) => log.stop(),
        }
    }

    /// Every store was closed.
    pub(crate) fn finish(&self) -> anyhow::Result<()> {
        match self {
            // Every store is synced: there is nothing to replay.
            Self::Commit(log) => log.remove().context("remove the commit log"),
            Self::Value(..) => Ok(()),
        }
    }

    /// Batches committed since the start.
    pub(crate) fn batches(&self) -> u64 {
        match self {
            Self::Commit(log) => log.status().batches,
            Self::Value(log, _) => log.status().batches,
        }
    }

    /// Why it takes nothing any more, if that is so.
    pub(crate) fn failure(&self) -> Option<String> {
        let failure = match self {
            Self::Commit(log) => log.failure(),
            Self::Value(log, _) => log.failure(),
        };
        failure.map(|error| error.to_string())
    }

    /// What waits to be written, in bytes of memory.
    pub(crate) fn queued_bytes(&self) -> u64 {
        match self {
            Self::Commit(log) => log.queued_bytes(),
            Self::Value(log, _) => log.queued_bytes(),
        }
    }

    /// What the log owes.
    pub(crate) fn owed(&self, now: Timestamp) -> Told {
        match self {
            Self::Commit(log) => {
                let urgency = if log.is_upkeep_pressing() {
                    Urgency::Pressing
                } else {
                    Urgency::Normal
                };
                let chores = log.is_upkeep_due().then(|| chore(urgency));
                Told {
                    tasks: chores.into_iter().collect(),
                    ..Told::default()
                }
            }
            Self::Value(log, merges) => {
                // A collection is a merge of the log: it copies what lives and frees the rest.
                log.hold_collections(!merges.allows(now));
                let chores = log.is_chore_due().then(|| chore(Urgency::Normal));
                let due = log.collection_due();
                Told {
                    tasks: chores.into_iter().chain(due.map(collection)).collect(),
                    put_bytes: log.appended_bytes(),
                    debt_bytes: due.map_or(0, |due| due.owed_bytes),
                    memory_bytes: 0,
                }
            }
        }
    }

    /// What scrubbing would read now; the commit log is not kept for long enough to rot.
    pub(crate) fn scrub_due(&self, period: Option<Duration>, now: Timestamp) -> Option<Task> {
        match self {
            Self::Commit(_) => None,
            Self::Value(log, _) => log.scrub_due(period, now),
        }
    }

    pub(crate) fn scrub_step(
        &self,
        budget: StepBudget,
        period: Option<Duration>,
        now: Timestamp,
    ) -> Result<StepOutcome, BackendError> {
        match self {
            Self::Commit(_) => Ok(StepOutcome::nothing_left()),
            Self::Value(log, _) => {
                let outcome = log.scrub_step(budget, period, now);
                tell_damage(log);
                outcome
            }
        }
    }

    /// Does a part of what it owes.
    pub(crate) fn step(
        &self,
        task: &Task,
        budget: StepBudget,
    ) -> Result<StepOutcome, BackendError> {
        match self {
            Self::Commit(log) => log.upkeep_step(),
            Self::Value(log, _) => {
                let outcome = if task.kind == TaskKind::Merge {
                    // What was declared is of this segment. It may have gone since, as by a survey.
                    let due = log.collection_due();
                    if due.is_none_or(|due| u64::from(due.segment) != task.subject) {
                        return Ok(StepOutcome::nothing_left());
                    }
                    let bytes = budget.bytes.min(COLLECTED_BYTES_MAX);
                    log.collection_step(StepBudget { bytes })
                } else {
                    // It cuts nothing that stores would have to be synced for.
                    log.chore_step().map(|_| StepOutcome::nothing_left())
                };
                tell_damage(log);
                outcome
            }
        }
    }
}

fn tell_damage(log: &ValueLog) {
    for damage in log.take_damage() {
        tracing::error!(event = "value_log_damaged", damage = %damage);
    }
}

/// Work on the log's files, that moves hardly any bytes.
fn chore(urgency: Urgency) -> Task {
    Task {
        kind: TaskKind::Sync,
        subject: 0,
        urgency,
        cost_bytes: 0,
    }
}

fn collection(due: CollectionDue) -> Task {
    Task {
        kind: TaskKind::Merge,
        subject: u64::from(due.segment),
        urgency: if due.is_pressing {
            Urgency::Pressing
        } else {
            Urgency::Normal
        },
        cost_bytes: due.cost_bytes,
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
    log_id: u64,
) -> anyhow::Result<ValueLog> {
    let log_settings = ValueLogSettings {
        segment_bytes: settings.commit_log.segment_bytes,
        dead_percent_max: settings.bitcask.merge_dead_share_max_percent,
    };
    let (log, found) = ValueLog::open(disk.clone(), directory, log_id, log_settings)
        .context("open the value log")?;
    if found.torn_bytes > 0 {
        tracing::info!(event = "value_log_cut", torn_bytes = found.torn_bytes);
    }
    for damage in &found.damage {
        tracing::error!(event = "value_log_damaged", damage = %damage);
    }
    Ok(log)
}
