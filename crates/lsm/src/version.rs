//! The view of readers: memtables, tables and blob files at one moment.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::{ErrorKind, Result};
use kvorum_encoding::{KeyRange, successor};
use kvorum_sst::{Mark, MarkKind, Marks, Properties, ReadContext, Table};

use kvorum_value_log::{LogPlace, LogSegment};

use crate::blob::BlobFile;
use crate::journal::{JournalFile, JournalRecord};
use crate::logged::segment_of;
use crate::memtable::Memtable;
use crate::policy::{Shape, TableShape, layers};

/// A table on a level.
#[derive(Clone)]
pub struct LevelTable {
    /// Its number.
    pub number: u64,
    /// Its original length, in bytes.
    pub file_len: u64,
    /// Sums over its entries.
    pub properties: Arc<Properties>,
    /// The table, or `None` when its file cannot be opened: all its keys are lost.
    pub table: Option<Arc<Table>>,
}

impl LevelTable {
    /// Ranges of keys that the table has lost: all of its keys if it cannot be opened, otherwise
    /// the ranges of its marks.
    pub(crate) fn lost_ranges(&self) -> impl Iterator<Item = KeyRange> + '_ {
        let all = self.table.is_none().then(|| {
            let gap = gap_of_table(self);
            gap.range()
        });
        let marks = self.properties.marks.iter();
        let lost = marks.filter(|mark| mark.kind == MarkKind::Lost);
        all.into_iter().chain(lost.map(kvorum_sst::Mark::range))
    }

    /// Drops the marks over losses.
    pub(crate) fn drop_lost_marks(&mut self) {
        let properties = Arc::make_mut(&mut self.properties);
        let marks = properties.marks.iter();
        let left = marks.filter(|mark| mark.kind != MarkKind::Lost).cloned();
        properties.marks = Marks::new(left.collect());
    }
}

/// The tables of each level at one moment, for long jobs: a version would keep removed files open,
/// and segments of the value log, so that their space would not be freed.
pub(crate) struct Outline {
    levels: Vec<Vec<Arc<Properties>>>,
}

impl Outline {
    pub(crate) fn levels(&self) -> usize {
        self.levels.len()
    }

    /// True when a table of level 0 may hold a key in this range, both ends included.
    pub(crate) fn is_in_zero(&self, from: &[u8], to: &[u8]) -> bool {
        self.levels[0].iter().any(|it| it.overlaps(from, to))
    }

    /// The same for all levels below `level`.
    pub(crate) fn is_below(&self, level: usize, from: &[u8], to: &[u8]) -> bool {
        let deeper = self.levels.iter().skip(level + 1);
        deeper.into_iter().any(|tables| {
            let at = tables.partition_point(|it| &it.largest[..] < from);
            tables.get(at).is_some_and(|it| it.overlaps(from, to))
        })
    }
}

/// The result of looking for a record in the journal files.
pub(crate) enum Collected {
    Record(JournalRecord),
    Nowhere,
    /// The read would have had to wait.
    WouldBlock,
}

/// An immutable view of a store.
#[derive(Clone)]
pub struct Version {
    pub(crate) memtable: Arc<Memtable>,
    /// Memtables that are being flushed, newest first.
    pub(crate) frozen: Vec<Arc<Memtable>>,
    /// Level 0 is newest first, the others are in key order.
    pub(crate) levels: Vec<Arc<Vec<LevelTable>>>,
    pub(crate) blobs: Arc<BTreeMap<u64, Arc<BlobFile>>>,
    /// Files with records of dropped segments of the value log, in the order of their first
    /// records.
    pub(crate) journal: Arc<Vec<Arc<JournalFile>>>,
    /// The segments of the value log in which entries of tables have bodies; memtables keep
    /// segments of their own.
    pub(crate) segments: Arc<BTreeMap<u32, Arc<LogSegment>>>,
    /// Counts flushes, which move entries out of memory.
    pub(crate) flushes: u64,
}

impl Version {
    /// A version without tables.
    pub(crate) fn empty(levels: usize, memtable: Memtable) -> Self {
        Self {
            memtable: Arc::new(memtable),
            frozen: Vec::new(),
            levels: vec![Arc::default(); levels.max(2)],
            blobs: Arc::default(),
            journal: Arc::default(),
            segments: Arc::default(),
            flushes: 0,
        }
    }

