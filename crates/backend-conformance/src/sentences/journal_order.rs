//! Folds in the order of a journal show the same entries as folds in the order of keys.

use bytes::Bytes;
use kvorum_backend::{
    Flow, FoldDetail, FoldFilter, FoldRange, JournalFoldEnd, JournalFolds, Lease, Visited,
};

use super::stage::{Stage, put, put_durably, put_expiring, put_large, remove};
use crate::names::KEYS;
use crate::script::Step;
use crate::trial::Trial;
use crate::violation::{MustSucceed, ensure};
use crate::{Checked, Violation};

/// Key, sequence, head and body.
type Shown = (Bytes, u64, Bytes, Bytes);

pub(super) fn shows_what_a_fold_shows(stage: &Stage<'_>) -> Checked {
    let mut first: Vec<Step> = (0..KEYS).map(put).collect();
    first.extend((0..KEYS).step_by(2).map(put_large));
    first.extend([put_expiring(1, 5, &[1]), put_durably(2), remove(3)]);
    let mut trial = stage.play(&first)?;
    compare(&trial)?;
    for _ in 0..2 {
        trial.play(&[Step::MaintainAll])?;
        compare(&trial)?;
        let over: Vec<Step> = (0..KEYS).step_by(3).map(put_large).collect();
        trial.play(&over)?;
        trial.play(&[remove(4), Step::Advance { micros: 6 }])?;
        compare(&trial)?;
        trial.play(&[Step::Reopen])?;
        compare(&trial)?;
    }
    Ok(())
}

fn compare(trial: &Trial<'_>) -> Checked {
    let store = trial.store()?;
    let Some(folds) = store.journal_folds() else {
        return Ok(());
    };
    let filter = FoldFilter::unexpired(trial.now);
    let mut expected = Vec::new();
    let visit = &mut |it: Visited<'_>| {
        expected.push(shown(&it));
        Flow::Continue
    };
    let snapshot = store.snapshot(Lease::Unlimited).must("snapshot")?;
    let all = FoldRange::all();
    let folded = snapshot.fold(FoldDetail::Entries, &all, &filter, visit);
    folded.must("fold")?;
    let mut got = in_journal_order(folds, &all, &filter)?;
    got.sort();
    ensure(got == expected, 21, || {
        format!("the journal has {got:?}, and a fold shows {expected:?}")
    })?;
    let middle = expected.get(expected.len() / 2).map(|it| it.0.clone());
    let Some(middle) = middle else {
        return Ok(());
    };
    let upper = FoldRange {
        from: std::ops::Bound::Included(middle.clone()),
        ..FoldRange::all()
    };
    expected.retain(|it| it.0 >= middle);
    let mut got = in_journal_order(folds, &upper, &filter)?;
    got.sort();
    ensure(got == expected, 21, || {
        format!("of a range, the journal has {got:?} and not {expected:?}")
    })
}

fn in_journal_order(
    folds: &dyn JournalFolds,
    range: &FoldRange,
    filter: &FoldFilter,
) -> Checked<Vec<Shown>> {
    let mut got = Vec::new();
    let visit = &mut |it: Visited<'_>| {
        got.push(shown(&it));
        Flow::Continue
    };
    let folded = folds.fold_in_journal_order(range, Lease::Unlimited, filter, visit);
    let folded = folded.must("a fold in the order of the journal")?;
    match (folded.end, folded.has_met_damage) {
        (JournalFoldEnd::Complete, false) => Ok(got),
        _ => Err(Violation::of(21, format!("it ended with {folded:?}"))),
    }
}

fn shown(visited: &Visited<'_>) -> Shown {
    let (key, sequence) = (visited.key.to_bytes(), visited.sequence.0);
    (key, sequence, visited.head.clone(), visited.body.clone())
}
