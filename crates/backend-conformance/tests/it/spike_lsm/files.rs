//! The files of the LSM spike: manifest, write-ahead logs and tables.
//!
//! All are sequences of frames: length, checksum, payload. A log frame is a batch, a table frame an
//! entry; a table ends with a frame that counts them, so that a cut table is detected.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kvorum_backend::{BackendError, ErrorKind, Result, Sequence};
use kvorum_disk::{Disk, DiskError, DiskFile, OpenMode, Reading};
use kvorum_encoding::{ByteReader, StorageKey, put_varint};

use crate::entry_encoding::{
    Change, FRAME_BYTES, Value, framed, put_change, take_change, unframed,
};

const FILE_BYTES_MAX: u64 = 1 << 30;

/// The files of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) identity: u64,
    /// The batches that are not in tables are in logs from this number on.
    pub(crate) first_log: u64,
    /// The last batch when the manifest was written.
    pub(crate) sequence: u64,
    /// The total length of the logs when the store was closed; 0 when it was not.
    pub(crate) closed_log_bytes: u64,
    /// Newest first.
    pub(crate) tables: Vec<u64>,
}

impl Manifest {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut payload = Vec::new();
        for number in [
            self.identity,
            self.first_log,
            self.sequence,
            self.closed_log_bytes,
        ] {
            put_varint(&mut payload, number);
        }
        for table in &self.tables {
            put_varint(&mut payload, *table);
        }
        framed(&payload)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = ByteReader::new(unframed(bytes)?);
        let mut manifest = Self {
            identity: reader.varint().ok()?,
            first_log: reader.varint().ok()?,
            sequence: reader.varint().ok()?,
            closed_log_bytes: reader.varint().ok()?,
            tables: Vec::new(),
        };
        while !reader.is_empty() {
            manifest.tables.push(reader.varint().ok()?);
        }
        Some(manifest)
    }
}

/// A sorted file: keys in memory, values on disk.
pub(crate) struct Table {
    pub(crate) number: u64,
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) slots: BTreeMap<StorageKey, Slot>,
}

/// The place of a value.
pub(crate) struct Slot {
    pub(crate) offset: u64,
    pub(crate) len: usize,
}

impl Table {
    pub(crate) fn open(disk: &dyn Disk, directory: &Path, number: u64) -> Result<Self> {
        let path = table_path(directory, number);
        let damaged = || BackendError::new(ErrorKind::Corrupt, format!("table {number}"));
        let read = kvorum_disk::read_file(disk, &path, FILE_BYTES_MAX);
        let bytes = read.map_err(|error| match error.kind() {
            // The manifest names the file, so either is damaged.
            kvorum_disk::ErrorKind::NotFound => damaged(),
            _ => disk_error(error),
        })?;
        let mut slots = BTreeMap::new();
        let mut offset = 0;
        while let Some(payload) = unframed(&bytes[offset..]) {
            let len = payload.len() + FRAME_BYTES;
            let mut reader = ByteReader::new(payload);
            if offset + len == bytes.len() {
                let is_whole = reader.varint().ok() == Some(slots.len() as u64);
                let file = disk.open(&path, OpenMode::Read).map_err(disk_error)?;
                let table = Self {
                    number,
                    file,
                    slots,
                };
                return is_whole.then_some(table).ok_or_else(damaged);
            }
            let (key, _) = take_change(&mut reader).map_err(|_| damaged())?;
            let slot = Slot {
                offset: offset as u64,
                len,
            };
            slots.insert(key, slot);
            offset += len;
        }
        Err(damaged())
    }

    pub(crate) fn read(&self, slot: &Slot) -> Result<Option<Value>> {
        let mut bytes = vec![0; slot.len];
        self.file
            .read_at(&mut bytes, slot.offset, Reading::MayBlock)
            .map_err(disk_error)?;
        let change = unframed(&bytes).and_then(|it| take_change(&mut ByteReader::new(it)).ok());
        change.map(|(_, value)| value).ok_or_else(|| {
            let detail = format!("table {} at byte {}", self.number, slot.offset);
            BackendError::new(ErrorKind::Corrupt, detail)
        })
    }
}

pub(crate) fn entry_frame(key: &StorageKey, value: Option<&Value>) -> Vec<u8> {
    let mut payload = Vec::new();
    put_change(&mut payload, key, value);
    framed(&payload)
}

pub(crate) fn batch_frame(sequence: Sequence, changes: &[Change]) -> Vec<u8> {
    let mut payload = Vec::new();
    put_varint(&mut payload, sequence.0);
    for (key, value) in changes {
        put_change(&mut payload, key, value.as_ref());
    }
    framed(&payload)
}

/// A batch as the log has it.
pub(crate) type LoggedBatch = (Sequence, Vec<Change>);

/// The batches of a log up to the first broken one, and the start of that one.
pub(crate) fn read_log(bytes: &[u8]) -> Result<(Vec<LoggedBatch>, u64)> {
    let mut batches = Vec::new();
    let mut offset = 0;
    while let Some(payload) = unframed(&bytes[offset..]) {
        let damaged = |_| BackendError::new(ErrorKind::Corrupt, format!("log at byte {offset}"));
        let mut reader = ByteReader::new(payload);
        let sequence = Sequence(reader.varint().map_err(damaged)?);
        let mut changes = Vec::new();
        while !reader.is_empty() {
            changes.push(take_change(&mut reader).map_err(damaged)?);
        }
        batches.push((sequence, changes));
        offset += payload.len() + FRAME_BYTES;
    }
    Ok((batches, offset as u64))
}

pub(crate) fn table_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:08}.table"))
}

pub(crate) fn log_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:08}.log"))
}

pub(crate) fn manifest_path(directory: &Path) -> PathBuf {
    directory.join("MANIFEST")
}

/// The number in the name of a log or table.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    name.split('.').next()?.parse().ok()
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the shape that map_err takes"
)]
pub(crate) fn disk_error(error: DiskError) -> BackendError {
    let kind = match error.kind() {
        kvorum_disk::ErrorKind::NoSpace => ErrorKind::Full,
        kvorum_disk::ErrorKind::Denied => ErrorKind::Denied,
        _ => ErrorKind::Failed,
    };
    BackendError::new(kind, error.to_string())
}
