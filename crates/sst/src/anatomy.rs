//! A table taken apart for display: every byte in a field, and every checksum with its result.
//!
//! A walk over frames finds the blocks, so that a damaged index hides nothing.

use std::path::Path;

use bytes::Bytes;
use kvorum_disk::anatomy::{Check, Dissection, Piece};
use kvorum_disk::{Disk, DiskError, OpenMode, Operation, Reading};
use kvorum_encoding::{ByteReader, Codec, checksum, mask_checksum};

use crate::footer::{
    FILE_HEADER_BYTES, FOOTER_BYTES, FOOTER_MAGIC, MAGIC, footer_checksum, header_id,
};
use crate::frame::{FRAME_HEADER_BYTES, FrameReader};
use crate::salvage::{Walked, walk};
use crate::{Block, BlockCursor, BlockHandle, Part, Properties, SstError, TableId};

/// The first bytes of a table.
pub const TABLE_MAGIC: [u8; 8] = MAGIC;

/// Shows a key in the form of its writer.
pub type ShowKey = fn(&[u8]) -> String;

/// The display of a table's small entries, as its owner defines it.
#[derive(Clone, Copy)]
pub struct Shown {
    /// The table's kind.
    pub title: &'static str,
    /// The text for an entry's key and value. `None` if it cannot be decoded.
    pub entry: fn(&[u8], &[u8]) -> Option<String>,
    /// The text for the note.
    pub note: fn(&Bytes) -> Option<String>,
}

/// An iterator over the pieces of a table: header, blocks, footer.
pub struct TableAnatomy {
    reader: FrameReader,
    id: TableId,
    show_key: ShowKey,
    shown: Option<Shown>,
    position: u64,
    blocks: std::vec::IntoIter<Walked>,
    footer_at: u64,
    is_ended: bool,
}

impl TableAnatomy {
    /// Opens a table; pieces that end at or before `from` are left out.
    ///
    /// Blocks are bound to the identity in the table's header. `fallback` replaces a damaged
    /// header's.
    pub fn open(
        disk: &dyn Disk,
        path: &Path,
        fallback: Option<TableId>,
        from: u64,
        show_key: ShowKey,
    ) -> kvorum_disk::Result<Self> {
        let file = disk.open(path, OpenMode::Read)?;
        let file_len = file.len()?;
        let mut header = vec![0; usize::try_from(FILE_HEADER_BYTES).unwrap_or(0)];
        let read = file.read_at(&mut header, 0, Reading::MayBlock)?;
        let own = header_id(header.get(..read).unwrap_or(&[]), path);
        let none = TableId {
            store: 0,
            number: 0,
        };
        let id = own.or(fallback).unwrap_or(none);
        let reader = FrameReader::new(file, &id, file_len);
        let first = FILE_HEADER_BYTES.min(file_len);
        let footer_at = file_len.saturating_sub(FOOTER_BYTES).max(first);
        let walked = walk(&reader, first, footer_at, Reading::MayBlock).map_err(disk_error)?;
        let mut blocks = walked.into_iter().peekable();
        let is_before = |it: &Walked| it.handle.end() <= from;
        while blocks.next_if(is_before).is_some() {}
        let position = if from < first {
            0
        } else {
            blocks.peek().map_or(footer_at, |it| it.handle.offset)
        };
        Ok(Self {
            reader,
            id,
            show_key,
            shown: None,
            position,
            blocks: blocks.collect::<Vec<_>>().into_iter(),
            footer_at,
            is_ended: false,
        })
    }

    /// Shows each entry as a field of its own, and the note as text.
    pub fn with_entries(mut self, shown: Shown) -> Self {
        self.shown = Some(shown);
        self
    }

    /// The identity in a table's header; `None` if the header is damaged.
    pub fn header_id(disk: &dyn Disk, path: &Path) -> kvorum_disk::Result<Option<TableId>> {
        let file = disk.open(path, OpenMode::Read)?;
        let mut header = vec![0; usize::try_from(FILE_HEADER_BYTES).unwrap_or(0)];
        let read = file.read_at(&mut header, 0, Reading::MayBlock)?;
        Ok(header_id(header.get(..read).unwrap_or(&[]), path))
    }

    fn read(&self, at: u64, len: u64) -> kvorum_disk::Result<Bytes> {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let read = self.reader.read(at, len, Reading::MayBlock);
        read.map(Bytes::from).map_err(disk_error)
    }

    fn header(&self) -> kvorum_disk::Result<Piece> {
        let bytes = self.read(0, FILE_HEADER_BYTES)?;
        let mut fields = Dissection::new(&bytes, 0);
        fields.magic(&MAGIC);
        fields.number("format version", 1);
        fields.number("zero", 3);
        fields.identity("store", 8);
        fields.number("number", 8);
        let covered = bytes.get(..28).unwrap_or(&bytes);
        fields.checksum("checksum of the header", mask_checksum(checksum(covered)));
        Ok(fields.finish(self.shown.map_or("table", |it| it.title)))
    }

    fn footer(&self) -> kvorum_disk::Result<Piece> {
        let bytes = self.read(self.footer_at, FOOTER_BYTES)?;
        let mut fields = Dissection::new(&bytes, self.footer_at);
        fields.number("offset of the top index", 8);
        fields.number("length of the top index", 4);
        fields.number("offset of the properties", 8);
        fields.number("length of the properties", 4);
        fields.number("format version", 1);
        fields.bytes("zero", 11);
        let covered = bytes.get(..36).unwrap_or(&bytes);
        let computed = footer_checksum(covered, &self.id);
        fields.checksum("checksum of the footer", computed);
        fields.magic(&FOOTER_MAGIC);
        Ok(fields.finish("footer"))
    }

