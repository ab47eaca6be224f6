//! Hints as sorted tables: the entries of records, in blocks that are read and checked one by one.
//!
//! Each block has a summary of its anti-entropy segments, so that a fold over few segments reads
//! few blocks. A hint has nothing that its records lack: a hint with any damage is given up and
//! rewritten, and until then the records are read.

use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use bytes::{Bytes, BytesMut};
use kvorum_backend::Timestamp;
use kvorum_disk::{Disk, OpenMode, Reading, remove_if_there, temporary_name};
use kvorum_encoding::{ByteReader, SegmentFilter, Truncated};
use kvorum_sst::{
    Block, BlockCache, CacheKey, DamageSink, Facts, FilterKind, ReadContext, ScanFilter, ScanItem,
    ScanOptions, SstError, Table, TableDamage, TableId, TableOptions, TableScan, TableWriter,
};
use parking_lot::Mutex;

use crate::key_table::KeyEntry;

/// The first bytes of hints of earlier versions, in another layout.
pub(crate) const EARLIER_MAGICS: [[u8; 8]; 2] = [*b"KVbchint", *b"KVlghint"];

/// The bytes at which a block ends; it has a quarter more at most. A part of a listing reads one
/// block of each hint.
const BLOCK_BYTES: usize = (8 << 10) * 4 / 5;
/// Bytes of each read in a scan of a whole hint.
const READ_AHEAD_BYTES: usize = 64 << 10;
/// Bytes of the buffers that keys are sliced from.
const KEYS_BYTES: usize = 16 << 10;

const OPTIONS: TableOptions = TableOptions {
    block_bytes: BLOCK_BYTES,
    restart_interval: 32,
    has_hash_index: false,
    index_block_bytes: 4 << 10,
    compression: kvorum_sst::Compression::None,
    filter: FilterKind::None,
    has_segment_sets: true,
    sync_every_bytes: 0,
};

/// Reason to ignore a hint.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HintError {
    /// The disk failed.
    #[error(transparent)]
    Disk(kvorum_disk::DiskError),
    /// Its bytes are damaged or do not match its source.
    #[error("{0}")]
    Unusable(String),
    /// It belongs to other contents.
    #[error("{0}")]
    Foreign(String),
    /// It was written by a newer version; its source has the same entries.
    #[error("of a newer version")]
    Newer,
    /// It was written by an earlier version, in another layout.
    #[error("of an earlier version")]
    Earlier,
}

impl From<SstError> for HintError {
    fn from(error: SstError) -> Self {
        match error {
            SstError::Disk(error) => Self::Disk(error),
            SstError::NewerFormat { .. } => Self::Newer,
            SstError::Damaged { part, .. } => Self::Unusable(format!("damaged {part}")),
            SstError::Foreign { .. } => Self::Foreign(error.to_string()),
            other => Self::Unusable(other.to_string()),
        }
    }
}

impl From<Truncated> for HintError {
    fn from(_: Truncated) -> Self {
        Self::Unusable("cut short".to_owned())
    }
}

/// Refuses the note of a newer version.
pub(crate) fn check_version(note: &mut ByteReader<'_>, known: u8) -> Result<(), HintError> {
    match note.u8()? {
        version if version > known => Err(HintError::Newer),
        _ => Ok(()),
    }
}

/// Writes a hint under a temporary name: a table of [`kvorum_sst`] with one entry for each key. The
/// value has the key's records in order, encoded by [`KeyEntry::encode_value`]. The table's note
/// begins with the first entry's time of last modification in 8 bytes, the base of the other times;
/// the owner's note follows.
pub(crate) struct HintTableWriter {
    table: TableWriter,
    temporary: PathBuf,
    path: PathBuf,
    /// The last key, which may get more records.
    key: Bytes,
    value: Vec<u8>,
    facts: Facts,
    base: Option<Timestamp>,
}

impl HintTableWriter {
    pub(crate) fn create(disk: &dyn Disk, path: &Path, id: TableId) -> kvorum_sst::Result<Self> {
        let temporary = temporary_name(path);
        remove_if_there(disk, &temporary)?;
        Ok(Self {
            table: TableWriter::create(disk, &temporary, id, OPTIONS)?,
            temporary,
            path: path.to_owned(),
            key: Bytes::new(),
            value: Vec::new(),
            facts: Facts::default(),
            base: None,
        })
    }

