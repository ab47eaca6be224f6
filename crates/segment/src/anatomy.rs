//! A segment taken apart for display: every byte in a field, and every checksum with its result.
//!
//! Records are decoded by their own decoder. Unlike [`Scan`](crate::Scan), this does not
//! distinguish a torn tail from corruption, and shows seals, marks, zeros and the gaps between
//! records as they are.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_disk::anatomy::{Check, Dissection, Field, Piece, shown};
use kvorum_disk::{Disk, DiskFile, OpenMode, Reading};
use kvorum_encoding::{checksum, checksum_append, mask_checksum};

use crate::file_header::{FILE_HEADER_LEN, check_file_header};
use crate::record::{
    ChecksumSeed, Purpose, RecordHeader, aligned, decode_header, find_header, raw_len,
};
use crate::{FILE_HEADER_BYTES, RECORD_ALIGN_BYTES, RECORD_HEADER_BYTES, SegmentError, SegmentId};

/// The first bytes of a segment.
pub const SEGMENT_MAGIC: [u8; 8] = crate::file_header::MAGIC;
/// The number of bytes that are read at a time and kept for the next pieces.
const WINDOW_BYTES: usize = 256 << 10;
/// The number of bytes shown of a back.
const SHOWN_BACK_BYTES: u64 = 64;

/// The front of a record, for the crate that wrote it and can divide it into fields.
pub struct RecordFront<'a> {
    /// The kind in the file's header.
    pub file_kind: u8,
    /// The record's kind.
    pub kind: u8,
    /// The record is a removal.
    pub removal: bool,
    /// The offset of the front in the file.
    pub offset: u64,
    /// The front.
    pub bytes: &'a Bytes,
}

