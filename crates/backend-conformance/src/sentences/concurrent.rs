//! Sentences about the view of several threads: whole batches, in order.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use bytes::Bytes;
use kvorum_backend::{
    Backend, Batch, Durability, Fields, Flow, FoldDetail, FoldFilter, FoldRange, Lease, Lookup,
    ReadAt, Sequence, StepBudget, Timestamp, Write,
};
use kvorum_disk::MemoryDisk;

use super::stage::Stage;
use crate::names::{KEYS, key, keys};
use crate::trial::backup::{make_backup, restore};
use crate::violation::{MustSucceed, ensure};
use crate::{Checked, Violation};

const BATCHES: u32 = 150;
/// Every backup is opened: enough of them to meet every kind of upkeep.
const BACKUPS_MAX: usize = 12;
pub(super) const NOW: Timestamp = Timestamp(1_000_000);

/// A writer puts every key in each batch; each reader sees one batch throughout, and never an
/// earlier one afterwards.
pub(super) fn readers_see_whole_batches(stage: &Stage<'_>) -> Checked {
    let trial = stage.open(&MemoryDisk::new())?;
    let store = trial.store()?;
    put_everywhere(store, 0)?;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let outcome = (1..BATCHES).try_for_each(|number| put_everywhere(store, number));
            is_over.store(true, Ordering::Release);
            outcome
        });
        let readers = [
            scope.spawn(|| repeat(&is_over, || fold_sees_one_batch(store))),
            scope.spawn(|| repeat(&is_over, || gets_go_forward(store))),
            scope.spawn(|| repeat(&is_over, || one_maintenance_step(store))),
        ];
        let mut outcomes = vec![writer.join()];
        outcomes.extend(readers.into_iter().map(thread::ScopedJoinHandle::join));
        for outcome in outcomes {
            outcome.unwrap_or_else(|_| Err(Violation::of(4, "a thread of readers panicked")))?;
        }
        Ok(())
    })
}

/// A writer puts every key in each batch while backups are made: each backup shows exactly one
/// batch, no older than the last one at its beginning, and no later than the last one at its end.
pub(super) fn backups_have_whole_batches(stage: &Stage<'_>) -> Checked {
    if !stage.engine.capabilities().backups {
        return Ok(());
    }
    let trial = stage.open(&MemoryDisk::new())?;
    let store = trial.store()?;
    put_everywhere(store, 0)?;
    let last_put = AtomicU32::new(0);
    let is_over = AtomicBool::new(false);
    let backups = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let outcome = (1..BATCHES).try_for_each(|number| {
                put_everywhere(store, number)?;
                last_put.store(number, Ordering::Release);
                Ok(())
            });
            is_over.store(true, Ordering::Release);
            outcome
        });
        let upkeep = scope.spawn(|| repeat(&is_over, || one_maintenance_step(store)));
        let made = scope.spawn(|| {
            let mut made = Vec::new();
            while !is_over.load(Ordering::Acquire) && made.len() < BACKUPS_MAX {
                let before = last_put.load(Ordering::Acquire);
                let directory = PathBuf::from(format!("backups/{}", made.len()));
                make_backup(store, &directory)?;
                // One more batch may be present before its acknowledgement.
                let after = last_put.load(Ordering::Acquire) + 1;
                made.push((directory, before..=after));
            }
            Ok(made)
        });
        for outcome in [writer.join(), upkeep.join()] {
            outcome.unwrap_or_else(|_| Err(Violation::of(19, "a thread of writers panicked")))?;
        }
        let made = made.join();
        made.unwrap_or_else(|_| Err(Violation::of(19, "the thread of backups panicked")))
    })?;
    for (directory, batches) in backups {
        let (_, copy) = restore(stage.engine, &trial.opening, &directory)?;
        fold_sees_one_batch(&*copy)?;
        let at = ReadAt::may_block(NOW);
        let Lookup::Found(entry) = copy.get(&key(0), at).must("get")? else {
            return Err(Violation::of(19, "a backup has lost a key"));
        };
        let number = entry.body.first_chunk().copied().map(u32::from_le_bytes);
        ensure(number.is_some_and(|it| batches.contains(&it)), 19, || {
            format!("a backup has batch {number:?}, and {batches:?} were put about then")
        })?;
    }
    Ok(())
}

pub(super) fn repeat(is_over: &AtomicBool, check: impl Fn() -> Checked) -> Checked {
    while !is_over.load(Ordering::Acquire) {
        check()?;
    }
    check()
}

fn put_everywhere(store: &dyn Backend, number: u32) -> Checked {
    let body = Bytes::from(number.to_le_bytes().repeat(40));
    let writes = keys().map(|key| {
        let fields = Fields {
            last_modified: NOW,
            ..Fields::default()
        };
        Write::put(key, fields, body.slice(..4), body.clone())
    });
    let batch = Batch {
        writes: writes.collect(),
    };
    store
        .put(&batch, Durability::Buffered)
        .must("put")
        .map(drop)
}

fn fold_sees_one_batch(store: &dyn Backend) -> Checked {
    let snapshot = store.snapshot(Lease::Unlimited).must("snapshot")?;
    let mut sequences = BTreeSet::new();
    let mut bodies = BTreeSet::new();
    let mut count = 0;
    let filter = FoldFilter::unexpired(NOW);
    snapshot
        .fold(
            FoldDetail::Entries,
            &FoldRange::all(),
            &filter,
            &mut |visited| {
                sequences.insert(visited.sequence);
                bodies.insert(visited.body);
                count += 1;
                Flow::Continue
            },
        )
        .must("fold")?;
    let is_one = sequences.len() == 1 && bodies.len() == 1 && count == KEYS;
    let violation = || {
        format!(
            "a snapshot at {:?} showed {count} keys of batches {sequences:?}",
            snapshot.sequence()
        )
    };
    ensure(is_one, 4, violation)?;
    ensure(
        sequences.first() == Some(&snapshot.sequence()),
        14,
        violation,
    )
}

/// Gets of different keys, in any order, never return to an earlier batch.
fn gets_go_forward(store: &dyn Backend) -> Checked {
    let mut last = Sequence(0);
    for number in (0..KEYS).chain((0..KEYS).rev()) {
        let at = ReadAt::may_block(NOW);
        let Lookup::Found(entry) = store.get(&key(number), at).must("get")? else {
            return Err(Violation::of(10, format!("key {number} is gone")));
        };
        ensure(entry.sequence >= last, 4, || {
            format!(
                "after a key of {last:?} another was of {:?}",
                entry.sequence
            )
        })?;
        last = entry.sequence;
    }
    Ok(())
}

pub(super) fn one_maintenance_step(store: &dyn Backend) -> Checked {
    thread::yield_now();
    if let Some(task) = store.maintenance_due(NOW).first() {
        let budget = StepBudget { bytes: 2_000 };
        store
            .maintenance_step(task, budget, NOW)
            .must("a maintenance step")?;
    }
    Ok(())
}
