//! The files of a store taken apart for display: fronts of records, hints, checkpoints, identities
//! and the index of losses.
//!
//! Every layout is drawn above its encoder; checksums are checked as the decoders check them.

use std::path::Path;

use bytes::Bytes;
use kvorum_backend::{LOST_INDEX_BYTES_MAX, Timestamp, lost_index_piece};
use kvorum_disk::anatomy::{Check, Dissection, Field, Piece, Pieces};
use kvorum_disk::{Disk, OpenMode, Reading, read_file};
use kvorum_encoding::{ByteReader, StorageKey};
use kvorum_segment::RecordFront;
use kvorum_sst::TableId;
use kvorum_sst::anatomy::{Shown, TableAnatomy};

use crate::hint_table::EARLIER_MAGICS;
use crate::key_table::{KeyEntry, OWN};
use crate::slot::Slot;
use crate::{checkpoint, entry, hint, log_hint, lost, meta};

/// The kinds in the headers of this engine's segments.
pub const SEGMENT_KINDS: [u8; 2] = [crate::segment::KIND_APPENDED, crate::segment::KIND_MERGED];

/// Kinds of the engine's files other than segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreFile {
    /// The keys of a finished segment.
    Hint,
    /// Keys of records in the value log.
    LogHint,
    /// The key directory at one moment.
    Checkpoint,
    /// A copy of the store's identity.
    Meta,
    /// The index of losses.
    LostIndex,
}

impl StoreFile {
    const ALL: [Self; 5] = [
        Self::Hint,
        Self::LogHint,
        Self::Checkpoint,
        Self::Meta,
        Self::LostIndex,
    ];

    /// The kind of a file by its first 8 bytes; hints are recognized by their names.
    pub fn of_magic(magic: &[u8]) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|it| it.magic().is_some_and(|it| it == magic))
    }

    /// The kind of a file by its name in a store's directory.
    pub fn of_name(name: &str) -> Option<Self> {
        match name {
            checkpoint::CHECKPOINT_NAME => Some(Self::Checkpoint),
            "index" => Some(Self::LostIndex),
            _ if meta::NAMES.contains(&name) => Some(Self::Meta),
            _ if name.ends_with(".hint") => Some(Self::Hint),
            _ if log_hint::log_hint_number(name).is_some() => Some(Self::LogHint),
            _ => None,
        }
    }

    fn magic(self) -> Option<&'static [u8; 8]> {
        match self {
            // Sorted tables have one magic, and leveldb's have it too.
            Self::Hint | Self::LogHint => None,
            Self::Checkpoint => Some(&checkpoint::MAGIC),
            Self::Meta => Some(&meta::MAGIC),
            Self::LostIndex => Some(&lost::MAGIC),
        }
    }

    /// Takes a file apart.
    pub fn pieces(self, disk: &dyn Disk, path: &Path) -> kvorum_disk::Result<Pieces> {
        match self {
            Self::Meta => whole(&read_file(disk, path, meta::BYTES_MAX)?, meta_piece),
            Self::LostIndex => whole(&read_file(disk, path, LOST_INDEX_BYTES_MAX)?, |bytes| {
                lost_index_piece(bytes, lost::MAGIC)
            }),
            Self::Hint => hint_pieces(disk, path, "hint", hint::note_shown),
            Self::LogHint => hint_pieces(disk, path, "log hint", log_hint::note_shown),
            Self::Checkpoint => CheckpointPieces::open(disk, path),
        }
    }
}

/// Takes the front of a record of this engine apart.
pub fn dissect_front(front: &RecordFront<'_>) -> Option<Vec<Field>> {
    if front.kind != entry::KIND_ENTRY {
        return None;
    }
    let decoded = entry::decode_front(front.bytes).ok()?;
    let mut fields = Dissection::new(front.bytes, front.offset);
    fields.number("anti-entropy segment", 4);
    fields.number("last modified", 8);
    fields.number("expiry", 8);
    fields.number("tag", 1);
    fields.number("flags", 1);
    fields.number("zero", 2);
    fields.number("length of the key", 4);
    let key = key_shown(&decoded.key);
    fields.field("key", decoded.key.len(), key, Check::Covered);
    fields.bytes("head", decoded.head.len());
    fields.nothing_more();
    Some(fields.finish("").fields)
}

/// A storage key for display: type, bucket and key if it is an object's.
pub fn key_shown(key: &Bytes) -> String {
    match StorageKey::from_encoded(key.clone()).decode() {
        Ok(address) => address.to_string(),
        Err(_) => kvorum_disk::anatomy::shown(key),
    }
}

fn whole(bytes: &[u8], dissect: fn(&[u8]) -> Piece) -> kvorum_disk::Result<Pieces> {
    Ok(Box::new(std::iter::once(Ok(dissect(bytes)))))
}

