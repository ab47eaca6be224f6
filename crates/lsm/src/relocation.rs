//! Relocation of the live entries of a segment of the value log: bodies go to a blob file, and
//! entries that name them to a table.
//!
//! The copy of an entry keeps its sequence. It goes to a table on level 0, below everything in
//! memory (see [`crate::derived_writes`]). There it hides the original, which a later merge drops.
//! So key and head are written again with the body: next to large bodies they are small.
//!
//! The log offers a segment in pieces. A table for each piece, with its syncs, would be expensive
//! for a store with a few records in each. So copies are gathered until the log ends its offer, and
//! until then no table names them. Puts of such keys do not wait: the current entry is looked up
//! again before the table is written.
//!
//! A store with a journal differs: its entries keep the log's places, so records are moved to a
//! journal file, and nothing else is written ([`crate::journal`]).

use std::collections::BTreeMap;

use bytes::Bytes;
use kvorum_backend::{Result, StoreId, Timestamp};
use kvorum_disk::Reading;
use kvorum_planted_defects::is_planted;
use kvorum_sst::hash_key;
use kvorum_storage_errors::from_sst;
use kvorum_value_log::{LogPlace, LoggedRecord};

use crate::blob::{BlobWriter, blob_path};
use crate::flush::Flushing;
use crate::in_tables::{Unread, find_in_tables};
use crate::install::{exchange_journal, install_below};
use crate::journal::{JournalRecord, journal_path};
use crate::log::{key_of_entry, restored};
use crate::store::Store;
use crate::written_blob::{self, WrittenBlob};
use crate::written_journal::{self, JOURNAL_FILE_BYTES_MAX, JournalWriter};
use crate::{Body, Entry, LoggedPlace};

/// Gathered entries are written once they have this many bytes without the bodies, or bodies of
/// this many bytes.
const GATHERED_FRONT_BYTES: u64 = 4 << 20;
const GATHERED_BODY_BYTES: u64 = 256 << 20;

/// Entries copied out of the value log that are in no table yet.
#[derive(Default)]
pub(crate) struct Relocating {
    gathered: Option<Gathered>,
    /// The records being moved, in a store with a journal.
    journal: Option<JournalWriter>,
}

#[derive(Default)]
struct Gathered {
    blobs: Option<BlobWriter>,
    entries: BTreeMap<Bytes, Copied>,
    front_bytes: u64,
    body_bytes: u64,
}

struct Copied {
    /// The body's old place.
    from: LogPlace,
    /// The entry with the new place of its body.
    entry: Entry,
}

impl Relocating {
    /// Copies the records that are still live.
    pub(crate) fn relocate(
        &mut self,
        store: &Store,
        flushing: &mut Flushing,
        records: &[LoggedRecord],
    ) -> Result<u64> {
        for segment in segments_of(records) {
            flushing.out_of(store, segment)?;
        }
        if store.settings.journaled.is_some() {
            return self.relocate_journaled(store, records);
        }
        let mut copied_bytes = 0;
        for record in records {
            if let Some((key, entry)) = current_of(store, record)? {
                let gathered = self.gather(store, &key, entry, record);
                if gathered.is_err() {
                    // The blob file was not finished.
                    self.abandon(store);
                }
                copied_bytes += gathered?;
            }
        }
        let gathered = self.gathered.as_ref();
        let is_much = gathered.is_some_and(|it| {
            it.front_bytes >= GATHERED_FRONT_BYTES || it.body_bytes >= GATHERED_BODY_BYTES
        });
        if is_much {
            copied_bytes += self.install(store, flushing)?;
        }
        Ok(copied_bytes)
    }

