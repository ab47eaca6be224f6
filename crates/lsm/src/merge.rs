//! Walking several layers as one: each key once, with the entry of its newest layer.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::{Result, Tag};
use kvorum_encoding::KeyRange;
use kvorum_sst::{Mark, MarkKind, Marks, ScanFilter, ScanItem, ScanOptions, TableScan};
use kvorum_storage_errors::IntoBackend;

use crate::memtable::{Memtable, Page, Paged};
use crate::read_side::ReadSide;
use crate::version::{LevelTable, Version, gap_of_table, layers_of};
use crate::{Entry, Older};

/// Entries of a memtable that are copied at once: they share one search for the position.
const PAGE_ENTRIES: usize = 64;

/// A fold's first blocks of each layer are cached, so that short folds over the same keys need no
/// device.
const BLOCKS_CACHED: usize = 2;

/// A layer is read in pieces of this many bytes at most.
pub(crate) const READ_AHEAD_BYTES: usize = 256 << 10;

/// A layer.
pub(crate) struct Source {
    kind: SourceKind,
    marks: Marks,
    /// Ranges of this layer found lost to damage so far.
    gaps: Vec<Mark>,
}

#[expect(
    clippy::large_enum_variant,
    reason = "a walk has a dozen sources, each for as long as it lasts"
)]
enum SourceKind {
    Memtable {
        memtable: Arc<Memtable>,
        sequence: u64,
        page: Page,
        at: usize,
        from: Bound<Bytes>,
    },
    /// Tables in key order, without keys in common.
    Run {
        tables: Arc<Vec<LevelTable>>,
        next: usize,
        scan: Option<TableScan>,
        options: ScanOptions,
    },
}

/// Result of advancing a source.
enum Advanced {
    Entry,
    End,
}

impl Source {
    pub(crate) fn memtable(memtable: &Arc<Memtable>, sequence: u64, from: Bound<Bytes>) -> Self {
        Self {
            marks: memtable.marks(sequence),
            gaps: Vec::new(),
            kind: SourceKind::Memtable {
                memtable: memtable.clone(),
                sequence,
                page: Page::default(),
                at: 0,
                from,
            },
        }
    }

    /// `tables` are in key order. The options are for the first table; the filter is for all.
    pub(crate) fn run(tables: &Arc<Vec<LevelTable>>, options: ScanOptions) -> Self {
        let marks = tables.iter().flat_map(|it| it.properties.marks.iter());
        let first = match &options.from {
            Bound::Unbounded => 0,
            Bound::Included(key) | Bound::Excluded(key) => {
                tables.partition_point(|it| it.properties.largest < *key)
            }
        };
        Self {
            marks: Marks::new(marks.cloned().collect()),
            gaps: Vec::new(),
            kind: SourceKind::Run {
                tables: tables.clone(),
                next: first,
                scan: None,
                options,
            },
        }
    }

    /// The layer's marks over ranges.
    pub(crate) fn marks(&self) -> &Marks {
        &self.marks
    }

    /// Ranges found lost to damage so far.
    pub(crate) fn gaps(&self) -> &[Mark] {
        &self.gaps
    }

    fn key(&self) -> &[u8] {
        match &self.kind {
            SourceKind::Memtable { page, at, .. } => page.key(*at),
            SourceKind::Run { scan, .. } => scan.as_ref().map_or(&[], TableScan::key),
        }
    }

    /// Takes the entry out; `None` for bytes that do not decode despite a right checksum.
    fn take_entry<T: Taken>(&mut self) -> Option<T> {
        match &mut self.kind {
            SourceKind::Memtable { page, at, .. } => match page.take(*at)? {
                Paged::Bytes(bytes) => T::of_bytes(bytes),
                Paged::Entry(entry) => Some(T::of_entry(entry)),
            },
            SourceKind::Run { scan, .. } => T::of_bytes(scan.as_ref()?.value_bytes()),
        }
    }

    /// Adds the segments of the log with the present key's older versions in a memtable.
    fn leave_trail(&self, older: &mut Older) {
        if let SourceKind::Memtable { page, at, .. } = &self.kind {
            page.leave_trail(*at, older);
        }
    }

