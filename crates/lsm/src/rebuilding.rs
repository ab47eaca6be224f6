//! Rebuilding tables from the journal after the loss of a table or of blocks.
//!
//! The journal is read from the value log and journal files, the newest segment first. Records that
//! are newer than all readable entries of their keys go to tables on level 0, below everything in
//! memory, each time a segment was read to the end: so reads always get the newest entry of a key.
//! Removals are included, so that nothing comes back, and entries list the segments with older
//! records of their keys. Once all was read, the lost tables are no longer listed. Until then, a
//! read of a key that may be in a lost table, and is in no other, reports damage instead of
//! absence.
//!
//! Meanwhile merges leave alone lost tables and tables with a mark over a lost block
//! ([`crate::merging`]), and drop no such mark. The value log keeps its segments.
//!
//! Entries derived from others, such as index entries, are not in the journal: their ranges are in
//! doubt until their owner has settled them.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::{
    BackendError, ErrorKind, LostRange, Result, StepOutcome, StoreId, Task, TaskKind, Timestamp,
    Urgency,
};
use kvorum_disk::Reading;
use kvorum_encoding::KeyRange;
use kvorum_ordered_tree::DoubtKind;
use kvorum_planted_defects::is_planted;
use kvorum_segment::Location;
use kvorum_sst::{ReadContext, ScanItem, ScanOptions, TableScan, hash_key};
use kvorum_storage_errors::{IntoBackend, from_segment, from_sst};
use kvorum_value_log::{LogPlace, Records, RecordsItem, Whereabouts};

use crate::flush::Flushing;
use crate::in_tables::{Unread, find_in_tables};
use crate::install::{install_below, list_files};
use crate::journal::{JournalRecord, entry_of, place_named};
use crate::log::restored;
use crate::logged::lost_name;
use crate::store::Store;
use crate::version::{LevelTable, Version};
use crate::{Entry, Value};

/// Journal files are read in pieces of this many bytes.
const READ_AHEAD_BYTES: usize = 256 << 10;
/// Approximate memory of an entry in addition to its bytes.
const ENTRY_BYTES: u64 = 200;

/// The rebuilding in progress, if any.
#[derive(Default)]
pub(crate) struct Rebuilding {
    job: Option<Job>,
}

struct Job {
    /// The tables that were lost at the beginning.
    lost: Vec<u64>,
    /// The parts still to be read; the last is next.
    parts: Vec<Part>,
    /// No part was missing or unreadable up to now: a key that was not found is absent.
    is_whole: bool,
    /// The segment being read, and its part.
    segment: u32,
    reading: Option<PartReading>,
    /// The newest entry of each key that was read and is in no table yet.
    entries: BTreeMap<Bytes, Entry>,
    entries_bytes: u64,
}

/// The records of a segment in the value log or a journal file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    segment: u32,
    /// `None` for the value log.
    file: Option<u64>,
}

enum PartReading {
    Segment(Box<Records>),
    File(Box<TableScan>, u32),
}

/// The next item of a part.
enum Read {
    Entry(Bytes, Box<Entry>),
    /// A record without an entry of the journal.
    Other,
    /// An unreadable part, which was reported.
    Damage,
    End,
}

/// True when the log has lost a segment that tables name.
pub(crate) fn is_segment_missing(store: &Store, version: &Version) -> bool {
    let Some(log) = &store.log else {
        return false;
    };
    let whereabouts = |it: u32| log.whereabouts(StoreId(store.identity()), it);
    let mut named = version.segment_use().into_keys();
    named.any(|it| matches!(whereabouts(it), Whereabouts::Missing))
}

/// Tables that are lost, or have marks over lost blocks. Merges leave them alone if a journal has
/// their entries.
pub(crate) fn lost_tables<'a>(
    store: &Store,
    version: &'a Version,
) -> impl Iterator<Item = &'a LevelTable> {
    let tables = store.settings.journaled.map(|_| version.tables());
    let tables = tables.into_iter().flatten();
    tables.filter(|it| it.lost_ranges().next().is_some())
}

