//! Plays a script on a store whose disk may fail, and records the calls and acknowledgements.

use std::sync::Arc;

use kvorum_backend::{Batch, Durability, Durable, Result, Sequence, StepBudget, SyncTicket, Write};
use kvorum_disk::Disk;
use rand_chacha::ChaCha8Rng;

use crate::history::{Attempt, History};
use crate::script::{PlannedWrite, Script, Step};
use crate::trial::{Trial, opening};
use crate::{Checked, EngineUnderTest, Opening, Violation};

/// The most steps of one task before the script continues; an interrupted task is continued later or never.
const TASK_STEPS_MAX: usize = 500;

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    Failed,
}

/// A store, and all calls to it.
pub(crate) struct Recording<'a> {
    trial: Trial<'a>,
    pub(crate) history: History,
    tickets: Vec<(SyncTicket, usize)>,
    /// A sync failed since the store was opened.
    sync_failed: bool,
    /// A put acknowledged as durable although an earlier sync had failed.
    pub(crate) acknowledged_after_failed_sync: Option<String>,
    last_error: String,
}

impl<'a> Recording<'a> {
    /// Opens a new store; `None` when the disk prevents that.
    pub(crate) fn open(
        engine: &'a dyn EngineUnderTest,
        disk: Arc<dyn Disk>,
        variation: u32,
        rng: ChaCha8Rng,
    ) -> Checked<Option<Self>> {
        let opening = opening(disk, variation, rng);
        match engine.open(&opening) {
            Err(_) => Ok(None),
            Ok(store) => Ok(Some(Self {
                trial: Trial::over(engine, opening, store),
                history: History::default(),
                tickets: Vec::new(),
                sync_failed: false,
                acknowledged_after_failed_sync: None,
                last_error: String::new(),
            })),
        }
    }

    pub(crate) fn opening(&self) -> &Opening {
        &self.trial.opening
    }

