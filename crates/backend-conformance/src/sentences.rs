//! Group Sentences: each sentence of the contract that can be tested deterministically, by itself.
//!
//! Sentences 9 and 16 need failing disks, and 15 damaged files: the groups Faults and Damage test them.

mod concurrent;
mod durability;
mod journal_order;
mod lease_end;
mod racing;
mod stage;

use std::path::Path;
use std::sync::Arc;

use kvorum_backend::{
    Durability, FoldDetail, IndexCounts, Lookup, ReadAt, Reading, StepBudget, Task, TaskKind,
    Timestamp, Urgency,
};
use kvorum_disk::{Disk, EntryKind, FaultyDisk, MemoryDisk};

use self::stage::{Stage, fold_everything, put, put_durably, put_expiring, put_large, remove};
use crate::names::{KEYS, key};
use crate::script::{PlannedBound, PlannedFold, PlannedWrite, Step};
use crate::trial::Trial;
use crate::violation::{MustSucceed, ensure};
use crate::{Checked, EngineUnderTest, Plan, Violation};

type Sentence = (&'static str, fn(&Stage<'_>) -> Checked);

const SENTENCES: [Sentence; 24] = [
    ("sequences ascend and the last write wins", order),
    ("a value of any size comes back", sizes),
    ("folds visit each key once, in order, in bounds", folds),
    (
        "a batch survives whole or not at all",
        durability::whole_batches,
    ),
    (
        "no reader sees part of a batch",
        concurrent::readers_see_whole_batches,
    ),
    (
        "beside removals and upkeep all see what was finished",
        racing::all_see_what_was_finished,
    ),
    (
        "an awaited grouped put survives",
        durability::awaited_puts_survive,
    ),
    (
        "what sync returned survives",
        durability::synced_puts_survive,
    ),
    (
        "durable is honest after opening",
        durability::durable_is_honest,
    ),
    ("no removed key returns", durability::removed_keys_stay_away),
    ("a cached read touches nothing else", cached_reads),
    ("heads agree with gets", heads_agree),
    ("expiry is inclusive and holds everywhere", expiry),
    (
        "an expired entry's index entries do not return",
        expired_index_entries,
    ),
    ("what is done to indexes is counted", index_counts),
    ("a snapshot sees what was, and nothing later", snapshots),
    ("an expired lease ends folds", leases),
    (
        "a lease that ends meanwhile ends a fold",
        lease_end::ends_meanwhile,
    ),
    ("steps change no answers", steps),
    ("a task that is not needed costs nothing", needless_tasks),
    ("erasing empties the store and frees its space", erasing),
    ("a backup is the store as it was, for ever", backups),
    (
        "a backup made meanwhile has whole batches, the first ones",
        concurrent::backups_have_whole_batches,
    ),
    (
        "a fold in the order of the journal visits what a fold visits",
        journal_order::shows_what_a_fold_shows,
    ),
];

pub(crate) fn check(engine: &dyn EngineUnderTest, plan: &Plan) -> Checked {
    for variation in 0..engine.variations().max(1) {
        for (name, sentence) in SENTENCES {
            let stage = Stage {
                engine,
                plan,
                variation,
            };
            sentence(&stage).map_err(|violation| {
                violation.after(format!("\"{name}\", variation {variation}"))
            })?;
        }
    }
    Ok(())
}

fn order(stage: &Stage<'_>) -> Checked {
    let twice = Step::put_buffered(vec![
        PlannedWrite::put(1, 20),
        PlannedWrite::remove(2),
        PlannedWrite::put(1, 30),
        PlannedWrite::put(2, 40),
        PlannedWrite::put(3, 10),
        PlannedWrite::remove(3),
    ]);
    let empty = Step::put_buffered(Vec::new());
    let steps = vec![
        put(1),
        put(1),
        empty,
        twice.clone(),
        Step::Reopen,
        put(1),
        twice,
    ];
    stage.play(&steps).map(drop)
}

