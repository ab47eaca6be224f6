//! Entries put below everything that is in memory: for upkeep that writes what it has derived from what it
//! read.
//!
//! Such a write must not undo a put that came since it was decided. It goes to a table of its own on level
//! 0 while nothing can be flushed, so whatever was put meanwhile stands above it; that takes no lock that a
//! put waits for, no sequence, which a log in front of the store would miss, and no place in a log: it is
//! durable with the manifest. Rejected: to put it like any other batch unless its keys were written since.
//! The batch would have a sequence that the node's log does not know.

use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::{Result, StepOutcome, Timestamp};
use kvorum_sst::{TableWriter, WrittenTable};

use crate::Entry;
use crate::blob::blob_path;
use crate::compaction::WrittenBlob;
use crate::error::IntoBackend;
use crate::files::table_path;
use crate::install::{are_unlisted, blob_record, record};
use crate::store::Store;
use crate::{Lsm, Op};

/// What became of a write below memory.
#[derive(Debug)]
pub enum PutBelow<T> {
    /// It was made, and what was decided is returned with the bytes written.
    Done(T, u64),
    /// What is in memory is being flushed first; ask again.
    Flushing(StepOutcome),
}

impl Lsm {
    /// Reads and writes at once, as far as flushes go: `decide` says what is to be put, in any order, each
    /// key once. Puts go on meanwhile, and what they write counts.
    ///
    /// What is put has a key and fields, and no body that would go to a blob file. Removals of ranges are
    /// left out.
    pub fn put_below<T>(
        &self,
        budget_bytes: u64,
        now: Timestamp,
        decide: impl FnOnce() -> Result<(Vec<Op>, T)>,
    ) -> Result<PutBelow<T>> {
        let mut upkeep = self.store.upkeep.lock();
        self.store.check_writable()?;
        // A flush leaves out removals below which there was nothing when it began.
        if upkeep.flush.is_going_on() {
            let flushed = upkeep.flush.step(&self.store, budget_bytes, now, true);
            return Ok(PutBelow::Flushing(flushed?));
        }
        let (ops, decided) = decide()?;
        let bytes = self.store.write_below(ops)?;
        Ok(PutBelow::Done(decided, bytes))
    }

    /// Flushes some of what is in memory, whether that is due or not.
    pub fn flush_part(&self, budget_bytes: u64, now: Timestamp) -> Result<StepOutcome> {
        let mut upkeep = self.store.upkeep.lock();
        self.store.check_writable()?;
        upkeep.flush.step(&self.store, budget_bytes, now, true)
    }
}

impl Store {
    /// The caller holds upkeep's lock, and no flush is going on.
    fn write_below(&self, ops: Vec<Op>) -> Result<u64> {
        // That of the newest table: a later one would say that what is in memory has been flushed.
        let sequence = self.manifest.lock().sequence;
        let mut entries: Vec<(Bytes, Entry)> = ops
            .into_iter()
            .filter_map(|op| match op {
                Op::Put { key, value } => {
                    let value = Some(value);
                    Some((key, Entry { sequence, value }))
                }
                Op::Remove { key } => Some((key, Entry::removal(sequence))),
                Op::RemoveRange { .. } => None,
            })
            .collect();
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        entries.dedup_by(|a, b| a.0 == b.0);
        self.install_below(&entries, None)
    }

    /// Puts a table with these entries, which are in key order, above all others, and with it the blob file
    /// in which some of them have their bodies. Returns the bytes of the table.
    ///
    /// The caller holds upkeep's lock, and no flush is going on.
    pub(crate) fn install_below(
        &self,
        entries: &[(Bytes, Entry)],
        blob: Option<WrittenBlob>,
    ) -> Result<u64> {
        if entries.is_empty() {
            return Ok(0);
        }
        let number = self.take_number();
        let blob_number = blob.as_ref().map(|it| it.table.id.number);
        let mut was_listing = false;
        let installed = self.write_table(number, entries).and_then(|written| {
            let bytes = written.file_len;
            self.count_written(bytes);
            let tables = self.publish(&[written])?;
            let blob = blob.map(|it| self.open_blob(&it.table, it.table.id.number, it.block_bytes));
            let blob = blob.transpose()?;
            was_listing = true;
            self.change_manifest(|manifest| {
                let records = tables.iter().map(|it| record(it, 0));
                manifest.tables.splice(0..0, records);
                manifest.blobs.extend(blob.as_ref().map(blob_record));
            })?;
            self.change_version(|version| {
                Arc::make_mut(&mut version.levels[0]).splice(0..0, tables);
                version.add_blob(blob);
            });
            Ok(bytes)
        });
        if let Err(error) = &installed
            && are_unlisted(was_listing, error)
        {
            let blob = blob_number.map(|it| blob_path(&self.directory, it));
            let table = table_path(&self.directory, number);
            self.remove_files(blob.into_iter().chain([table]));
        }
        installed
    }

    fn write_table(&self, number: u64, entries: &[(Bytes, Entry)]) -> Result<WrittenTable> {
        let path = table_path(&self.directory, number);
        let options = self.settings.table_options(0, false);
        let id = self.table_id(number);
        let writer = TableWriter::create(self.disk_of(0), &path, id, options);
        let mut writer = writer.into_backend()?;
        let mut value = Vec::new();
        for (key, entry) in entries {
            value.clear();
            entry.encode(&mut value);
            writer.add(key, &value, &entry.facts()).into_backend()?;
        }
        writer.finish().map_err(|error| self.fail_if_sync(&error))
    }
}
