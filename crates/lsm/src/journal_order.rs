//! Folds in the order of the journal: records are read in their order in the value log and in
//! journal files, and shown if they are the newest of their keys.
//!
//! The only random reads are of tables with keys and heads, once for each record. A fold in the
//! order of keys shows the same entries: segments and journal files of the snapshot's version stay
//! readable as long as the snapshot, despite collections. A record that is in the log and in a
//! journal file, or in two such files, is shown once.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use kvorum_backend::{
    ErrorKind, Flow, FoldFilter, FoldRange, JournalFoldEnd, LeaseWatch, Lookup, Result, StoreId,
};
use kvorum_disk::Reading;
use kvorum_planted_defects::is_planted;
use kvorum_sst::{ReadContext, ScanItem, ScanOptions, Table, TableScan};
use kvorum_storage_errors::{IntoBackend, from_segment};
use kvorum_value_log::{LogSegment, RecordsItem};

use crate::journal::{JournalRecord, place_named};
use crate::log::restored;
use crate::rebuilding::is_segment_missing;
use crate::snapshot::LsmSnapshot;
use crate::store::Store;
use crate::version::Version;
use crate::{Entry, Value};

/// Journal files are read in pieces of this many bytes.
const READ_AHEAD_BYTES: usize = 256 << 10;

/// An entry, as shown by a fold in the order of the journal.
pub struct JournalShown<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// The batch that wrote it.
    pub sequence: u64,
    /// The entry in tables.
    pub value: &'a Value,
    /// Its body.
    pub body: &'a Bytes,
}

/// The callback for each entry.
type Visit<'a> = dyn FnMut(&JournalShown<'_>) -> Flow + 'a;

impl LsmSnapshot {
    /// Visits the journal's entries of a range, each once, in the order of their records. The call
    /// ends the segment that is being appended to.
    ///
    /// # Errors
    /// Those of the disk. Damage is skipped, and reported by
    /// [`kvorum_ordered_tree::TreeView::has_met_damage`].
    pub fn scan_journal(
        &self,
        range: &FoldRange,
        filter: &FoldFilter,
        visit: &mut Visit<'_>,
    ) -> Result<JournalFoldEnd> {
        let version = match self.pin.lease.is_over(filter.now) {
            true => None,
            false => self.pin.version(),
        };
        let Some(version) = version else {
            return Ok(JournalFoldEnd::LeaseExpired);
        };
        if let Some(log) = &self.store.log {
            // After that, the snapshot's entries are in files.
            log.roll()?;
        }
        let mut walk = Walk {
            snapshot: self,
            store: &self.store,
            version: &version,
            range,
            filter,
            lease: LeaseWatch::new(self.pin.lease, filter),
            shown: BTreeSet::new(),
        };
        if is_segment_missing(&self.store, &version) {
            walk.note_damage();
        }
        for segment in walk.segments() {
            if let Some(end) = walk.read_segment(segment, visit)? {
                return Ok(end);
            }
        }
        Ok(JournalFoldEnd::Complete)
    }
}

struct Walk<'a> {
    snapshot: &'a LsmSnapshot,
    store: &'a Store,
    version: &'a Version,
    range: &'a FoldRange,
    filter: &'a FoldFilter,
    lease: LeaseWatch<'a>,
    /// Offsets and sequences of the segment's records that were shown.
    shown: BTreeSet<(u64, u64)>,
}