impl Rebuilding {
    pub(crate) fn due(&self, store: &Store, version: &Version) -> Option<Task> {
        let is_due = self.job.is_some() || lost_tables(store, version).next().is_some();
        let files = || version.journal.iter().map(|it| it.file_len).sum::<u64>();
        is_due.then(|| Task {
            kind: TaskKind::Rebuild,
            subject: 0,
            urgency: Urgency::Normal,
            cost_bytes: files() + version.bytes_in_log(),
        })
    }

    pub(crate) fn step(
        &mut self,
        store: &Store,
        flushing: &mut Flushing,
        budget_bytes: u64,
    ) -> Result<StepOutcome> {
        if self.job.is_none() {
            let version = store.version.load_full();
            if lost_tables(store, &version).next().is_none() {
                return Ok(StepOutcome::nothing_left());
            }
            self.job = Some(Job::start(store, &version)?);
        }
        let Some(job) = &mut self.job else {
            return Ok(StepOutcome::nothing_left());
        };
        let stepped = job.step(store, flushing, budget_bytes);
        if stepped.is_err() {
            // The tables written so far stay, and their entries are skipped the next time.
            self.job = None;
        }
        let (cost_bytes, is_done) = stepped?;
        if is_done && let Some(job) = self.job.take() {
            job.drop_lost_tables(store)?;
        }
        Ok(StepOutcome {
            cost_bytes: cost_bytes.max(1),
            is_done,
        })
    }

    /// Abandons the job.
    pub(crate) fn abandon(&mut self) {
        self.job = None;
    }
}

impl Job {
    fn start(store: &Store, version: &Version) -> Result<Self> {
        let mut parts = Vec::new();
        if let Some(log) = &store.log {
            // The segment that is being appended to may have flushed batches, so it ends here.
            log.roll()?;
            let segments = log.segments_of(StoreId(store.identity())).into_iter();
            parts.extend(segments.map(|segment| Part {
                segment,
                file: None,
            }));
        }
        for file in version.journal.iter() {
            parts.extend(file.segments.iter().map(|segment| Part {
                segment: *segment,
                file: Some(file.number),
            }));
        }
        parts.sort_by_key(|it| it.segment);
        Ok(Self {
            lost: lost_tables(store, version).map(|it| it.number).collect(),
            parts,
            is_whole: !is_segment_missing(store, version),
            segment: u32::MAX,
            reading: None,
            entries: BTreeMap::new(),
            entries_bytes: 0,
        })
    }

    /// Reads and writes until the budget is used up.
    fn step(
        &mut self,
        store: &Store,
        flushing: &mut Flushing,
        budget_bytes: u64,
    ) -> Result<(u64, bool)> {
        let mut cost_bytes = 0;
        while cost_bytes < budget_bytes.max(1) {
            let Some(reading) = &mut self.reading else {
                let next = self.parts.pop();
                let is_behind_segment = next.is_none_or(|it| it.segment != self.segment);
                let is_much = self.entries_bytes >= store.settings.memtable_bytes;
                if next.is_none() || (is_behind_segment && is_much) {
                    cost_bytes += self.write(store, flushing)?;
                }
                let Some(part) = next else {
                    return Ok((cost_bytes, true));
                };
                self.segment = part.segment;
                self.reading = open_part(store, part)?;
                self.is_whole &= self.reading.is_some() || part.file.is_none();
                continue;
            };
            let (read, bytes) = reading.next(store)?;
            cost_bytes += bytes;
            match read {
                Read::Entry(key, entry) => self.gather(key, *entry),
                Read::Other => {}
                Read::Damage => self.is_whole = false,
                Read::End => self.reading = None,
            }
        }
        Ok((cost_bytes, false))
    }

    /// Keeps the newest entry of a key, with the segments of the older entries.
    fn gather(&mut self, key: Bytes, mut entry: Entry) {
        if let Some(known) = self.entries.get_mut(&key)
            && !is_planted!(OlderRecordRebuilt)
        {
            if known.sequence > entry.sequence {
                known.hide(&entry);
            }
            if known.sequence >= entry.sequence {
                return;
            }
            entry.hide(known);
        }
        let payload = entry.value.as_ref().map_or(0, Value::payload_bytes);
        self.entries_bytes += (key.len() + payload) as u64 + ENTRY_BYTES;
        self.entries.insert(key, entry);
    }

