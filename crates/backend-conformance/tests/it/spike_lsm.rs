//! An LSM tree in a few hundred lines: a memtable with a write-ahead log, immutable sorted tables,
//! and one kind of job that flushes and merges in steps.
//!
//! Naive on purpose: keys and fields of all tables stay in memory, and a merge reads all tables. It
//! shares with a real LSM tree the properties that matter to the trait: several layers under one
//! key, removals that have to be kept until the last layer, files that live as long as a snapshot,
//! and jobs that continue where they stopped.

mod engine;
mod files;
mod job;
mod recovery;
mod store;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::{
    Flow, FoldDetail, FoldEnd, FoldFilter, FoldRange, Lease, Result, Sequence, Snapshot, Visited,
    Visitor,
};
use kvorum_encoding::StorageKey;

use crate::entry_encoding::Value;
use files::Table;
pub(crate) use files::disk_error;

/// Keys in memory with their values; `None` for removed ones.
type Memtable = BTreeMap<StorageKey, Option<Value>>;

/// The view of readers, newest layer first. A snapshot is a clone of it.
#[derive(Clone, Default)]
struct Layers {
    memtable: Arc<Memtable>,
    /// A memtable that is being flushed.
    frozen: Option<Arc<Memtable>>,
    tables: Vec<Arc<Table>>,
}

impl Layers {
    fn get(&self, key: &StorageKey) -> Result<Option<Value>> {
        let in_memory = [Some(&self.memtable), self.frozen.as_ref()];
        for memtable in in_memory.into_iter().flatten() {
            if let Some(found) = memtable.get(key) {
                return Ok(found.clone());
            }
        }
        for table in &self.tables {
            if let Some(slot) = table.slots.get(key) {
                return table.read(slot);
            }
        }
        Ok(None)
    }

    /// The first key in a range that any layer has, removed or not.
    fn first_key(&self, range: &FoldRange) -> Option<StorageKey> {
        let bounds = || {
            let from = range.from.as_ref().map(|it| &it[..]);
            (from, std::ops::Bound::Unbounded)
        };
        let in_memory = [Some(&self.memtable), self.frozen.as_ref()];
        let in_memory = in_memory
            .into_iter()
            .flatten()
            .filter_map(|it| it.range::<[u8], _>(bounds()).next().map(|(key, _)| key));
        let in_tables = self.tables.iter().filter_map(|it| {
            it.slots
                .range::<[u8], _>(bounds())
                .next()
                .map(|(key, _)| key)
        });
        let first = in_memory.chain(in_tables).min()?;
        (!range.is_past_end(first.as_bytes())).then(|| first.clone())
    }
}

struct LsmSnapshot {
    layers: Layers,
    sequence: Sequence,
    lease: Lease,
    shows_expired: bool,
}

impl LsmSnapshot {
    /// Walks the range; the visitor's answer decides how to continue.
    fn walk(
        &self,
        range: &FoldRange,
        filter: &FoldFilter,
        mut visit: impl FnMut(&StorageKey, &Value) -> (Flow, Bytes),
    ) -> Result<FoldEnd> {
        let mut rest = range.clone();
        while let Some(key) = self.layers.first_key(&rest) {
            if filter.is_over(self.lease) {
                return Ok(FoldEnd::LeaseExpired(key));
            }
            let mut next = successor(key.as_bytes());
            if let Some(value) = self.layers.get(&key)?
                && (self.shows_expired || filter.admits(&value.fields))
            {
                let (flow, go_on) = visit(&key, &value);
                next = go_on;
                if flow == Flow::Stop {
                    return Ok(FoldEnd::Stopped(StorageKey::from_encoded(next)));
                }
            }
            rest.from = std::ops::Bound::Included(next);
        }
        Ok(FoldEnd::Complete)
    }
}

impl Snapshot for LsmSnapshot {
    fn sequence(&self) -> Sequence {
        self.sequence
    }

    fn fold(
        &self,
        detail: FoldDetail,
        range: &FoldRange,
        filter: &FoldFilter,
        visitor: &mut Visitor<'_>,
    ) -> Result<FoldEnd> {
        self.walk(range, filter, |key, value| {
            let flow = visitor(visited(key, value, detail));
            (flow, successor(key.as_bytes()))
        })
    }

    fn fold_buckets(
        &self,
        range: &FoldRange,
        filter: &FoldFilter,
        visitor: &mut Visitor<'_>,
    ) -> Result<FoldEnd> {
        self.walk(range, filter, |key, value| {
            let flow = visitor(visited(key, value, FoldDetail::Keys));
            (flow, behind_bucket(key))
        })
    }
}

pub(crate) fn visited<'a>(key: &'a StorageKey, value: &Value, detail: FoldDetail) -> Visited<'a> {
    let if_at_least = |least: FoldDetail, bytes: &Bytes| {
        if detail >= least {
            bytes.clone()
        } else {
            Bytes::new()
        }
    };
    Visited {
        key,
        sequence: value.sequence,
        fields: value.fields,
        head: if_at_least(FoldDetail::Heads, &value.head),
        body: if_at_least(FoldDetail::Entries, &value.body),
    }
}

/// The first possible key behind another.
pub(crate) fn successor(key: &[u8]) -> Bytes {
    let mut bytes = key.to_vec();
    bytes.push(0);
    bytes.into()
}

/// The first possible key behind a key's bucket.
pub(crate) fn behind_bucket(key: &StorageKey) -> Bytes {
    let prefix_len = key.bucket_prefix_len().unwrap_or(key.as_bytes().len());
    match FoldRange::prefix(&key.as_bytes()[..prefix_len]).to {
        std::ops::Bound::Excluded(behind) => behind,
        _ => successor(key.as_bytes()),
    }
}