    /// Takes the next entry. Entries are in key order, any number of each key.
    pub(crate) fn push(&mut self, entry: &KeyEntry) -> kvorum_sst::Result<()> {
        if entry.key != self.key {
            self.add_last()?;
        }
        // Folds may still see the record that became a removal.
        if self.value.is_empty() || !entry.removal {
            self.facts = facts(entry);
        }
        self.key = entry.key.clone();
        let base = *self.base.get_or_insert(entry.fields.last_modified);
        entry.encode_value(base, &mut self.value);
        Ok(())
    }

    fn add_last(&mut self) -> kvorum_sst::Result<()> {
        if !self.value.is_empty() {
            self.table.add(&self.key, &self.value, &self.facts)?;
            self.value.clear();
        }
        Ok(())
    }

    /// The present length of the file, in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.table.len()
    }

    /// Writes the rest, makes all durable, and gives the file its name. Returns its length, in
    /// bytes.
    pub(crate) fn finish(mut self, disk: &dyn Disk, note: &[u8]) -> kvorum_sst::Result<u64> {
        self.add_last()?;
        let base = self.base.unwrap_or_default().0.to_le_bytes();
        self.table.set_note([&base, note].concat());
        let written = self.table.finish()?;
        disk.rename(&self.temporary, &self.path)?;
        disk.sync_directory(self.path.parent().unwrap_or(Path::new(".")))?;
        Ok(written.file_len)
    }
}

fn facts(entry: &KeyEntry) -> Facts {
    Facts {
        sequence: entry.sequence,
        last_modified: entry.fields.last_modified.0,
        expiry: entry.fields.expiry.map(|it| it.0),
        segment: entry.fields.segment,
        is_removal: entry.removal,
        blob: None,
    }
}

/// An open hint of which all but the blocks of entries is verified.
pub(crate) struct HintTable {
    table: Arc<Table>,
    base: Timestamp,
}

impl HintTable {
    /// Opens a hint, and returns it with its note.
    pub(crate) fn open(
        disk: &dyn Disk,
        path: &Path,
        id: TableId,
    ) -> Result<(Self, Bytes), HintError> {
        let (table, note) = match Table::open_whole(disk, path, id) {
            Err(error) if error.is_damage() && is_earlier(disk, path)? => {
                return Err(HintError::Earlier);
            }
            opened => opened?,
        };
        let (base, note) = split_note(&note)?;
        let table = Arc::new(table);
        Ok((Self { table, base }, note))
    }

    /// Reads all but the blocks of entries again; returns the bytes.
    pub(crate) fn check_frame(&self) -> Result<u64, HintError> {
        let first = FirstDamage::default();
        let checked = self.table.check_structure(&first)?;
        first.refuse()?;
        Ok(checked.bytes)
    }

    /// The length of the file, in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.table.file_len()
    }

    /// Its memory in bytes while it is open.
    pub(crate) fn memory_bytes(&self) -> u64 {
        size_of::<Self>() as u64 + self.table.memory_bytes()
    }

    /// All entries in key order, for a scan of the whole hint.
    pub(crate) fn scan(&self) -> HintScan {
        let options = ScanOptions {
            read_ahead_bytes: READ_AHEAD_BYTES,
            ..ScanOptions::default()
        };
        HintScan::new(self, options, Bound::Unbounded)
    }

    /// Entries of a range, read block by block. Blocks without any of `segments` are left out.
    pub(crate) fn range(
        &self,
        from: Bound<Bytes>,
        to: Bound<Bytes>,
        segments: Option<SegmentFilter>,
    ) -> HintScan {
        let filter = ScanFilter {
            segments,
            last_modified: None,
        };
        let options = ScanOptions {
            from,
            filter,
            read_ahead_bytes: 0,
            blocks_cached: 0,
        };
        HintScan::new(self, options, to)
    }
}

/// The base of the entries' times, and the owner's note.
pub(crate) fn split_note(note: &Bytes) -> Result<(Timestamp, Bytes), Truncated> {
    let mut reader = ByteReader::new(note);
    let base = Timestamp(reader.u64()?);
    Ok((base, note.slice(reader.offset()..)))
}

fn is_earlier(disk: &dyn Disk, path: &Path) -> kvorum_sst::Result<bool> {
    let mut magic = [0; 8];
    let file = disk.open(path, OpenMode::Read)?;
    file.read_at(&mut magic, 0, Reading::MayBlock)?;
    Ok(EARLIER_MAGICS.contains(&magic))
}

