//! Walks over the keys of several segments in order, as of one batch.
//!
//! Each segment of the store's own is a sorted source, and so is each log hint; the records of the
//! value log without a log hint are one more. A source is a hint if there is one. Otherwise it is a
//! table with a limited number of the smallest remaining keys of the range, gathered from the data,
//! and then the next table. The newest entry of a key that the snapshot may see decides. A segment
//! keeps an entry until no older entry of its key is left, so no other source is needed.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::{BackendError, FoldRange, LeaseWatch};
use kvorum_disk::Reading;
use kvorum_encoding::SegmentFilter;
use kvorum_segment::{ScanOptions, Scanned, StoredFront};

use crate::hint_table::{HintError, HintScan, HintTable};
use crate::key_table::{KeyEntry, KeyTable, OWN, SmallestKeys};
use crate::log_hint::LogHint;
use crate::places::Place;
use crate::segment::Segment;
use crate::shared::{Standing, StandingCursor, Standings};
use kvorum_storage_errors::{IntoBackend, from_segment};

/// The number of keys that a source gathers at first: enough for a part of a listing.
const GATHERED_KEYS: usize = 10_000;
/// Longer walks gather up to this many at a time, since each time all data are read again.
const GATHERED_KEYS_MAX: usize = 64_000;

/// With more anti-entropy segments than this, hardly any block of a hint can be left out.
const SEGMENTS_MAX: usize = 256;

/// A segment as of the snapshot.
#[derive(Clone)]
pub(crate) struct SeenSegment {
    pub(crate) segment: Arc<Segment>,
    /// The end of the snapshot's records.
    pub(crate) until: u64,
    /// The segment was sealed at the time of the snapshot.
    pub(crate) was_sealed: bool,
}

/// A segment of the value log as of the snapshot.
#[derive(Clone)]
pub(crate) struct SeenShared {
    pub(crate) number: u32,
    pub(crate) place: Place,
    pub(crate) records: Standings,
    /// The number of its first records that the snapshot sees.
    pub(crate) count: usize,
    /// The number of these without a log hint.
    pub(crate) unhinted: usize,
}

/// The view of a snapshot.
pub(crate) struct Seen {
    /// The last batch.
    pub(crate) sequence: u64,
    /// Ascending by number.
    pub(crate) segments: Vec<SeenSegment>,
    /// Ascending by number.
    pub(crate) shared: Vec<SeenShared>,
    pub(crate) log_hints: Arc<Vec<Arc<LogHint>>>,
}

/// The reason why a walk stopped.
#[derive(Debug)]
pub(crate) enum Halted {
    Failed(BackendError),
    /// The lease is over.
    OutOfTime,
}

impl From<BackendError> for Halted {
    fn from(error: BackendError) -> Self {
        Self::Failed(error)
    }
}

type Result<T> = std::result::Result<T, Halted>;

/// A walk over the keys of a range.
pub(crate) struct KeyWalk<'a> {
    seen: &'a Seen,
    /// Log hints that were not marked as wrong when the walk began.
    log_hints: Vec<Arc<LogHint>>,
    sources: Vec<Source>,
    range: FoldRange,
    lease: LeaseWatch<'a>,
    keys_max: usize,
    /// Only parts of hints that may have keys of these anti-entropy segments are read.
    segments: Option<SegmentFilter>,
    /// A record could not be read, so that results may be outdated.
    pub(crate) met_damage: bool,
    /// The number of damaged ranges on the way.
    pub(crate) damaged_reads: u64,
}

/// A key that the snapshot sees, and the place of its record.
pub(crate) struct SeenKey {
    pub(crate) entry: KeyEntry,
    pub(crate) place: Place,
}

struct Source {
    origin: Origin,
    keys: Keys,
    current: Option<KeyEntry>,
    /// The start of the keys that were not reached yet.
    from: Bound<Bytes>,
}

/// The data from which a source without a hint is gathered.
#[derive(Clone)]
enum Origin {
    /// A segment of the store's own.
    Own(SeenSegment),
    /// The records of a log hint.
    Hinted(Arc<LogHint>),
    /// The records without a log hint.
    Unhinted,
}