fn meta_piece(bytes: &[u8]) -> Piece {
    let mut fields = kvorum_backend::dissect_copy(bytes, &meta::MAGIC);
    fields.field(
        "secret of fingerprints",
        16,
        "(hidden)".to_owned(),
        Check::Covered,
    );
    fields.number("sequence", 8);
    fields.number("next segment", 4);
    let retired = fields.number("number of retired segments", 4);
    for _ in 0..retired {
        if fields.remaining() == 0 {
            break;
        }
        fields.number("retired segment", 4);
    }
    if fields.remaining() > 0 {
        fields.identity("value log", 8);
    }
    if fields.remaining() > 0 {
        let len = usize::try_from(fields.number("length of the label", 1)).unwrap_or(0);
        let at = fields.position();
        let label = bytes.get(at..at + len).unwrap_or(&[]);
        let label = String::from_utf8_lossy(label).into_owned();
        fields.field("label of the store", len, label, Check::Covered);
    }
    fields.nothing_more();
    fields.finish("identity of a store")
}

/// Reads a file that is too large for memory.
struct Source {
    file: std::sync::Arc<dyn kvorum_disk::DiskFile>,
    len: u64,
}

impl Source {
    fn open(disk: &dyn Disk, path: &Path) -> kvorum_disk::Result<Self> {
        let file = disk.open(path, OpenMode::Read)?;
        let len = file.len()?;
        Ok(Self { file, len })
    }

    /// Reads `len` bytes at `at`, or fewer at the end of the file.
    fn read(&self, at: u64, len: u64) -> kvorum_disk::Result<Bytes> {
        let len = len.min(self.len.saturating_sub(at));
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        let read = self.file.read_at(&mut bytes, at, Reading::MayBlock)?;
        bytes.truncate(read);
        Ok(bytes.into())
    }
}

/// A hint: a sorted table whose entries are shown one by one.
fn hint_pieces(
    disk: &dyn Disk,
    path: &Path,
    title: &'static str,
    note: fn(&Bytes) -> Option<String>,
) -> kvorum_disk::Result<Pieces> {
    let source = Source::open(disk, path)?;
    let magic = source.read(0, 8)?;
    if EARLIER_MAGICS.iter().any(|it| magic == it[..]) {
        let content = Field {
            offset: 0,
            len: source.len,
            name: "content of an earlier version".to_owned(),
            value: "not read: it is written again".to_owned(),
            check: Check::Covered,
        };
        let (title, fields) = (title.to_owned(), vec![content]);
        return Ok(Box::new(std::iter::once(Ok(Piece { title, fields }))));
    }
    let show_key = |key: &[u8]| key_shown(&Bytes::copy_from_slice(key));
    let table = TableAnatomy::open(disk, path, hint_id(disk, path), 0, show_key)?;
    Ok(Box::new(table.with_entries(Shown {
        title,
        entry: records_shown,
        note,
    })))
}

/// The identity of a hint with a damaged header, by its name and the store beside it.
fn hint_id(disk: &dyn Disk, path: &Path) -> Option<TableId> {
    let name = path.file_name()?.to_str()?;
    let directory = path.parent().unwrap_or(Path::new("."));
    let store = meta::identity_of(disk, directory).ok()??;
    let number = match log_hint::log_hint_number(name) {
        Some(number) => log_hint::table_number(number),
        None => name.strip_suffix(".hint")?.parse().ok()?,
    };
    Some(TableId { store, number })
}

/// The entry of a hint for the records of a key.
fn records_shown(key: &[u8], value: &[u8]) -> Option<String> {
    let mut shown = key_shown(&Bytes::copy_from_slice(key));
    let mut at = 0;
    while at < value.len() {
        let (entry, len) = KeyEntry::decode_value(Timestamp::default(), &value[at..]).ok()?;
        at += len;
        let removal = if entry.removal { ", removal" } else { "" };
        let within = match (entry.segment & OWN, entry.segment & !OWN) {
            (0, 0) => String::new(),
            (0, segment) => format!(" in segment {segment} of the value log"),
            (_, segment) => format!(" in segment {segment} of the store"),
        };
        let record = format!(
            " sequence {} at {}{within} front to {} length {}{removal}",
            entry.sequence, entry.at.offset, entry.at.front_end, entry.at.len
        );
        shown.push_str(&record);
    }
    Some(shown)
}

/// A checkpoint: its header, its chunks of slots one by one, and its tables.
struct CheckpointPieces {
    source: Source,
    at: u64,
    tables_at: u64,
    segments: u64,
    has_failed: bool,
}

const SEGMENT_FIELDS: [&str; 8] = [
    "covered to",
    "records",
    "removals",
    "bytes of removals",
    "lowest sequence",
    "highest sequence",
    "expires by",
    "modified by",
];

const EXPIRIES_FIELDS: [&str; 8] = [
    "gone by", "bytes", "gone by", "bytes", "gone by", "bytes", "gone by", "bytes",
];

impl CheckpointPieces {
    fn open(disk: &dyn Disk, path: &Path) -> kvorum_disk::Result<Pieces> {
        let source = Source::open(disk, path)?;
        Ok(Box::new(Self {
            source,
            at: 0,
            tables_at: 0,
            segments: 0,
            has_failed: false,
        }))
    }