    pub(crate) fn trial(&self) -> &Trial<'a> {
        &self.trial
    }

    /// Sets the number of the next value, so that no other recording puts the same values.
    pub(crate) fn number_values_from(&mut self, number: u32) {
        self.trial.values_made = number;
    }

    /// The error of the last failed call.
    pub(crate) fn last_error(&self) -> &str {
        &self.last_error
    }

    /// Plays until a step fails.
    pub(crate) fn play_until_failure(&mut self, script: &Script) -> Checked<Outcome> {
        for step in &script.steps {
            if self.step(step)? == Outcome::Failed {
                return Ok(Outcome::Failed);
            }
        }
        Ok(Outcome::Done)
    }

    /// Plays all steps, despite failures; false when the store could not be opened again.
    pub(crate) fn play_through(&mut self, script: &Script) -> Checked<bool> {
        for step in &script.steps {
            self.step(step)?;
            if self.trial.store.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(crate) fn step(&mut self, step: &Step) -> Checked<Outcome> {
        let outcome = match step {
            Step::Put {
                writes,
                durability,
                is_awaited,
            } => self.put(writes, *durability, *is_awaited)?,
            Step::AwaitTickets => self.await_tickets(),
            Step::Sync => {
                let synced = self.trial.store()?.sync();
                self.note_sync(synced)
            }
            Step::Maintain { pick, budget_bytes } => self.maintain(*pick, *budget_bytes)?,
            Step::MaintainAll => self.maintain_all()?,
            Step::Reopen => self.reopen()?,
            Step::Erase => self.erase()?,
            Step::Advance { micros } => {
                self.trial.now.0 += micros;
                Outcome::Done
            }
            // Reads are checked at the end; a dropped store counts as one after a crash.
            _ => Outcome::Done,
        };
        Ok(outcome)
    }

    fn failed(&mut self, error: impl std::fmt::Display) -> Outcome {
        self.last_error = error.to_string();
        Outcome::Failed
    }

    fn put(
        &mut self,
        writes: &[PlannedWrite],
        durability: Durability,
        is_awaited: bool,
    ) -> Checked<Outcome> {
        let batch = self.trial.batch(writes);
        let number = self.history.attempts.len();
        self.history.attempts.push(Attempt {
            batch: batch.clone(),
            sequence: None,
            is_durable: false,
            is_forgettable: false,
        });
        let receipt = match self.trial.store()?.put(&batch, durability) {
            Ok(receipt) => receipt,
            Err(error) => return Ok(self.failed(error)),
        };
        self.history.given(receipt.sequence);
        self.history.attempts[number].sequence = Some(receipt.sequence);
        self.trial.state.apply(&batch, Some(receipt.sequence));
        match receipt.durable {
            Durable::After(ticket)
                if durability == Durability::BackendDefault && !self.are_defaults_durable() =>
            {
                if is_awaited && let Err(error) = ticket.wait() {
                    return Ok(self.failed(error));
                }
            }
            Durable::After(ticket) => self.tickets.push((ticket, number)),
            Durable::Already if durability == Durability::Grouped => self.acknowledge(number),
            Durable::Already => {}
        }
        Ok(if is_awaited {
            self.await_tickets()
        } else {
            Outcome::Done
        })
    }

    fn are_defaults_durable(&self) -> bool {
        let variation = self.opening().variation;
        self.trial.engine.default_tickets_are_durable(variation)
    }

    fn acknowledge(&mut self, number: usize) {
        let attempt = &mut self.history.attempts[number];
        attempt.is_durable = true;
        if self.sync_failed {
            let story = format!("batch {number} of {:?} was acknowledged", attempt.sequence);
            self.acknowledged_after_failed_sync.get_or_insert(story);
        }
    }

    /// A ticket from before a failed sync may still resolve: its put may have been synced already.
    fn await_tickets(&mut self) -> Outcome {
        let mut outcome = Outcome::Done;
        let failed_before = self.sync_failed;
        for (ticket, number) in std::mem::take(&mut self.tickets) {
            match ticket.wait() {
                Ok(()) if failed_before => self.acknowledge(number),
                Ok(()) => self.history.attempts[number].is_durable = true,
                Err(error) => {
                    self.sync_failed = true;
                    outcome = self.failed(error);
                }
            }
        }
        outcome
    }

    fn note_sync(&mut self, synced: Result<Sequence>) -> Outcome {
        match synced {
            Ok(up_to) => {
                self.history.synced(up_to);
                Outcome::Done
            }
            Err(error) => {
                self.sync_failed = true;
                self.tickets.clear();
                self.failed(error)
            }
        }
    }

    fn maintain(&mut self, pick: usize, budget_bytes: u64) -> Checked<Outcome> {
        let now = self.trial.now;
        let store = self.trial.store()?;
        let due = store.maintenance_due(now);
        if due.is_empty() {
            return Ok(Outcome::Done);
        }
        let budget = StepBudget {
            bytes: budget_bytes,
        };
        match store.maintenance_step(&due[pick % due.len()], budget, now) {
            Ok(_) => Ok(Outcome::Done),
            Err(error) => Ok(self.failed(error)),
        }
    }

    fn maintain_all(&mut self) -> Checked<Outcome> {
        let now = self.trial.now;
        for _ in 0..3 {
            for task in self.trial.store()?.maintenance_due(now) {
                let budget = StepBudget { bytes: 20_000 };
                for _ in 0..TASK_STEPS_MAX {
                    match self.trial.store()?.maintenance_step(&task, budget, now) {
                        Ok(outcome) if outcome.is_done => break,
                        Ok(_) => {}
                        Err(error) => return Ok(self.failed(error)),
                    }
                }
            }
        }
        Ok(Outcome::Done)
    }

    fn reopen(&mut self) -> Checked<Outcome> {
        match self.trial.store()?.close() {
            Ok(()) => self.history.closed(),
            Err(error) => {
                self.history.not_closed();
                self.failed(error);
            }
        }
        self.tickets.clear();
        self.trial.store = None;
        match self.trial.engine.open(self.opening()) {
            Ok(store) => {
                self.trial.store = Some(store);
                self.sync_failed = false;
                Ok(Outcome::Done)
            }
            Err(error) => Ok(self.failed(error)),
        }
    }

    /// The process dies and another opens the store; the page cache survives.
    pub(crate) fn kill_and_reopen(&mut self) -> Result<()> {
        self.tickets.clear();
        self.trial.store = None;
        self.trial.store = Some(self.trial.engine.open(self.opening())?);
        self.sync_failed = false;
        Ok(())
    }

    fn erase(&mut self) -> Checked<Outcome> {
        match self.trial.store()?.erase() {
            Ok(()) => {
                self.tickets.clear();
                self.history = History::default();
                self.trial.state = Default::default();
                Ok(Outcome::Done)
            }
            Err(error) => {
                self.history.is_erasing = true;
                Ok(self.failed(error))
            }
        }
    }
}

/// A put of one small value, to test that the store works.
pub(crate) fn another_batch() -> Batch {
    let head = crate::trial::filled(u32::MAX, 9);
    let body = crate::trial::filled(u32::MAX - 1, 33);
    let fields = kvorum_backend::Fields::default();
    Batch::of(Write::put(crate::names::key(0), fields, head, body))
}

/// A step failed although nothing was wrong with the disk.
pub(crate) fn failed_without_cause(error: &str) -> Violation {
    Violation::of_method(format!("a call failed without cause: {error}"))
}
