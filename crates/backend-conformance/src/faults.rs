//! Group Faults: the Nth disk operation fails, for every N until a run meets no fault.
//!
//! While operations fail a store may refuse any call, but never panics, never shows wrong data, and
//! is whole again on a healthy disk.

mod full_disk;

use std::sync::Arc;

use kvorum_backend::{Backend, ErrorKind, Sequence};
use kvorum_disk::{CrashOptions, Fault, FaultyDisk, MemoryDisk, Operation, Rule};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use crate::disk_copy::copy_of;
use crate::history::{History, Required};
use crate::observe::{Absent, observe};
use crate::recording::{Recording, failed_without_cause};
use crate::script::{PlannedWrite, Script, Step};
use crate::shrink::check_script;
use crate::violation::{MustSucceed, unexpected};
use crate::{Checked, EngineUnderTest, Plan, Violation, generate};

/// The start of this group's random numbers.
const STREAM: u64 = 3 << 32;
/// More matching operations than in any script.
const NTH_MAX: u64 = 100_000;

/// One kind of fault, met by the Nth operation to which it can apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Any operation fails.
    Device,
    /// A write or reservation finds no space.
    NoSpace,
    /// A write is torn.
    Torn,
    /// A sync of a file fails.
    Sync,
    /// A sync of a directory fails.
    SyncDirectory,
    /// A read returns too little.
    ShortRead,
    /// A read returns a flipped bit.
    FlippedBit,
}

const KINDS: [Kind; 7] = [
    Kind::Device,
    Kind::NoSpace,
    Kind::Torn,
    Kind::Sync,
    Kind::SyncDirectory,
    Kind::ShortRead,
    Kind::FlippedBit,
];

pub(crate) fn check(engine: &dyn EngineUnderTest, plan: &Plan) -> Checked {
    if !engine.capabilities().persistent {
        return Ok(());
    }
    for variation in 0..engine.variations().max(1) {
        if !engine.works_on_a_full_disk() {
            break;
        }
        full_disk::check(engine, plan.rng(STREAM), variation)
            .map_err(|violation| violation.after(format!("variation {variation}")))?;
    }
    for variation in 0..engine.variations().max(1) {
        check_reopening_after_failed_sync(engine, plan, variation)
            .map_err(|violation| violation.after(format!("variation {variation}")))?;
    }
    let mut rng = plan.rng(STREAM + 1);
    for number in 0..plan.share(engine, 6, 150) as u64 {
        let len = rng.random_range(3..20);
        let script = generate::changing_script(&mut rng, len);
        let sweep = Sweep {
            engine,
            variation: rng.random_range(0..engine.variations().max(1)),
            rng: plan.rng(STREAM + 2 + number),
            // A slow engine's operations are more numerous too.
            stride_max: plan.amount(6 * engine.slowness().max(1), 1) as u64,
        };
        check_script(script, sweep.variation, |script| sweep.check(script))?;
    }
    Ok(())
}

/// One script, with a failure at each place.
struct Sweep<'a> {
    engine: &'a dyn EngineUnderTest,
    variation: u32,
    rng: ChaCha8Rng,
    /// The most places that are skipped at random, plus one.
    stride_max: u64,
}

impl Sweep<'_> {
    fn check(&self, script: &Script) -> Checked {
        let mut rng = self.rng.clone();
        for kind in KINDS {
            if kind == Kind::FlippedBit && !self.engine.checks_every_read() {
                continue;
            }
            let mut nth = rng.random_range(1..=self.stride_max);
            while nth < NTH_MAX && self.check_nth(script, kind, nth, &mut rng)? {
                nth += rng.random_range(1..=self.stride_max);
            }
        }
        Ok(())
    }

    /// Plays the script with the Nth operation failing; false when nothing failed.
    fn check_nth(
        &self,
        script: &Script,
        kind: Kind,
        nth: u64,
        rng: &mut ChaCha8Rng,
    ) -> Checked<bool> {
        let memory = MemoryDisk::new();
        let disk = FaultyDisk::over_memory(&memory);
        for rule in rules(kind, rng) {
            disk.add_rule(rule.nth(nth));
        }
        if kind == Kind::Device {
            disk.fail_operation_number(nth);
        }
        let in_context =
            |violation: Violation| violation.after(format!("operation {nth} fails: {kind:?}"));
        self.play(script, kind, &memory, &disk, rng)
            .map_err(in_context)?;
        Ok(disk.faults() > 0)
    }

    fn play(
        &self,
        script: &Script,
        kind: Kind,
        memory: &MemoryDisk,
        disk: &FaultyDisk,
        rng: &mut ChaCha8Rng,
    ) -> Checked {
        let faulty = Arc::new(disk.clone());
        let opened = Recording::open(self.engine, faulty, self.variation, self.rng.clone())?;
        let Some(mut recording) = opened else {
            // The store did not exist yet, and reported the failure.
            let opening =
                crate::trial::opening(Arc::new(memory.clone()), self.variation, self.rng.clone());
            self.engine
                .open(&opening)
                .must("opening after a failed opening")?;
            return Ok(());
        };
        let is_open = recording.play_through(script)?;
        if let Some(story) = &recording.acknowledged_after_failed_sync
            && kind == Kind::Sync
        {
            return Err(Violation::of(9, story.clone()));
        }
        if is_open {
            check_open(&recording)?;
        }
        disk.heal();
        let crashed = memory.crash_image(if rng.random_bool(0.5) {
            CrashOptions::drawn(rng.random())
        } else {
            CrashOptions::nothing_unsynced()
        });
        let killed = copy_of(memory);
        let history = recording.history.clone();
        let now = recording.trial().now;
        let opening = recording.opening().clone();
        drop(recording);
        for (what, disk) in [("a power cut", crashed), ("a kill", killed)] {
            let opened = self.engine.open(&opening.on(disk));
            let store = opened.must("opening on a healthy disk")?;
            check_reopened(&*store, &history, now, kind)
                .map_err(|violation| violation.after(what))?;
        }
        Ok(())
    }
}

