//! Snapshots and folds. The lock is held for a few dozen entries at a time, and never while a
//! visitor runs.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use kvorum_backend::{
    Flow, FoldDetail, FoldEnd, FoldFilter, FoldRange, IndexRange, IndexVisitor, Lease, Result,
    Sequence, Snapshot, Timestamp, Visited, Visitor,
};
use kvorum_encoding::{StorageKey, successor};
use kvorum_planted_defects::is_planted;

use crate::contents::IndexPosition;
use crate::entry::Entry;
use crate::open_snapshots::{Released, SnapshotId};
use crate::store::Store;

/// The number of entries that are read each time the lock is held.
const LOOKED_AT_ONCE: usize = 64;

pub(crate) struct MemorySnapshot {
    store: Arc<Store>,
    id: SnapshotId,
    lease: Lease,
    released: Released,
}

/// The entries read while the lock was held once.
struct Chunk {
    found: Vec<(StorageKey, Arc<Entry>)>,
    /// The start of the rest; `None` when the range is done.
    next: Option<Bound<Bytes>>,
}

impl MemorySnapshot {
    pub(crate) fn open(store: &Arc<Store>, lease: Lease) -> Self {
        let (id, released) = store.open_snapshot(lease);
        Self {
            store: Arc::clone(store),
            id,
            lease,
            released,
        }
    }

    fn is_over(&self, now: Timestamp) -> bool {
        self.lease.is_over(now) || self.released.load(Ordering::Acquire)
    }

    /// The next entries that the filter admits; `None` when the store has released the snapshot.
    fn chunk(&self, range: &FoldRange, filter: &FoldFilter) -> Option<Chunk> {
        let contents = self.store.contents.read();
        // Checked under the lock, since released versions are dropped under it.
        if self.is_over(filter.now) || filter.is_over(self.lease) {
            return None;
        }
        let at = self.store.looked_at(self.id.0);
        let from = range.from.as_ref().map(|bytes| &bytes[..]);
        let mut found = Vec::new();
        let entries = contents.entries.range_at::<[u8]>(from, at);
        for (looked_at, (key, entry)) in entries.enumerate() {
            if range.is_past_end(key.as_bytes()) {
                break;
            }
            if looked_at == LOOKED_AT_ONCE {
                let next = Some(Bound::Included(key.to_bytes()));
                return Some(Chunk { found, next });
            }
            if self.admits(filter, entry) {
                found.push((key.clone(), Arc::clone(entry)));
            }
        }
        Some(Chunk { found, next: None })
    }

    fn admits(&self, filter: &FoldFilter, entry: &Entry) -> bool {
        if is_planted!(ExpiredEntryReturned) {
            return true;
        }
        filter.admits(&entry.fields) && !entry.is_expired(filter.now)
    }

    /// Visits index entries of unexpired objects in order of (term, key).
    pub(crate) fn fold_index(
        &self,
        range: &IndexRange,
        now: Timestamp,
        visitor: &mut IndexVisitor<'_>,
    ) -> FoldEnd {
        let terms = FoldRange {
            from: range.from.clone(),
            to: range.to.clone(),
        };
        let mut from = index_start(range);
        loop {
            let Some((found, next)) = self.index_chunk(range, &terms, &from, now) else {
                return FoldEnd::LeaseExpired(index_resume(&from));
            };
            for position in &found {
                if visitor(&position.term, &position.key) == Flow::Stop {
                    return FoldEnd::Stopped(position.key.clone());
                }
            }
            match next {
                Some(next) => from = next,
                None => return FoldEnd::Complete,
            }
        }
    }

    fn index_chunk(
        &self,
        range: &IndexRange,
        terms: &FoldRange,
        from: &Bound<IndexPosition>,
        now: Timestamp,
    ) -> Option<(Vec<IndexPosition>, Option<Bound<IndexPosition>>)> {
        let contents = self.store.contents.read();
        if self.is_over(now) {
            return None;
        }
        let at = self.store.looked_at(self.id.0);
        let mut found = Vec::new();
        let positions = contents.index.range_at(from.as_ref(), at);
        for (looked_at, (position, ())) in positions.enumerate() {
            let is_inside =
                position.bucket_prefix == range.bucket_prefix && position.field == range.field;
            if !is_inside || terms.is_past_end(&position.term) {
                break;
            }
            if looked_at == LOOKED_AT_ONCE {
                return Some((found, Some(Bound::Included(position.clone()))));
            }
            let object = contents.entries.at(&position.key, at);
            let is_there = object.is_some_and(|entry| !entry.is_expired(now));
            if terms.contains(&position.term) && is_there {
                found.push(position.clone());
            }
        }
        Some((found, None))
    }
}

