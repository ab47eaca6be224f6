//! Walking the keys of several segments in order, as of one batch.
//!
//! A segment of the store's own is one sorted source, and so is each log hint; what is in the node's log
//! and no log hint speaks of is one more. A source is a file of sorted blocks where there is one,
//! otherwise a table gathered from the data: of the smallest keys that are left of the range, so many at
//! most, and of the next when the walk is through with these. The newest entry of a key that the
//! snapshot may see decides; a segment holds an entry until no older one of its key is left, so nothing
//! else has to be asked.

use std::ops::Bound;
use std::sync::Arc;
use std::vec;

use bytes::Bytes;
use kvorum_backend::{BackendError, FoldRange, LeaseWatch};
use kvorum_disk::Reading;
use kvorum_segment::{ScanOptions, Scanned};

use crate::error::{IntoBackend, from_segment};
use crate::hint::HintFile;
use crate::key_blocks::{BlockIndex, HintError};
use crate::key_table::{KeyEntry, KeyTable, OWN, SmallestKeys};
use crate::log_hint::LogHint;
use crate::places::Place;
use crate::segment::Segment;
use crate::shared::{Standing, StandingCursor, Standings};

/// What a source that has to be gathered holds of its keys at first: enough for a part of a listing.
const GATHERED_KEYS: usize = 10_000;
/// A walk that goes on gathers more at a time, up to this, since each time all is read again.
const GATHERED_KEYS_MAX: usize = 64_000;

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
    pub(crate) number: u32,
    pub(crate) place: Place,
    pub(crate) records: Standings,
    /// How many of the records belong to the snapshot, from the first.
    pub(crate) count: usize,
    /// How many of them no log hint spoke of.
    pub(crate) unhinted: usize,
}

/// What a snapshot sees.
pub(crate) struct Seen {
    /// The last batch.
    pub(crate) sequence: u64,
    /// By number, ascending.
    pub(crate) segments: Vec<SeenSegment>,
    /// Likewise.
    pub(crate) shared: Vec<SeenShared>,
    pub(crate) log_hints: Arc<Vec<Arc<LogHint>>>,
}

/// Why a walk does not go on.
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
    /// Log hints that were not known to be wrong when it began.
    log_hints: Vec<Arc<LogHint>>,
    sources: Vec<Source>,
    range: FoldRange,
    lease: LeaseWatch<'a>,
    keys_max: usize,
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
    origin: Origin,
    keys: Keys,
    current: Option<KeyEntry>,
    /// Where its keys go on that were not come to yet.
    from: Bound<Bytes>,
}

/// What a source is gathered from where it has no sorted blocks.
#[derive(Clone)]
enum Origin {
    /// A segment of the store's own.
    Own(SeenSegment),
    /// The records that a log hint speaks of.
    Hinted(Arc<LogHint>),
    /// Those that none speaks of.
    Unhinted,
}

pub(crate) enum Keys {
    Table {
        table: KeyTable,
        position: usize,
        /// The key up to which that is all, if there are more.
        last: Option<Bytes>,
    },
    Blocks {
        file: Blocks,
        block: usize,
        entries: vec::IntoIter<KeyEntry>,
    },
}

/// A file of sorted blocks.
#[derive(Clone)]
pub(crate) enum Blocks {
    Own(Arc<HintFile>),
    Log(Arc<LogHint>),
}

impl Blocks {
    fn index(&self) -> &BlockIndex {
        match self {
            Self::Own(hint) => hint.index(),
            Self::Log(hint) => hint.index(),
        }
    }

    fn read(&self, block: usize) -> std::result::Result<Vec<KeyEntry>, HintError> {
        match self {
            Self::Own(hint) => hint.read(block),
            Self::Log(hint) => hint.read(block),
        }
    }

    /// It is not used any more, and is written again.
    fn set_wrong(&self, origin: &Origin) {
        match (self, origin) {
            (Self::Own(_), Origin::Own(seen)) => *seen.segment.hint.write() = None,
            (Self::Own(_), _) => {}
            (Self::Log(hint), _) => hint.set_wrong(),
        }
    }
}

