//! Puts, removals, reads, folds and upkeep at once: all of them see finished writes.
//!
//! Each key has one writer, which counts its rounds before and after each write. So a reader has
//! two rounds: the last one finished before its read, and the last one begun by its end. It must
//! see a round between the two: a number, or nothing if one of them removes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use bytes::Bytes;
use kvorum_backend::{
    Backend, Batch, Durability, Fields, Flow, FoldDetail, FoldFilter, FoldRange, Lease, Lookup,
    ReadAt, Write,
};
use kvorum_disk::MemoryDisk;

use super::concurrent::{NOW, one_maintenance_step, repeat};
use super::stage::Stage;
use crate::names::{KEYS, key};
use crate::violation::{MustSucceed, ensure};
use crate::{Checked, Violation};

const WRITERS: usize = 2;
const ROUNDS: u32 = 90;
/// One round in this many removes.
const REMOVES_EVERY: usize = 3;

/// The progress of a key's writer.
#[derive(Default)]
struct Witness {
    begun: AtomicU32,
    finished: AtomicU32,
}

type Witnesses = [Witness; KEYS];

/// The contents of a snapshot: rounds by the numbers of their keys.
type Shown = BTreeMap<usize, u32>;

pub(super) fn all_see_what_was_finished(stage: &Stage<'_>) -> Checked {
    let trial = stage.open(&MemoryDisk::new())?;
    let store = trial.store()?;
    let witnesses = Witnesses::default();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let witnesses = &witnesses;
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| scope.spawn(move || write_some(store, witnesses, writer)))
            .collect();
        let others = [
            scope.spawn(|| repeat(&is_over, || gets_see_it(store, witnesses))),
            scope.spawn(|| repeat(&is_over, || folds_see_it(store, witnesses))),
            scope.spawn(|| repeat(&is_over, || one_maintenance_step(store))),
        ];
        let mut outcomes: Vec<_> = writers
            .into_iter()
            .map(thread::ScopedJoinHandle::join)
            .collect();
        is_over.store(true, Ordering::Release);
        outcomes.extend(others.into_iter().map(thread::ScopedJoinHandle::join));
        for outcome in outcomes {
            outcome.unwrap_or_else(|_| Err(Violation::of(10, "a thread of the race panicked")))?;
        }
        Checked::Ok(())
    })?;
    gets_see_it(store, &witnesses)?;
    if stage.engine.capabilities().persistent {
        store.close().must("close")?;
        let opening = trial.opening.clone();
        drop(trial);
        let reopened = stage.engine.open(&opening).must("open")?;
        gets_see_it(&*reopened, &witnesses)?;
    }
    Ok(())
}

/// Before the first round there is no value, as after a removal.
fn removes(number: usize, round: u32) -> bool {
    let turn = usize::try_from(round).unwrap_or(usize::MAX) + number;
    round == 0 || turn.is_multiple_of(REMOVES_EVERY)
}

fn write_some(store: &dyn Backend, witnesses: &Witnesses, writer: usize) -> Checked {
    for round in 1..=ROUNDS {
        for number in (writer..KEYS).step_by(WRITERS) {
            let batch = Batch::of(write_of(number, round));
            let witness = &witnesses[number];
            witness.begun.store(round, Ordering::Release);
            let _receipt = store.put(&batch, Durability::Buffered).must("put")?;
            witness.finished.store(round, Ordering::Release);
        }
        // So upkeep does not depend on the turns of its own thread.
        one_maintenance_step(store)?;
    }
    Ok(())
}

fn write_of(number: usize, round: u32) -> Write {
    if removes(number, round) {
        return Write::remove(key(number));
    }
    let body = Bytes::from(round.to_le_bytes().repeat(40));
    let fields = Fields {
        last_modified: NOW,
        ..Fields::default()
    };
    Write::put(key(number), fields, body.slice(..4), body)
}

fn gets_see_it(store: &dyn Backend, witnesses: &Witnesses) -> Checked {
    for (number, witness) in witnesses.iter().enumerate() {
        let at = ReadAt::may_block(NOW);
        let finished = witness.finished.load(Ordering::Acquire);
        let seen = match store.get(&key(number), at).must("get")? {
            Lookup::Found(entry) => Some(round_of(&entry.body)?),
            _ => None,
        };
        let begun = witness.begun.load(Ordering::Acquire);
        check(10, number, seen, (finished, begun))?;
    }
    Ok(())
}

/// A snapshot has each key's entry at its moment, and shows the same again later.
fn folds_see_it(store: &dyn Backend, witnesses: &Witnesses) -> Checked {
    let rounds = |of: fn(&Witness) -> &AtomicU32| {
        let loaded = |witness| of(witness).load(Ordering::Acquire);
        witnesses.iter().map(loaded).collect::<Vec<u32>>()
    };
    let finished = rounds(|it| &it.finished);
    let snapshot = store.snapshot(Lease::Unlimited).must("snapshot")?;
    let begun = rounds(|it| &it.begun);
    let fold = || -> Checked<Shown> {
        let (mut shown, mut strange) = (Shown::new(), None);
        let filter = FoldFilter::unexpired(NOW);
        let visitor = &mut |visited: kvorum_backend::Visited<'_>| {
            let number = (0..KEYS).find(|number| key(*number) == *visited.key);
            match (number, round_of(&visited.body)) {
                (Some(number), Ok(round)) => drop(shown.insert(number, round)),
                (_, Err(violation)) => strange = Some(violation),
                (None, _) => strange = Some(Violation::of(8, "a fold shows a key without a put")),
            }
            Flow::Continue
        };
        snapshot
            .fold(FoldDetail::Entries, &FoldRange::all(), &filter, visitor)
            .must("fold")?;
        strange.map_or(Ok(shown), Err)
    };
    let shown = fold()?;
    for number in 0..KEYS {
        let seen = shown.get(&number).copied();
        check(14, number, seen, (finished[number], begun[number]))?;
    }
    thread::yield_now();
    let again = fold()?;
    ensure(again == shown, 14, || {
        format!("a snapshot shows {shown:?} and then {again:?}")
    })
}

fn round_of(body: &Bytes) -> Checked<u32> {
    let round = body.first_chunk().copied().map(u32::from_le_bytes);
    let is_whole = |round: &u32| round.to_le_bytes().repeat(40) == body[..];
    let violation = || Violation::of(8, format!("a body of {} bytes has no put", body.len()));
    round.filter(is_whole).ok_or_else(violation)
}

fn check(sentence: u8, number: usize, seen: Option<u32>, rounds: (u32, u32)) -> Checked {
    let mut between = rounds.0..=rounds.1;
    let may_be = match seen {
        Some(round) => between.contains(&round) && !removes(number, round),
        None => between.any(|round| removes(number, round)),
    };
    ensure(may_be, sentence, || {
        format!(
            "key {number} is of round {seen:?}, when round {} was finished and no later one than {} begun",
            rounds.0, rounds.1
        )
    })
}
