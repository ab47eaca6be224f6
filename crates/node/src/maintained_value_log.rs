//! The value log, which acknowledges the writes of all stores.
//!
//! Engines leave their entries in it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use kvorum_arbiter::Answer;
use kvorum_backend::{BackendError, StepBudget, StepOutcome, Task, TaskKind, Timestamp, Urgency};
use kvorum_backend_bitcask::MergePolicy;
use kvorum_disk::Disk;
use kvorum_maintenance::MaintainedLog;
use kvorum_runtime::Runtime;
use kvorum_settings::Settings;
use kvorum_value_log::{CollectionDue, ValueLog, ValueLogSettings};

/// Maximum bytes that a step of a collection reads and copies, since it holds them in memory.
const COLLECTED_BYTES_MAX: u64 = 4 << 20;

/// The log of a node that has one. Cheap to clone.
#[derive(Clone)]
pub(crate) struct MaintainedValueLog {
    /// Entries stay in it for as long as their stores need them.
    pub(crate) values: ValueLog,
    /// The hours at which entries may be copied out of it.
    pub(crate) merges: MergePolicy,
}

impl MaintainedValueLog {
    /// The log's name in texts.
    pub(crate) const NAME: &str = "value log";

    /// Commits groups until [`MaintainedValueLog::stop`].
    pub(crate) fn drive(&self) {
        self.values.drive();
    }

    /// Lets writes of ready tasks share a group, until [`MaintainedValueLog::stop`].
    pub(crate) async fn call_driver(self, runtime: Runtime) {
        self.values.call_driver(&runtime).await;
    }

    pub(crate) fn stop(&self) {
        self.values.stop();
    }
}

impl MaintainedLog for MaintainedValueLog {
    fn batches(&self) -> u64 {
        self.values.status().batches
    }

    fn failure(&self) -> Option<String> {
        self.values.failure().map(|error| error.to_string())
    }

    fn queued_bytes(&self) -> u64 {
        self.values.queued_bytes()
    }

    fn due(&self, now: Timestamp) -> Answer {
        let log = &self.values;
        // A collection copies live entries and frees the rest, at the hours of merges. It does not
        // wait for these hours if puts are refused for lack of space.
        let is_exhausted = log.reserve().seen().is_exhausted();
        let presses = is_exhausted && self.merges != MergePolicy::Never;
        log.hold_collections(!self.merges.allows(now) && !presses);
        let chores = log.is_chore_due().then(chore);
        let due = log.collection_due();
        Answer {
            tasks: chores.into_iter().chain(due.map(collection)).collect(),
            put_bytes: log.appended_bytes(),
            backlog_bytes: due.map_or(0, |due| due.backlog_bytes),
            memory_bytes: 0,
        }
    }

    fn scrub_due(&self, period: Option<Duration>, now: Timestamp) -> Option<Task> {
        self.values.scrub_due(period, now)
    }

    fn scrub_step(
        &self,
        budget: StepBudget,
        period: Option<Duration>,
        now: Timestamp,
    ) -> Result<StepOutcome, BackendError> {
        let outcome = self.values.scrub_step(budget, period, now);
        log_damage(&self.values);
        outcome
    }

    fn step(&self, task: &Task, budget: StepBudget) -> Result<StepOutcome, BackendError> {
        let log = &self.values;
        let outcome = if task.kind == TaskKind::Collect {
            // The declared cost is of this segment, which may be gone since, as after a survey.
            let due = log.collection_due();
            if due.is_none_or(|due| u64::from(due.segment) != task.subject) {
                return Ok(StepOutcome::nothing_left());
            }
            let bytes = budget.bytes.min(COLLECTED_BYTES_MAX);
            log.collection_step(StepBudget { bytes })
        } else {
            // A chore frees nothing for which stores would have to be synced.
            log.chore_step().map(|_| StepOutcome::nothing_left())
        };
        log_damage(log);
        outcome
    }
}

fn log_damage(log: &ValueLog) {
    for damage in log.take_damage() {
        tracing::error!(event = "value_log_damaged", damage = %damage);
    }
}

/// A task for work on the log's files that moves few bytes.
fn chore() -> Task {
    Task {
        kind: TaskKind::Sync,
        subject: 0,
        urgency: Urgency::Normal,
        cost_bytes: 0,
    }
}

fn collection(due: CollectionDue) -> Task {
    Task {
        kind: TaskKind::Collect,
        subject: u64::from(due.segment),
        urgency: if due.is_pressing {
            Urgency::Pressing
        } else {
            Urgency::Normal
        },
        cost_bytes: due.cost_bytes,
    }
}

/// Opens the value log, before the stores whose entries are in it.
pub(crate) fn open_value_log(
    disk: &Arc<dyn Disk>,
    directory: &Path,
    settings: &Settings,
    log_id: u64,
) -> anyhow::Result<ValueLog> {
    let log_settings = ValueLogSettings {
        segment_bytes: settings.value_log.segment_bytes,
        garbage_percent_max: settings.bitcask.merge_garbage_share_max_percent,
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