pub(crate) enum Keys {
    Table {
        table: KeyTable,
        position: usize,
        /// The key up to which the table is complete, if there are more keys.
        last: Option<Bytes>,
    },
    Hint(Box<HintScan>),
}

impl Origin {
    /// Marks its hint as wrong: the hint is no longer used, and is rewritten.
    fn set_wrong(&self) {
        match self {
            Self::Own(seen) => *seen.segment.hint.write() = None,
            Self::Hinted(hint) => hint.set_wrong(),
            Self::Unhinted => {}
        }
    }
}

impl<'a> KeyWalk<'a> {
    /// Begins at the start of the range. `has_damage` means that records are known to be missing.
    /// With `segments`, the walk may leave out entries that are in none of these anti-entropy
    /// segments, and so show older records of their keys: see [`KeyWalk::is_newest`].
    pub(crate) fn new(
        seen: &'a Seen,
        range: &FoldRange,
        segments: Option<&SegmentFilter>,
        lease: LeaseWatch<'a>,
        has_damage: bool,
    ) -> Result<Self> {
        let segments = segments.filter(|it| it.named() <= SEGMENTS_MAX).cloned();
        let usable = seen.log_hints.iter().filter(|it| !it.is_wrong());
        let mut walk = Self {
            seen,
            log_hints: usable.cloned().collect(),
            sources: Vec::with_capacity(seen.segments.len() + seen.log_hints.len() + 1),
            range: range.clone(),
            lease,
            keys_max: GATHERED_KEYS,
            segments,
            met_damage: has_damage,
            damaged_reads: 0,
        };
        if walk.lease.is_over() {
            return Err(Halted::OutOfTime);
        }
        for segment in &seen.segments {
            let hint = segment.segment.hint.read().clone();
            let hint = hint.filter(|_| segment.was_sealed);
            let scan = hint.map(|hint| walk.scan_of(&hint));
            walk.begin_source(Origin::Own(segment.clone()), scan)?;
        }
        for hint in walk.log_hints.clone() {
            let scan = walk.scan_of(&hint.table);
            walk.begin_source(Origin::Hinted(hint), Some(scan))?;
        }
        walk.begin_source(Origin::Unhinted, None)?;
        Ok(walk)
    }

    fn scan_of(&self, hint: &HintTable) -> HintScan {
        let (from, to) = (self.range.from.clone(), self.range.to.clone());
        hint.range(from, to, self.segments.clone())
    }

    /// Adds a source, positioned at its first key in the range.
    fn begin_source(&mut self, origin: Origin, hint: Option<HintScan>) -> Result<()> {
        let keys = match hint {
            Some(hint) => Keys::Hint(Box::new(hint)),
            None => self.gather(&origin, &self.range.from.clone())?,
        };
        self.sources.push(Source {
            origin,
            keys,
            current: None,
            from: self.range.from.clone(),
        });
        let index = self.sources.len() - 1;
        self.advance(index)
    }

    /// Moves forward to the first key at or behind `key`; never moves back.
    pub(crate) fn seek(&mut self, key: &Bytes) -> Result<()> {
        for index in 0..self.sources.len() {
            let is_behind = |source: &Source| {
                let current = source.current.as_ref();
                current.is_none_or(|entry| entry.key >= *key)
            };
            if is_behind(&self.sources[index]) {
                continue;
            }
            let source = &mut self.sources[index];
            source.from = Bound::Included(key.clone());
            if source.keys.seek(key) == Sought::NotGathered {
                let from = Bound::Included(key.clone());
                let origin = source.origin.clone();
                self.sources[index].keys = self.gather(&origin, &from)?;
            }
            self.advance(index)?;
            while !is_behind(&self.sources[index]) {
                self.advance(index)?;
            }
        }
        Ok(())
    }

