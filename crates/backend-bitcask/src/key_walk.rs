//! Walking the keys of several segments in order, as of one batch.
//!
//! Each segment is one sorted source: its hint file where it has one, otherwise a table gathered from
//! its data, in memory for as long as the walk takes. The newest entry of a key that the snapshot may
//! see decides; a segment holds an entry until no older one of its key is left, so nothing else has
//! to be asked.

use std::ops::Bound;
use std::sync::Arc;
use std::vec;

use bytes::Bytes;
use kvorum_backend::{FoldRange, Result};
use kvorum_disk::Reading;
use kvorum_segment::{ScanOptions, Scanned};

use crate::error::IntoBackend;
use crate::hint::{HintError, HintFile};
use crate::key_table::{KeyEntry, KeyTable, KeyTableBuilder};
use crate::places::Place;
use crate::segments::Segment;
use crate::shared::{SharedPlace, Standings};

/// A segment as a snapshot saw it.
#[derive(Clone)]
pub(crate) struct SeenSegment {
    pub(crate) segment: Arc<Segment>,
    /// The end of what belongs to the snapshot.
    pub(crate) until: u64,
    /// Nothing was appended since.
    pub(crate) was_sealed: bool,
}

/// A segment of the node's log as a snapshot saw it.
#[derive(Clone)]
pub(crate) struct SeenShared {
    pub(crate) place: Arc<SharedPlace>,
    pub(crate) records: Standings,
    /// How many of the records belong to the snapshot, from the first.
    pub(crate) count: usize,
}

/// A walk over the keys of a range.
pub(crate) struct KeyWalk {
    sources: Vec<Source>,
    sequence: u64,
    range: FoldRange,
    /// Some record could not be read, so that what is found may be outdated.
    pub(crate) met_damage: bool,
    /// How many damaged ranges were met.
    pub(crate) damaged_reads: u64,
}

/// A key that the snapshot sees, and where its record stands.
pub(crate) struct SeenKey {
    pub(crate) entry: KeyEntry,
    pub(crate) place: Place,
}

struct Source {
    place: Place,
    /// A segment of the store's own, whose hint may turn out damaged.
    seen: Option<SeenSegment>,
    keys: Keys,
    current: Option<KeyEntry>,
}

enum Keys {
    Table {
        table: KeyTable,
        position: usize,
    },
    Hint {
        hint: Arc<HintFile>,
        block: usize,
        entries: vec::IntoIter<KeyEntry>,
    },
}

impl KeyWalk {
    /// Begins at the start of the range. `has_damage` says that records are known to be missing.
    pub(crate) fn new(
        segments: &[SeenSegment],
        shared: &[SeenShared],
        sequence: u64,
        range: &FoldRange,
        has_damage: bool,
    ) -> Result<Self> {
        let mut walk = Self {
            sources: Vec::with_capacity(segments.len() + shared.len()),
            sequence,
            range: range.clone(),
            met_damage: has_damage,
            damaged_reads: 0,
        };
        for seen in segments {
            let hint = seen.segment.hint.read().clone();
            let keys = match hint {
                Some(hint) if seen.was_sealed => Keys::over(hint),
                _ => walk.gather(seen)?,
            };
            walk.sources.push(Source {
                place: Place::Own(seen.segment.clone()),
                seen: Some(seen.clone()),
                keys,
                current: None,
            });
        }
        for seen in shared {
            let keys = walk.gather_shared(seen)?;
            walk.sources.push(Source {
                place: Place::Shared(seen.place.clone()),
                seen: None,
                keys,
                current: None,
            });
        }
        let from = match &range.from {
            Bound::Included(from) | Bound::Excluded(from) => from.clone(),
            Bound::Unbounded => Bytes::new(),
        };
        walk.seek(&from)?;
        Ok(walk)
    }

    /// Goes on at the first key at or behind `key`.
    pub(crate) fn seek(&mut self, key: &[u8]) -> Result<()> {
        for index in 0..self.sources.len() {
            self.sources[index].keys.seek(key);
            self.advance(index, key)?;
            while let Some(entry) = &self.sources[index].current
                && &entry.key[..] < key
            {
                self.advance(index, key)?;
            }
        }
        Ok(())
    }

    /// The next key that is there.
    pub(crate) fn next(&mut self) -> Result<Option<SeenKey>> {
        loop {
            let currents = self.sources.iter().filter_map(|it| it.current.as_ref());
            let Some(key) = currents.map(|entry| &entry.key).min().cloned() else {
                return Ok(None);
            };
            if self.range.is_past_end(&key) {
                return Ok(None);
            }
            let newest = self.take(&key)?;
            if let Some(newest) = newest
                && !newest.entry.removal
                && self.range.contains(&key)
            {
                return Ok(Some(newest));
            }
        }
    }