/// Divides a front with a right checksum into fields. For `None` the front is shown as one field.
pub type DissectFront = fn(&RecordFront<'_>) -> Option<Vec<Field>>;

/// An iterator over the pieces of a segment: header, records, gaps, damage.
pub struct SegmentAnatomy {
    file: Arc<dyn DiskFile>,
    id: SegmentId,
    seed: ChecksumSeed,
    len: u64,
    position: u64,
    dissect: DissectFront,
    window: Bytes,
    window_at: u64,
    is_ended: bool,
}

impl SegmentAnatomy {
    /// Opens a segment; pieces that end at or before `from` are left out.
    ///
    /// The checksums of records include the identity in the segment's header. `fallback` is the
    /// identity of a segment whose header is damaged.
    pub fn open(
        disk: &dyn Disk,
        path: &Path,
        fallback: Option<SegmentId>,
        from: u64,
        dissect: DissectFront,
    ) -> kvorum_disk::Result<Self> {
        let file = disk.open(path, OpenMode::Read)?;
        let mut header = [0; FILE_HEADER_LEN];
        let read = file.read_at(&mut header, 0, Reading::MayBlock)?;
        let own = header_id(&header[..read], path);
        let id = own.or(fallback).unwrap_or(SegmentId {
            log_id: 0,
            number: 0,
            kind: 0,
        });
        let mut anatomy = Self {
            len: file.len()?,
            file,
            seed: ChecksumSeed::of(&id),
            id,
            position: 0,
            dissect,
            window: Bytes::new(),
            window_at: 0,
            is_ended: false,
        };
        let from = from.min(anatomy.len);
        if from >= FILE_HEADER_BYTES {
            anatomy.position = anatomy.record_around(from)?;
        }
        Ok(anatomy)
    }

    /// The identity of the segment, from its header or the fallback.
    pub fn id(&self) -> SegmentId {
        self.id
    }

    /// The identity in a file's header, if it is whole.
    pub fn header_id(disk: &dyn Disk, path: &Path) -> kvorum_disk::Result<Option<SegmentId>> {
        let file = disk.open(path, OpenMode::Read)?;
        let mut header = [0; FILE_HEADER_LEN];
        let read = file.read_at(&mut header, 0, Reading::MayBlock)?;
        Ok(header_id(&header[..read], path))
    }

    /// The start of the record at `from`, or of the first record behind.
    fn record_around(&mut self, from: u64) -> kvorum_disk::Result<u64> {
        let reach = from.saturating_sub(WINDOW_BYTES as u64);
        let mut at = aligned(reach.max(FILE_HEADER_BYTES));
        if at > FILE_HEADER_BYTES {
            at = self.find_record(at)?.unwrap_or(self.len);
        }
        let mut start = at;
        while at <= from && at < self.len {
            start = at;
            at = match self.whole_record(at)? {
                Some(header) => aligned(at + header.len()),
                None => match self.find_record(at + RECORD_ALIGN_BYTES)? {
                    Some(next) => next,
                    None => break,
                },
            };
        }
        // A record that is longer than the searched part is shown as bytes without a header.
        Ok(if start > from { aligned(from) } else { start })
    }

    fn next_piece(&mut self) -> kvorum_disk::Result<Option<Piece>> {
        let at = self.position;
        if at >= self.len {
            return Ok(None);
        }
        if at == 0 {
            let bytes = self.bytes(0, FILE_HEADER_LEN)?;
            self.position = bytes.len() as u64;
            return Ok(Some(header_piece(&bytes, self.file.path())));
        }
        let header = self.bytes(at, RECORD_HEADER_BYTES)?;
        if header.iter().all(|byte| *byte == 0) {
            return self.zeros(at);
        }
        match decode_header(&header, self.seed, at) {
            Some(header) if at + header.len() <= self.len => self.record(at, &header).map(Some),
            Some(header) => {
                let expected = format!("{} bytes of a record", header.len());
                let found = format!("{} bytes up to the end", self.len - at);
                self.damage(at, &found, &expected).map(Some)
            }
            None => self
                .damage(at, "no record header", "a record header")
                .map(Some),
        }
    }

    fn zeros(&mut self, at: u64) -> kvorum_disk::Result<Option<Piece>> {
        let mut end = at;
        while end < self.len {
            let bytes = self.bytes(end, WINDOW_BYTES)?;
            let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
            end += zeros as u64;
            if zeros < bytes.len() || bytes.is_empty() {
                end = end / RECORD_ALIGN_BYTES * RECORD_ALIGN_BYTES;
                break;
            }
        }
        if end < self.len && self.find_record(end)?.is_some() {
            self.window = Bytes::new();
            let header = self.bytes(at, RECORD_HEADER_BYTES)?;
            if header.iter().any(|byte| *byte != 0) {
                // A running server has appended a record here in the meantime.
                return self.next_piece();
            }
            self.position = end;
            let found = format!("{} zeros", end - at);
            return Ok(Some(Piece::damage(at, end - at, &found, "a record")));
        }
        self.position = end.min(self.len);
        let field = Field {
            offset: at,
            len: self.position - at,
            name: "zeros".to_owned(),
            value: String::new(),
            check: Check::Covered,
        };
        Ok(Some(Piece {
            title: "reserved and not written".to_owned(),
            fields: vec![field],
        }))
    }

    /// A damaged piece, up to the next record.
    fn damage(&mut self, at: u64, found: &str, expected: &str) -> kvorum_disk::Result<Piece> {
        let next = self.find_record(aligned(at + 1))?.unwrap_or(self.len);
        self.position = next;
        Ok(Piece::damage(at, next - at, found, expected))
    }

    fn record(&mut self, at: u64, header: &RecordHeader) -> kvorum_disk::Result<Piece> {
        let front_end = usize_of(header.front_end());
        let whole_front = self.bytes(at, front_end)?;
        let computed = header.front_checksum_of(&whole_front);
        let is_front_good = computed == header.front_checksum;
        let end = at + header.len();
        let next = aligned(end).min(self.len);
        if !is_front_good && !self.is_start(next)? {
            let expected = format!("front checksum {:08x}", header.front_checksum);
            return self.damage(at, &format!("{computed:08x}"), &expected);
        }
        let mut fields = header_fields(header, &whole_front, at, computed);
        let front = whole_front.slice(RECORD_HEADER_BYTES..);
        let front_at = at + RECORD_HEADER_BYTES as u64;
        fields.extend(self.front_fields(header, &front, front_at, is_front_good));
        self.back_fields(header, at, &mut fields)?;
        let gap = self.bytes(end, usize_of(next - end))?;
        if !gap.is_empty() {
            fields.push(gap_field(&gap, end));
        }
        self.position = next;
        let title = match header.purpose {
            Purpose::Data if header.removal => "record: removal",
            Purpose::Data => "record",
            Purpose::Seal => "seal",
            Purpose::Mark => "mark",
        };
        Ok(Piece {
            title: title.to_owned(),
            fields,
        })
    }

    fn front_fields(
        &self,
        header: &RecordHeader,
        front: &Bytes,
        at: u64,
        is_good: bool,
    ) -> Vec<Field> {
        let mut fields = Dissection::new(front, at);
        if header.raw_len_bytes() > 0 {
            let raw = raw_len(header, front).to_string();
            let len = header.raw_len_bytes();
            fields.field("back before compression", len, raw, Check::Covered);
        }
        let start = fields.position();
        if header.purpose == Purpose::Seal {
            for name in [
                "offset of the seal",
                "records",
                "lowest sequence",
                "highest sequence",
            ] {
                fields.number(name, 8);
            }
        } else if is_good && header.purpose == Purpose::Data {
            let bytes = front.slice(start..);
            let own = (self.dissect)(&RecordFront {
                file_kind: self.id.kind,
                kind: header.kind,
                removal: header.removal,
                offset: at + start as u64,
                bytes: &bytes,
            });
            if let Some(own) = own {
                return fields.finish("").fields.into_iter().chain(own).collect();
            }
        }
        let rest = fields.remaining();
        fields.bytes("front", rest);
        fields.finish("").fields
    }

    fn back_fields(
        &mut self,
        header: &RecordHeader,
        at: u64,
        fields: &mut Vec<Field>,
    ) -> kvorum_disk::Result<()> {
        let (start, end) = (at + header.front_end(), at + header.len());
        let begin = self.bytes(start, usize_of(SHOWN_BACK_BYTES.min(end - start)))?;
        let mut sum = checksum(&[]);
        let mut position = start;
        while position < end {
            let len = usize_of(end - position).min(WINDOW_BYTES);
            let bytes = self.bytes(position, len)?;
            if bytes.is_empty() {
                break;
            }
            sum = checksum_append(sum, &bytes);
            position += bytes.len() as u64;
        }
        if let Some(field) = fields.get_mut(1) {
            field.check = Check::of_checksum(mask_checksum(sum), header.back_checksum);
        }
        if end > start {
            fields.push(Field {
                offset: start,
                len: end - start,
                name: format!("back ({:?})", header.codec),
                value: shown(&begin),
                check: Check::Covered,
            });
        }
        Ok(())
    }

    fn is_start(&mut self, at: u64) -> kvorum_disk::Result<bool> {
        Ok(at >= self.len || self.whole_record(at)?.is_some())
    }

    /// The header of a record whose front is whole.
    fn whole_record(&mut self, at: u64) -> kvorum_disk::Result<Option<RecordHeader>> {
        let bytes = self.bytes(at, RECORD_HEADER_BYTES)?;
        let Some(header) = decode_header(&bytes, self.seed, at) else {
            return Ok(None);
        };
        if at + header.len() > self.len {
            return Ok(None);
        }
        let front = self.bytes(at, usize_of(header.front_end()))?;
        let is_whole = header.front_checksum_of(&front) == header.front_checksum;
        Ok(is_whole.then_some(header))
    }

    /// The first whole record at or behind `from`, which is aligned.
    fn find_record(&mut self, from: u64) -> kvorum_disk::Result<Option<u64>> {
        let mut at = from;
        while at + RECORD_HEADER_BYTES as u64 <= self.len {
            let bytes = self.bytes(at, WINDOW_BYTES)?;
            let last = bytes.len().saturating_sub(RECORD_HEADER_BYTES - 1);
            let Some(index) = find_header(&bytes, self.seed, at) else {
                let step =
                    (last as u64 / RECORD_ALIGN_BYTES * RECORD_ALIGN_BYTES).max(RECORD_ALIGN_BYTES);
                at += step;
                continue;
            };
            let found_at = at + index as u64;
            if self.whole_record(found_at)?.is_some() {
                return Ok(Some(found_at));
            }
            at = found_at + RECORD_ALIGN_BYTES;
        }
        Ok(None)
    }

    /// Reads `len` bytes at `at`, or fewer at the end of the file.
    fn bytes(&mut self, at: u64, len: usize) -> kvorum_disk::Result<Bytes> {
        let len = usize_of(self.len.saturating_sub(at)).min(len);
        let start = at.checked_sub(self.window_at).map(usize_of);
        if let Some(start) = start
            && let Some(end) = start.checked_add(len)
            && end <= self.window.len()
        {
            return Ok(self.window.slice(start..end));
        }
        let rest = usize_of(self.len.saturating_sub(at));
        let mut window = vec![0; len.max(WINDOW_BYTES).min(rest)];
        let read = self.file.read_at(&mut window, at, Reading::MayBlock)?;
        window.truncate(read);
        self.window = window.into();
        self.window_at = at;
        Ok(self.window.slice(..len.min(read)))
    }
}

impl Iterator for SegmentAnatomy {
    type Item = kvorum_disk::Result<Piece>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_ended {
            return None;
        }
        match self.next_piece() {
            Ok(Some(piece)) => Some(Ok(piece)),
            Ok(None) => None,
            Err(error) => {
                self.is_ended = true;
                Some(Err(error))
            }
        }
    }
}