    /// The next existing key.
    pub(crate) fn next(&mut self) -> Result<Option<SeenKey>> {
        loop {
            let currents = self.sources.iter().filter_map(|it| it.current.as_ref());
            let Some(key) = currents.map(|entry| &entry.key).min().cloned() else {
                return Ok(None);
            };
            if self.range.is_past_end(&key) {
                return Ok(None);
            }
            if self.lease.passes_key() {
                return Err(Halted::OutOfTime);
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

    /// The newest visible entry of a key; moves all sources past the key.
    fn take(&mut self, key: &Bytes) -> Result<Option<SeenKey>> {
        let mut newest: Option<SeenKey> = None;
        for index in 0..self.sources.len() {
            // A log hint may have a copy and its original, with the same sequence.
            loop {
                let source = &mut self.sources[index];
                let Some(entry) = source.current.take_if(|it| it.key == *key) else {
                    break;
                };
                if entry.sequence <= self.seen.sequence
                    && newest
                        .as_ref()
                        .is_none_or(|newest| rank(&newest.entry) < rank(&entry))
                    // An entry in a dropped segment was copied, or is not needed.
                    && let Some(place) = self.seen.place_in(&source.origin, &entry)
                {
                    newest = Some(SeenKey { entry, place });
                }
                self.advance(index)?;
            }
        }
        Ok(newest)
    }

    /// True when the walk leaves out parts of hints.
    pub(crate) fn is_partial(&self) -> bool {
        self.segments.is_some()
    }

    /// False for an entry that an entry in a skipped part of a hint supersedes.
    pub(crate) fn is_newest(&mut self, key: &SeenKey) -> Result<bool> {
        for index in 0..self.sources.len() {
            let Source { keys, origin, .. } = &self.sources[index];
            let said = match keys {
                Keys::Table { .. } => continue,
                Keys::Hint(hint) => hint.get(&key.entry.key),
            };
            let said = match said {
                Ok(said) => said,
                Err(HintError::Disk(error)) => return Err(BackendError::from(&error).into()),
                Err(_) => {
                    origin.set_wrong();
                    self.gather_at(index, &key.entry.key)?
                }
            };
            let is_newer = |it: &KeyEntry| {
                let is_seen = it.sequence <= self.seen.sequence;
                is_seen && rank(it) > rank(&key.entry) && self.is_there(index, it)
            };
            if said.iter().any(is_newer) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn is_there(&self, index: usize, entry: &KeyEntry) -> bool {
        let origin = &self.sources[index].origin;
        self.seen.place_in(origin, entry).is_some()
    }

    /// Replaces a source's hint by its data behind a key, and returns its entries of that key.
    fn gather_at(&mut self, index: usize, key: &Bytes) -> Result<Vec<KeyEntry>> {
        self.gather_next(index, &Bound::Included(key.clone()))?;
        let mut said = Vec::new();
        while let Some(entry) = self.sources[index].current.take_if(|it| it.key == *key) {
            said.push(entry);
            self.advance(index)?;
        }
        Ok(said)
    }

    /// Moves one source to its next entry. A damaged hint is replaced by the data behind its passed
    /// keys, and a table at its end by the next table.
    fn advance(&mut self, index: usize) -> Result<()> {
        let source = &mut self.sources[index];
        let next = match source.keys.next() {
            Ok(Next::Entry(entry)) => Some(entry),
            Ok(Next::End) => None,
            Ok(Next::NotGathered(last)) => {
                self.keys_max = (2 * self.keys_max).min(GATHERED_KEYS_MAX);
                return self.gather_next(index, &Bound::Excluded(last));
            }
            Err(HintError::Disk(error)) => return Err(BackendError::from(&error).into()),
            Err(_) => {
                source.origin.set_wrong();
                let from = source.from.clone();
                return self.gather_next(index, &from);
            }
        };
        let source = &mut self.sources[index];
        if let Some(entry) = &next {
            source.from = Bound::Excluded(entry.key.clone());
        }
        source.current = next;
        Ok(())
    }

    fn gather_next(&mut self, index: usize, from: &Bound<Bytes>) -> Result<()> {
        let origin = self.sources[index].origin.clone();
        self.sources[index].keys = self.gather(&origin, from)?;
        self.advance(index)
    }

    /// Reads the keys of a source from its data, from `from` on.
    fn gather(&mut self, origin: &Origin, from: &Bound<Bytes>) -> Result<Keys> {
        let rest = FoldRange {
            from: from.clone(),
            to: self.range.to.clone(),
        };
        let mut smallest = SmallestKeys::new(self.keys_max);
        match origin {
            Origin::Own(seen) => {
                let number = OWN | seen.segment.number;
                let from = Parts::of(&self.log_hints, number).reach();
                self.gather_own(seen, (from, seen.until), &rest, &mut smallest)?;
            }
            Origin::Hinted(hint) => {
                for part in hint.parts.iter().filter(|part| part.number & OWN != 0) {
                    if let Some(seen) = self.seen.own(part.number) {
                        let within = (part.from, part.to.min(seen.until));
                        self.gather_own(seen, within, &rest, &mut smallest)?;
                    }
                }
                self.gather_logged(Some(hint), &rest, &mut smallest)?;
            }
            Origin::Unhinted => self.gather_logged(None, &rest, &mut smallest)?,
        }
        let (table, last) = smallest.finish();
        Ok(Keys::Table {
            table,
            position: 0,
            last,
        })
    }

    /// Reads the fronts of the records with this log hint, or without any.
    fn gather_logged(
        &mut self,
        hinted_by: Option<&LogHint>,
        rest: &FoldRange,
        smallest: &mut SmallestKeys,
    ) -> Result<()> {
        let are_all_used = self.log_hints.len() == self.seen.log_hints.len();
        for seen in &self.seen.shared {
            if hinted_by.is_none() && are_all_used && seen.unhinted == 0 {
                continue;
            }
            let parts = Parts::of(&self.log_hints, seen.number);
            let is_wanted = |standing: &Standing| match hinted_by {
                Some(hint) => {
                    let parts = hint.parts_of(seen.number).iter();
                    parts
                        .clone()
                        .any(|it| (it.from..it.to).contains(&standing.offset()))
                }
                None => !parts.hold(*standing),
            };
            let mut cursor = StandingCursor::default();
            while let Some(standings) = seen.next_standings(&mut cursor) {
                for standing in standings.into_iter().filter(is_wanted) {
                    if self.lease.passes_key() {
                        return Err(Halted::OutOfTime);
                    }
                    let front = match seen
                        .place
                        .read_front(standing.location(), Reading::MayBlock)
                    {
                        Ok(front) => front,
                        Err(error) if error.is_damage() => {
                            self.met_damage = true;
                            self.damaged_reads += 1;
                            continue;
                        }
                        Err(error) => return Err(from_segment(&error).into()),
                    };
                    self.take_visible(&front, seen.number, rest, smallest);
                }
            }
        }
        Ok(())
    }

    /// Takes a record's entry, if the entry belongs to the snapshot and to the rest of the range.
    fn take_visible(
        &self,
        record: &StoredFront,
        segment: u32,
        rest: &FoldRange,
        smallest: &mut SmallestKeys,
    ) {
        if let Some(entry) = KeyEntry::of(record)
            && entry.sequence <= self.seen.sequence
            && rest.contains(&entry.key)
        {
            smallest.push(&KeyEntry { segment, ..entry });
        }
    }

    /// Reads the keys of a part of a segment of the store's own.
    fn gather_own(
        &mut self,
        seen: &SeenSegment,
        (from, until): (u64, u64),
        rest: &FoldRange,
        smallest: &mut SmallestKeys,
    ) -> Result<()> {
        if from >= until {
            return Ok(());
        }
        let options = ScanOptions {
            from,
            until: Some(until),
            ..ScanOptions::durable_to(u64::MAX)
        };
        for scanned in seen.segment.reader.scan(options).into_backend()? {
            if self.lease.passes_key() {
                return Err(Halted::OutOfTime);
            }
            match scanned.into_backend()? {
                Scanned::Damage(_) => {
                    self.met_damage = true;
                    self.damaged_reads += 1;
                }
                Scanned::Record(record) => {
                    let number = OWN | seen.segment.number;
                    self.take_visible(&record.head, number, rest, smallest);
                }
            }
        }
        Ok(())
    }
}

impl Seen {
    fn own(&self, number: u32) -> Option<&SeenSegment> {
        let number = number & !OWN;
        let found = self
            .segments
            .binary_search_by_key(&number, |it| it.segment.number);
        found.ok().map(|index| &self.segments[index])
    }

    /// The place of a source's entry.
    fn place_in(&self, origin: &Origin, entry: &KeyEntry) -> Option<Place> {
        match origin {
            Origin::Own(seen) => Some(Place::Own(seen.segment.clone())),
            Origin::Hinted(_) | Origin::Unhinted => self.place_of(entry.segment),
        }
    }

    /// The place of a segment, unless it was removed before the snapshot.
    fn place_of(&self, number: u32) -> Option<Place> {
        if number & OWN != 0 {
            return Some(Place::Own(self.own(number)?.segment.clone()));
        }
        let found = self.shared.binary_search_by_key(&number, |it| it.number);
        found.ok().map(|index| self.shared[index].place.clone())
    }
}

impl SeenShared {
    /// The next few records; `None` behind the snapshot's last record.
    fn next_standings(&self, cursor: &mut StandingCursor) -> Option<Vec<Standing>> {
        const AT_ONCE: usize = 1024;
        // Not held across reads, since puts wait for this lock.
        let records = self.records.lock();
        let rest = self.count.saturating_sub(cursor.passed).min(AT_ONCE);
        let standings: Vec<Standing> = (0..rest).map_while(|_| records.next(cursor)).collect();
        (!standings.is_empty()).then_some(standings)
    }
}

/// The parts of one segment with log hints.
pub(crate) struct Parts(Vec<(u64, u64)>);

impl Parts {
    pub(crate) fn of(hints: &[Arc<LogHint>], number: u32) -> Self {
        let parts = hints.iter().flat_map(|hint| hint.parts_of(number));
        Self(parts.map(|part| (part.from, part.to)).collect())
    }

    pub(crate) fn hold(&self, standing: Standing) -> bool {
        let offset = standing.offset();
        self.0
            .iter()
            .any(|(from, to)| (*from..*to).contains(&offset))
    }
}

impl Parts {
    /// The end in bytes up to which they are complete from the beginning.
    pub(crate) fn reach(mut self) -> u64 {
        self.0.sort_unstable();
        let mut parts = self.0.into_iter();
        let first = parts.next().filter(|(from, _)| *from == 0);
        parts.fold(first.map_or(0, |(_, to)| to), |reach, (from, to)| {
            if from <= reach { reach.max(to) } else { reach }
        })
    }
}

/// The result of looking for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sought {
    /// The next entry is at or before the first entry of the key.
    Near,
    /// The key may be behind the gathered keys.
    NotGathered,
}

pub(crate) enum Next {
    Entry(KeyEntry),
    End,
    /// There may be more keys behind this one, the last that was gathered.
    NotGathered(Bytes),
}

impl Keys {
    /// All keys of a table.
    pub(crate) fn of_table(table: KeyTable) -> Self {
        Self::Table {
            table,
            position: 0,
            last: None,
        }
    }

    /// Moves forward to a key that was not passed yet.
    fn seek(&mut self, key: &Bytes) -> Sought {
        match self {
            Self::Table {
                table,
                position,
                last,
            } => {
                if last.as_ref().is_some_and(|last| last < key) {
                    return Sought::NotGathered;
                }
                *position = table.position_of(key);
            }
            Self::Hint(scan) => scan.seek(key.clone()),
        }
        Sought::Near
    }

    pub(crate) fn next(&mut self) -> std::result::Result<Next, HintError> {
        match self {
            Self::Table {
                table,
                position,
                last,
            } => {
                *position += 1;
                let next = table.get(*position - 1);
                Ok(match (next, last.take_if(|_| *position > table.len())) {
                    (Some(entry), _) => Next::Entry(entry),
                    (None, Some(last)) => Next::NotGathered(last),
                    (None, None) => Next::End,
                })
            }
            Self::Hint(scan) => Ok(scan.next()?.map_or(Next::End, Next::Entry)),
        }
    }
}

/// The order of two records of one key. Of two with one sequence, one is a copy of the other, or a
/// removal that replaced an expired entry.
fn rank(entry: &KeyEntry) -> (u64, bool) {
    (entry.sequence, entry.removal)
}