impl Walk<'_> {
    /// The segments whose records are in the log or in journal files.
    fn segments(&self) -> BTreeSet<u32> {
        let in_log = self.version.segments.keys().copied();
        let of_memtables = self.version.memtables();
        let of_memtables = of_memtables.flat_map(|it| it.segments().into_keys());
        let files = self.version.journal.iter();
        let in_files = files.flat_map(|it| it.segments.iter().copied());
        in_log.chain(of_memtables).chain(in_files).collect()
    }

    /// Reads a segment; `None` when the fold continues with the next one.
    fn read_segment(
        &mut self,
        number: u32,
        visit: &mut Visit<'_>,
    ) -> Result<Option<JournalFoldEnd>> {
        self.shown.clear();
        if let Some(segment) = self.version.segment(number)
            && let Some(end) = self.read_log(&segment, visit)?
        {
            return Ok(Some(end));
        }
        for file in self.version.journal_of(number) {
            let Some(table) = &file.table else {
                self.note_damage();
                continue;
            };
            if let Some(end) = self.read_file(table, number, visit)? {
                return Ok(Some(end));
            }
        }
        Ok(None)
    }

    fn read_log(
        &mut self,
        segment: &LogSegment,
        visit: &mut Visit<'_>,
    ) -> Result<Option<JournalFoldEnd>> {
        let own = StoreId(self.store.identity());
        let records = segment.records().map_err(|error| from_segment(&error))?;
        for item in records.into_iter().flatten() {
            let record = match item.map_err(|error| from_segment(&error))? {
                RecordsItem::Record(record) => record,
                RecordsItem::Damage { .. } => {
                    self.note_damage();
                    continue;
                }
            };
            let at = record.place();
            let found = match record.store == own {
                true => JournalRecord::of_logged(&record),
                false => None,
            };
            let place = (at.segment, at.record.offset);
            if let Some(end) = self.pass(found.as_ref(), place, visit)? {
                return Ok(Some(end));
            }
        }
        Ok(None)
    }

    fn read_file(
        &mut self,
        table: &Arc<Table>,
        number: u32,
        visit: &mut Visit<'_>,
    ) -> Result<Option<JournalFoldEnd>> {
        let options = ScanOptions {
            from: Bound::Included(Bytes::copy_from_slice(&number.to_be_bytes())),
            read_ahead_bytes: READ_AHEAD_BYTES,
            ..ScanOptions::default()
        };
        let mut scan = TableScan::new(table.clone(), options);
        let context = ReadContext {
            sink: &self.store.read_side.journal,
            ..self.store.read_side.for_folds()
        };
        loop {
            match scan.advance(&context).into_backend()? {
                ScanItem::End => return Ok(None),
                ScanItem::Gap(_) => {
                    self.note_damage();
                    continue;
                }
                ScanItem::Entry => {}
            }
            let record = JournalRecord::decode(&scan.value_bytes()).ok();
            let Some(place) = place_named(scan.key()) else {
                self.note_damage();
                continue;
            };
            if place.0 > number {
                return Ok(None);
            }
            if record.is_none() {
                self.note_damage();
            }
            if let Some(end) = self.pass(record.as_ref(), place, visit)? {
                return Ok(Some(end));
            }
        }
    }

    /// Shows a record if it belongs to the fold; `None` when the fold continues.
    fn pass(
        &mut self,
        record: Option<&JournalRecord>,
        place: (u32, u64),
        visit: &mut Visit<'_>,
    ) -> Result<Option<JournalFoldEnd>> {
        if self.lease.passes_key() {
            return Ok(Some(JournalFoldEnd::LeaseExpired));
        }
        let Some(record) = record.filter(|it| self.is_of_fold(it)) else {
            return Ok(None);
        };
        let name = (place.1, record.sequence);
        if self.shown.contains(&name) {
            return Ok(None);
        }
        let Some(value) = self.current(record, place)? else {
            return Ok(None);
        };
        let Some(body) = restored(&record.back).filter(|it| it.len() as u64 == value.body_len())
        else {
            self.note_damage();
            return Ok(None);
        };
        self.shown.insert(name);
        let shown = JournalShown {
            key: &record.key,
            sequence: record.sequence,
            value: &value,
            body: &body,
        };
        Ok(match visit(&shown) {
            Flow::Continue => None,
            Flow::Stop => Some(JournalFoldEnd::Stopped),
        })
    }

    fn is_of_fold(&self, record: &JournalRecord) -> bool {
        let is_journaled = self.store.keeping().journals(&record.key);
        is_journaled && !record.is_removal && self.range.contains(&record.key)
    }

    /// The snapshot's entry of the record's key, if this record holds it and the fold shows it.
    fn current(&self, record: &JournalRecord, place: (u32, u64)) -> Result<Option<Value>> {
        let (key, sequence) = (&record.key, self.snapshot.sequence);
        let found = self
            .store
            .find_at(self.version, key, sequence, Reading::MayBlock);
        let entry = match found {
            Ok(Lookup::Found(entry)) => entry,
            Ok(Lookup::Absent | Lookup::WouldBlock) => return Ok(None),
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                self.note_damage();
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let is_current =
            |it: &Entry| it.is_record(record.sequence, place) || is_planted!(OlderRecordFolded);
        let value = Some(entry).filter(is_current).and_then(|it| it.value);
        Ok(value.filter(|it| self.snapshot.admits(&it.fields, self.filter)))
    }

    fn note_damage(&self) {
        self.snapshot.has_met_damage.store(true, Ordering::Relaxed);
    }
}
