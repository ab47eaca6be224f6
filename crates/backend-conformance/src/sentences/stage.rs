//! The stage on which a sentence is shown, and the steps that most of them take.

use std::sync::Arc;

use kvorum_backend::FoldDetail;
use kvorum_disk::MemoryDisk;

use crate::script::{PlannedFold, PlannedWrite, Step};
use crate::trial::Trial;
use crate::{Checked, EngineUnderTest, Plan};

/// The arguments of a sentence's check.
pub(super) struct Stage<'a> {
    pub(super) engine: &'a dyn EngineUnderTest,
    pub(super) plan: &'a Plan,
    pub(super) variation: u32,
}

impl<'a> Stage<'a> {
    pub(super) fn open(&self, disk: &MemoryDisk) -> Checked<Trial<'a>> {
        let rng = self.plan.rng(0);
        Trial::open(self.engine, Arc::new(disk.clone()), self.variation, rng)
    }

    pub(super) fn play(&self, steps: &[Step]) -> Checked<Trial<'a>> {
        let mut trial = self.open(&MemoryDisk::new())?;
        trial.play(steps)?;
        Ok(trial)
    }
}

pub(super) fn put(key: usize) -> Step {
    Step::put_buffered(vec![PlannedWrite::put(key, 100)])
}

pub(super) fn put_large(key: usize) -> Step {
    Step::put_buffered(vec![PlannedWrite::put(key, 3_000)])
}

pub(super) fn put_durably(key: usize) -> Step {
    Step::put_durably(vec![PlannedWrite::put(key, 100)])
}

pub(super) fn remove(key: usize) -> Step {
    Step::put_buffered(vec![PlannedWrite::remove(key)])
}

/// A put that expires so many microseconds later.
pub(super) fn put_expiring(key: usize, micros: u64, terms: &[usize]) -> Step {
    let mut write = PlannedWrite::put(key, 50);
    if let Some(value) = &mut write.value {
        value.expires_in_micros = Some(micros);
        value.terms = terms.to_vec();
    }
    Step::put_buffered(vec![write])
}

pub(super) fn fold_everything(slot: Option<usize>) -> Step {
    Step::Fold {
        slot,
        fold: PlannedFold::all(FoldDetail::Entries),
    }
}