/// Values around the sizes at which engines read, cut or store them differently; each is the last
/// one of its store for a while, so that nothing follows it.
fn sizes(stage: &Stage<'_>) -> Checked {
    const MEBIBYTE: usize = 1 << 20;
    let mut steps = Vec::new();
    for (key, size) in [0, 1, 4_095, 70_000, MEBIBYTE, MEBIBYTE + 1, 5_000_000]
        .into_iter()
        .enumerate()
    {
        steps.push(Step::put_buffered(vec![PlannedWrite::put(key, size)]));
        steps.push(Step::ReadAll);
    }
    steps.extend([Step::Reopen, Step::MaintainAll, fold_everything(None)]);
    stage.play(&steps).map(drop)
}

fn folds(stage: &Stage<'_>) -> Checked {
    let mut steps: Vec<Step> = (0..KEYS).rev().map(put).collect();
    steps.extend([remove(3), put(5)]);
    for detail in [FoldDetail::Keys, FoldDetail::Heads, FoldDetail::Entries] {
        for (from, to) in [
            (PlannedBound::Open, PlannedBound::Open),
            (PlannedBound::At(2), PlannedBound::Beside(9)),
            (PlannedBound::Beside(2), PlannedBound::At(9)),
            (PlannedBound::At(9), PlannedBound::At(2)),
        ] {
            let fold = PlannedFold {
                from,
                to,
                chunk: 1,
                ..PlannedFold::all(detail)
            };
            steps.push(Step::Fold {
                slot: None,
                fold: fold.clone(),
            });
            steps.push(Step::FoldBuckets { fold });
        }
        for bucket in 0..4 {
            let fold = PlannedFold {
                bucket: Some(bucket),
                chunk: 2,
                ..PlannedFold::all(detail)
            };
            steps.push(Step::Fold { slot: None, fold });
        }
    }
    stage.play(&steps).map(drop)
}

fn cached_reads(stage: &Stage<'_>) -> Checked {
    let disk = FaultyDisk::over_memory(&MemoryDisk::new());
    let rng = stage.plan.rng(0);
    let mut trial = Trial::open(stage.engine, Arc::new(disk.clone()), stage.variation, rng)?;
    let mut steps: Vec<Step> = (0..KEYS).map(put_large).collect();
    steps.extend([put_expiring(1, 0, &[]), Step::Sync, Step::Reopen]);
    trial.play(&steps)?;
    disk.clear_log();
    for key in crate::names::keys() {
        let store = trial.store()?;
        store.get(&key, trial.at(Reading::CachedOnly)).must("get")?;
        store
            .head(&key, trial.at(Reading::CachedOnly))
            .must("head")?;
    }
    let log = disk.log();
    let waits = log.iter().filter(|it| !it.is_cached_read).count();
    ensure(waits == 0, 11, || {
        format!("cached reads did {waits} operations that may wait")
    })
}

fn heads_agree(stage: &Stage<'_>) -> Checked {
    let sizes = [0, 1, 511, 4_000];
    let steps: Vec<Step> = sizes
        .into_iter()
        .enumerate()
        .map(|(number, size)| Step::put_buffered(vec![PlannedWrite::put(number, size)]))
        .chain([Step::Reopen, Step::MaintainAll])
        .collect();
    stage.play(&steps).map(drop)
}

fn expiry(stage: &Stage<'_>) -> Checked {
    let steps = vec![
        put_expiring(1, 0, &[1]),
        put_expiring(2, 10, &[1]),
        put_expiring(6, 11, &[1]),
        Step::ReadAll,
        Step::Advance { micros: 10 },
        Step::ReadAll,
        Step::FoldBuckets {
            fold: PlannedFold::all(FoldDetail::Keys),
        },
        Step::FoldIndex {
            bucket: 2,
            field: 1,
            from: None,
            to: None,
            chunk: 9,
        },
        Step::Reopen,
        Step::Advance { micros: 1 },
        Step::ReadAll,
        Step::MaintainAll,
        Step::Reopen,
        // A put over an expired entry, and a put that removes an expiry.
        put(1),
        put_expiring(2, 5, &[]),
        put(2),
        Step::Advance { micros: 50 },
        Step::MaintainAll,
    ];
    let trial = stage.play(&steps)?;
    // An entry with an expiry before the epoch of all tests was expired from the start.
    let at = ReadAt::may_block(Timestamp(u64::MAX));
    let found = trial.store()?.get(&key(1), at).must("get")?;
    match (found, trial.capabilities().persistent) {
        (Lookup::Found(_), _) => Ok(()),
        (found, _) => Err(Violation::of(
            13,
            format!("an entry without expiry is {found:?} at the end of time"),
        )),
    }
}