    /// Advances to the next entry. Damage on the way is noted as a gap.
    fn advance(&mut self, read: &ReadSide) -> Result<Advanced> {
        match &mut self.kind {
            SourceKind::Memtable {
                memtable,
                sequence,
                page,
                at,
                from,
            } => {
                *at += 1;
                if *at < page.len() {
                    return Ok(Advanced::Entry);
                }
                if let Some(last) = page.end() {
                    *from = Bound::Excluded(last);
                }
                *page = memtable.page(from.as_ref(), *sequence, PAGE_ENTRIES);
                *at = 0;
                Ok(match page.is_empty() {
                    true => Advanced::End,
                    false => Advanced::Entry,
                })
            }
            SourceKind::Run {
                tables,
                next,
                scan,
                options,
            } => loop {
                let Some(current) = scan else {
                    let Some(table) = tables.get(*next) else {
                        return Ok(Advanced::End);
                    };
                    *next += 1;
                    match &table.table {
                        Some(table) => {
                            *scan = Some(TableScan::new(table.clone(), options.clone()));
                            // Only the first table of a run can begin before the range.
                            options.from = Bound::Unbounded;
                            options.blocks_cached = 0;
                        }
                        None => self.gaps.push(gap_of_table(table)),
                    }
                    continue;
                };
                match current.advance(&read.for_folds()).into_backend()? {
                    ScanItem::Entry => return Ok(Advanced::Entry),
                    ScanItem::Gap(gap) => self.gaps.push(Mark::lost(gap.from, gap.to, gap.filter)),
                    ScanItem::End => *scan = None,
                }
            },
        }
    }

    /// True when this layer hides older layers' entries of a key.
    fn hides_older(&self, key: &[u8]) -> bool {
        let has_mark = !self.marks.is_empty() && self.marks.covering(key).next().is_some();
        has_mark || self.gaps.iter().any(|gap| gap.covers(key))
    }

    fn hides_own(&self, key: &[u8], sequence: u64) -> bool {
        let removal = self.marks.strongest(key);
        removal.is_some_and(|mark| mark.kind == MarkKind::Removed && mark.sequence > sequence)
    }
}

/// The form of entries that a walk returns.
pub(crate) trait Taken: Sized {
    fn of_entry(entry: Entry) -> Self;

    /// `None` for bytes that do not decode.
    fn of_bytes(bytes: Bytes) -> Option<Self>;

    fn sequence(&self) -> u64;

    /// Adds the segments that may have records of this entry, and of the entries that it hides.
    fn leave_trail(&self, _older: &mut Older) {}

    /// The kind of its value, for forms that leave a trail.
    fn tag(&self) -> Option<Tag> {
        None
    }
}

impl Taken for Entry {
    fn of_entry(entry: Entry) -> Self {
        entry
    }

    fn of_bytes(bytes: Bytes) -> Option<Self> {
        Entry::decode(&bytes).ok()
    }

    fn sequence(&self) -> u64 {
        self.sequence
    }
}

/// Result of a walk's step.
pub(crate) enum Merged<T> {
    /// The newest entry of the next key.
    Entry(T),
    /// An entry that newer layers have replaced, removed or lost.
    Hidden,
    /// All layers are at their ends.
    End,
}

/// A walk over layers as one.
pub(crate) struct MergeWalk {
    /// Newest first.
    sources: Vec<Source>,
    /// Sources at an entry, by key and then by age.
    order: Vec<usize>,
    key: Vec<u8>,
    has_key: bool,
    is_started: bool,
    bytes: u64,
    /// Segments of the log with older records of the key, if the caller needs them.
    trail: Option<Older>,
    /// True for kinds of entries that leave no trail.
    forgets: fn(Tag) -> bool,
}

impl MergeWalk {
    /// Sources are given newest first.
    pub(crate) fn new(sources: Vec<Source>) -> Self {
        Self {
            sources,
            order: Vec::new(),
            key: Vec::new(),
            has_key: false,
            is_started: false,
            bytes: 0,
            trail: None,
            forgets: |_| false,
        }
    }

    /// Adds a trail: the walk notes the skipped records of each key, except for forgotten kinds of
    /// entries.
    pub(crate) fn with_trails(mut self, forgets: fn(Tag) -> bool) -> Self {
        self.trail = Some(Older::default());
        self.forgets = forgets;
        self
    }

