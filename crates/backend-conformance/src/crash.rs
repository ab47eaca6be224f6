//! Group Crash: the power is cut at every disk operation of a script, and the acknowledged batches
//! have to explain the contents afterwards.
//!
//! Short scripts are enumerated, since most crash bugs need three operations or fewer (as
//! CrashMonkey found); longer ones are random. Recovery is cut as well.

use std::sync::Arc;

use kvorum_backend::{Backend, Durability, Lookup, ReadAt, Sequence};
use kvorum_disk::{CrashOptions, MemoryDisk};
use rand::RngExt;
use rand::seq::{IndexedRandom, SliceRandom};
use rand_chacha::ChaCha8Rng;

use crate::disk_copy::copy_of;
use crate::history::{History, Required};
use crate::observe::{Absent, observe};
use crate::recording::{Outcome, Recording, another_batch, failed_without_cause};
use crate::script::{PlannedWrite, Script, Step};
use crate::shrink::check_script;
use crate::violation::{MustSucceed, ensure, unexpected};
use crate::{Checked, EngineUnderTest, Plan, Violation, generate};

/// The start of this group's random numbers.
const STREAM: u64 = 2 << 32;
/// The steps of short scripts.
const SHORT_STEPS: usize = 9;

pub(crate) fn check(engine: &dyn EngineUnderTest, plan: &Plan) -> Checked {
    if !engine.capabilities().persistent {
        return Ok(());
    }
    let mut rng = plan.rng(STREAM);
    let mut scripts = scripts(plan, &mut rng);
    let all = scripts.len();
    scripts.shuffle(&mut rng);
    scripts.truncate(plan.share(engine, all, all));
    for (number, script) in scripts.into_iter().enumerate() {
        let sweep = Sweep {
            engine,
            variation: rng.random_range(0..engine.variations().max(1)),
            rng: plan.rng(STREAM + 1 + number as u64),
            cuts_max: plan.amount(60, usize::MAX),
            images: plan.amount(2, 6),
        };
        check_script(script, sweep.variation, |script| sweep.check(script))?;
    }
    Ok(())
}

fn scripts(plan: &Plan, rng: &mut ChaCha8Rng) -> Vec<Script> {
    let mut scripts: Vec<Script> = Vec::new();
    for first in 0..SHORT_STEPS {
        scripts.push(short_script(&[first]));
        for second in 0..SHORT_STEPS {
            scripts.push(short_script(&[first, second]));
        }
    }
    let three = SHORT_STEPS.pow(3);
    let of_three = |number: usize| {
        let steps = [0, 1, 2].map(|place| number / SHORT_STEPS.pow(place) % SHORT_STEPS);
        short_script(&steps)
    };
    let drawn = plan.amount(40, 0);
    scripts.extend((0..drawn).map(|_| of_three(rng.random_range(0..three))));
    scripts.extend((0..plan.amount(0, three)).map(of_three));
    for _ in 0..plan.amount(25, 300) {
        let len = rng.random_range(4..30);
        scripts.push(generate::changing_script(rng, len));
    }
    scripts
}

/// A script of small steps, by their numbers.
fn short_script(steps: &[usize]) -> Script {
    let put = PlannedWrite::put;
    let step = |number: &usize| match number {
        0 => Step::put_durably(vec![put(0, 50)]),
        1 => Step::put_durably(vec![put(0, 1_500), put(1, 1_500), put(5, 700)]),
        2 => Step::put_buffered(vec![put(0, 60), put(1, 1_200)]),
        3 => Step::put_durably(vec![PlannedWrite::remove(0)]),
        4 => Step::put_buffered(vec![PlannedWrite::remove(1), put(2, 10)]),
        5 => Step::Sync,
        6 => Step::MaintainAll,
        7 => Step::Reopen,
        _ => Step::Erase,
    };
    Script {
        steps: steps.iter().map(step).collect(),
    }
}

/// One script, cut everywhere.
struct Sweep<'a> {
    engine: &'a dyn EngineUnderTest,
    variation: u32,
    rng: ChaCha8Rng,
    cuts_max: usize,
    /// Crash images for each cut.
    images: usize,
}