    /// The same for a store with a journal: records are moved unchanged, and no table is written.
    fn relocate_journaled(&mut self, store: &Store, records: &[LoggedRecord]) -> Result<u64> {
        let mut copied_bytes = 0;
        for record in records {
            let Some(mut moved) = journaled(store, record)? else {
                continue;
            };
            let is_of_other = |it: &JournalWriter| it.newest_segment() != Some(record.segment);
            if self.journal.as_ref().is_some_and(is_of_other) {
                copied_bytes += self.install_journal(store)?;
            }
            if record.is_back_lost {
                let len = record.stored.head.raw_back_len;
                let at = record.place();
                store.note_lost_body(&moved.key, &LoggedPlace { at, len });
            }
            moved.compress(&store.journal_compressor);
            let added = self.add_to_journal(store, record, &moved);
            if added.is_err() {
                // The journal file was not finished.
                self.abandon(store);
            }
            copied_bytes += added?;
        }
        let journal = self.journal.as_ref();
        if journal.is_some_and(|it| it.len() >= JOURNAL_FILE_BYTES_MAX) {
            copied_bytes += self.install_journal(store)?;
        }
        Ok(copied_bytes)
    }

    fn add_to_journal(
        &mut self,
        store: &Store,
        record: &LoggedRecord,
        moved: &JournalRecord,
    ) -> Result<u64> {
        let writer = match &mut self.journal {
            Some(writer) => writer,
            None => {
                let clean_to = store.visible_sequence();
                self.journal
                    .insert(written_journal::begin(store, clean_to)?)
            }
        };
        let before = writer.len();
        writer.add(&record.place(), moved)?;
        Ok(writer.len() - before)
    }

    fn install_journal(&mut self, store: &Store) -> Result<u64> {
        let Some(writer) = self.journal.take() else {
            return Ok(0);
        };
        let written = written_journal::finish(store, writer)?;
        let bytes = written.table.file_len;
        exchange_journal(store, vec![written], &[])?;
        Ok(bytes)
    }

    fn gather(
        &mut self,
        store: &Store,
        key: &Bytes,
        mut entry: Entry,
        record: &LoggedRecord,
    ) -> Result<u64> {
        let Some(value) = &mut entry.value else {
            return Ok(0);
        };
        let Some(body) = restored(&record.stored.back) else {
            if let Body::Logged(place) = &value.body {
                store.note_lost_body(key, place);
            }
            return Ok(0);
        };
        let len = body.len() as u64;
        let gathered = self.gathered.get_or_insert_default();
        value.body = match body.len() >= store.settings.blob_threshold_bytes.max(1) {
            true => {
                let blobs = match &mut gathered.blobs {
                    Some(blobs) => blobs,
                    None => gathered
                        .blobs
                        .insert(written_blob::begin(store, None, false)?),
                };
                Body::Blob(blobs.add(key, &body)?)
            }
            // The threshold was lower when the body was put.
            false => Body::Inline(Bytes::copy_from_slice(&body)),
        };
        gathered.body_bytes += len;
        gathered.front_bytes += (key.len() + value.payload_bytes()) as u64;
        let from = record.place();
        // Copies, since slices would keep the whole read in memory.
        let key = Bytes::copy_from_slice(key);
        gathered.entries.insert(key, Copied { from, entry });
        Ok(len)
    }

    /// Writes the table of the gathered entries, durably. Returns its bytes.
    pub(crate) fn install(&mut self, store: &Store, flushing: &mut Flushing) -> Result<u64> {
        if self.gathered.is_none() {
            return self.install_journal(store);
        }
        // A flush leaves out removals that had nothing to hide when it began.
        while flushing.is_going_on() {
            flushing.step(store, u64::MAX, Timestamp(0), true)?;
        }
        let Some(gathered) = self.gathered.take() else {
            return Ok(0);
        };
        let number = gathered.blobs.as_ref().map(BlobWriter::number);
        let installed = gathered.install(store);
        if matches!(installed, Err(_) | Ok(0)) {
            // After a failure the table that names the blob file may be listed; then the store has
            // failed, and the next opening uses the manifest.
            let is_known = store.intake.check_not_failed().is_ok();
            let file = number.filter(|_| is_known);
            store.remove_files(file.map(|it| blob_path(&store.directory, it)));
        }
        installed
    }

    /// Abandons the gathered entries: the log offers them again.
    pub(crate) fn abandon(&mut self, store: &Store) {
        let gathered = self.gathered.take();
        let number = gathered.and_then(|it| it.blobs.map(|blobs| blobs.number()));
        store.remove_files(number.map(|it| blob_path(&store.directory, it)));
        let journal = self.journal.take().map(|it| it.number());
        store.remove_files(journal.map(|it| journal_path(&store.directory, it)));
    }
}