    fn block(&self, part: Part, handle: BlockHandle) -> kvorum_disk::Result<Piece> {
        let bytes = self.read(handle.offset, u64::from(handle.len))?;
        let stored = bytes.slice(FRAME_HEADER_BYTES.min(bytes.len())..);
        let opened = self.reader.open_frame(&bytes, handle, part);
        let mut fields = Dissection::new(&bytes, handle.offset);
        // Right, since the walk found the block by it.
        fields.identity("checksum of the frame's header", 4);
        let computed = mask_checksum(checksum(&stored));
        let is_whole = bytes.get(4..8) == Some(&computed.to_le_bytes());
        fields.checksum("checksum of the payload", computed);
        fields.number("part", 1);
        let codec = bytes.get(9).copied().and_then(Codec::from_number);
        let codec = codec.map_or_else(|| "unknown".to_owned(), |it| format!("{it:?}"));
        fields.field("codec", 1, codec, Check::Covered);
        fields.number("zero", 2);
        fields.number("length as stored", 4);
        fields.number("length before compression", 4);
        if let (Part::Data, Ok(payload), Some(shown)) = (part, &opened, self.shown) {
            let _complete = entry_fields(&mut fields, payload, shown);
        }
        let rest = fields.remaining();
        let (value, check) = match opened {
            Ok(payload) => self.payload(part, payload),
            Err(error) if is_whole => {
                let expected = "a payload that unpacks".to_owned();
                let got = error.to_string();
                (String::new(), Check::Bad { got, expected })
            }
            Err(_) => (String::new(), Check::Covered),
        };
        fields.field("payload", rest, value, check);
        Ok(fields.finish(part.to_string()))
    }

    /// The text for a payload with a right checksum.
    fn payload(&self, part: Part, payload: Bytes) -> (String, Check) {
        let said = match part {
            Part::Data | Part::Index | Part::TopIndex => self.entries(payload),
            Part::Properties => properties(&payload),
            Part::Note => self.shown.and_then(|it| (it.note)(&payload)),
            _ => Some(format!("{} bytes", payload.len())),
        };
        match said {
            Some(said) => (said, Check::Covered),
            None => (
                String::new(),
                Check::Bad {
                    got: "bytes that cannot be understood".to_owned(),
                    expected: part.to_string(),
                },
            ),
        }
    }

    fn entries(&self, payload: Bytes) -> Option<String> {
        let mut cursor = BlockCursor::new(Block::of_entries(payload).ok()?);
        let (mut count, mut first) = (0, None);
        while cursor.advance().ok()? {
            count += 1;
            first.get_or_insert_with(|| (self.show_key)(cursor.key()));
        }
        Some(match first {
            None => "no entries".to_owned(),
            Some(first) if count == 1 => format!("1 entry, {first}"),
            Some(first) => {
                let last = (self.show_key)(cursor.key());
                format!("{count} entries, {first} to {last}")
            }
        })
    }

    fn next_piece(&mut self) -> kvorum_disk::Result<Option<Piece>> {
        if self.position >= self.reader.file_len {
            return Ok(None);
        }
        if self.position == 0 {
            return self.header().map(Some);
        }
        let Some(walked) = self.blocks.next() else {
            return self.footer().map(Some);
        };
        let handle = walked.handle;
        let Some(part) = walked.part else {
            let expected = "the frame of a block";
            let len = u64::from(handle.len);
            return Ok(Some(Piece::damage(
                handle.offset,
                len,
                "none that matches its checksum",
                expected,
            )));
        };
        self.block(part, handle).map(Some)
    }
}

impl Iterator for TableAnatomy {
    type Item = kvorum_disk::Result<Piece>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_ended {
            return None;
        }
        match self.next_piece() {
            Ok(Some(piece)) => {
                self.is_ended = piece.end() <= self.position;
                self.position = piece.end();
                Some(Ok(piece))
            }
            Ok(None) => {
                self.is_ended = true;
                None
            }
            Err(error) => {
                self.is_ended = true;
                Some(Err(error))
            }
        }
    }
}

/// One field for each entry of an uncompressed block.
fn entry_fields(fields: &mut Dissection<'_>, payload: &Bytes, shown: Shown) -> Option<()> {
    if payload.len() != fields.remaining() {
        return None;
    }
    let mut cursor = BlockCursor::new(Block::of_entries(payload.clone()).ok()?);
    let mut begin = 0;
    while cursor.advance().ok()? {
        let value = (shown.entry)(cursor.key(), cursor.value())?;
        fields.field("entry", cursor.position() - begin, value, Check::Covered)?;
        begin = cursor.position();
    }
    Some(())
}

fn properties(payload: &[u8]) -> Option<String> {
    let it = Properties::decode(&mut ByteReader::new(payload)).ok()?;
    let blobs: u64 = it.blobs.iter().map(|it| it.count).sum();
    Some(format!(
        "{} entries, {} of them removals, {} expiring, {blobs} with bodies in blob files; {} marks; \
         sequences {} to {}; last modified {} to {}",
        it.entries,
        it.removals,
        it.expiring,
        it.marks.iter().count(),
        it.sequence_min,
        it.sequence_max,
        it.last_modified_min,
        it.last_modified_max
    ))
}

/// A walk over frames fails only for reasons of the disk.
fn disk_error(error: SstError) -> DiskError {
    match error {
        SstError::Disk(error) => error,
        other => {
            let kind = kvorum_disk::ErrorKind::Device;
            DiskError::new(Operation::Read, Path::new(""), kind, other.to_string())
        }
    }
}
