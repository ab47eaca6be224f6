//! Snapshots: the files at one moment, and folds over their keys in order.
//!
//! A snapshot keeps its segments open and reads them up to their ends at its time; a segment that a
//! merge removes meanwhile loses only its name. Writers keep no record for snapshots. A fold reads
//! the hints of its range, the data of own segments without a hint, and the fronts of records
//! without a log hint. The number of keys from data and fronts in memory is bounded.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::{
    Flow, FoldDetail, FoldEnd, FoldFilter, FoldRange, Lease, LeaseWatch, OldEntry, Result,
    Sequence, Snapshot, Visited, Visitor,
};
use kvorum_disk::Reading;
use kvorum_encoding::{StorageKey, successor};

use kvorum_planted_defects::is_planted;
use kvorum_segment::SegmentError;
use kvorum_storage_errors::from_segment;

use crate::entry::decode_front;
use crate::home::Counters;
use crate::key_walk::{Halted, KeyWalk, Seen, SeenKey, SeenSegment, SeenShared};
use crate::places::Place;
use crate::slot::Slot;
use crate::store::Store;

/// A store as of one batch.
pub(crate) struct BitcaskSnapshot {
    store: Arc<Store>,
    seen: Seen,
    lease: Lease,
}

impl BitcaskSnapshot {
    pub(crate) fn take(store: &Arc<Store>, lease: Lease) -> Self {
        Self {
            store: store.clone(),
            seen: seen_now(store),
            lease,
        }
    }

    /// Walks over the keys of a range until the lease ends. `visit` gets each key that the filter
    /// admits, and returns how to continue.
    fn walk_over(
        &self,
        range: &FoldRange,
        filter: &FoldFilter,
        visit: &mut dyn FnMut(&SeenKey) -> Result<Going>,
    ) -> Result<FoldEnd> {
        let later = is_planted!(SnapshotSeesLaterWrites).then(|| seen_now(&self.store));
        let seen = later.as_ref().unwrap_or(&self.seen);
        // The start of the rest, for a walk that ends now.
        let mut rest = start_of(range);
        let mut has_stopped = false;
        let walked = self.walk_until_halted(seen, range, filter, &mut |key| {
            let going = visit(key)?;
            match &going {
                Going::On => rest = successor(&key.entry.key),
                Going::OnAt(next) | Going::StopAt(next) => rest = next.clone(),
                Going::Stop => rest = successor(&key.entry.key),
                Going::End => {}
            }
            has_stopped = matches!(going, Going::Stop | Going::StopAt(_));
            Ok(going)
        });
        match walked {
            Ok(end) => Ok(end),
            Err(Halted::Failed(error)) => Err(error),
            // The walk had stopped, and was looking for the next key.
            Err(Halted::OutOfTime) if has_stopped => {
                Ok(FoldEnd::Stopped(StorageKey::from_encoded(rest)))
            }
            Err(Halted::OutOfTime) => Ok(FoldEnd::LeaseExpired(StorageKey::from_encoded(rest))),
        }
    }

    fn walk_until_halted(
        &self,
        seen: &Seen,
        range: &FoldRange,
        filter: &FoldFilter,
        visit: &mut dyn FnMut(&SeenKey) -> Result<Going>,
    ) -> std::result::Result<FoldEnd, Halted> {
        let has_damage = self.store.home.lost().has_records();
        let lease = LeaseWatch::new(self.lease, filter);
        let mut walk = KeyWalk::new(seen, range, filter.segments.as_ref(), lease, has_damage)?;
        let end = self.walk_on(&mut walk, seen, filter, visit);
        Counters::add(&self.store.home.counters.corrupt_reads, walk.damaged_reads);
        end
    }

    fn walk_on(
        &self,
        walk: &mut KeyWalk<'_>,
        seen: &Seen,
        filter: &FoldFilter,
        visit: &mut dyn FnMut(&SeenKey) -> Result<Going>,
    ) -> std::result::Result<FoldEnd, Halted> {
        while let Some(key) = self.next_admitted(walk, seen, filter)? {
            let going = visit(&key)?;
            if let Going::OnAt(next) | Going::StopAt(next) = &going {
                walk.seek(next)?;
            }
            match going {
                Going::On | Going::OnAt(_) => {}
                Going::End => break,
                Going::Stop | Going::StopAt(_) => {
                    let next = self.next_admitted(walk, seen, filter)?;
                    return Ok(
                        next.map_or(FoldEnd::Complete, |key| FoldEnd::Stopped(storage_key(&key)))
                    );
                }
            }
        }
        Ok(FoldEnd::Complete)
    }

    /// The next key of the walk that the filter admits.
    fn next_admitted(
        &self,
        walk: &mut KeyWalk<'_>,
        seen: &Seen,
        filter: &FoldFilter,
    ) -> std::result::Result<Option<SeenKey>, Halted> {
        while let Some(key) = walk.next()? {
            let fields = &key.entry.fields;
            let is_shown =
                !self.store.home.expiry.is_over(fields, filter.now) && filter.admits(fields);
            if is_shown
                && (!walk.is_partial() || self.is_at_hand(&key) || walk.is_newest(&key)?)
                && (!walk.met_damage || self.is_current(&key, seen.sequence)?)
            {
                return Ok(Some(key));
            }
        }
        Ok(None)
    }