impl Sweep<'_> {
    fn check(&self, script: &Script) -> Checked {
        let operations = self.uncut(script)?;
        let mut rng = self.rng.clone();
        let all = usize::try_from(operations)
            .unwrap_or(usize::MAX)
            .saturating_add(1);
        let cuts: Vec<u64> = if all <= self.cuts_max {
            (0..=operations).collect()
        } else {
            (0..self.cuts_max)
                .map(|_| rng.random_range(0..=operations))
                .collect()
        };
        for cut in cuts {
            self.cut(script, cut, &mut rng).map_err(|violation| {
                violation.after(format!("a cut after operation {cut} of {operations}"))
            })?;
        }
        Ok(())
    }

    /// The number of operations of the script.
    fn uncut(&self, script: &Script) -> Checked<u64> {
        let disk = MemoryDisk::new();
        let opened = self.record(&disk)?;
        let mut recording = opened.ok_or_else(|| failed_without_cause("opening a new store"))?;
        if recording.play_until_failure(script)? == Outcome::Failed {
            return Err(failed_without_cause(recording.last_error()));
        }
        Ok(disk.operations())
    }

    fn record(&self, disk: &MemoryDisk) -> Checked<Option<Recording<'_>>> {
        let disk = Arc::new(disk.clone());
        Recording::open(self.engine, disk, self.variation, self.rng.clone())
    }

    fn cut(&self, script: &Script, cut: u64, rng: &mut ChaCha8Rng) -> Checked {
        let disk = MemoryDisk::new();
        disk.cut_after(cut);
        let Some(mut recording) = self.record(&disk)? else {
            // Cut before the store existed: the only promise is that it opens.
            let opening = crate::trial::opening(
                Arc::new(disk.crash_image(CrashOptions::drawn(rng.random()))),
                self.variation,
                self.rng.clone(),
            );
            self.engine.open(&opening).must("opening after a crash")?;
            return Ok(());
        };
        let outcome = recording.play_until_failure(script)?;
        if outcome == Outcome::Failed && !disk.is_cut() {
            return Err(failed_without_cause(recording.last_error()));
        }
        for _ in 0..self.images {
            let options = if rng.random_bool(0.5) {
                CrashOptions::drawn(rng.random())
            } else {
                *CrashOptions::extremes()
                    .choose(rng)
                    .unwrap_or(&CrashOptions::everything())
            };
            let image = disk.crash_image(options);
            Recovery {
                recording: &recording,
                image,
            }
            .check(rng)
            .map_err(|violation| violation.after(format!("{options:?}")))?;
        }
        Ok(())
    }
}

/// A disk after a crash, and the promises before it.
struct Recovery<'a> {
    recording: &'a Recording<'a>,
    image: MemoryDisk,
}

impl Recovery<'_> {
    fn check(&self, rng: &mut ChaCha8Rng) -> Checked {
        let disk = copy_of(&self.image);
        let store = self.open(&disk)?;
        let recovery_operations = disk.operations();
        self.check_store(&*store)?;
        if !self.history().is_erasing {
            self.check_life_goes_on(store, &disk, rng)?;
        }
        self.check_cut_recovery(rng.random_range(0..=recovery_operations), rng)
    }

    fn history(&self) -> &History {
        &self.recording.history
    }

    fn open(&self, disk: &MemoryDisk) -> Checked<Box<dyn Backend>> {
        let engine = self.recording.trial().engine;
        engine
            .open(&self.recording.opening().on(disk.clone()))
            .must("opening after a crash")
    }

    /// All acknowledged batches are present and whole, and nothing that was never put is.
    fn check_store(&self, store: &dyn Backend) -> Checked {
        let now = self.recording.trial().now;
        let reported = store.durable();
        let observed = observe(store, now, Absent::Hidden, &|call, error| {
            Err(unexpected(call, error))
        })?;
        let up_to = Sequence(0);
        self.history()
            .explain(&observed, Required::Durable { up_to }, now)
            .map_err(|story| Violation::of(5, story))?;
        if self.history().is_erasing {
            return Ok(());
        }
        self.history()
            .explain(&observed, Required::Durable { up_to: reported }, now)
            .map_err(|story| Violation::of(7, format!("durable() is {reported:?} but {story}")))?;
        let floor = self.history().durable_floor();
        ensure(reported >= floor, 7, || {
            format!("durable() is {reported:?} with everything to {floor:?} synced")
        })
    }

    /// A put after recovery is later than all earlier ones, and survives the next crash.
    fn check_life_goes_on(
        &self,
        store: Box<dyn Backend>,
        disk: &MemoryDisk,
        rng: &mut ChaCha8Rng,
    ) -> Checked {
        let before = store.durable();
        let batch = another_batch();
        let receipt = store.put(&batch, Durability::Grouped).must("put")?;
        let sequence = receipt.wait().must("waiting for a ticket")?;
        ensure(sequence > before, 1, || {
            format!("a put after recovery got {sequence:?} with durable at {before:?}")
        })?;
        let again = disk.crash_image(CrashOptions::drawn(rng.random()));
        drop(store);
        let store = self.open(&again)?;
        let at = ReadAt::may_block(self.recording.trial().now);
        let found = store.get(batch.writes[0].key(), at).must("get")?;
        ensure(
            matches!(&found, Lookup::Found(it) if it.sequence == sequence),
            5,
            || format!("a put after recovery is {found:?} after another crash"),
        )
    }

    /// The power is cut once more while the store recovers.
    fn check_cut_recovery(&self, cut: u64, rng: &mut ChaCha8Rng) -> Checked {
        let disk = copy_of(&self.image);
        disk.cut_after(cut);
        let engine = self.recording.trial().engine;
        let recovered = engine.open(&self.recording.opening().on(disk.clone()));
        let options = CrashOptions::drawn(rng.random());
        let again = disk.crash_image(options);
        drop(recovered);
        let in_context = |violation: Violation| {
            violation.after(format!(
                "recovery cut after operation {cut} with {options:?}"
            ))
        };
        let store = self.open(&again).map_err(in_context)?;
        self.check_store(&*store).map_err(in_context)
    }
}
