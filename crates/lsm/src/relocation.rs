//! Copying out of the node's log what lives of a segment that is to go: bodies to a blob file, and what
//! names them to a table.
//!
//! An entry is the same wherever its body stands: a copy keeps its sequence. It goes to a table on level 0,
//! below everything that is in memory, as [`crate::below`] has it; there it hides the entry that it was
//! made of, which goes with a merge. So beside the body, key and head are written again: large entries have
//! small ones.
//!
//! The log offers a segment in pieces. A table for each of them, with its syncs, would be dear where a
//! store has a few records in each; so copies are gathered until the log says that nothing more comes, and
//! until then nothing names them. Who puts such a key meanwhile is not waited for: what is current is looked
//! up again before the table is written.

use std::collections::BTreeMap;

use bytes::Bytes;
use kvorum_backend::{Result, StoreId, Timestamp};
use kvorum_disk::Reading;
use kvorum_sst::hash_key;
use kvorum_value_log::{LogPlace, LoggedRecord};

use crate::blob::{BlobWriter, blob_path};
use crate::compaction::WrittenBlob;
use crate::error::from_sst;
use crate::in_tables::{Unread, find_in_tables};
use crate::log::{is_kept, key_of_entry, restored};
use crate::store::Store;
use crate::upkeep::Upkeep;
use crate::{Body, Entry, LoggedPlace};

/// What is gathered is written once it takes so many bytes beside the bodies, or so many with them.
const GATHERED_FRONT_BYTES: u64 = 4 << 20;
const GATHERED_BODY_BYTES: u64 = 256 << 20;

/// Copies that are in no table yet.
#[derive(Default)]
pub(crate) struct Relocation {
    blobs: Option<BlobWriter>,
    entries: BTreeMap<Bytes, Copied>,
    front_bytes: u64,
    body_bytes: u64,
}

struct Copied {
    /// Where the body stood.
    from: LogPlace,
    /// With its body where it was copied to.
    entry: Entry,
}

impl Store {
    /// Copies those of the records that are still what their keys hold.
    pub(crate) fn relocate(&self, records: &[LoggedRecord]) -> Result<u64> {
        let mut upkeep = self.upkeep.lock();
        self.check_writable()?;
        for segment in segments_of(records) {
            self.flush_out_of(&mut upkeep, segment)?;
        }
        let mut copied_bytes = 0;
        for record in records {
            if let Some((key, entry)) = self.current_of(record)? {
                let gathered = self.gather(&mut upkeep, &key, entry, record);
                if gathered.is_err() {
                    // A file that was not written to its end.
                    self.abandon_relocation(&mut upkeep);
                }
                copied_bytes += gathered?;
            }
        }
        let gathered = upkeep.relocation.as_ref();
        let is_much = gathered.is_some_and(|it| {
            it.front_bytes >= GATHERED_FRONT_BYTES || it.body_bytes >= GATHERED_BODY_BYTES
        });
        if is_much {
            copied_bytes += self.install_relocated(&mut upkeep)?;
        }
        Ok(copied_bytes)
    }

    /// Flushes until nothing of a segment is in memory alone: copies go to a table, and so must be made of
    /// what tables have.
    fn flush_out_of(&self, upkeep: &mut Upkeep, segment: u32) -> Result<()> {
        while let Some(last) = self.uncovered_in(segment) {
            self.flush_towards(upkeep, last, u64::MAX)?;
        }
        Ok(())
    }

    /// The last batch in a segment, if one of those there is in no table.
    pub(crate) fn uncovered_in(&self, segment: u32) -> Option<u64> {
        let writer = self.writer.lock();
        writer.uncovered.last_in(segment)
    }

    /// A part of the flushes after which everything up to this batch is in tables.
    pub(crate) fn flush_towards(
        &self,
        upkeep: &mut Upkeep,
        last: u64,
        budget_bytes: u64,
    ) -> Result<u64> {
        let visible = self.visible_sequence();
        let step = self.flush_step(upkeep, budget_bytes, Timestamp(0), true)?;
        if step.is_done && self.manifest.lock().sequence < last {
            // It is an older flush that ended, or there is nothing to be flushed: batches without a write.
            let version = self.version.load_full();
            if version.memtables().all(|it| it.is_empty()) {
                self.cover_without_tables(visible.max(last))?;
            }
        }
        Ok(step.cost_bytes)
    }

    /// The entry whose body a record is, if that is what its key holds in tables and nothing newer is in
    /// memory. What memory has is made durable before the segment goes.
    fn current_of(&self, record: &LoggedRecord) -> Result<Option<(Bytes, Entry)>> {
        let head = &record.stored.head;
        if head.removal || record.store != StoreId(self.identity()) {
            return Ok(None);
        }
        let Some(key) = key_of_entry(head.kind, &head.front) else {
            return Ok(None);
        };
        let found = self.current_at(&key, &record.place())?;
        Ok(found.map(|entry| (key, entry)))
    }

