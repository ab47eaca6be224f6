//! The mechanism of merging: layers in, tables out, in steps of bounded bytes.
//!
//! A flush is the same job with memtables in and one table on level 0 out. It moves large bodies to
//! a blob file.

use std::path::PathBuf;

use bytes::Bytes;
use kvorum_backend::{Result, Timestamp};
use kvorum_planted_defects::is_planted;
use kvorum_sst::{KnownTable, Mark, MarkKind, TableWriter};
use kvorum_storage_errors::IntoBackend;

use crate::blob::{BlobWriter, blob_path};
use crate::files::table_path;
use crate::journal_parts::JournalParts;
use crate::merge::{MergeWalk, Merged};
use crate::merge_entry::MergeEntry;
use crate::store::Store;
use crate::version::{Outline, Version};
use crate::written_blob::{self, WrittenBlob};
use crate::{Body, Entry, Older};

/// A merge or flush in progress.
pub(crate) struct Job {
    walk: MergeWalk,
    /// The tables when the job began: tables below the output stay below it.
    outline: Outline,
    output_level: usize,
    /// Tables of the input, newest first; tables of the output level come last.
    pub(crate) inputs: Vec<u64>,
    writer: Option<TableWriter>,
    /// The start of the present output's range: the end of the last output's.
    range_from: Option<Bytes>,
    blobs: Option<BlobWriter>,
    pub(crate) written: Vec<KnownTable>,
    pub(crate) written_blob: Option<WrittenBlob>,
    is_flush: bool,
    /// Bytes of entries and bodies that were added to outputs.
    bytes_out: u64,
    /// Bytes of the outputs that are finished.
    finished_bytes: u64,
    /// The ranges of the input tables on the output level, in key order; `None` for a job that is
    /// not done in parts.
    ranges_below: Option<Vec<(Bytes, Bytes)>>,
    /// The job continues without the blocks that the device cannot read.
    pub(crate) gives_up: bool,
    /// The contents of the journal, if the store has one, and the newest entry of the present key.
    journal: Option<JournalParts>,
    pending: Option<Pending>,
    /// For encoding.
    buffer: Vec<u8>,
}

/// The newest entry of a key, and the segments of older entries passed since.
struct Pending {
    key: Bytes,
    entry: MergeEntry,
    older: Older,
}

/// The end of a step.
pub(crate) enum Reached {
    /// The budget was used up.
    Budget,
    /// A part ends: outputs for all keys below this one are written and synced, and no table of the
    /// output level has keys on both sides.
    Part(Bytes),
    /// All is written and synced.
    End,
}

impl Job {
    pub(crate) fn new(
        walk: MergeWalk,
        version: &Version,
        output_level: usize,
        inputs: Vec<u64>,
        is_flush: bool,
    ) -> Self {
        Self {
            walk,
            outline: version.outline(),
            output_level,
            inputs,
            writer: None,
            range_from: None,
            blobs: None,
            written: Vec::new(),
            written_blob: None,
            is_flush,
            bytes_out: 0,
            finished_bytes: 0,
            ranges_below: None,
            gives_up: false,
            journal: None,
            pending: None,
            buffer: Vec::new(),
        }
    }

    /// Adds the journal of a store: each entry then names the segments that may hold older entries
    /// of its key, and a removal stays while these segments exist.
    pub(crate) fn over_journal(mut self, journal: Option<JournalParts>) -> Self {
        if let Some(journal) = &journal {
            self.walk = self.walk.with_trails(journal.forgotten());
        }
        self.journal = journal;
        self
    }

    /// Makes it a job in parts from a key on, for scarce space.
    pub(crate) fn in_parts(
        mut self,
        ranges_below: Vec<(Bytes, Bytes)>,
        from: Option<Bytes>,
    ) -> Self {
        self.ranges_below = Some(ranges_below);
        self.range_from = from;
        self
    }