    /// Writes the gathered entries that tables lack to a table.
    fn write(&mut self, store: &Store, flushing: &mut Flushing) -> Result<u64> {
        // A flush leaves out removals that had nothing to hide when it began.
        while flushing.is_going_on() {
            flushing.step(store, u64::MAX, Timestamp(0), true)?;
        }
        let version = store.version.load_full();
        let mut news = Vec::new();
        for (key, entry) in std::mem::take(&mut self.entries) {
            let entry = news_of(store, &version, &key, entry)?;
            news.extend(entry.map(|it| (key, it)));
        }
        self.entries_bytes = 0;
        install_below(store, &news, None)
    }

    /// Removes the lost tables: other tables have the entries that are left.
    fn drop_lost_tables(&self, store: &Store) -> Result<()> {
        let is_lost = |it: &LevelTable| self.lost.contains(&it.number);
        let change = |version: &mut Version| {
            for level in &mut version.levels {
                let tables = Arc::make_mut(level);
                tables.retain(|it| it.table.is_some() || !is_lost(it));
                let marked = tables.iter_mut().filter(|it| is_lost(it));
                marked.for_each(LevelTable::drop_lost_marks);
            }
        };
        let kind = match self.is_whole {
            true => DoubtKind::Replaced,
            false => DoubtKind::Lost,
        };
        let mut after = Version::clone(&store.version.load());
        for table in after.tables().filter(|it| is_lost(it)) {
            let range = table.lost_ranges().reduce(|a, b| a.with(&b));
            let range = range.unwrap_or_else(KeyRange::everything);
            // The owner of derived keys then checks them again.
            store.read_side.doubts.open(kind, range);
        }
        change(&mut after);
        store.change_manifest(|manifest| list_files(manifest, &after))?;
        store.change_version(change);
        Ok(())
    }
}

/// The entry that tables should have of a key, given its newest entry in the journal: that entry,
/// or the tables' entry with the segments of the entries that it hides. `None` if tables have it
/// already. Newer entries in memory hide it.
fn news_of(store: &Store, version: &Version, key: &Bytes, read: Entry) -> Result<Option<Entry>> {
    let hash = hash_key(key);
    let context = store.read_side.at(Reading::MayBlock);
    let known = match find_in_tables(version, key, hash, &context) {
        Ok(known) => known,
        Err(Unread::Lost(_) | Unread::GivenUp(_)) => None,
        Err(Unread::Sst(error)) if error.is_damage() => None,
        Err(Unread::Sst(error)) => return Err(from_sst(&error)),
    };
    let Some(known) = known.filter(|it| it.sequence >= read.sequence) else {
        let mut memtables = version.memtables();
        let is_in_memory = memtables.any(|it| it.newest_of(key, hash) == Some(read.sequence));
        return Ok(Some(read).filter(|it| !is_in_memory || !it.older.is_empty()));
    };
    let mut news = known.clone();
    match known.sequence == read.sequence {
        true => news.older.add_all(&read.older),
        false => news.hide(&read),
    }
    Ok((news != known).then_some(news))
}

/// Opens a part; `None` if it does not exist, or cannot be read and was reported.
fn open_part(store: &Store, part: Part) -> Result<Option<PartReading>> {
    let Some(number) = part.file else {
        let log = store.log.as_ref();
        let segment = log.and_then(|log| log.segment(part.segment));
        let records = segment.map(|it| it.records()).transpose();
        let records = records.map_err(|error| from_segment(&error))?.flatten();
        return Ok(records.map(|it| PartReading::Segment(Box::new(it))));
    };
    let version = store.version.load();
    let mut files = version.journal.iter();
    let Some(file) = files.find(|it| it.number == number) else {
        // The file was collected meanwhile: its needed records are in a newer file.
        let detail = format!("journal file {number} was replaced while it was to be read");
        return Err(BackendError::new(ErrorKind::WouldBlock, detail));
    };
    let options = ScanOptions {
        from: Bound::Included(Bytes::copy_from_slice(&part.segment.to_be_bytes())),
        read_ahead_bytes: READ_AHEAD_BYTES,
        ..ScanOptions::default()
    };
    let scan = |table| Box::new(TableScan::new(table, options));
    let table = file.table.clone();
    Ok(table.map(|it| PartReading::File(scan(it), part.segment)))
}