    /// The newest visible entry of a key; moves all sources behind it.
    fn take(&mut self, key: &Bytes) -> Result<Option<SeenKey>> {
        let mut newest: Option<SeenKey> = None;
        for index in 0..self.sources.len() {
            let source = &mut self.sources[index];
            if source.current.as_ref().is_none_or(|it| it.key != *key) {
                continue;
            }
            let place = source.place.clone();
            if let Some(entry) = source.current.take()
                && entry.sequence <= self.sequence
                && newest
                    .as_ref()
                    .is_none_or(|newest| rank(&newest.entry) < rank(&entry))
            {
                newest = Some(SeenKey { entry, place });
            }
            self.advance(index, key)?;
        }
        Ok(newest)
    }

    /// Moves one source to its next entry. A hint that turns out damaged gives way to the data,
    /// behind `passed`.
    fn advance(&mut self, index: usize, passed: &[u8]) -> Result<()> {
        let source = &mut self.sources[index];
        match source.keys.next() {
            Ok(entry) => source.current = entry,
            Err(HintError::Disk(error)) => return Err((&error).into()),
            Err(HintError::Unusable(_) | HintError::Newer) => {
                // Only a hint fails.
                let Some(seen) = source.seen.clone() else {
                    return Ok(());
                };
                *seen.segment.hint.write() = None;
                let mut keys = self.gather(&seen)?;
                keys.seek(passed);
                let mut current = keys.next().unwrap_or(None);
                if current.as_ref().is_some_and(|entry| entry.key == passed) {
                    current = keys.next().unwrap_or(None);
                }
                let source = &mut self.sources[index];
                (source.keys, source.current) = (keys, current);
            }
        }
        Ok(())
    }

    /// Reads the keys of the store in a segment of the log.
    fn gather_shared(&mut self, seen: &SeenShared) -> Result<Keys> {
        const AT_ONCE: usize = 1024;
        let place = Place::Shared(seen.place.clone());
        let mut builder = KeyTableBuilder::default();
        let mut at = 0;
        while at < seen.count {
            // Puts wait for this lock, so it is not held across reads.
            let standings: Vec<_> = {
                let records = seen.records.lock();
                let rest = records.iter().take(seen.count).skip(at);
                rest.take(AT_ONCE).copied().collect()
            };
            if standings.is_empty() {
                break;
            }
            at += standings.len();
            for standing in standings {
                let front = match place.read_front(standing.location(), Reading::MayBlock) {
                    Ok(front) => front,
                    Err(error) if error.is_damage() => {
                        self.met_damage = true;
                        self.damaged_reads += 1;
                        continue;
                    }
                    Err(error) => return Err(error.into_backend()),
                };
                let visible = KeyEntry::of(&front).filter(|entry| {
                    entry.sequence <= self.sequence && self.range.contains(&entry.key)
                });
                if let Some(entry) = visible {
                    builder.push(&entry);
                }
            }
        }
        Ok(Keys::Table {
            table: builder.finish(),
            position: 0,
        })
    }

    /// Reads the keys of a segment from its data.
    fn gather(&mut self, seen: &SeenSegment) -> Result<Keys> {
        let options = ScanOptions {
            from: 0,
            durable_to: u64::MAX,
            until: Some(seen.until),
        };
        let mut builder = KeyTableBuilder::default();
        for scanned in seen.segment.reader.scan(options).into_backend()? {
            match scanned.into_backend()? {
                Scanned::Damage(_) => {
                    self.met_damage = true;
                    self.damaged_reads += 1;
                }
                Scanned::Record(record) => {
                    let visible = KeyEntry::of(&record.head).filter(|entry| {
                        entry.sequence <= self.sequence && self.range.contains(&entry.key)
                    });
                    if let Some(entry) = visible {
                        builder.push(&entry);
                    }
                }
            }
        }
        Ok(Keys::Table {
            table: builder.finish(),
            position: 0,
        })
    }
}

impl Keys {
    fn over(hint: Arc<HintFile>) -> Self {
        Self::Hint {
            hint,
            block: 0,
            entries: Vec::new().into_iter(),
        }
    }

    /// Makes the entry after next one at or before the first at `key`.
    fn seek(&mut self, key: &[u8]) {
        match self {
            Self::Table { table, position } => *position = table.position_of(key),
            Self::Hint {
                hint,
                block,
                entries,
            } => {
                *block = hint.block_of(key);
                *entries = Vec::new().into_iter();
            }
        }
    }

    fn next(&mut self) -> std::result::Result<Option<KeyEntry>, HintError> {
        match self {
            Self::Table { table, position } => {
                *position += 1;
                Ok(table.get(*position - 1))
            }
            Self::Hint {
                hint,
                block,
                entries,
            } => loop {
                if let Some(entry) = entries.next() {
                    return Ok(Some(entry));
                }
                if *block >= hint.blocks() {
                    return Ok(None);
                }
                *entries = hint.read(*block)?.into_iter();
                *block += 1;
            },
        }
    }
}

/// Of two records of one sequence, one is a copy of the other, or the removal that an expired entry
/// was turned into.
fn rank(entry: &KeyEntry) -> (u64, bool) {
    (entry.sequence, entry.removal)
}
