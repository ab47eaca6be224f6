//! New journal files, begun and finished in the same way by each move of records.

use std::path::Path;
use std::sync::Arc;

use kvorum_backend::{BackendError, ErrorKind, Result};
use kvorum_disk::Disk;
use kvorum_sst::{Compression, Facts, KnownTable, Table, TableId, TableOptions, TableWriter};
use kvorum_storage_errors::IntoBackend;
use kvorum_value_log::LogPlace;

use crate::journal::{JournalFile, JournalRecord, NAME_BYTES, journal_path, name_of, place_named};
use crate::store::Store;

/// A file with this many bytes is finished.
pub(crate) const JOURNAL_FILE_BYTES_MAX: u64 = 256 << 20;

/// Writes a journal file. Records come in the order of their places.
pub(crate) struct JournalWriter {
    writer: TableWriter,
    clean_to: u64,
    logged_bytes: u64,
    segments: Vec<u32>,
    last: Option<[u8; NAME_BYTES]>,
    buffer: Vec<u8>,
}

/// A journal file that is written and durable.
pub(crate) struct WrittenJournal {
    pub(crate) table: KnownTable,
    clean_to: u64,
    logged_bytes: u64,
    segments: Vec<u32>,
}

impl JournalWriter {
    pub(crate) fn create(
        disk: &dyn Disk,
        directory: &Path,
        id: TableId,
        options: TableOptions,
        clean_to: u64,
    ) -> Result<Self> {
        let path = journal_path(directory, id.number);
        let writer = TableWriter::create(disk, &path, id, options).into_backend()?;
        Ok(Self {
            writer,
            clean_to,
            logged_bytes: 0,
            segments: Vec::new(),
            last: None,
            buffer: Vec::new(),
        })
    }

    pub(crate) fn number(&self) -> u64 {
        self.writer.id().number
    }

    /// As in [`JournalFile::clean_to`].
    pub(crate) fn set_clean_to(&mut self, sequence: u64) {
        self.clean_to = sequence;
    }

    /// The segment of the last record.
    pub(crate) fn newest_segment(&self) -> Option<u32> {
        self.segments.last().copied()
    }

    /// Bytes written so far.
    pub(crate) fn len(&self) -> u64 {
        self.writer.len()
    }

    /// Adds a record. A repeated record is skipped: the log may offer it again.
    pub(crate) fn add(&mut self, at: &LogPlace, record: &JournalRecord) -> Result<()> {
        self.buffer.clear();
        let mut buffer = std::mem::take(&mut self.buffer);
        record.encode(&mut buffer);
        let added = self.add_encoded(&name_of(at, record.sequence), &buffer, record.logged_bytes);
        self.buffer = buffer;
        added
    }

    /// Adds a record in the encoding of another file.
    pub(crate) fn add_encoded(
        &mut self,
        name: &[u8],
        bytes: &[u8],
        logged_bytes: u64,
    ) -> Result<()> {
        let whole: Option<[u8; NAME_BYTES]> = name.try_into().ok();
        let Some((name, (segment, _))) = whole.zip(place_named(name)) else {
            let detail = format!("a journal record under a name of {} bytes", name.len());
            return Err(BackendError::new(ErrorKind::Misuse, detail));
        };
        if self.last.is_some_and(|last| name <= last) {
            return Ok(());
        }
        let added = self.writer.add_alone(&name, bytes, &Facts::default());
        added.into_backend()?;
        self.last = Some(name);
        self.logged_bytes += logged_bytes;
        if self.segments.last() != Some(&segment) {
            self.segments.push(segment);
        }
        Ok(())
    }

    /// Completes the file and syncs it.
    pub(crate) fn finish(self) -> kvorum_sst::Result<WrittenJournal> {
        Ok(WrittenJournal {
            table: self.writer.finish()?,
            clean_to: self.clean_to,
            logged_bytes: self.logged_bytes,
            segments: self.segments,
        })
    }
}

impl WrittenJournal {
    pub(crate) fn number(&self) -> u64 {
        self.table.id.number
    }

    pub(crate) fn opened(self, table: Table) -> JournalFile {
        JournalFile {
            number: self.table.id.number,
            file_len: self.table.file_len,
            logged_bytes: self.logged_bytes,
            clean_to: self.clean_to,
            segments: self.segments,
            table: Some(Arc::new(table)),
        }
    }
}

/// Begins a journal file. Its records are the newest of their keys up to a batch.
pub(crate) fn begin(store: &Store, clean_to: u64) -> Result<JournalWriter> {
    let id = store.table_id(store.take_number());
    // Bodies keep their compression, so blocks need none.
    let options = TableOptions {
        compression: Compression::None,
        ..store.settings.blob_options()
    };
    JournalWriter::create(&*store.disk, &store.directory, id, options, clean_to)
}

/// Makes a file durable; a file that cannot be made durable is removed.
pub(crate) fn finish(store: &Store, writer: JournalWriter) -> Result<WrittenJournal> {
    let number = writer.number();
    let finished = writer.finish();
    if finished.is_err() {
        store.remove_files([journal_path(&store.directory, number)]);
    }
    let written = finished.map_err(|error| store.fail_if_sync(&error))?;
    store.count_written(written.table.file_len);
    Ok(written)
}