    /// Merges until this many bytes were read and written, or until a part ends. Returns the bytes,
    /// and never zero: the end of a part must not count as a step without work, or other merges
    /// would begin in the middle of this one.
    pub(crate) fn step(
        &mut self,
        store: &Store,
        budget_bytes: u64,
        now: Timestamp,
    ) -> Result<(u64, Reached)> {
        let from = self.walk.bytes() + self.bytes_out;
        let table_bytes_max = store.table_bytes_max(self.is_flush);
        let part_bytes = match store.intake.headroom().is_scarce() {
            true => table_bytes_max,
            false => u64::MAX,
        };
        loop {
            let cost = self.walk.bytes() + self.bytes_out - from;
            if cost >= budget_bytes.max(1) {
                return Ok((cost, Reached::Budget));
            }
            match self.walk.advance(&store.read_side)? {
                Merged::Hidden => self.pass(),
                Merged::Entry(entry) => {
                    self.put_pending(store, now, table_bytes_max)?;
                    if self.output_bytes() >= part_bytes && self.is_between_tables_below() {
                        let next = Bytes::copy_from_slice(self.walk.key());
                        self.end_output(store, Some(next.clone()))?;
                        return Ok((cost.max(1), Reached::Part(next)));
                    }
                    self.take(store, entry, now, table_bytes_max)?;
                }
                Merged::End => {
                    self.put_pending(store, now, table_bytes_max)?;
                    self.end_output(store, None)?;
                    let blobs = self.blobs.take();
                    let written = blobs.map(|it| WrittenBlob::finish(store, it));
                    self.written_blob = written.transpose()?;
                    return Ok((cost.max(1), Reached::End));
                }
            }
        }
    }

    fn output_bytes(&self) -> u64 {
        self.finished_bytes + self.writer.as_ref().map_or(0, TableWriter::len)
    }

    /// True when no table of the output level has keys on both sides of the present key.
    fn is_between_tables_below(&self) -> bool {
        let Some(ranges) = &self.ranges_below else {
            return false;
        };
        let key = self.walk.key();
        let at = ranges.partition_point(|(_, largest)| &largest[..] < key);
        ranges
            .get(at)
            .is_none_or(|(smallest, _)| &smallest[..] >= key)
    }

    /// The files of the outputs, finished or not.
    pub(crate) fn output_paths(&self, store: &Store) -> Vec<PathBuf> {
        let directory = &store.directory;
        let writing = self.writer.as_ref().map(|it| it.id().number);
        let tables = self.written.iter().map(|it| it.id.number).chain(writing);
        let mut paths: Vec<PathBuf> = tables.map(|it| table_path(directory, it)).collect();
        let blob = self.blobs.as_ref().map(BlobWriter::number);
        let written = self.written_blob.as_ref().map(WrittenBlob::number);
        paths.extend(blob.or(written).map(|it| blob_path(directory, it)));
        paths
    }

    /// Puts an entry to the output, or holds it back until the older entries of its key were
    /// passed.
    fn take(
        &mut self,
        store: &Store,
        entry: MergeEntry,
        now: Timestamp,
        table_bytes_max: u64,
    ) -> Result<()> {
        if self.journal.is_some() {
            self.pending = Some(Pending {
                key: Bytes::copy_from_slice(self.walk.key()),
                older: self.walk.take_trail(),
                entry,
            });
            return Ok(());
        }
        match self.kept(store, self.walk.key(), entry, now) {
            Some(entry) => self.put(store, None, entry, table_bytes_max),
            None => Ok(()),
        }
    }

    /// Notes the segment in which an older entry was logged.
    fn pass(&mut self) {
        if let Some(pending) = &mut self.pending {
            pending.older.add_all(&self.walk.take_trail());
        }
    }

    /// Puts the pending entry, with the segments that may still hold older entries of its key.
    fn put_pending(&mut self, store: &Store, now: Timestamp, table_bytes_max: u64) -> Result<()> {
        let (Some(pending), Some(journal)) = (self.pending.take(), &self.journal) else {
            return Ok(());
        };
        let Pending {
            key,
            mut entry,
            mut older,
        } = pending;
        let known = entry.older();
        older.add_all(&known);
        let sequence = entry.facts().sequence;
        older.retain(|first, last| journal.may_have(first, last, sequence));
        if older != known {
            entry = entry.with_older(older);
        }
        match self.kept(store, &key, entry, now) {
            Some(entry) => self.put(store, Some(&key), entry, table_bytes_max),
            None => Ok(()),
        }
    }

    /// The entry to write: an expired entry becomes a removal, and a removal is dropped if nothing
    /// below or in the journal could reappear.
    fn kept(
        &self,
        store: &Store,
        key: &[u8],
        entry: MergeEntry,
        now: Timestamp,
    ) -> Option<MergeEntry> {
        let facts = entry.facts();
        if !facts.is_removal && !store.expiry.is_over_by(&facts, now) {
            return Some(entry);
        }
        let older = entry.older();
        let is_in_journal = !older.is_empty() && !is_planted!(RemovalLeftToJournal);
        let is_needed = is_in_journal || self.is_needed_above(key, key);
        is_needed.then(|| {
            let removed_at = self.journal.as_ref().and_then(|_| entry.logged_at());
            MergeEntry::Entry(Entry {
                removed_at: removed_at.map(Box::new),
                older,
                ..Entry::removal(facts.sequence)
            })
        })
    }