    /// What a key holds, if its body stands at this place of the log. Where a newer layer cannot be read
    /// nobody can tell: it may be readable again later, and so the segment stays as it is.
    fn current_at(&self, key: &Bytes, at: &LogPlace) -> Result<Option<Entry>> {
        let version = self.version.load();
        let hash = hash_key(key);
        let is_newer_in_memory = version.memtables().any(|memtable| {
            memtable.newest_of(key, hash).is_some() || memtable.removed_at(key, u64::MAX).is_some()
        });
        if is_newer_in_memory {
            return Ok(None);
        }
        let context = self.read_side.at(Reading::MayBlock);
        let found = match find_in_tables(&version, key, hash, &context) {
            Err(Unread::GivenUp(_)) => None,
            Err(Unread::Lost(error)) => return Err(error),
            Err(Unread::Sst(error)) => return Err(from_sst(&error)),
            Ok(found) => found,
        };
        Ok(found.filter(|entry| logged_at(entry).is_some_and(|place| is_same(&place.at, at))))
    }

    fn gather(
        &self,
        upkeep: &mut Upkeep,
        key: &Bytes,
        mut entry: Entry,
        record: &LoggedRecord,
    ) -> Result<u64> {
        let Some(value) = &mut entry.value else {
            return Ok(0);
        };
        let Some(body) = restored(&record.stored.back) else {
            if let Body::Logged(place) = &value.body {
                self.note_lost_body(key, place);
            }
            return Ok(0);
        };
        let len = body.len() as u64;
        let gathered = upkeep.relocation.get_or_insert_default();
        value.body = match is_kept(body.len(), self.settings.blob_threshold_bytes) {
            true => {
                let blobs = match &mut gathered.blobs {
                    Some(blobs) => blobs,
                    None => gathered.blobs.insert(self.new_blob_file()?),
                };
                Body::Blob(blobs.add(key, &body)?)
            }
            // The threshold was lower when it was put.
            false => Body::Inline(Bytes::copy_from_slice(&body)),
        };
        gathered.body_bytes += len;
        gathered.front_bytes += (key.len() + value.payload_bytes()) as u64;
        let from = record.place();
        // As the log gave them, they would keep all that was read with them.
        let key = Bytes::copy_from_slice(key);
        gathered.entries.insert(key, Copied { from, entry });
        Ok(len)
    }

    fn new_blob_file(&self) -> Result<BlobWriter> {
        let number = self.take_number();
        let options = self.settings.blob_options();
        let id = self.table_id(number);
        BlobWriter::create(&*self.disk, &self.directory, id, number, options)
    }

    /// Writes the table of what was gathered, durably. Returns its bytes.
    pub(crate) fn install_relocated(&self, upkeep: &mut Upkeep) -> Result<u64> {
        if upkeep.relocation.is_none() {
            return Ok(0);
        }
        // A flush leaves out removals below which there was nothing when it began.
        while upkeep.flush.is_some() {
            self.flush_step(upkeep, u64::MAX, Timestamp(0), true)?;
        }
        let Some(gathered) = upkeep.relocation.take() else {
            return Ok(0);
        };
        let number = gathered.blobs.as_ref().map(BlobWriter::number);
        let installed = self.install_gathered(gathered);
        if matches!(installed, Err(_) | Ok(0)) {
            // The table that names it may be listed after a failure; then the store has failed, and the
            // next opening goes by what is listed.
            let is_known = self.check_not_failed().is_ok();
            let file = number.filter(|_| is_known);
            self.remove_files(file.map(|it| blob_path(&self.directory, it)));
        }
        installed
    }

    fn install_gathered(&self, gathered: Relocation) -> Result<u64> {
        let mut entries = Vec::with_capacity(gathered.entries.len());
        for (key, copied) in gathered.entries {
            if self.current_at(&key, &copied.from)?.is_some() {
                entries.push((key, copied.entry));
            }
        }
        if entries.is_empty() {
            return Ok(0);
        }
        let blob = match gathered.blobs {
            None => None,
            Some(blobs) => {
                let block_bytes = blobs.block_bytes;
                let finished = blobs.finish();
                let table = finished.map_err(|error| self.fail_if_sync(&error))?;
                self.count_written(table.file_len);
                Some(WrittenBlob { table, block_bytes })
            }
        };
        self.install_below(&entries, blob)
    }

    /// Gives up what was gathered: the log offers it again.
    pub(crate) fn abandon_relocation(&self, upkeep: &mut Upkeep) {
        let gathered = upkeep.relocation.take();
        let number = gathered.and_then(|it| it.blobs.map(|blobs| blobs.number()));
        self.remove_files(number.map(|it| blob_path(&self.directory, it)));
    }
}

/// Where in the log the body of an entry is, if it is there.
pub(crate) fn logged_at(entry: &Entry) -> Option<LoggedPlace> {
    match &entry.value.as_ref()?.body {
        Body::Logged(place) => Some(*place),
        Body::Inline(_) | Body::Blob(_) => None,
    }
}

/// Lengths may be rough.
fn is_same(one: &LogPlace, other: &LogPlace) -> bool {
    (one.segment, one.record.offset) == (other.segment, other.record.offset)
}

/// The log offers the records of one segment at a time.
fn segments_of(records: &[LoggedRecord]) -> impl Iterator<Item = u32> {
    let mut segments: Vec<u32> = records.iter().map(|it| it.segment).collect();
    segments.dedup();
    segments.into_iter()
}