    /// All memtables, newest first.
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.memtable).chain(&self.frozen)
    }

    /// All tables, newest layer first.
    pub fn tables(&self) -> impl Iterator<Item = &LevelTable> {
        self.levels.iter().flat_map(|it| it.iter())
    }

    /// The tables of a level below 0 that may hold a key: at most one, or two if a table's marked
    /// range ends at the first key of the next table.
    pub(crate) fn tables_for<'a>(
        &'a self,
        level: usize,
        key: &'a [u8],
    ) -> impl Iterator<Item = &'a LevelTable> {
        let tables = &self.levels[level];
        let at = tables.partition_point(|it| &it.properties.largest[..] < key);
        let rest = tables[at..].iter();
        rest.take_while(move |it| &it.properties.smallest[..] <= key)
    }

    /// The outline of its tables.
    pub(crate) fn outline(&self) -> Outline {
        let of = |tables: &Arc<Vec<LevelTable>>| {
            let properties = tables.iter().map(|it| it.properties.clone());
            properties.collect()
        };
        Outline {
            levels: self.levels.iter().map(of).collect(),
        }
    }

    /// The shape of the store for the policy.
    pub(crate) fn shape(
        &self,
        expiry_micros: Option<u64>,
        is_misplaced: impl Fn(usize, &LevelTable) -> bool,
    ) -> Shape {
        let table = |level: usize, it: &LevelTable| TableShape {
            number: it.number,
            bytes: it.file_len,
            smallest: it.properties.smallest.clone(),
            largest: it.properties.largest.clone(),
            entries: it.properties.entries,
            removals: it.properties.removals,
            half_expired_at: half_expired_at(&it.properties, expiry_micros),
            expired_at: expired_at(&it.properties, expiry_micros),
            is_misplaced: is_misplaced(level, it),
        };
        let levels = self.levels.iter().enumerate();
        let tables = |(level, it): (usize, &Arc<Vec<LevelTable>>)| {
            it.iter().map(|it| table(level, it)).collect()
        };
        Shape {
            levels: levels.map(tables).collect(),
        }
    }

    /// Adds a blob file, if there is one.
    pub(crate) fn add_blob(&mut self, blob: Option<BlobFile>) {
        if let Some(blob) = blob {
            let mut blobs = (*self.blobs).clone();
            blobs.insert(blob.file, Arc::new(blob));
            self.blobs = Arc::new(blobs);
        }
    }

    /// Approximate size of tables and blob files, in bytes.
    pub(crate) fn file_bytes(&self) -> u64 {
        let tables = self.tables().map(|it| it.file_len);
        let blobs = self.blobs.values().map(|it| it.block_bytes);
        let journal = self.journal.iter().map(|it| it.file_len);
        tables.chain(blobs).chain(journal).sum()
    }

    /// Bytes of each blob file that tables refer to.
    pub(crate) fn blob_use(&self) -> BTreeMap<u64, u64> {
        let mut used = BTreeMap::new();
        let all = self.tables().flat_map(|it| &it.properties.blobs);
        for blob in all.filter(|it| segment_of(it.file).is_none()) {
            *used.entry(blob.file).or_default() += blob.bytes;
        }
        used
    }

    /// Bytes of each segment of the value log that tables refer to.
    pub(crate) fn segment_use(&self) -> BTreeMap<u32, u64> {
        let mut used = BTreeMap::new();
        for blob in self.tables().flat_map(|it| &it.properties.blobs) {
            if let Some(segment) = segment_of(blob.file) {
                *used.entry(segment).or_default() += blob.bytes;
            }
        }
        used
    }

    /// Bytes of the value log that tables refer to.
    pub(crate) fn bytes_in_log(&self) -> u64 {
        let blobs = self.tables().flat_map(|it| &it.properties.blobs);
        let in_log = blobs.filter(|it| segment_of(it.file).is_some());
        in_log.map(|it| it.bytes).sum()
    }

    /// The segment of the value log with this number, if an entry may have its body there.
    pub(crate) fn segment(&self, number: u32) -> Option<Arc<LogSegment>> {
        let of_memtables = || self.memtables().find_map(|it| it.segment(number));
        self.segments.get(&number).cloned().or_else(of_memtables)
    }

    /// The journal files that may have records of a segment.
    pub(crate) fn journal_of(&self, segment: u32) -> impl Iterator<Item = &Arc<JournalFile>> {
        let files = self.journal.iter();
        files.filter(move |it| it.has_any_of(segment, segment))
    }

    /// Keeps more segments, named by new tables whose entries did not come from memory.
    pub(crate) fn keep_segments(&mut self, more: Vec<Arc<LogSegment>>) {
        let numbered = more.into_iter().map(|it| (it.number(), it));
        Arc::make_mut(&mut self.segments).extend(numbered);
    }

    /// The record of a batch at a place in the log, if its segment was dropped.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if a file that may have it cannot be read, and no other has it.
    pub(crate) fn read_journal(
        &self,
        at: &LogPlace,
        sequence: u64,
        context: &ReadContext<'_>,
    ) -> Result<Collected> {
        let mut damage = None;
        for file in self.journal_of(at.segment) {
            match file.read(at, sequence, context) {
                Ok(None) => return Ok(Collected::WouldBlock),
                Ok(Some(None)) => {}
                Ok(Some(Some(record))) => return Ok(Collected::Record(record)),
                // Another file may have the record too.
                Err(error) if error.kind() == ErrorKind::Corrupt => damage = Some(error),
                Err(error) => return Err(error),
            }
        }
        damage.map_or(Ok(Collected::Nowhere), Err)
    }

    /// Adds the segments of flushed memtables, and releases segments that no table names.
    pub(crate) fn keep_named_segments(&mut self, flushed: &[Arc<Memtable>]) {
        if self.segments.is_empty() && flushed.iter().all(|it| it.segments().is_empty()) {
            return;
        }
        let used = self.segment_use();
        let mut segments = (*self.segments).clone();
        segments.extend(flushed.iter().flat_map(|it| it.segments()));
        segments.retain(|number, _| used.contains_key(number));
        self.segments = Arc::new(segments);
    }
}