impl Snapshot for MemorySnapshot {
    fn sequence(&self) -> Sequence {
        self.id.0
    }

    fn fold(
        &self,
        detail: FoldDetail,
        range: &FoldRange,
        filter: &FoldFilter,
        visitor: &mut Visitor<'_>,
    ) -> Result<FoldEnd> {
        let mut rest = range.clone();
        loop {
            let Some(chunk) = self.chunk(&rest, filter) else {
                return Ok(FoldEnd::LeaseExpired(first_key(&rest)));
            };
            for (key, entry) in &chunk.found {
                if visitor(visited(key, entry, detail)) == Flow::Stop {
                    return Ok(FoldEnd::Stopped(StorageKey::from_encoded(successor(
                        key.as_bytes(),
                    ))));
                }
            }
            match chunk.next {
                Some(next) => rest.from = next,
                None => return Ok(FoldEnd::Complete),
            }
        }
    }

    fn fold_buckets(
        &self,
        range: &FoldRange,
        filter: &FoldFilter,
        visitor: &mut Visitor<'_>,
    ) -> Result<FoldEnd> {
        let mut rest = range.clone();
        loop {
            let Some(chunk) = self.chunk(&rest, filter) else {
                return Ok(FoldEnd::LeaseExpired(first_key(&rest)));
            };
            let Some((key, entry)) = chunk.found.first() else {
                match chunk.next {
                    Some(next) => rest.from = next,
                    None => return Ok(FoldEnd::Complete),
                }
                continue;
            };
            let flow = visitor(visited(key, entry, FoldDetail::Keys));
            let prefix_len = key.bucket_prefix_len().unwrap_or(key.as_bytes().len());
            let Bound::Excluded(behind) = FoldRange::prefix(&key.as_bytes()[..prefix_len]).to
            else {
                return Ok(FoldEnd::Complete);
            };
            if flow == Flow::Stop {
                return Ok(FoldEnd::Stopped(StorageKey::from_encoded(behind)));
            }
            rest.from = Bound::Included(behind);
        }
    }
}

impl Drop for MemorySnapshot {
    fn drop(&mut self) {
        self.store.open_snapshots.lock().close(self.id);
    }
}

fn visited<'a>(key: &'a StorageKey, entry: &Entry, detail: FoldDetail) -> Visited<'a> {
    let if_at_least = |least: FoldDetail, bytes: fn(&Entry) -> Bytes| {
        if detail >= least {
            bytes(entry)
        } else {
            Bytes::new()
        }
    };
    Visited {
        key,
        sequence: entry.sequence,
        fields: entry.fields,
        head: if_at_least(FoldDetail::Heads, Entry::head),
        body: if_at_least(FoldDetail::Entries, Entry::body),
    }
}

/// The first key that may be in a range.
fn first_key(range: &FoldRange) -> StorageKey {
    match &range.from {
        Bound::Included(from) => StorageKey::from_encoded(from.clone()),
        Bound::Excluded(from) => StorageKey::from_encoded(successor(from)),
        Bound::Unbounded => StorageKey::from_encoded(Bytes::new()),
    }
}

fn index_start(range: &IndexRange) -> Bound<IndexPosition> {
    let position = |term: &Bytes, key: StorageKey| IndexPosition {
        bucket_prefix: range.bucket_prefix.clone(),
        field: range.field.clone(),
        term: term.clone(),
        key,
    };
    let no_key = StorageKey::from_encoded(Bytes::new());
    let by_term = match &range.from {
        Bound::Included(term) | Bound::Excluded(term) => position(term, no_key),
        Bound::Unbounded => position(&Bytes::new(), no_key),
    };
    match &range.after {
        Some((term, key)) => {
            let after = position(term, key.clone());
            if after >= by_term {
                Bound::Excluded(after)
            } else {
                Bound::Included(by_term)
            }
        }
        None => Bound::Included(by_term),
    }
}

fn index_resume(from: &Bound<IndexPosition>) -> StorageKey {
    match from {
        Bound::Included(position) | Bound::Excluded(position) => position.key.clone(),
        Bound::Unbounded => StorageKey::from_encoded(Bytes::new()),
    }
}