impl Gathered {
    fn install(self, store: &Store) -> Result<u64> {
        let mut entries = Vec::with_capacity(self.entries.len());
        for (key, copied) in self.entries {
            if current_at(store, &key, &copied.from)?.is_some() {
                entries.push((key, copied.entry));
            }
        }
        if entries.is_empty() {
            return Ok(0);
        }
        let blob = self.blobs.map(|it| WrittenBlob::finish(store, it));
        install_below(store, &entries, blob.transpose()?.as_ref())
    }
}

/// The key and entry of a record, if the entry is the newest in tables and memory has no newer one.
/// Newer entries in memory are made durable before the segment is dropped.
fn current_of(store: &Store, record: &LoggedRecord) -> Result<Option<(Bytes, Entry)>> {
    let head = &record.stored.head;
    if head.removal || record.store != StoreId(store.identity()) {
        return Ok(None);
    }
    let Some(key) = key_of_entry(head.kind, &head.front) else {
        return Ok(None);
    };
    let found = current_at(store, &key, &record.place())?;
    Ok(found.map(|entry| (key, entry)))
}

/// The record in the journal's form, if it is the newest of its key, for puts and removals alike.
fn journaled(store: &Store, record: &LoggedRecord) -> Result<Option<JournalRecord>> {
    if record.store != StoreId(store.identity()) {
        return Ok(None);
    }
    let moved = JournalRecord::of_logged(record);
    let Some(moved) = moved.filter(|it| store.keeping().journals(&it.key)) else {
        return Ok(None);
    };
    if is_planted!(LiveRecordNotCollected) && moved.sequence.is_multiple_of(5) {
        return Ok(None);
    }
    let newest = newest_in_store(store, &moved.key)?;
    let place = (record.segment, record.stored.head.location.offset);
    let is_newest = newest.is_some_and(|it| it.is_record(moved.sequence, place));
    Ok(is_newest.then_some(moved))
}

/// The entry of a key, if its body is at this place of the log. If a newer layer cannot be read,
/// the answer is unknown, and the segment stays: the layer may be readable again later.
fn current_at(store: &Store, key: &Bytes, at: &LogPlace) -> Result<Option<Entry>> {
    let newest = newest_in_store(store, key)?;
    Ok(newest.filter(|it| it.logged_at().is_some_and(|newest| is_same(&newest, at))))
}

/// The entry of a key in tables, if memory has no newer one. Newer entries in memory are made
/// durable before the segment is dropped.
fn newest_in_store(store: &Store, key: &Bytes) -> Result<Option<Entry>> {
    let version = store.version.load();
    let hash = hash_key(key);
    let is_newer_in_memory = version.memtables().any(|memtable| {
        memtable.newest_of(key, hash).is_some() || memtable.removed_at(key, u64::MAX).is_some()
    });
    if is_newer_in_memory {
        return Ok(None);
    }
    let context = store.read_side.at(Reading::MayBlock);
    match find_in_tables(&version, key, hash, &context) {
        // In a store with a journal, the lost entry is rebuilt from there.
        Err(Unread::GivenUp(error)) if store.settings.journaled.is_some() => Err(error),
        Err(Unread::GivenUp(_)) => Ok(None),
        Err(Unread::Lost(error)) => Err(error),
        Err(Unread::Sst(error)) => Err(from_sst(&error)),
        Ok(found) => Ok(found),
    }
}

/// The place of an entry's body in the log, if it is there.
pub(crate) fn logged_at(entry: &Entry) -> Option<LoggedPlace> {
    match &entry.value.as_ref()?.body {
        Body::Logged(place) => Some(*place),
        Body::Inline(_) | Body::Blob(_) => None,
    }
}

/// Compares places without their lengths, which may be approximate.
fn is_same(one: &LogPlace, other: &LogPlace) -> bool {
    (one.segment, one.record.offset) == (other.segment, other.record.offset)
}

/// The log offers the records of one segment at a time.
fn segments_of(records: &[LoggedRecord]) -> impl Iterator<Item = u32> {
    let mut segments: Vec<u32> = records.iter().map(|it| it.segment).collect();
    segments.dedup();
    segments.into_iter()
}
