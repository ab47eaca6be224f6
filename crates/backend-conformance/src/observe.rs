//! Reads everything that a store shows, and checks that its calls agree.

use kvorum_backend::{
    Backend, BackendError, Flow, FoldDetail, FoldEnd, FoldFilter, FoldRange, Lease, Lookup, ReadAt,
    Timestamp,
};

use crate::history::{IndexFold, Observation, index_ranges};
use crate::model::Seen;
use crate::{Checked, Violation, names};

/// The treatment of a failed read.
pub(crate) type OnError<'a> = &'a dyn Fn(&str, &BackendError) -> Checked;

/// A fold's entry for a key that is absent for gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absent {
    /// Nothing.
    Hidden,
    /// None, or an older entry: its durable successor is lost without a trace, or keys look alike,
    /// and an unreadable removal may belong to another key.
    MayShow,
}

/// Reads every key, folds, and folds the indexes. `on_error` decides whether a failed read is
/// accepted; its key is left out.
pub(crate) fn observe(
    store: &dyn Backend,
    now: Timestamp,
    absent: Absent,
    on_error: OnError<'_>,
) -> Checked<Observation> {
    let mut observation = Observation::default();
    let at = ReadAt::may_block(now);
    for key in names::keys() {
        match store.get(&key, at) {
            Err(error) => on_error("get", &error)?,
            Ok(Lookup::WouldBlock) => {
                return Err(Violation::of(
                    11,
                    "a read that may block returned WouldBlock",
                ));
            }
            Ok(Lookup::Absent) => observation.absent.push(key),
            Ok(Lookup::Found(entry)) => {
                let seen = Seen::of(key.clone(), entry);
                check_head(store, &seen, at, on_error)?;
                observation.present.insert(key, seen);
            }
        }
    }
    check_fold(store, &observation, now, absent, on_error)?;
    observation.index = fold_indexes(store, now, on_error)?;
    Ok(observation)
}

fn check_head(store: &dyn Backend, seen: &Seen, at: ReadAt, on_error: OnError<'_>) -> Checked {
    match store.head(&seen.key, at) {
        Err(error) => on_error("head", &error),
        Ok(Lookup::Found(head))
            if (head.sequence, head.fields, &head.head, head.body_len)
                == (
                    seen.sequence,
                    seen.fields,
                    &seen.head,
                    seen.body.len() as u64,
                ) =>
        {
            Ok(())
        }
        Ok(head) => Err(Violation::of(
            12,
            format!("head is {head:?} where get is {seen:?}"),
        )),
    }
}

/// A fold shows the same as gets; keys that could not be read may be in it or not.
fn check_fold(
    store: &dyn Backend,
    observation: &Observation,
    now: Timestamp,
    absent: Absent,
    on_error: OnError<'_>,
) -> Checked {
    let filter = FoldFilter::unexpired(now);
    let mut folded: Vec<Seen> = Vec::new();
    let outcome = store.snapshot(Lease::Unlimited).and_then(|snapshot| {
        snapshot.fold(
            FoldDetail::Entries,
            &FoldRange::all(),
            &filter,
            &mut |visited| {
                folded.push(Seen::visited(visited));
                Flow::Continue
            },
        )
    });
    match outcome {
        Err(error) => return on_error("fold", &error),
        Ok(FoldEnd::Complete) => {}
        Ok(end) => return Err(Violation::of(14, format!("a fold ended with {end:?}"))),
    }
    if !folded.is_sorted_by(|a, b| a.key < b.key) {
        return Err(Violation::of(2, "a fold is out of order"));
    }
    folded.retain(|seen| {
        let is_absent = || observation.absent.contains(&seen.key);
        observation.present.contains_key(&seen.key) || (absent == Absent::Hidden && is_absent())
    });
    if folded.iter().eq(observation.present.values()) {
        return Ok(());
    }
    let shown: Vec<_> = folded
        .iter()
        .map(|seen| (&seen.key, seen.sequence))
        .collect();
    let got = observation.present.values();
    let got: Vec<_> = got.map(|seen| (&seen.key, seen.sequence)).collect();
    Err(Violation::of(
        14,
        format!("a fold shows {shown:?} and gets show {got:?}"),
    ))
}

fn fold_indexes(
    store: &dyn Backend,
    now: Timestamp,
    on_error: OnError<'_>,
) -> Checked<Option<Vec<Option<IndexFold>>>> {
    let Some(indexes) = store.indexes() else {
        return Ok(None);
    };
    let mut folded = Vec::new();
    for range in index_ranges() {
        let mut seen = Vec::new();
        let outcome = indexes.fold_index(&range, Lease::Unlimited, now, &mut |term, key| {
            seen.push((term.clone(), key.clone()));
            Flow::Continue
        });
        if let Err(error) = &outcome {
            on_error("fold_index", error)?;
        }
        folded.push(outcome.is_ok().then_some(seen));
    }
    Ok(Some(folded))
}
