//! The value log of a simulated node, driven by a task.
//!
//! A simulation has no threads. The task waits for the virtual time that a device would take, and
//! commits the group that has gathered meanwhile.

use std::path::Path;
use std::sync::Arc;

use kvorum_backend::{BackendError, StepBudget, StepOutcome};
use kvorum_disk::Disk;
use kvorum_value_log::{ValueLog, ValueLogSettings};

const DIRECTORY: &str = "/node/value_log";
/// Small sizes, so that segments with live entries are collected before a run ends. The share of
/// garbage is the default.
const SETTINGS: ValueLogSettings = ValueLogSettings {
    segment_bytes: 16 << 10,
    garbage_percent_max: 30,
};
const UPKEEP_STEPS_MAX: usize = 8;

/// Opens the log, before the stores whose entries are in it; returns the damage in words.
pub(crate) fn open(disk: Arc<dyn Disk>, id: u64) -> Result<(ValueLog, Vec<String>), BackendError> {
    let (log, found) = ValueLog::open(disk, Path::new(DIRECTORY), id, SETTINGS)?;
    Ok((log, found.damage))
}

/// Does some of the due work; failed steps are tried again. Returns the number of segments collected.
pub(crate) fn upkeep(log: &ValueLog, budget: StepBudget) -> u64 {
    let mut collections = 0;
    for _ in 0..UPKEEP_STEPS_MAX {
        let done = if log.is_chore_due() {
            log.chore_step().map(|_| StepOutcome::nothing_left())
        } else if log.collection_due().is_some() {
            let stepped = log.collection_step(budget);
            let is_done = stepped.as_ref().is_ok_and(|step| step.is_done);
            collections += u64::from(is_done);
            stepped
        } else {
            break;
        };
        if done.is_err() {
            break;
        }
    }
    collections
}