fn header_id(bytes: &[u8], path: &Path) -> Option<SegmentId> {
    // Compared with an impossible identity, a sound header is reported as foreign, with its own.
    let unknown = SegmentId {
        log_id: 0,
        number: 0,
        kind: 0,
    };
    let kind = *bytes.get(9)?;
    match check_file_header(bytes, &unknown, path) {
        Ok(kind) => Some(SegmentId { kind, ..unknown }),
        Err(SegmentError::Foreign {
            got_log,
            got_number,
            ..
        }) => Some(SegmentId {
            log_id: got_log,
            number: got_number,
            kind,
        }),
        Err(_) => None,
    }
}

fn header_piece(bytes: &[u8], path: &Path) -> Piece {
    let mut fields = Dissection::new(bytes, 0);
    fields.magic(&crate::file_header::MAGIC);
    fields.number("format version", 1);
    fields.number("kind", 1);
    fields.number("zero", 2);
    fields.identity("log id", 8);
    fields.number("segment number", 8);
    let covered = bytes.get(..28).unwrap_or(bytes);
    fields.checksum("checksum of the header", mask_checksum(checksum(covered)));
    let mut piece = fields.finish("segment");
    // The decoder may refuse a header with right fields, as for a newer version.
    if header_id(bytes, path).is_none()
        && !piece.is_damaged()
        && let Some(version) = piece.fields.get_mut(1)
    {
        version.check = Check::Bad {
            got: version.value.clone(),
            expected: "a version that this program can read".to_owned(),
        };
    }
    piece
}

