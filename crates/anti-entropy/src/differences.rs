//! Comparisons of replicas' answers.

use std::collections::{BTreeMap, BTreeSet};

use kvorum_encoding::StorageKey;
use kvorum_planted_defects::is_planted;
use kvorum_tictac::differing;

use crate::entry_summary::EntrySummary;

/// The places in which levels of trees differ, ascending.
pub(crate) fn differing_of_all<'a>(mut levels: impl Iterator<Item = &'a [u32]>) -> BTreeSet<u32> {
    let Some(first) = levels.next() else {
        return BTreeSet::new();
    };
    let places = levels.flat_map(|level| differing(first, level));
    places.filter_map(|it| u32::try_from(it).ok()).collect()
}

/// Versions of each key on each replica that takes part, in the order of the replicas.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyTable(BTreeMap<StorageKey, Vec<Option<EntrySummary>>>);

impl KeyTable {
    /// The keys of all replicas up to `to`. A key that has expired on one replica is left out: it
    /// counts as absent on all. `now` is the latest of the replicas' clocks.
    pub(crate) fn new(lists: &[Vec<EntrySummary>], to: Option<&StorageKey>, now: u64) -> Self {
        let mut table: BTreeMap<StorageKey, Vec<Option<EntrySummary>>> = BTreeMap::new();
        for (replica, list) in lists.iter().enumerate() {
            for seen in list.iter().filter(|it| to.is_none_or(|to| it.key <= *to)) {
                let row = table
                    .entry(seen.key.clone())
                    .or_insert_with(|| vec![None; lists.len()]);
                row[replica] = Some(seen.clone());
            }
        }
        let is_over = |seen: &EntrySummary| seen.expiry.is_some_and(|it| it <= now);
        if !is_planted!(ExpiredEntryRepaired) {
            table.retain(|_, row| !row.iter().flatten().any(is_over));
        }
        Self(table)
    }

    /// The rows of keys that replicas differ in.
    pub(crate) fn differing(self) -> Self {
        let differs =
            |row: &[Option<EntrySummary>]| row.windows(2).any(|it| !is_same(&it[0], &it[1]));
        let rows = self.0.into_iter();
        Self(rows.filter(|(_, row)| differs(row)).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// All versions of these keys that replicas listed.
    pub(crate) fn seen(&self) -> impl Iterator<Item = &EntrySummary> {
        self.0.values().flatten().flatten()
    }

    /// Splits the keys that differ now and differed a pause ago into settled differences and keys
    /// that are still being written.
    ///
    /// A difference is settled when one replica had the same version of the key at both times and
    /// another had other versions both times: a write that is under way for that long is late.
    pub(crate) fn settled_since(self, before: &Self) -> (Self, Self) {
        let rows = self.0.into_iter();
        let (settled, moving): (BTreeMap<_, _>, BTreeMap<_, _>) = rows.partition(|(key, now)| {
            is_planted!(InFlightTakenForDifference)
                || before.0.get(key).is_some_and(|then| is_settled(then, now))
        });
        (Self(settled), Self(moving))
    }

    pub(crate) fn into_keys(self) -> impl Iterator<Item = StorageKey> {
        self.0.into_keys()
    }
}

fn is_settled(then: &[Option<EntrySummary>], now: &[Option<EntrySummary>]) -> bool {
    let both = || then.iter().zip(now);
    let stayed = both().filter(|(then, now)| is_same(then, now));
    stayed
        .into_iter()
        .any(|(kept, _)| both().any(|(then, now)| !is_same(then, kept) && !is_same(now, kept)))
}

fn is_same(one: &Option<EntrySummary>, other: &Option<EntrySummary>) -> bool {
    let version = |seen: &Option<EntrySummary>| seen.as_ref().map(|it| it.version);
    version(one) == version(other)
}
