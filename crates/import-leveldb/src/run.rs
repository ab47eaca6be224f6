//! Runs: the records of logs, sorted by key, in the import's own files.
//!
//! Logs have the last writes of a store, up to a hundred megabytes, in the order of writing. The
//! logs of a whole node would not fit into memory. So the logs of a store are sorted into runs, as
//! LevelDB writes logs to tables when it opens a store, and runs are read like tables.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use kvorum_disk::{Disk, DiskFile, OpenMode, Reading};
use kvorum_encoding::{ByteReader, checksum, checksum_append, mask_checksum};
use kvorum_import::ImportError;

use crate::internal_key::{InternalKey, RecordKind};
use crate::record::Record;

/// The most bytes of writes that are sorted at once.
const RUN_BYTES_WANTED: usize = 64 << 20;
/// The memory of a record without its key and value, in bytes.
const RECORD_OVERHEAD_BYTES: usize = 120;
const WRITE_BYTES: usize = 1 << 20;
const READ_BYTES: usize = 64 << 10;
const HEADER_BYTES: usize = 37;

/// Sorts writes and writes them to runs.
pub(crate) struct RunWriter<'a> {
    disk: &'a dyn Disk,
    directory: &'a Path,
    store: usize,
    pending: Vec<Record>,
    pending_bytes: usize,
    /// Lengths of the complete runs, in bytes.
    lens: Vec<u64>,
}

impl<'a> RunWriter<'a> {
    /// A writer of runs for the store with this number.
    pub(crate) fn new(disk: &'a dyn Disk, directory: &'a Path, store: usize) -> Self {
        Self {
            disk,
            directory,
            store,
            pending: Vec::new(),
            pending_bytes: 0,
            lens: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, record: Record) -> Result<(), ImportError> {
        let bytes = record.key.user_key.len() + record.value.len();
        self.pending_bytes += bytes + RECORD_OVERHEAD_BYTES;
        self.pending.push(record);
        match self.pending_bytes >= RUN_BYTES_WANTED {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// Writes the remaining records and makes the runs and their names durable. Returns the runs'
    /// lengths.
    pub(crate) fn finish(mut self) -> Result<Vec<u64>, ImportError> {
        self.flush()?;
        if !self.lens.is_empty() {
            self.disk.sync_directory(self.directory)?;
        }
        Ok(self.lens)
    }

    fn flush(&mut self) -> Result<(), ImportError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let mut records = std::mem::take(&mut self.pending);
        self.pending_bytes = 0;
        let order = |record: &Record| {
            let key = &record.key;
            (key.user_key.clone(), std::cmp::Reverse(key.sequence))
        };
        records.sort_by_cached_key(order);
        // Older versions of a key are not needed.
        records.dedup_by(|older, newer| older.key.user_key == newer.key.user_key);
        let path = run_path(self.directory, self.store, self.lens.len());
        let file = self.disk.open(&path, OpenMode::Create)?;
        file.truncate(0)?;
        let (mut out, mut at) = (Vec::new(), 0);
        for record in &records {
            encode(record, &mut out);
            if out.len() >= WRITE_BYTES {
                file.write_at(&out, at)?;
                at += out.len() as u64;
                out.clear();
            }
        }
        file.write_at(&out, at)?;
        file.sync()?;
        self.lens.push(at + out.len() as u64);
        Ok(())
    }
}

/// The path of the run with this number.
pub(crate) fn run_path(directory: &Path, store: usize, number: usize) -> PathBuf {
    directory.join(format!("{store:04}-{number:04}.run"))
}

/// Appends a record:
///
/// ```text
/// offset  size  field (little-endian)
///      0     4  masked CRC-32C of all that follows
///      4     4  length of the key
///      8     4  length of the value
///     12     8  sequence
///     20     1  kind
///     21     8  time, of kinds 2 and 3
///     29     8  offset in the log
///     37        key, value
/// ```
fn encode(record: &Record, out: &mut Vec<u8>) {
    let key = &record.key;
    let start = out.len();
    let len = |bytes: &Bytes| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&len(&key.user_key).to_le_bytes());
    out.extend_from_slice(&len(&record.value).to_le_bytes());
    out.extend_from_slice(&key.sequence.to_le_bytes());
    out.push(key.kind.number());
    out.extend_from_slice(&key.kind.micros().to_le_bytes());
    out.extend_from_slice(&record.offset.to_le_bytes());
    out.extend_from_slice(&key.user_key);
    out.extend_from_slice(&record.value);
    let sum = mask_checksum(checksum(&out[start + 4..]));
    out[start..start + 4].copy_from_slice(&sum.to_le_bytes());
}

/// A run's records in order.
pub(crate) struct RunCursor {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    len: u64,
    at: u64,
    file: Option<Arc<dyn DiskFile>>,
    /// Bytes from `at` on.
    buffer: Bytes,
}

impl RunCursor {
    pub(crate) fn new(disk: Arc<dyn Disk>, path: PathBuf, len: u64) -> Self {
        Self {
            disk,
            path,
            len,
            at: 0,
            file: None,
            buffer: Bytes::new(),
        }
    }