    /// True for a record that the key directory points to: no later record has superseded it yet.
    fn is_at_hand(&self, key: &SeenKey) -> bool {
        let (place, offset) = (key.place.index(), key.entry.at.offset);
        let is_it = |slot: Slot| slot.place() == place && slot.offset() == offset;
        let fingerprint = self.store.contents.fingerprints.of(&key.entry.key);
        let look = |slot, _: &Place| is_it(slot).then_some(());
        self.store.contents.keydir.look(fingerprint, look).is_some()
    }

    /// Checks with the key directory that no unreadable record has superseded this one. A slot with
    /// a record from after the snapshot does not decide, and the key counts as current.
    fn is_current(&self, key: &SeenKey, seen: u64) -> Result<bool> {
        let entry = &key.entry;
        let fingerprint = self.store.contents.fingerprints.of(&entry.key);
        let Some(slot) = self
            .store
            .slot_of(&entry.key, fingerprint, OldEntry::UNKNOWN)?
        else {
            return Ok(false);
        };
        // A place refers to the same segment while the snapshot holds the segment.
        if slot.place() == key.place.index() && slot.offset() == entry.at.offset {
            return Ok(true);
        }
        let place = self
            .store
            .contents
            .catalog
            .read()
            .places
            .get(slot.place())
            .cloned();
        match place.map(|it| it.read_front(slot.location(), Reading::MayBlock)) {
            Some(Ok(front)) => Ok(front.sequence == entry.sequence || front.sequence > seen),
            _ => {
                Counters::add(&self.store.home.counters.corrupt_reads, 1);
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
                self.store.home.count_corrupt(&error);
                Ok(None)
            }
            Err(error) => Err(from_segment(&error)),
        }
    }
}

/// The continuation after a key.
enum Going {
    On,
    /// Continue with the first key at or behind this one.
    OnAt(Bytes),
    /// Stop, and return the next key.
    Stop,
    /// Stop, and return the next key at or behind this one.
    StopAt(Bytes),
    /// End: nothing can follow.
    End,
}

impl Snapshot for BitcaskSnapshot {
    fn sequence(&self) -> Sequence {
        Sequence(self.seen.sequence)
    }

    fn fold(
        &self,
        detail: FoldDetail,
        range: &FoldRange,
        filter: &FoldFilter,
        visitor: &mut Visitor<'_>,
    ) -> Result<FoldEnd> {
        self.walk_over(range, filter, &mut |key| {
            Ok(match self.visit(key, detail, visitor)? {
                Some(Flow::Stop) => Going::Stop,
                Some(Flow::Continue) | None => Going::On,
            })
        })
    }

    fn fold_buckets(
        &self,
        range: &FoldRange,
        filter: &FoldFilter,
        visitor: &mut Visitor<'_>,
    ) -> Result<FoldEnd> {
        self.walk_over(range, filter, &mut |key| {
            let flow = self.visit(key, FoldDetail::Keys, visitor)?;
            Ok(match (flow, behind_bucket(&storage_key(key))) {
                (_, None) => Going::End,
                (Some(Flow::Stop), Some(next)) => Going::StopAt(next),
                (_, Some(next)) => Going::OnAt(next),
            })
        })
    }
}

/// The first key that can be in a range.
fn start_of(range: &FoldRange) -> Bytes {
    match &range.from {
        Bound::Included(from) => from.clone(),
        Bound::Excluded(from) => successor(from),
        Bound::Unbounded => Bytes::new(),
    }
}

fn seen_now(store: &Store) -> Seen {
    let catalog = store.contents.catalog.read();
    let segments = catalog.segments.values().map(|entry| SeenSegment {
        segment: entry.segment.clone(),
        until: entry.stats.data_end,
        was_sealed: entry.is_sealed,
    });
    let shared = catalog.shared.values().map(|entry| SeenShared {
        number: entry.place.number(),
        place: Place::Shared(entry.place.clone()),
        records: entry.records.clone(),
        count: entry.records.lock().len(),
        unhinted: entry.unhinted,
    });
    Seen {
        sequence: catalog.last_sequence,
        segments: segments.collect(),
        shared: shared.collect(),
        log_hints: catalog.log_hints.clone(),
    }
}

/// The first key that can follow a key's bucket; `None` when there is none.
fn behind_bucket(key: &StorageKey) -> Option<Bytes> {
    // A key without a bucket counts as a bucket.
    let len = key.bucket_prefix_len().unwrap_or(key.as_bytes().len());
    match FoldRange::prefix(&key.as_bytes()[..len]).to {
        Bound::Excluded(next) => Some(next),
        Bound::Included(_) | Bound::Unbounded => None,
    }
}

fn storage_key(key: &SeenKey) -> StorageKey {
    StorageKey::from_encoded(key.entry.key.clone())
}

fn read_head(key: &SeenKey) -> std::result::Result<Bytes, SegmentError> {
    let front = key.place.read_front(key.entry.at, Reading::MayBlock)?;
    // The front was decoded before, so it has a head, perhaps an empty one.
    Ok(decode_front(&front.front).map_or_else(|_| Bytes::new(), |front| front.head))
}

fn read_entry(key: &SeenKey) -> std::result::Result<(Bytes, Bytes), SegmentError> {
    let record = key.place.read(key.entry.at, Reading::MayBlock)?;
    let head = decode_front(&record.head.front).map_or_else(|_| Bytes::new(), |front| front.head);
    Ok((head, key.place.restore(&record)?))
}