impl<'a> KeyWalk<'a> {
    /// Begins at the start of the range. `has_damage` says that records are known to be missing.
    pub(crate) fn new(
        seen: &'a Seen,
        range: &FoldRange,
        lease: LeaseWatch<'a>,
        has_damage: bool,
    ) -> Result<Self> {
        let usable = seen.log_hints.iter().filter(|it| !it.is_wrong());
        let mut walk = Self {
            seen,
            log_hints: usable.cloned().collect(),
            sources: Vec::with_capacity(seen.segments.len() + seen.log_hints.len() + 1),
            range: range.clone(),
            lease,
            keys_max: GATHERED_KEYS,
            met_damage: has_damage,
            damaged_reads: 0,
        };
        if walk.lease.is_over() {
            return Err(Halted::OutOfTime);
        }
        for segment in &seen.segments {
            let hint = segment.segment.hint.read().clone();
            let hint = hint.filter(|_| segment.was_sealed).map(Blocks::Own);
            walk.begin_source(Origin::Own(segment.clone()), hint)?;
        }
        for hint in walk.log_hints.clone() {
            let blocks = Some(Blocks::Log(hint.clone()));
            walk.begin_source(Origin::Hinted(hint), blocks)?;
        }
        walk.begin_source(Origin::Unhinted, None)?;
        Ok(walk)
    }

    /// Adds a source, at the first of its keys in the range.
    fn begin_source(&mut self, origin: Origin, blocks: Option<Blocks>) -> Result<()> {
        let keys = match blocks {
            Some(file) => {
                let block = match &self.range.from {
                    Bound::Included(from) | Bound::Excluded(from) => file.index().block_of(from),
                    Bound::Unbounded => 0,
                };
                Keys::Blocks {
                    file,
                    block,
                    entries: Vec::new().into_iter(),
                }
            }
            None => self.gather(&origin, &self.range.from.clone())?,
        };
        self.sources.push(Source {
            origin,
            keys,
            current: None,
            from: self.range.from.clone(),
        });
        let index = self.sources.len() - 1;
        self.advance(index)?;
        while let Some(entry) = &self.sources[index].current
            && self.is_before_range(&entry.key)
        {
            self.advance(index)?;
        }
        Ok(())
    }

    fn is_before_range(&self, key: &[u8]) -> bool {
        match &self.range.from {
            Bound::Included(from) => key < &from[..],
            Bound::Excluded(from) => key <= &from[..],
            Bound::Unbounded => false,
        }
    }

    /// Goes on at the first key at or behind `key`. It never goes back.
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

    /// The newest visible entry of a key; moves all sources behind it.
    fn take(&mut self, key: &Bytes) -> Result<Option<SeenKey>> {
        let mut newest: Option<SeenKey> = None;
        for index in 0..self.sources.len() {
            // Copies have the sequence of what they were made of: a log hint may have both.
            loop {
                let source = &mut self.sources[index];
                let Some(entry) = source.current.take_if(|it| it.key == *key) else {
                    break;
                };
                let own = match &source.origin {
                    Origin::Own(seen) => Some(Place::Own(seen.segment.clone())),
                    Origin::Hinted(_) | Origin::Unhinted => None,
                };
                if entry.sequence <= self.seen.sequence
                    && newest
                        .as_ref()
                        .is_none_or(|newest| rank(&newest.entry) < rank(&entry))
                    // What a log hint says of a segment that is gone was copied, or is not needed.
                    && let Some(place) = own.or_else(|| self.seen.place_of(entry.segment))
                {
                    newest = Some(SeenKey { entry, place });
                }
                self.advance(index)?;
            }
        }
        Ok(newest)
    }