    /// Segments of the records skipped since the last call: older records of the key at the walk's
    /// position.
    pub(crate) fn take_trail(&mut self) -> Older {
        self.trail.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// All layers of a version, from a key on. `filter` is for the oldest layer only, where a
    /// skipped entry hides nothing.
    pub(crate) fn of_version(
        version: &Version,
        sequence: u64,
        from: &Bound<Bytes>,
        filter: &ScanFilter,
    ) -> Self {
        let memtables = version.memtables();
        let mut sources: Vec<Source> = memtables
            .filter(|it| !it.is_empty())
            .map(|it| Source::memtable(it, sequence, from.clone()))
            .collect();
        let mut runs: Vec<Arc<Vec<LevelTable>>> = layers_of(&version.levels[0]).collect();
        let levels = version.levels[1..].iter();
        runs.extend(levels.filter(|it| !it.is_empty()).cloned());
        let count = runs.len();
        for (number, tables) in runs.iter().enumerate() {
            let filter = match number + 1 == count {
                true => filter.clone(),
                false => ScanFilter::default(),
            };
            let options = ScanOptions {
                from: from.clone(),
                filter,
                read_ahead_bytes: READ_AHEAD_BYTES,
                blocks_cached: BLOCKS_CACHED,
            };
            sources.push(Source::run(tables, options));
        }
        Self::new(sources)
    }

    /// The key at the walk's position.
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// Bytes of keys and values that were passed, hidden ones included.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// True when a layer has lost keys of a range that the walk has passed.
    pub(crate) fn has_lost(&self, range: &KeyRange) -> bool {
        self.sources.iter().any(|source| {
            let marks = source.marks.iter().chain(&source.gaps);
            let mut lost = marks.filter(|mark| mark.kind == MarkKind::Lost);
            lost.any(|mark| mark.range().overlaps(range))
        })
    }

    /// Advances to the next key.
    pub(crate) fn advance<T: Taken>(&mut self, read: &ReadSide) -> Result<Merged<T>> {
        if !self.is_started {
            self.is_started = true;
            for source in 0..self.sources.len() {
                self.advance_source(source, read)?;
            }
        }
        let Some(newest) = self.order.first().copied() else {
            return Ok(Merged::End);
        };
        // An older version of the previous key, passed in a step of its own, so that no step costs
        // more than one.
        let is_older = self.has_key && self.sources[newest].key() == self.key;
        self.bytes += self.passed_bytes(newest);
        let entry = match is_older && self.trail.is_none() {
            true => None,
            false => self.sources[newest].take_entry::<T>(),
        };
        if let Some(trail) = &mut self.trail {
            self.sources[newest].leave_trail(trail);
        }
        self.has_key = true;
        self.key.clear();
        self.key.extend_from_slice(self.sources[newest].key());
        self.order.remove(0);
        self.advance_source(newest, read)?;
        let Some(entry) = entry else {
            return Ok(Merged::Hidden);
        };
        if let (true, Some(trail)) = (is_older, &mut self.trail) {
            if !entry.tag().is_some_and(self.forgets) {
                entry.leave_trail(trail);
            }
            return Ok(Merged::Hidden);
        }
        let newer = &self.sources[..newest];
        let is_hidden = newer.iter().any(|it| it.hides_older(&self.key))
            || self.sources[newest].hides_own(&self.key, entry.sequence());
        Ok(match is_hidden {
            true => Merged::Hidden,
            false => Merged::Entry(entry),
        })
    }

    fn passed_bytes(&self, source: usize) -> u64 {
        match &self.sources[source].kind {
            SourceKind::Memtable { page, at, .. } => page.bytes_at(*at) as u64,
            SourceKind::Run { scan, .. } => scan
                .as_ref()
                .map_or(0, |scan| (scan.key().len() + scan.value().len()) as u64),
        }
    }

    /// Advances a source that is not in the order and inserts it there. Most often the source stays
    /// the first, so the search begins at the front.
    fn advance_source(&mut self, source: usize, read: &ReadSide) -> Result<()> {
        if matches!(self.sources[source].advance(read)?, Advanced::End) {
            return Ok(());
        }
        let key = self.sources[source].key();
        let is_behind = |other: &usize| (self.sources[*other].key(), *other) > (key, source);
        let at = self.order.iter().position(is_behind);
        self.order.insert(at.unwrap_or(self.order.len()), source);
        Ok(())
    }
}