/// Entries of a hint, in key order.
pub(crate) struct HintScan {
    scan: TableScan,
    base: Timestamp,
    options: ScanOptions,
    to: Bound<Bytes>,
    block: LastBlock,
    /// The buffer that keys are sliced from.
    keys: BytesMut,
    key: Bytes,
    /// The bytes of the value that were read.
    passed: usize,
    damage: FirstDamage,
}

impl HintScan {
    fn new(hint: &HintTable, options: ScanOptions, to: Bound<Bytes>) -> Self {
        let table = hint.table.clone();
        Self {
            base: hint.base,
            scan: TableScan::new(table, options.clone()).up_to(to.clone()),
            options,
            to,
            block: LastBlock::default(),
            keys: BytesMut::new(),
            key: Bytes::new(),
            passed: 0,
            damage: FirstDamage::default(),
        }
    }

    /// Continues at the first key at or behind `key`.
    pub(crate) fn seek(&mut self, key: Bytes) {
        self.options.from = Bound::Included(key);
        let table = self.scan.table().clone();
        self.scan = TableScan::new(table, self.options.clone()).up_to(self.to.clone());
        self.passed = 0;
    }

    /// The next entry. The key of the last one may be behind the range.
    pub(crate) fn next(&mut self) -> Result<Option<KeyEntry>, HintError> {
        if self.passed == self.scan.value().len() && !self.next_key()? {
            return Ok(None);
        }
        let value = &self.scan.value()[self.passed..];
        let (entry, len) = KeyEntry::decode_value(self.base, value)?;
        self.passed += len;
        // Nearly every key has one entry, and needs no clone.
        let key = match len == value.len() {
            true => std::mem::take(&mut self.key),
            false => self.key.clone(),
        };
        Ok(Some(KeyEntry { key, ..entry }))
    }

    /// The next entries: this many, or fewer at the end.
    pub(crate) fn some(&mut self, count: usize) -> Result<Vec<KeyEntry>, HintError> {
        let mut entries = Vec::with_capacity(count);
        while entries.len() < count
            && let Some(entry) = self.next()?
        {
            entries.push(entry);
        }
        Ok(entries)
    }

    fn next_key(&mut self) -> Result<bool, HintError> {
        let context = ReadContext {
            cache: &self.block,
            sink: &self.damage,
            reading: Reading::MayBlock,
            fills_cache: self.options.read_ahead_bytes == 0,
        };
        self.passed = 0;
        let item = self.scan.advance(&context)?;
        self.damage.refuse()?;
        if matches!(item, ScanItem::End) {
            return Ok(false);
        }
        let key = self.scan.key();
        if self.keys.capacity() < key.len() {
            self.keys.reserve(KEYS_BYTES.max(key.len()));
        }
        self.keys.extend_from_slice(key);
        self.key = self.keys.split().freeze();
        Ok(true)
    }

    /// The hint's entries of a key, independent of the scan's position.
    pub(crate) fn get(&self, key: &Bytes) -> Result<Vec<KeyEntry>, HintError> {
        // A table without filters and hash indexes does not use the key's hash.
        let found = self.scan.table().get(key, 0, &ReadContext::default())?;
        let value = found.map_or_else(Bytes::new, |found| found.value);
        let (mut entries, mut passed) = (Vec::new(), 0);
        while passed < value.len() {
            let (entry, len) = KeyEntry::decode_value(self.base, &value[passed..])?;
            passed += len;
            let key = key.clone();
            entries.push(KeyEntry { key, ..entry });
        }
        Ok(entries)
    }

    /// Bytes of blocks that were read so far.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.scan.bytes_read()
    }
}

/// The block that was read last, which mostly has the next key.
#[derive(Default)]
struct LastBlock(Mutex<Option<(u64, Arc<Block>)>>);

impl BlockCache for LastBlock {
    fn get(&self, key: &CacheKey) -> Option<Arc<Block>> {
        let last = self.0.lock();
        let (_, block) = last.as_ref().filter(|(at, _)| *at == key.offset)?;
        Some(block.clone())
    }

    fn insert(&self, key: CacheKey, block: &Arc<Block>) {
        *self.0.lock() = Some((key.offset, block.clone()));
    }
}

/// Keeps the first reported damage.
#[derive(Default)]
struct FirstDamage(OnceLock<String>);

impl FirstDamage {
    fn refuse(&self) -> Result<(), HintError> {
        match self.0.get() {
            Some(what) => Err(HintError::Unusable(what.clone())),
            None => Ok(()),
        }
    }
}

impl DamageSink for FirstDamage {
    fn met(&self, damage: TableDamage) {
        let what = || format!("damaged {}", damage.part);
        self.0.get_or_init(what);
    }
}
