//! The full disk: puts are refused, reads and restarts work, and puts resume by themselves.

use std::sync::Arc;

use kvorum_backend::{Durability, ErrorKind, Receipt};
use kvorum_disk::{Fault, FaultyDisk, MemoryDisk, Operation, Rule};
use rand_chacha::ChaCha8Rng;

use crate::names::KEYS;
use crate::script::{PlannedWrite, Step};
use crate::trial::Trial;
use crate::violation::{MustSucceed, ensure, unexpected};
use crate::{Checked, EngineUnderTest, Violation};

/// An engine that buffers may accept a few more puts before it notices.
const PUTS_MAX: usize = 200;

pub(super) fn check(engine: &dyn EngineUnderTest, rng: ChaCha8Rng, variation: u32) -> Checked {
    let disk = FaultyDisk::over_memory(&MemoryDisk::new());
    let mut trial = Trial::open(engine, Arc::new(disk.clone()), variation, rng)?;
    let put = |key| Step::put_durably(vec![PlannedWrite::put(key, 2_000)]);
    let puts: Vec<Step> = (0..KEYS).map(put).collect();
    trial.play(&puts)?;
    fill(&disk);
    refuse_puts(&mut trial)?;
    trial.check_all()?;
    // Upkeep may fail for lack of space; it must not do harm.
    let due = trial.store()?.maintenance_due(trial.now);
    for task in due {
        let budget = kvorum_backend::StepBudget { bytes: 10_000 };
        match trial.store()?.maintenance_step(&task, budget, trial.now) {
            Err(error) if error.kind() != ErrorKind::Full => {
                return Err(unexpected("upkeep on a full disk", &error));
            }
            _ => {}
        }
    }
    trial.check_all()?;
    disk.heal();
    let more = [Step::MaintainAll, Step::Reopen];
    trial
        .play(&[puts, more.to_vec()].concat())
        .map_err(|violation| Violation {
            sentence: Some(16),
            ..violation.after("the disk has room again")
        })?;
    fill(&disk);
    reopen_while_full(&mut trial)
}

fn fill(disk: &FaultyDisk) {
    for operation in [Operation::Write, Operation::Allocate] {
        let no_space = Fault::Error(kvorum_disk::ErrorKind::NoSpace);
        disk.add_rule(Rule::new(no_space).on(operation));
    }
}

/// Puts until one is refused, which has to be for lack of space.
fn refuse_puts(trial: &mut Trial<'_>) -> Checked {
    for number in 0..PUTS_MAX {
        let batch = trial.batch(&[PlannedWrite::put(number % KEYS, 2_000)]);
        let put = trial.store()?.put(&batch, Durability::Grouped);
        match put.and_then(Receipt::wait) {
            Ok(sequence) => trial.state.apply(&batch, Some(sequence)),
            Err(error) => {
                return ensure(error.kind() == ErrorKind::Full, 16, || {
                    format!("a full disk refuses a put with {error}")
                });
            }
        }
    }
    Err(Violation::of(
        5,
        format!("a full disk took {PUTS_MAX} puts"),
    ))
}

/// A node has to start on a full disk, or its operator cannot make room.
fn reopen_while_full(trial: &mut Trial<'_>) -> Checked {
    trial.store = None;
    let store = trial.engine.open(&trial.opening);
    trial.store = Some(store.must("opening on a full disk")?);
    trial.check_all()
}
