//! Snapshots: the files as they were, and folds over their keys in order.
//!
//! A snapshot holds the segments of its moment open and reads them up to where they ended then; a
//! segment that a merge removes meanwhile loses its name only. Writers keep no record for snapshots.
//! A fold costs the hints of all segments in its range, plus the data of those without a hint (the
//! one being written, above all), whose keys it holds in memory.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::{
    Flow, FoldDetail, FoldEnd, FoldFilter, FoldRange, Lease, Result, Sequence, Snapshot, Visited,
    Visitor,
};
use kvorum_disk::Reading;
use kvorum_encoding::StorageKey;

use crate::entry::decode_front;
use crate::key_walk::{KeyWalk, SeenKey, SeenSegment, SeenShared};
use crate::places::PlaceError;
use crate::store::{Counters, Store};

/// A store as it was at one batch.
pub(crate) struct BitcaskSnapshot {
    store: Arc<Store>,
    sequence: u64,
    segments: Vec<SeenSegment>,
    shared: Vec<SeenShared>,
    lease: Lease,
}

impl BitcaskSnapshot {
    pub(crate) fn take(store: &Arc<Store>, lease: Lease) -> Self {
        let (sequence, segments, shared) = seen_now(store);
        Self {
            store: store.clone(),
            sequence,
            segments,
            shared,
            lease,
        }
    }

    fn walk(&self, range: &FoldRange) -> Result<KeyWalk> {
        let has_damage = self.store.lost.lock().has_records();
        #[cfg(feature = "planted-defects")]
        if self
            .store
            .has_defect(kvorum_backend::PlantedDefect::SnapshotSeesLaterWrites)
        {
            let (sequence, segments, shared) = seen_now(&self.store);
            return KeyWalk::new(&segments, &shared, sequence, range, has_damage);
        }
        let walk = KeyWalk::new(
            &self.segments,
            &self.shared,
            self.sequence,
            range,
            has_damage,
        )?;
        Counters::add(&self.store.counters.corrupt_reads, walk.damaged_reads);
        Ok(walk)
    }

    /// The next key of the walk that the filter admits.
    fn next_admitted(&self, walk: &mut KeyWalk, filter: &FoldFilter) -> Result<Option<SeenKey>> {
        while let Some(key) = walk.next()? {
            let fields = &key.entry.fields;
            let is_shown = !self.store.is_expired(fields, filter.now) && filter.admits(fields);
            if is_shown && (!walk.met_damage || self.is_current(&key)?) {
                return Ok(Some(key));
            }
        }
        Ok(None)
    }

    /// Where a record could not be read, it may have been the one that superseded what was found: the
    /// key directory knows better, as far as it has not moved on.
    fn is_current(&self, key: &SeenKey) -> Result<bool> {
        let entry = &key.entry;
        let fingerprint = self.store.fingerprints.of(&entry.key);
        let Some(slot) = self.store.slot_of(&entry.key, fingerprint)? else {
            return Ok(false);
        };
        // A place means what it meant for as long as somebody holds its segment.
        if slot.place() == key.place.index() && slot.offset() == entry.at.offset {
            return Ok(true);
        }
        let place = self.store.catalog.read().places.get(slot.place()).cloned();
        match place.map(|it| it.read_front(slot.location(), Reading::MayBlock)) {
            Some(Ok(front)) => {
                Ok(front.sequence == entry.sequence || front.sequence > self.sequence)
            }
            _ => {
                Counters::add(&self.store.counters.corrupt_reads, 1);
                Ok(false)
            }
        }
    }

    /// Shows one entry; `None` when it is damaged.
    fn visit(
        &self,
        key: &SeenKey,
        detail: FoldDetail,
        visitor: &mut Visitor<'_>,
    ) -> Result<Option<Flow>> {
        let parts = match detail {
            FoldDetail::Keys => Ok((Bytes::new(), Bytes::new())),
            FoldDetail::Heads => read_head(key).map(|head| (head, Bytes::new())),
            FoldDetail::Entries => read_entry(key),
        };
        match parts {
            Ok((head, body)) => Ok(Some(visitor(Visited {
                key: &storage_key(key),
                sequence: Sequence(key.entry.sequence),
                fields: key.entry.fields,
                head,
                body,
            }))),
            Err(error) if error.is_damage() => {
                self.store.count_corrupt(error);
                Ok(None)
            }
            Err(error) => Err(error.into_backend()),
        }
    }

