//! The model: an ordered map that is obviously correct, and too slow for other uses.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use kvorum_backend::{
    Batch, Fields, FoldDetail, FoldFilter, FoldRange, IndexEntry, IndexRange, Sequence,
    StoredEntry, Timestamp, Visited, Write,
};
use kvorum_encoding::StorageKey;

/// The contents of a store after some batches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) entries: BTreeMap<StorageKey, Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// `None` when the put failed, so that its sequence is unknown.
    pub(crate) sequence: Option<Sequence>,
    pub(crate) fields: Fields,
    pub(crate) head: Bytes,
    pub(crate) body: Bytes,
    pub(crate) index_entries: BTreeSet<IndexEntry>,
}

/// The part of an entry that a fold shows, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) key: StorageKey,
    pub(crate) sequence: Sequence,
    pub(crate) fields: Fields,
    pub(crate) head: Bytes,
    pub(crate) body: Bytes,
}

impl Seen {
    /// The entry that a get of this key returned.
    pub(crate) fn of(key: StorageKey, entry: StoredEntry) -> Self {
        Self {
            key,
            sequence: entry.sequence,
            fields: entry.fields,
            head: entry.head,
            body: entry.body,
        }
    }

    /// An entry that a fold showed.
    pub(crate) fn visited(visited: Visited<'_>) -> Self {
        Self {
            key: visited.key.clone(),
            sequence: visited.sequence,
            fields: visited.fields,
            head: visited.head,
            body: visited.body,
        }
    }
}

impl State {
    pub(crate) fn apply(&mut self, batch: &Batch, sequence: Option<Sequence>) {
        for write in &batch.writes {
            self.entries.remove(write.key());
            let Write::Put {
                key,
                fields,
                head,
                body,
                index_entries,
                ..
            } = write
            else {
                continue;
            };
            let entry = Entry {
                sequence,
                fields: *fields,
                head: head.clone(),
                body: body.clone(),
                index_entries: index_entries.iter().cloned().collect(),
            };
            self.entries.insert(key.clone(), entry);
        }
    }

    /// The entry of a key unless it is expired.
    pub(crate) fn get(&self, key: &StorageKey, now: Timestamp) -> Option<&Entry> {
        self.entries
            .get(key)
            .filter(|entry| !entry.fields.is_expired(now))
    }

    /// The entries that a fold visits.
    pub(crate) fn fold(
        &self,
        detail: FoldDetail,
        range: &FoldRange,
        filter: &FoldFilter,
    ) -> Vec<Seen> {
        self.entries
            .iter()
            .filter(|(key, entry)| range.contains(key.as_bytes()) && filter.admits(&entry.fields))
            .map(|(key, entry)| entry.seen(key, detail))
            .collect()
    }

    /// The terms and keys that an index fold visits.
    pub(crate) fn fold_index(
        &self,
        range: &IndexRange,
        now: Timestamp,
    ) -> Vec<(Bytes, StorageKey)> {
        let terms = FoldRange {
            from: range.from.clone(),
            to: range.to.clone(),
        };
        let mut found = BTreeSet::new();
        for (key, entry) in &self.entries {
            if entry.fields.is_expired(now) || !key.as_bytes().starts_with(&range.bucket_prefix) {
                continue;
            }
            for index_entry in &entry.index_entries {
                if index_entry.field == range.field && terms.contains(&index_entry.term) {
                    found.insert((index_entry.term.clone(), key.clone()));
                }
            }
        }
        found
            .into_iter()
            .filter(|position| range.after.as_ref().is_none_or(|after| position > after))
            .collect()
    }
}

impl Entry {
    fn seen(&self, key: &StorageKey, detail: FoldDetail) -> Seen {
        let if_at_least = |least: FoldDetail, bytes: &Bytes| {
            if detail >= least {
                bytes.clone()
            } else {
                Bytes::new()
            }
        };
        Seen {
            key: key.clone(),
            sequence: self.sequence.unwrap_or_default(),
            fields: self.fields,
            head: if_at_least(FoldDetail::Heads, &self.head),
            body: if_at_least(FoldDetail::Entries, &self.body),
        }
    }
}