impl PartReading {
    /// The next item of the part, and the bytes that were read for it.
    fn next(&mut self, store: &Store) -> Result<(Read, u64)> {
        match self {
            Self::Segment(records) => next_logged(store, records),
            Self::File(scan, segment) => next_of_file(store, scan, *segment),
        }
    }
}

fn next_logged(store: &Store, records: &mut Records) -> Result<(Read, u64)> {
    let Some(item) = records.next() else {
        return Ok((Read::End, 0));
    };
    let record = match item.map_err(|error| from_segment(&error))? {
        RecordsItem::Record(record) => record,
        RecordsItem::Damage { offset, len } => {
            note_damage(store, lost_name(records.segment()), offset, len);
            return Ok((Read::Damage, len));
        }
    };
    let (at, len) = (record.place(), record.stored.head.location.len);
    if record.store != StoreId(store.identity()) {
        return Ok((Read::Other, len));
    }
    let found = JournalRecord::of_logged(&record);
    let found = found.filter(|it| store.keeping().journals(&it.key));
    Ok((found.map_or(Read::Other, |it| read_of(store, &it, at)), len))
}

/// The next item of a segment in a journal file.
fn next_of_file(store: &Store, scan: &mut TableScan, of: u32) -> Result<(Read, u64)> {
    let context = ReadContext {
        sink: &store.read_side.journal,
        ..store.read_side.for_folds()
    };
    match scan.advance(&context).into_backend()? {
        ScanItem::End => return Ok((Read::End, 0)),
        ScanItem::Gap(_) => {
            // The sink has noted the file and the range.
            let doubts = &store.read_side.doubts;
            doubts.open(DoubtKind::Lost, KeyRange::everything());
            return Ok((Read::Damage, 1));
        }
        ScanItem::Entry => {}
    }
    let bytes = scan.value_bytes();
    let len = bytes.len() as u64;
    let record = JournalRecord::decode(&bytes).ok();
    let place = place_named(scan.key());
    if place.is_some_and(|(segment, _)| segment > of) {
        return Ok((Read::End, 0));
    }
    let Some((record, (segment, offset))) = record.zip(place) else {
        return Ok((Read::Other, len));
    };
    let record_len = record.logged_bytes;
    let location = Location {
        offset,
        front_end: 0,
        len: record_len,
    };
    let at = LogPlace {
        segment,
        record: location,
    };
    Ok((read_of(store, &record, at), len))
}

/// Parts are copied, since slices would keep the whole block in memory.
fn read_of(store: &Store, record: &JournalRecord, at: LogPlace) -> Read {
    let entry = entry_of(record, at).map(|mut entry| {
        recalculate(store, record, &mut entry);
        let mut bytes = Vec::new();
        entry.encode(&mut bytes);
        Entry::copied(&bytes)
    });
    match entry {
        Some(Ok(entry)) => Read::Entry(Bytes::copy_from_slice(&record.key), Box::new(entry)),
        _ => Read::Other,
    }
}

/// Recalculates the derived part of an entry, if its kind requires it. An entry with an unreadable
/// body keeps the logged part.
fn recalculate(store: &Store, record: &JournalRecord, entry: &mut Entry) {
    let Some(value) = &mut entry.value else {
        return;
    };
    let body = || restored(&record.back);
    let derived = (store.settings.recalculated)(value.fields.tag, &value.head, &body);
    if let Some(extra) = derived {
        value.extra = extra;
    }
}

/// Unreadable records may have been the newest of any key.
fn note_damage(store: &Store, file: String, offset: u64, len: u64) {
    store.read_side.lost.note(LostRange {
        file,
        offset,
        len,
        held: "records of the journal, from which the tables were to be rebuilt".to_owned(),
    });
    let doubts = &store.read_side.doubts;
    doubts.open(DoubtKind::Lost, KeyRange::everything());
}