fn rules(kind: Kind, rng: &mut ChaCha8Rng) -> Vec<Rule> {
    let no_space = Fault::Error(kvorum_disk::ErrorKind::NoSpace);
    let device = Fault::Error(kvorum_disk::ErrorKind::Device);
    match kind {
        Kind::Device => Vec::new(),
        Kind::NoSpace => vec![
            Rule::new(no_space).on(Operation::Write),
            Rule::new(no_space).on(Operation::Allocate),
        ],
        Kind::Torn => vec![Rule::new(Fault::TornWrite {
            bytes: rng.random_range(0..100),
        })],
        Kind::Sync => vec![Rule::new(device).on(Operation::Sync)],
        Kind::SyncDirectory => vec![Rule::new(device).on(Operation::SyncDirectory)],
        Kind::ShortRead => vec![Rule::new(Fault::ShortRead {
            bytes: rng.random_range(0..30),
        })],
        Kind::FlippedBit => vec![Rule::new(Fault::FlippedBit {
            bit: rng.random_range(0..4_000),
        })],
    }
}

/// After a failed sync the page cache shows pages as written that the device may never get. A store that is
/// opened over them, reads them, syncs and reports durability has to have written them again.
fn check_reopening_after_failed_sync(
    engine: &dyn EngineUnderTest,
    plan: &Plan,
    variation: u32,
) -> Checked {
    let put = |key| Step::put_durably(vec![PlannedWrite::put(key, 300)]);
    let memory = MemoryDisk::new();
    let disk = FaultyDisk::over_memory(&memory);
    let opened = Recording::open(engine, Arc::new(disk.clone()), variation, plan.rng(STREAM))?;
    let mut recording = opened.ok_or_else(|| failed_without_cause("opening a new store"))?;
    recording.step(&put(0))?;
    for rule in rules(Kind::Sync, &mut plan.rng(STREAM)) {
        disk.add_rule(rule);
    }
    recording.step(&put(1))?;
    recording.step(&put(2))?;
    disk.heal();
    recording
        .kill_and_reopen()
        .must("opening after a failed sync")?;
    recording.step(&Step::Sync)?;
    recording.step(&put(3))?;
    let crashed = memory.crash_image(CrashOptions::nothing_unsynced());
    let opened = engine.open(&recording.opening().on(crashed));
    let store = opened.must("opening after a crash")?;
    let now = recording.trial().now;
    check_reopened(&*store, &recording.history, now, Kind::Sync).map_err(|violation| {
        violation.after("a failed sync, reopening, a good sync and a power cut")
    })
}

/// The store that met the fault shows all accepted entries, as far as it can be read.
fn check_open(recording: &Recording<'_>) -> Checked {
    let now = recording.trial().now;
    let forgive = |_: &str, error: &kvorum_backend::BackendError| match error.kind() {
        ErrorKind::Misuse => Err(unexpected("reading", error)),
        _ => Ok(()),
    };
    let observed = observe(recording.trial().store()?, now, Absent::Hidden, &forgive)?;
    recording
        .history
        .explain(&observed, Required::Accepted, now)
        .map(drop)
        .map_err(|story| Violation::of(10, format!("while still open, {story}")))
}

/// On a healthy disk all acknowledged entries are present. A bit that flipped during the opening
/// may have cost the damaged ones, if the store reports them.
fn check_reopened(
    store: &dyn Backend,
    history: &History,
    now: kvorum_backend::Timestamp,
    kind: Kind,
) -> Checked {
    let is_forgiven = matches!(kind, Kind::FlippedBit | Kind::ShortRead);
    let observed = observe(store, now, Absent::Hidden, &|call, error| {
        if is_forgiven && error.kind() == ErrorKind::Corrupt {
            Ok(())
        } else {
            Err(unexpected(call, error))
        }
    })?;
    if is_forgiven && !store.status().lost.is_empty() {
        let invented = observed
            .present
            .values()
            .find(|seen| !history.has_put(seen));
        return match invented {
            Some(seen) => Err(Violation::of(15, format!("{seen:?} was never put"))),
            None => Ok(()),
        };
    }
    let required = Required::Durable { up_to: Sequence(0) };
    history
        .explain(&observed, required, now)
        .map(drop)
        .map_err(|story| Violation::of(5, story))
}