    /// Ends a fold behind what was visited.
    fn end_at_next(
        &self,
        walk: &mut KeyWalk,
        filter: &FoldFilter,
        end: impl FnOnce(StorageKey) -> FoldEnd,
    ) -> Result<FoldEnd> {
        let next = self.next_admitted(walk, filter)?;
        Ok(next.map_or(FoldEnd::Complete, |key| end(storage_key(&key))))
    }
}

impl Snapshot for BitcaskSnapshot {
    fn sequence(&self) -> Sequence {
        Sequence(self.sequence)
    }

    fn fold(
        &self,
        detail: FoldDetail,
        range: &FoldRange,
        filter: &FoldFilter,
        visitor: &mut Visitor<'_>,
    ) -> Result<FoldEnd> {
        let mut walk = self.walk(range)?;
        if self.lease.is_over(filter.now) {
            return self.end_at_next(&mut walk, filter, FoldEnd::LeaseExpired);
        }
        while let Some(key) = self.next_admitted(&mut walk, filter)? {
            if self.visit(&key, detail, visitor)? == Some(Flow::Stop) {
                return self.end_at_next(&mut walk, filter, FoldEnd::Stopped);
            }
        }
        Ok(FoldEnd::Complete)
    }

    fn fold_buckets(
        &self,
        range: &FoldRange,
        filter: &FoldFilter,
        visitor: &mut Visitor<'_>,
    ) -> Result<FoldEnd> {
        let mut walk = self.walk(range)?;
        if self.lease.is_over(filter.now) {
            return self.end_at_next(&mut walk, filter, FoldEnd::LeaseExpired);
        }
        while let Some(key) = self.next_admitted(&mut walk, filter)? {
            let flow = self.visit(&key, FoldDetail::Keys, visitor)?;
            let has_next = match behind_bucket(&storage_key(&key)) {
                Some(next) => {
                    walk.seek(&next)?;
                    true
                }
                None => false,
            };
            match (flow, has_next) {
                (_, false) => break,
                (Some(Flow::Stop), true) => {
                    return self.end_at_next(&mut walk, filter, FoldEnd::Stopped);
                }
                _ => {}
            }
        }
        Ok(FoldEnd::Complete)
    }
}

fn seen_now(store: &Store) -> (u64, Vec<SeenSegment>, Vec<SeenShared>) {
    let catalog = store.catalog.read();
    let segments = catalog.segments.values().map(|entry| SeenSegment {
        segment: entry.segment.clone(),
        until: entry.stats.data_end,
        was_sealed: entry.is_sealed,
    });
    let shared = catalog.shared.values().map(|entry| SeenShared {
        place: entry.place.clone(),
        records: entry.records.clone(),
        count: entry.records.lock().len(),
    });
    (catalog.last_sequence, segments.collect(), shared.collect())
}

/// The first key that can follow a key's bucket; `None` when there is none.
fn behind_bucket(key: &StorageKey) -> Option<Bytes> {
    // A key without a bucket is a bucket of its own.
    let len = key.bucket_prefix_len().unwrap_or(key.as_bytes().len());
    match FoldRange::prefix(&key.as_bytes()[..len]).to {
        Bound::Excluded(next) => Some(next),
        Bound::Included(_) | Bound::Unbounded => None,
    }
}

fn storage_key(key: &SeenKey) -> StorageKey {
    StorageKey::from_encoded(key.entry.key.clone())
}

fn read_head(key: &SeenKey) -> std::result::Result<Bytes, PlaceError> {
    let front = key.place.read_front(key.entry.at, Reading::MayBlock)?;
    // A front that was decoded before has a head, if only an empty one.
    Ok(decode_front(&front.front).map_or_else(|_| Bytes::new(), |front| front.head))
}

fn read_entry(key: &SeenKey) -> std::result::Result<(Bytes, Bytes), PlaceError> {
    let record = key.place.read(key.entry.at, Reading::MayBlock)?;
    let head = decode_front(&record.head.front).map_or_else(|_| Bytes::new(), |front| front.head);
    Ok((head, key.place.restore(&record)?))
}