fn header_fields(header: &RecordHeader, front: &[u8], at: u64, computed: u32) -> Vec<Field> {
    let mut fields = Dissection::new(front, at);
    fields.checksum("checksum of header and front", computed);
    fields.identity("checksum of the back", 4);
    fields.number("sequence", 8);
    fields.number("length of the front", 4);
    fields.number("length of the back", 4);
    let synced_to = header.synced_to.to_string();
    fields.field("synced to", 4, synced_to, Check::Covered);
    let removal = if header.removal { "removal, " } else { "" };
    let flags = format!(
        "{removal}batch {:?}, codec {:?}, {:?}",
        header.batch, header.codec, header.purpose
    );
    fields.field("flags", 1, flags, Check::Covered);
    fields.number("kind", 1);
    let short = fields.identity("short checksum", 2);
    let mut piece = fields.finish("");
    if let Some(field) = piece.fields.last_mut() {
        // A header with a wrong short checksum would not have been decoded.
        field.value = format!("{short:04x}");
        field.check = Check::Good;
    }
    piece.fields
}

fn gap_field(gap: &[u8], at: u64) -> Field {
    let is_zero = gap.iter().all(|byte| *byte == 0);
    let check = if is_zero {
        Check::Covered
    } else {
        Check::Bad {
            got: shown(gap),
            expected: "zeros, which are never read".to_owned(),
        }
    };
    Field {
        offset: at,
        len: gap.len() as u64,
        name: "gap".to_owned(),
        value: String::new(),
        check,
    }
}

fn usize_of(len: u64) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}