    /// True when an older layer may have keys of this range, both ends included.
    fn is_needed_above(&self, from: &[u8], to: &[u8]) -> bool {
        if is_planted!(TombstoneDroppedTooEarly) {
            return false;
        }
        let is_in_zero = self.is_flush && self.outline.is_in_zero(from, to);
        is_in_zero || self.outline.is_below(self.output_level, from, to)
    }

    /// Adds an entry for this key, or for the key at the walk's position.
    fn put(
        &mut self,
        store: &Store,
        key: Option<&Bytes>,
        mut entry: MergeEntry,
        table_bytes_max: u64,
    ) -> Result<()> {
        if self.is_flush {
            entry = entry.opened_from(store.settings.blob_threshold_bytes);
            if let MergeEntry::Entry(entry) = &mut entry {
                self.move_body(store, entry)?;
            }
        }
        let is_full = self
            .writer
            .as_ref()
            .is_some_and(|it| it.len() >= table_bytes_max);
        if is_full {
            let next = key.cloned();
            let next = next.unwrap_or_else(|| Bytes::copy_from_slice(self.walk.key()));
            self.end_output(store, Some(next))?;
        }
        if self.writer.is_none() {
            self.writer = Some(self.start_output(store)?);
        }
        let value = entry.encoded(&mut self.buffer);
        let key = key.map_or(self.walk.key(), |it| it);
        self.bytes_out += (key.len() + value.len()) as u64;
        if let Some(writer) = &mut self.writer {
            let facts = entry.facts();
            writer.add(key, value, &facts).into_backend()?;
        }
        Ok(())
    }

    fn move_body(&mut self, store: &Store, entry: &mut Entry) -> Result<()> {
        let Some(value) = &mut entry.value else {
            return Ok(());
        };
        let Body::Inline(body) = &value.body else {
            return Ok(());
        };
        if body.len() < store.settings.blob_threshold_bytes.max(1) {
            return Ok(());
        }
        let blobs = match &mut self.blobs {
            Some(blobs) => blobs,
            None => self.blobs.insert(written_blob::begin(store, None, false)?),
        };
        self.bytes_out += body.len() as u64;
        value.body = Body::Blob(blobs.add(self.walk.key(), body)?);
        Ok(())
    }

    fn start_output(&self, store: &Store) -> Result<TableWriter> {
        let number = store.take_number();
        let path = table_path(&store.directory, number);
        let is_last = self.output_level + 1 >= self.outline.levels();
        let options = store.settings.table_options(self.output_level, is_last);
        let id = store.table_id(number);
        TableWriter::create(store.disk_of(self.output_level), &path, id, options).into_backend()
    }

    /// Finishes the present table, with the marks up to the next table's first key.
    fn end_output(&mut self, store: &Store, next: Option<Bytes>) -> Result<()> {
        let marks = self.marks(next.as_ref());
        if self.writer.is_none() && !marks.is_empty() {
            self.writer = Some(self.start_output(store)?);
        }
        if let Some(writer) = &mut self.writer {
            marks.into_iter().for_each(|mark| writer.add_mark(mark));
        }
        self.range_from = next;
        if let Some(writer) = self.writer.take() {
            // Listed before the sync, so that the file of an abandoned job is found.
            let number = writer.id().number;
            let finished = writer.finish();
            if finished.is_err() {
                store.remove_files([table_path(&store.directory, number)]);
            }
            let table = finished.map_err(|error| store.fail_if_sync(&error))?;
            store.count_written(table.file_len);
            self.finished_bytes += table.file_len;
            self.written.push(table);
        }
        Ok(())
    }

    /// The marks that are still needed over the range of the present table.
    fn marks(&self, next: Option<&Bytes>) -> Vec<Mark> {
        let sources = self.walk.sources().iter();
        let all = sources.flat_map(|it| it.marks().iter().chain(it.gaps()));
        let clipped = all.filter_map(|mark| mark.clipped(self.range_from.as_ref(), next));
        // A journal keeps marks of losses until the lost keys are read from it.
        let is_in_journal = |mark: &Mark| self.journal.is_some() && mark.kind == MarkKind::Lost;
        clipped
            .filter(|mark| is_in_journal(mark) || self.is_needed_above(&mark.from, &mark.to))
            .collect()
    }
}