    /// Moves one source to its next entry. A hint that turns out damaged gives way to the data, behind
    /// what was passed of it; a table that is at its end gives way to the next.
    fn advance(&mut self, index: usize) -> Result<()> {
        let source = &mut self.sources[index];
        let next = match source.keys.next(&self.range) {
            Ok(Next::Entry(entry)) => Some(entry),
            Ok(Next::End) => None,
            Ok(Next::NotGathered(last)) => {
                self.keys_max = (2 * self.keys_max).min(GATHERED_KEYS_MAX);
                return self.gather_next(index, &Bound::Excluded(last));
            }
            Err(HintError::Disk(error)) => return Err(BackendError::from(&error).into()),
            Err(HintError::Unusable(_) | HintError::Newer) => {
                if let Keys::Blocks { file, .. } = &source.keys {
                    file.set_wrong(&source.origin);
                }
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

    /// Reads the fronts of the records that a log hint speaks of, or of those that none does.
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
                    let visible = KeyEntry::of(&front).filter(|entry| {
                        entry.sequence <= self.seen.sequence && rest.contains(&entry.key)
                    });
                    if let Some(entry) = visible {
                        smallest.push(&KeyEntry {
                            segment: seen.number,
                            ..entry
                        });
                    }
                }
            }
        }
        Ok(())
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
            durable_to: u64::MAX,
            until: Some(until),
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
                    let visible = KeyEntry::of(&record.head).filter(|entry| {
                        entry.sequence <= self.seen.sequence && rest.contains(&entry.key)
                    });
                    if let Some(entry) = visible {
                        smallest.push(&KeyEntry {
                            segment: OWN | seen.segment.number,
                            ..entry
                        });
                    }
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

    /// A segment, unless it was gone by then.
    fn place_of(&self, number: u32) -> Option<Place> {
        if number & OWN != 0 {
            return Some(Place::Own(self.own(number)?.segment.clone()));
        }
        let found = self.shared.binary_search_by_key(&number, |it| it.number);
        found.ok().map(|index| self.shared[index].place.clone())
    }
}

impl SeenShared {
    /// The next few records; `None` behind those that belong to the snapshot.
    fn next_standings(&self, cursor: &mut StandingCursor) -> Option<Vec<Standing>> {
        const AT_ONCE: usize = 1024;
        // Puts wait for this lock, so it is not held across reads.
        let records = self.records.lock();
        let rest = self.count.saturating_sub(cursor.passed).min(AT_ONCE);
        let standings: Vec<Standing> = (0..rest).map_while(|_| records.next(cursor)).collect();
        (!standings.is_empty()).then_some(standings)
    }
}

/// What log hints speak of in one segment.
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
    /// Up to where they hold everything, from the beginning on. Bytes.
    pub(crate) fn reach(mut self) -> u64 {
        self.0.sort_unstable();
        let mut parts = self.0.into_iter();
        let first = parts.next().filter(|(from, _)| *from == 0);
        parts.fold(first.map_or(0, |(_, to)| to), |reach, (from, to)| {
            if from <= reach { reach.max(to) } else { reach }
        })
    }
}

/// What comes of looking for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sought {
    /// The entry after next is at or before the first at the key.
    Near,
    /// It may be behind what was gathered.
    NotGathered,
}

pub(crate) enum Next {
    Entry(KeyEntry),
    End,
    /// There may be more behind this key, which was the last that was gathered.
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

    /// All keys of a file.
    pub(crate) fn of_blocks(file: Blocks) -> Self {
        Self::Blocks {
            file,
            block: 0,
            entries: Vec::new().into_iter(),
        }
    }

    /// What a log hint says is not used any more.
    pub(crate) fn set_wrong(&self) {
        if let Self::Blocks {
            file: Blocks::Log(hint),
            ..
        } = self
        {
            hint.set_wrong();
        }
    }

    /// Goes forward to a key that is not passed yet.
    fn seek(&mut self, key: &[u8]) -> Sought {
        match self {
            Self::Table {
                table,
                position,
                last,
            } => {
                if last.as_ref().is_some_and(|last| &last[..] < key) {
                    return Sought::NotGathered;
                }
                *position = table.position_of(key);
            }
            Self::Blocks {
                file,
                block,
                entries,
            } => {
                // The block whose entries are at hand is the one before `block`.
                let sought = file.index().block_of(key);
                if sought >= *block {
                    *block = sought;
                    *entries = Vec::new().into_iter();
                }
            }
        }
        Sought::Near
    }

    pub(crate) fn next(&mut self, range: &FoldRange) -> std::result::Result<Next, HintError> {
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
            Self::Blocks {
                file,
                block,
                entries,
            } => loop {
                if let Some(entry) = entries.next() {
                    return Ok(Next::Entry(entry));
                }
                let first_key = file.index().first_key(*block);
                if first_key.is_none_or(|key| range.is_past_end(key)) {
                    return Ok(Next::End);
                }
                *entries = file.read(*block)?.into_iter();
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