/// The lost range of a table that cannot be opened: all of its keys.
pub(crate) fn gap_of_table(table: &LevelTable) -> Mark {
    gap_between(&table.properties.smallest, &table.properties.largest)
}

/// The lost range from one key to another, both included.
pub(crate) fn gap_between(smallest: &Bytes, largest: &Bytes) -> Mark {
    Mark::lost(smallest.clone(), successor(largest), Bytes::new())
}

/// The runs of level 0, newest first.
pub(crate) fn layers_of(zero: &[LevelTable]) -> impl Iterator<Item = Arc<Vec<LevelTable>>> {
    let layers = layers(zero, |it| (&it.properties.smallest, &it.properties.largest));
    layers.map(|it| Arc::new(it.to_vec()))
}

/// The time when about half of a table is expired.
fn half_expired_at(properties: &Properties, expiry_micros: Option<u64>) -> Option<u64> {
    let lasting = properties.entries - properties.removals;
    let (from, to) = (properties.last_modified_min, properties.last_modified_max);
    // A removal has no time, and counts as the earliest.
    let middle = match properties.removals {
        0 => from + (to - from) / 2,
        _ => to,
    };
    let by_age = expiry_micros.filter(|_| lasting > 0);
    let by_age = by_age.map(|age| middle.saturating_add(age));
    let is_mostly_expiring = properties.expiring > 0 && 2 * properties.expiring >= lasting;
    let by_own = is_mostly_expiring.then_some(properties.expiry_max);
    earlier(by_age, by_own)
}

/// The time when all of a table is expired.
fn expired_at(properties: &Properties, expiry_micros: Option<u64>) -> Option<u64> {
    let lasting = properties.entries - properties.removals;
    let by_age = expiry_micros.filter(|_| lasting > 0);
    let by_age = by_age.map(|age| properties.last_modified_max.saturating_add(age));
    let is_all_expiring = properties.expiring > 0 && properties.expiring >= lasting;
    let by_own = is_all_expiring.then_some(properties.expiry_max);
    earlier(by_age, by_own)
}

fn earlier(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