fn expired_index_entries(stage: &Stage<'_>) -> Checked {
    let fold = |field| Step::FoldIndex {
        bucket: 1,
        field,
        from: None,
        to: None,
        chunk: 1,
    };
    let mut steps = Vec::new();
    for upkeep in [Step::ReadAll, Step::MaintainAll] {
        steps.extend([
            put_expiring(1, 10, &[0, 1, 2]),
            Step::Advance { micros: 10 },
            upkeep,
            fold(0),
            fold(1),
            put_expiring(1, 100, &[2, 3]),
            fold(0),
            fold(1),
            remove(1),
            fold(0),
        ]);
    }
    stage.play(&steps).map(drop)
}

/// Batches with index entries and without, overwritten, removed, removed again.
fn index_counts(stage: &Stage<'_>) -> Checked {
    let steps = vec![
        put(1),
        put_expiring(2, 100, &[0, 1, 2]),
        put_expiring(2, 200, &[1, 2, 3]),
        put_expiring(3, 100, &[5]),
        remove(3),
        remove(3),
        put(2),
    ];
    let trial = stage.play(&steps)?;
    let Some(indexes) = trial.store()?.indexes() else {
        return Ok(());
    };
    let expected = IndexCounts {
        writes: 5,
        postings_written: 5,
        deletes: 2,
        postings_deleted: 5,
    };
    let got = indexes.counts();
    ensure(got == expected, 20, || {
        format!("index work is counted as {got:?}, expected {expected:?}")
    })
}

fn snapshots(stage: &Stage<'_>) -> Checked {
    let take = |slot| Step::TakeSnapshot {
        slot,
        lease_micros: None,
    };
    let mut steps = vec![take(2), put_large(1), put_large(2), put(3), take(0)];
    steps.extend([put(1), remove(2), put(4), fold_everything(Some(0))]);
    steps.extend([take(1), put(2), remove(1)]);
    steps.extend((5..KEYS).map(put_large));
    steps.extend([Step::MaintainAll, Step::Sync, Step::MaintainAll]);
    steps.extend((0..3).map(|slot| fold_everything(Some(slot))));
    steps.push(Step::Fold {
        slot: Some(0),
        fold: PlannedFold {
            chunk: 1,
            ..PlannedFold::all(FoldDetail::Heads)
        },
    });
    steps.extend([Step::DropSnapshot { slot: 0 }, Step::MaintainAll]);
    steps.extend([fold_everything(Some(1)), Step::DropSnapshot { slot: 1 }]);
    steps.extend([put(1), Step::MaintainAll, fold_everything(Some(2))]);
    stage.play(&steps).map(drop)
}

fn leases(stage: &Stage<'_>) -> Checked {
    let mut steps: Vec<Step> = (0..KEYS).map(put).collect();
    steps.push(Step::TakeSnapshot {
        slot: 0,
        lease_micros: Some(10),
    });
    steps.extend((0..6).map(remove));
    steps.extend([Step::Advance { micros: 9 }, fold_everything(Some(0))]);
    steps.extend([Step::Advance { micros: 1 }, fold_everything(Some(0))]);
    steps.extend([Step::MaintainAll, fold_everything(Some(0))]);
    stage.play(&steps).map(drop)
}

fn steps(stage: &Stage<'_>) -> Checked {
    let mut steps = Vec::new();
    for budget_bytes in [1, 500, 5_000] {
        steps.extend((0..KEYS).map(put_large));
        steps.extend((0..KEYS).step_by(2).map(remove));
        steps.push(put_expiring(3, 1, &[1]));
        steps.push(Step::Advance { micros: 2 });
        for pick in 0..20 {
            steps.push(Step::Maintain { pick, budget_bytes });
            steps.push(if pick % 3 == 0 {
                put(pick)
            } else {
                Step::ReadAll
            });
        }
    }
    steps.extend([Step::DropAndReopen, Step::MaintainAll, Step::Reopen]);
    stage.play(&steps).map(drop)
}