    pub(crate) fn bytes_behind(&self) -> u64 {
        self.at
    }

    pub(crate) fn advance(&mut self) -> Result<Option<Record>, ImportError> {
        if self.at >= self.len {
            self.file = None;
            return Ok(None);
        }
        let header = self.look(HEADER_BYTES)?;
        let mut reader = ByteReader::new(&header);
        let fields = (|| {
            let sum = reader.u32().ok()?;
            let (key_len, value_len) = (reader.u32().ok()?, reader.u32().ok()?);
            let (sequence, number) = (reader.u64().ok()?, reader.u8().ok()?);
            let (micros, offset) = (reader.u64().ok()?, reader.u64().ok()?);
            let kind = RecordKind::of(number, micros)?;
            let key_len = usize::try_from(key_len).ok()?;
            let value_len = usize::try_from(value_len).ok()?;
            Some((sum, key_len, value_len, sequence, kind, offset))
        })();
        let fields = fields.ok_or_else(|| self.damaged())?;
        let (sum, key_len, value_len, sequence, kind, offset) = fields;
        let whole = HEADER_BYTES + key_len + value_len;
        if self.at.saturating_add(whole as u64) > self.len {
            return Err(self.damaged());
        }
        let bytes = self.look(whole)?;
        if mask_checksum(checksum_append(0, &bytes[4..])) != sum {
            return Err(self.damaged());
        }
        self.at += whole as u64;
        self.buffer = self.buffer.slice(whole..);
        let key = InternalKey {
            user_key: bytes.slice(HEADER_BYTES..HEADER_BYTES + key_len),
            sequence,
            kind,
        };
        let value = bytes.slice(HEADER_BYTES + key_len..);
        Ok(Some(Record { key, value, offset }))
    }

    /// The next `count` bytes.
    fn look(&mut self, count: usize) -> Result<Bytes, ImportError> {
        if self.buffer.len() < count {
            let left = usize::try_from(self.len - self.at).unwrap_or(usize::MAX);
            let mut bytes = vec![0; count.max(READ_BYTES).min(left)];
            let file = match &self.file {
                Some(file) => file.clone(),
                None => self.disk.open(&self.path, OpenMode::Read)?,
            };
            let read = file.read_at(&mut bytes, self.at, Reading::MayBlock)?;
            self.file = Some(file);
            bytes.truncate(read);
            self.buffer = bytes.into();
        }
        match self.buffer.len() < count {
            true => Err(self.damaged()),
            false => Ok(self.buffer.slice(..count)),
        }
    }

    fn damaged(&self) -> ImportError {
        ImportError::StateDamaged {
            what: "sorted log",
            path: self.path.clone(),
            reason: format!("no record at byte {}", self.at),
        }
    }
}