    fn header(&mut self) -> kvorum_disk::Result<Piece> {
        let bytes = self.source.read(0, checkpoint::HEADER_BYTES as u64)?;
        self.at = bytes.len() as u64;
        let mut reader = ByteReader::new(bytes.get(40..48).unwrap_or(&[]));
        let tables_at = reader.u64().unwrap_or(0);
        let is_inside = tables_at >= self.at
            && tables_at <= self.source.len
            && self.source.len - tables_at <= checkpoint::TABLES_BYTES_MAX;
        self.tables_at = if is_inside {
            tables_at
        } else {
            self.source.len
        };
        let tables = self
            .source
            .read(self.tables_at, checkpoint::TABLES_BYTES_MAX)?;
        let computed = match bytes.len() {
            checkpoint::HEADER_BYTES => checkpoint::header_checksum(&bytes, &tables),
            _ => 0,
        };
        let mut fields = Dissection::new(&bytes, 0);
        fields.magic(&checkpoint::MAGIC);
        fields.number("format version", 1);
        fields.number("flags (1: clean)", 1);
        fields.number("zero", 2);
        fields.checksum("checksum of header and tables", computed);
        fields.identity("log id", 8);
        fields.number("last sequence", 8);
        fields.number("number of slots", 8);
        fields.number("offset of the tables", 8);
        fields.number("length of the file", 8);
        fields.number("next segment", 4);
        self.segments = fields.number("number of segments", 4);
        fields.number("number of places", 4);
        fields.number("number of shards", 4);
        Ok(fields.finish("checkpoint"))
    }

    fn chunk(&mut self) -> kvorum_disk::Result<Piece> {
        let at = self.at;
        let Some((shard, bytes)) = self.whole_chunk(at)? else {
            self.at = self.tables_at;
            let found = "a chunk of another length";
            return Ok(Piece::damage(at, self.at - at, found, "a chunk of slots"));
        };
        self.at += bytes.len() as u64;
        let (frame, slots) = bytes.split_at(checkpoint::CHUNK_HEADER_BYTES);
        let computed = checkpoint::chunk_checksum(at, &frame[..12], slots);
        let mut fields = Dissection::new(&bytes, at);
        fields.number("shard", 4);
        fields.number("number of slots", 4);
        fields.number("zero", 4);
        fields.checksum("checksum of the chunk", computed);
        let shard = usize::try_from(shard).unwrap_or(0);
        for packed in checkpoint::packed_of(slots) {
            let slot = Slot::unpack(shard, packed);
            let value = format!(
                "fingerprint {:016x} place {} offset {} length about {}",
                slot.fingerprint(),
                slot.place(),
                slot.offset(),
                slot.stored_bytes()
            );
            fields.field("slot", checkpoint::SLOT_BYTES, value, Check::Covered);
        }
        Ok(fields.finish("chunk of slots"))
    }

    fn whole_chunk(&self, at: u64) -> kvorum_disk::Result<Option<(u32, Bytes)>> {
        let frame = self
            .source
            .read(at, checkpoint::CHUNK_HEADER_BYTES as u64)?;
        let mut reader = ByteReader::new(&frame);
        let (Ok(shard), Ok(count)) = (reader.u32(), reader.u32()) else {
            return Ok(None);
        };
        let count = u64::from(count);
        let len = (checkpoint::CHUNK_HEADER_BYTES as u64) + count * checkpoint::SLOT_BYTES as u64;
        let is_possible = count <= checkpoint::CHUNK_SLOTS_MAX as u64
            && (shard as usize) < crate::keydir::SHARDS
            && at + len <= self.tables_at;
        if !is_possible {
            return Ok(None);
        }
        let bytes = self.source.read(at, len)?;
        Ok((bytes.len() as u64 == len).then_some((shard, bytes)))
    }

    /// The header's checksum covers the tables.
    fn table_row(&mut self) -> kvorum_disk::Result<Piece> {
        let at = self.at;
        let is_segment = self.segments > 0;
        self.segments = self.segments.saturating_sub(1);
        let len = if is_segment {
            checkpoint::SEGMENT_BYTES
        } else {
            checkpoint::PLACE_BYTES
        };
        let bytes = self.source.read(at, len as u64)?;
        self.at += bytes.len() as u64;
        let mut fields = Dissection::new(&bytes, at);
        if !is_segment {
            fields.number("what slots call it", 4);
            fields.number("kind", 1);
            fields.number("zero", 3);
            fields.number("number", 8);
            return Ok(fields.finish("place"));
        }
        fields.number("number", 4);
        let kind = fields.number("kind", 4);
        let are_times = u32::try_from(kind).is_ok_and(checkpoint::is_about_expiries);
        let (names, title) = match are_times {
            true => (EXPIRIES_FIELDS, "times of a segment"),
            false => (SEGMENT_FIELDS, "segment"),
        };
        for name in names {
            fields.number(name, 8);
        }
        Ok(fields.finish(title))
    }
}

impl Iterator for CheckpointPieces {
    type Item = kvorum_disk::Result<Piece>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_failed || self.at >= self.source.len {
            return None;
        }
        let piece = match self.at {
            0 => self.header(),
            at if at < self.tables_at => self.chunk(),
            _ => self.table_row(),
        };
        self.has_failed = piece.is_err();
        Some(piece)
    }
}