fn needless_tasks(stage: &Stage<'_>) -> Checked {
    let trial = stage.play(&[put(1), Step::MaintainAll])?;
    let kinds = [
        TaskKind::Merge,
        TaskKind::Collect,
        TaskKind::Compact,
        TaskKind::Flush,
        TaskKind::Hint,
        TaskKind::Expire,
        TaskKind::Reclaim,
        TaskKind::Rebuild,
        TaskKind::Reindex,
    ];
    for kind in kinds {
        let task = Task {
            kind,
            subject: u64::MAX,
            urgency: Urgency::Normal,
            cost_bytes: 1_000,
        };
        let budget = StepBudget { bytes: 1_000 };
        let outcome = trial
            .store()?
            .maintenance_step(&task, budget, trial.now)
            .must("a step of a task that is not needed")?;
        if !outcome.is_done || outcome.cost_bytes > 0 {
            return Err(Violation::of_method(format!(
                "{task:?} ended with {outcome:?}"
            )));
        }
    }
    trial.check_all()
}

fn erasing(stage: &Stage<'_>) -> Checked {
    let disk = MemoryDisk::new();
    let mut trial = stage.open(&disk)?;
    let fresh = bytes_below(&disk, Path::new(""))?;
    let mut steps: Vec<Step> = (0..10 * KEYS).map(put_large).collect();
    steps.push(Step::Sync);
    trial.play(&steps)?;
    let filled = bytes_below(&disk, Path::new(""))?;
    trial.play(&[Step::Erase])?;
    let after = bytes_below(&disk, Path::new(""))?;
    ensure(after <= fresh.max(filled / 4), 18, || {
        format!("erasing left {after} of {filled} bytes; a new store takes {fresh}")
    })?;
    let usable = [
        put(1),
        put(2),
        Step::Erase,
        put(2),
        Step::Reopen,
        put(3),
        Step::Reopen,
    ];
    trial.play(&usable)?;
    let erased = [put_durably(1), Step::Sync, Step::Erase, put_durably(2)];
    stage.play_and_crash(&erased, |trial, store| {
        durability::expect_all(18, trial, store)?;
        let at = trial.at(Reading::MayBlock);
        let durable = store.durable();
        let put = trial.store()?.get(&key(2), at).must("get")?;
        let promised = matches!(put, Lookup::Found(it) if it.sequence <= durable);
        ensure(promised, 7, || {
            format!("durable() is {durable:?} after erasing")
        })
    })?;
    let receipt = trial.store()?.put(&trial_batch(), Durability::Buffered);
    receipt.must("a put after erasing").map(drop)
}

fn backups(stage: &Stage<'_>) -> Checked {
    let mut steps = vec![
        Step::Backup,
        put_expiring(3, 50, &[1]),
        put(1),
        put_durably(2),
    ];
    steps.extend([Step::Backup, Step::Backup, remove(1), Step::Backup]);
    for _ in 0..2 {
        steps.extend((0..KEYS).map(put_large));
        steps.extend([Step::Backup, Step::MaintainAll, Step::Backup]);
        steps.extend((0..KEYS).step_by(2).map(remove));
        steps.extend([Step::MaintainAll, Step::Backup, Step::Reopen, Step::Backup]);
    }
    steps.extend([put(1), Step::Backup, Step::Erase, put(2), Step::Backup]);
    steps.extend([Step::DropAndReopen, put(3), Step::MaintainAll]);
    stage.play(&steps).map(drop)
}

fn trial_batch() -> kvorum_backend::Batch {
    kvorum_backend::Batch::of(kvorum_backend::Write::remove(key(0)))
}

/// The bytes in all files below a directory.
fn bytes_below(disk: &MemoryDisk, directory: &Path) -> Checked<u64> {
    let failed = |error| Violation::of_method(format!("listing the disk failed: {error}"));
    let mut bytes = 0;
    for entry in disk.list(directory).map_err(failed)? {
        let path = directory.join(&entry.name);
        bytes += match entry.kind {
            EntryKind::Directory => bytes_below(disk, &path)?,
            EntryKind::File => disk.info(&path).map_err(failed)?.map_or(0, |info| info.len),
        };
    }
    Ok(bytes)
}
