//! Sentences about the contents after a power cut.

use kvorum_backend::{Backend, Lookup, Reading, Sequence};
use kvorum_disk::{CrashOptions, MemoryDisk};

use super::stage::{Stage, put_durably, put_large, remove};
use crate::names::{KEYS, key};
use crate::script::{PlannedWrite, Step};
use crate::trial::Trial;
use crate::violation::{MustSucceed, ensure};
use crate::{Checked, Violation};

impl Stage<'_> {
    /// Plays steps, cuts the power and passes on the opened store, once for each kind of crash.
    pub(super) fn play_and_crash(
        &self,
        steps: &[Step],
        check: impl Fn(&Trial<'_>, &dyn Backend) -> Checked,
    ) -> Checked {
        if !self.engine.capabilities().persistent {
            return Ok(());
        }
        let drawn = (0..12).map(CrashOptions::drawn);
        for options in CrashOptions::extremes().into_iter().chain(drawn) {
            let disk = MemoryDisk::new();
            let mut trial = self.open(&disk)?;
            for step in steps {
                trial.step(step)?;
            }
            let opened = self
                .engine
                .open(&trial.opening.on(disk.crash_image(options)));
            let store = opened.must("opening after a crash")?;
            check(&trial, &*store).map_err(|violation| violation.after(format!("{options:?}")))?;
        }
        Ok(())
    }
}

pub(super) fn whole_batches(stage: &Stage<'_>) -> Checked {
    let writes = |size| (0..5).map(|key| PlannedWrite::put(key, size)).collect();
    let mut second: Vec<PlannedWrite> = writes(900);
    second.push(PlannedWrite::remove(6));
    let steps = [
        put_durably(6),
        Step::put_durably(writes(700)),
        Step::put_buffered(second),
    ];
    stage.play_and_crash(&steps, |trial, store| {
        let mut sequences = Vec::new();
        for number in 0..5 {
            match store
                .get(&key(number), trial.at(Reading::MayBlock))
                .must("get")?
            {
                Lookup::Found(entry) => sequences.push(entry.sequence),
                lookup => return Err(Violation::of(3, format!("key {number} is {lookup:?}"))),
            }
        }
        let sixth = store
            .get(&key(6), trial.at(Reading::MayBlock))
            .must("get")?;
        let is_second = sixth == Lookup::Absent;
        let whole = sequences.iter().all(|it| *it == sequences[0])
            && (sequences[0] == Sequence(3)) == is_second;
        ensure(whole, 3, || {
            format!("keys of one batch are of {sequences:?}; the removed key is {sixth:?}")
        })
    })
}

pub(super) fn awaited_puts_survive(stage: &Stage<'_>) -> Checked {
    let steps: Vec<Step> = (0..8).map(|number| put_durably(number % 5)).collect();
    stage.play_and_crash(&steps, |trial, store| expect_all(5, trial, store))
}

pub(super) fn synced_puts_survive(stage: &Stage<'_>) -> Checked {
    let mut steps: Vec<Step> = (0..KEYS).map(put_large).collect();
    steps.extend([remove(3), Step::Sync]);
    stage.play_and_crash(&steps, |trial, store| expect_all(6, trial, store))
}

pub(super) fn removed_keys_stay_away(stage: &Stage<'_>) -> Checked {
    // Removals come to younger files than the removed entries, and upkeep runs in between.
    let mut steps = vec![put_large(1), put_large(2), put_large(3)];
    for round in 0..4 {
        steps.extend((4..KEYS).map(put_large));
        steps.push(Step::put_durably(vec![PlannedWrite::remove(1 + round % 3)]));
        steps.extend((4..8).map(remove));
        steps.extend([Step::MaintainAll, Step::Reopen, Step::MaintainAll]);
    }
    stage.play(&steps)?;
    steps.push(Step::Sync);
    stage.play_and_crash(&steps, |trial, store| expect_all(8, trial, store))
}

/// All puts are present, and nothing else is.
pub(super) fn expect_all(sentence: u8, trial: &Trial<'_>, store: &dyn Backend) -> Checked {
    for key in crate::names::keys() {
        let found = store.get(&key, trial.at(Reading::MayBlock)).must("get")?;
        let expected = trial.state.get(&key, trial.now);
        let holds = match (&found, expected) {
            (Lookup::Absent, None) => true,
            (Lookup::Found(found), Some(expected)) => found.body == expected.body,
            _ => false,
        };
        ensure(holds, sentence, || {
            format!("after a crash {key:?} is {found:?} instead of {expected:?}")
        })?;
    }
    Ok(())
}

pub(super) fn durable_is_honest(stage: &Stage<'_>) -> Checked {
    let mut steps = vec![put_durably(0), put_durably(1)];
    steps.extend((2..KEYS).map(put_large));
    stage.play_and_crash(&steps, |trial, store| {
        let durable = store.durable();
        ensure(durable >= Sequence(2), 7, || {
            format!("durable() is {durable:?} although two batches are synced")
        })?;
        for (key, entry) in &trial.state.entries {
            let promised = entry.sequence.is_some_and(|it| it <= durable);
            let found = store.get(key, trial.at(Reading::MayBlock)).must("get")?;
            ensure(!promised || found != Lookup::Absent, 7, || {
                format!(
                    "durable() is {durable:?}, and {key:?} of {:?} is gone",
                    entry.sequence
                )
            })?;
        }
        Ok(())
    })
}
