//! Background work: one thread that does the stores' upkeep in small steps.
//!
//! Each round it asks every vnode what it owes, does one step of the most urgent task of each, trims
//! the commit log and removes tombstones that are due. Between steps it rests for as long as the step took, so that
//! upkeep never takes more than half of one core or of the device's time, except when a task is
//! pressing. This is the simple forerunner of the node-wide arbiter.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kvorum_backend::{Reading, StepBudget, Task, Timestamp, Urgency};
use kvorum_commit::CommitLog;
use kvorum_coordinator::{Coordinator, MaintenanceWitness};
use kvorum_runtime::{Moment, Runtime};
use kvorum_vnode::Vnode;
use parking_lot::{Condvar, Mutex};

use crate::vnode_table::VnodeTable;

/// What one step may cost: a few milliseconds of a disk's time.
const STEP_BUDGET: StepBudget = StepBudget { bytes: 1 << 20 };
/// How long the thread sleeps when nothing is owed.
const IDLE_PAUSE: Duration = Duration::from_millis(500);
/// The longest rest between two steps.
const REST_MAX: Duration = Duration::from_millis(50);
/// Steps remembered for those who ask what was in a request's way.
const STEPS_REMEMBERED: usize = 512;
/// Shorter steps are in nobody's way.
const NOTABLE_STEP: Duration = Duration::from_millis(1);

/// A step that was done.
#[derive(Clone, Debug)]
pub(crate) struct DoneStep {
    pub(crate) what: String,
    pub(crate) from: Moment,
    pub(crate) to: Moment,
    pub(crate) cost_bytes: u64,
}

/// Remembers what was done when.
#[derive(Default)]
pub(crate) struct StepLog {
    steps: Mutex<VecDeque<DoneStep>>,
}

impl StepLog {
    pub(crate) fn recent(&self, count: usize) -> Vec<DoneStep> {
        self.steps
            .lock()
            .iter()
            .rev()
            .take(count)
            .cloned()
            .collect()
    }

    fn note(&self, step: DoneStep) {
        let mut steps = self.steps.lock();
        if steps.len() == STEPS_REMEMBERED {
            steps.pop_front();
        }
        steps.push_back(step);
    }
}

impl MaintenanceWitness for StepLog {
    fn step_between(&self, from: Moment, to: Moment) -> Option<String> {
        let steps = self.steps.lock();
        let overlapping = steps.iter().filter(|step| step.from < to && step.to > from);
        let longest = overlapping.max_by_key(|step| step.to.since(step.from))?;
        let took = longest.to.since(longest.from);
        Some(format!("{} for {} us", longest.what, took.as_micros()))
    }
}

/// What the maintenance thread works on.
pub(crate) struct Maintenance {
    pub(crate) runtime: Runtime,
    pub(crate) vnodes: Arc<VnodeTable>,
    pub(crate) commit_log: Option<CommitLog>,
    pub(crate) coordinator: Arc<Coordinator>,
    pub(crate) log: Arc<StepLog>,
    pub(crate) stop: Arc<StopSignal>,
}

/// Tells the maintenance thread to stop, and wakes it.
#[derive(Default)]
pub(crate) struct StopSignal {
    is_stopping: AtomicBool,
    gate: Mutex<()>,
    woken: Condvar,
}

impl StopSignal {
    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        let _gate = self.gate.lock();
        self.woken.notify_all();
    }

    fn is_set(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    fn rest(&self, duration: Duration) {
        let mut gate = self.gate.lock();
        if !self.is_set() {
            self.woken.wait_for(&mut gate, duration);
        }
    }
}

impl Maintenance {
    /// Works until stopped; for a thread of its own.
    pub(crate) fn run(&self) {
        while !self.stop.is_set() {
            if !self.round() {
                self.stop.rest(IDLE_PAUSE);
            }
        }
    }

    /// One round over everything; false when nothing was owed.
    fn round(&self) -> bool {
        let mut was_busy = self.tend_commit_log();
        self.coordinator.reap_due(Reading::MayBlock);
        for vnode in self.vnodes.iter() {
            if self.stop.is_set() {
                return true;
            }
            let now = self.now();
            if let Some(task) = vnode.backend().maintenance_due(now).first() {
                was_busy |= self.tend_vnode(vnode, task, now);
            }
            was_busy |= self.tend_commit_log();
        }
        was_busy
    }

    fn tend_commit_log(&self) -> bool {
        let Some(log) = self.commit_log.as_ref().filter(|log| log.is_upkeep_due()) else {
            return false;
        };
        let is_pressing = log.is_upkeep_pressing();
        let step = self.timed("commit log upkeep".into(), || {
            log.upkeep_step().map(|outcome| outcome.cost_bytes)
        });
        match step {
            Ok(took) => {
                self.rest_after(took, is_pressing);
                true
            }
            Err(error) => {
                tracing::error!(event = "commit_log_upkeep_failed", error = %error);
                false
            }
        }
    }

    fn tend_vnode(&self, vnode: &Vnode, task: &Task, now: Timestamp) -> bool {
        let what = format!(
            "{} of partition {}",
            task.kind.name(),
            vnode.partition().number()
        );
        let step = self.timed(what, || {
            let outcome = vnode.backend().maintenance_step(task, STEP_BUDGET, now)?;
            Ok::<u64, kvorum_backend::BackendError>(outcome.cost_bytes)
        });
        match step {
            Ok(took) => {
                self.rest_after(took, task.urgency == Urgency::Pressing);
                true
            }
            Err(error) => {
                tracing::error!(
                    event = "maintenance_step_failed",
                    partition = vnode.partition().number(),
                    task = task.kind.name(),
                    error = %error,
                );
                false
            }
        }
    }

    fn timed<E>(&self, what: String, step: impl FnOnce() -> Result<u64, E>) -> Result<Duration, E> {
        let from = self.runtime.now();
        let cost_bytes = step()?;
        let to = self.runtime.now();
        let took = to.since(from);
        if took >= NOTABLE_STEP {
            self.log.note(DoneStep {
                what,
                from,
                to,
                cost_bytes,
            });
        }
        Ok(took)
    }

    fn rest_after(&self, took: Duration, is_pressing: bool) {
        if !is_pressing {
            self.stop.rest(took.min(REST_MAX));
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp(self.runtime.wall_time().micros())
    }
}
