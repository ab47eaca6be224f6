//! Reading records at known places.

use std::path::Path;
use std::sync::Arc;

use bytes::{Buf as _, Bytes};
use kvorum_disk::{Disk, DiskError, DiskFile, ErrorKind, OpenMode, Operation, Reading};
use kvorum_encoding::{Codec, checksum, mask_checksum};

use crate::file_header::{FILE_HEADER_LEN, check_file_header};
use crate::record::{
    ChecksumSeed, Purpose, RECORD_HEADER_BYTES, RecordHeader, decode_header, raw_len,
};
use crate::{BatchPlace, EncodedBack, Location, Part, Result, SegmentError, SegmentId};

/// The front of a record, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFront {
    /// The record's exact place.
    pub location: Location,
    /// The writer's order.
    pub sequence: u64,
    /// The writer's kind of record.
    pub kind: u8,
    /// The record is a removal.
    pub removal: bool,
    /// Its position in its batch.
    pub batch: BatchPlace,
    /// The writer's front.
    pub front: Bytes,
    /// The length of the back before compression.
    pub raw_back_len: u64,
}

/// A whole record, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRecord {
    /// All but the back.
    pub head: StoredFront,
    /// The back.
    pub back: StoredBack,
}

/// A checked back as stored, not yet decompressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredBack {
    bytes: Bytes,
    codec: Codec,
    raw_len: u64,
    checksum: u32,
}

impl StoredBack {
    /// A checked back, from its parts. `checksum` is the CRC-32C of `bytes`.
    pub fn from_parts(bytes: Bytes, codec: Codec, raw_len: u64, checksum: u32) -> Self {
        Self {
            bytes,
            codec,
            raw_len,
            checksum,
        }
    }

    /// An encoded back, as if it was read again. `raw` is the source of the encoding, which is
    /// shared if it is stored unchanged.
    pub fn of(back: EncodedBack<'_>, raw: &Bytes) -> Self {
        let (codec, raw_len, checksum) = (back.codec(), back.raw_len(), back.checksum());
        Self::from_parts(back.into_bytes(raw), codec, raw_len, checksum)
    }

    /// An empty back.
    pub fn empty() -> Self {
        Self::from_parts(Bytes::new(), Codec::Plain, 0, 0)
    }

    /// The bytes as stored.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The length before compression, in bytes.
    pub fn raw_len(&self) -> u64 {
        self.raw_len
    }

    /// The CRC-32C of the bytes as stored.
    pub fn checksum(&self) -> u32 {
        self.checksum
    }

    /// Its codec.
    pub fn codec(&self) -> Codec {
        self.codec
    }

    /// The back for an unchanged append elsewhere.
    pub fn as_encoded(&self) -> EncodedBack<'_> {
        EncodedBack {
            bytes: (&self.bytes[..]).into(),
            codec: self.codec,
            raw_len: self.raw_len,
            checksum: self.checksum,
        }
    }

    /// The writer's back, decompressed; a shared slice if it was stored plain.
    pub fn restore(&self) -> std::result::Result<Bytes, String> {
        if self.codec == Codec::Plain {
            return Ok(self.bytes.clone());
        }
        let raw_len = usize::try_from(self.raw_len).map_err(|error| error.to_string())?;
        self.codec.restore(&self.bytes, raw_len).map(Bytes::from)
    }
}

/// Reads one segment. It is cheap to clone, and works after the removal of the file's name.
#[derive(Clone)]
pub struct SegmentReader {
    file: Arc<dyn DiskFile>,
    id: SegmentId,
    seed: ChecksumSeed,
}

impl SegmentReader {
    /// Opens a segment without checking its header: see [`SegmentReader::check_header`].
    pub fn open(disk: &dyn Disk, path: &Path, id: SegmentId) -> Result<Self> {
        Ok(Self::over(disk.open(path, OpenMode::Read)?, id))
    }

    pub(crate) fn over(file: Arc<dyn DiskFile>, id: SegmentId) -> Self {
        let seed = ChecksumSeed::of(&id);
        Self { file, id, seed }
    }

    /// Checks that the file is the expected segment, and returns the kind in its header.
    ///
    /// # Errors
    /// [`SegmentError::Damaged`] costs the header only: records are bound to the segment by their own
    /// checksums. [`SegmentError::Foreign`] and [`SegmentError::NewerFormat`] cost the file.
    pub fn check_header(&self) -> Result<u8> {
        again_if_damaged(|| {
            let mut bytes = [0; FILE_HEADER_LEN];
            let read = self.file.read_at(&mut bytes, 0, Reading::MayBlock)?;
            check_file_header(&bytes[..read], &self.id, self.path())
        })
    }

    /// The segment's identity.
    pub fn id(&self) -> SegmentId {
        self.id
    }

    /// The file's path when it was opened.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// The file's length, in bytes.
    pub fn file_len(&self) -> Result<u64> {
        Ok(self.file.len()?)
    }

    /// Reads and checks the front of a record, in one read if `at.front_end` is right.
    pub fn read_front(&self, at: Location, reading: Reading) -> Result<StoredFront> {
        again_if_damaged(|| {
            let (header, bytes) = self.read_record(at, at.front_end, Part::Front, reading)?;
            Ok(stored_front(&header, bytes, at.offset))
        })
    }

    /// Reads and checks a whole record, in one read if `at.len` is right.
    pub fn read(&self, at: Location, reading: Reading) -> Result<StoredRecord> {
        again_if_damaged(|| {
            let (header, bytes) = self.read_record(at, at.len, Part::Back, reading)?;
            stored_record(&header, bytes, at.offset, self.path())
        })
    }

    /// Decompresses the back of a record of this segment.
    pub fn restore(&self, record: &StoredRecord) -> Result<Bytes> {
        record
            .back
            .restore()
            .map_err(|detail| SegmentError::Undecodable {
                path: self.path().to_owned(),
                offset: record.head.location.offset,
                detail,
            })
    }

    pub(crate) fn file(&self) -> &dyn DiskFile {
        &*self.file
    }

    pub(crate) fn seed(&self) -> ChecksumSeed {
        self.seed
    }

    /// Reads `len_hint` bytes of a record, then the missing bytes up to the end of `upto`. Header
    /// and front are checked.
    fn read_record(
        &self,
        at: Location,
        len_hint: u64,
        upto: Part,
        reading: Reading,
    ) -> Result<(RecordHeader, Bytes)> {
        let hint = usize::try_from(len_hint)
            .unwrap_or(usize::MAX)
            .max(RECORD_HEADER_BYTES);
        let mut bytes = self.read_bytes(at.offset, hint, reading)?;
        let mut header = self.data_header(&bytes, at.offset)?;
        let needed_of = |header: &RecordHeader| match upto {
            Part::Back => header.len(),
            _ => header.front_end(),
        };
        let needed = needed_of(&header);
        if needed > bytes.len() as u64 {
            self.check_inside(at.offset, needed)?;
            let hint = usize::try_from(needed).unwrap_or(usize::MAX);
            bytes = self.read_bytes(at.offset, hint, reading)?;
            // The checksum has to cover the header as read now, not as read before.
            header = self.data_header(&bytes, at.offset)?;
        }
        let needed = needed_of(&header);
        if needed > bytes.len() as u64 {
            let got = bytes.len() as u64;
            let damaged = SegmentError::damaged(self.path(), at.offset, upto, got, needed);
            return Err(damaged);
        }
        check_front(&header, &bytes, at.offset, self.path())?;
        Ok((header, bytes.into()))
    }

    fn data_header(&self, bytes: &[u8], offset: u64) -> Result<RecordHeader> {
        decode_header(bytes, self.seed, offset)
            .filter(|header| header.purpose == Purpose::Data)
            .ok_or_else(|| {
                let (got, expected) = (bytes.len() as u64, RECORD_HEADER_BYTES as u64);
                SegmentError::damaged(self.path(), offset, Part::RecordHeader, got, expected)
            })
    }

    /// Checks that a length fits the file before memory is allocated: the header it comes from is
    /// plausible, but not proven.
    fn check_inside(&self, offset: u64, needed: u64) -> Result<()> {
        let rest = self.file.len()?.saturating_sub(offset);
        if needed > rest {
            let part = Part::RecordHeader;
            let damaged = SegmentError::damaged(self.path(), offset, part, rest, needed);
            return Err(damaged);
        }
        Ok(())
    }

    /// Reads `len` bytes, or fewer at the end of the file.
    fn read_bytes(&self, offset: u64, mut len: usize, reading: Reading) -> Result<Vec<u8>> {
        if len > ALLOCATED_UNCHECKED_BYTES_MAX {
            // An approximate length may reach beyond the end: the available bytes and their header
            // decide.
            let rest = self.file.len()?.saturating_sub(offset);
            len = len.min(usize::try_from(rest).unwrap_or(usize::MAX));
        }
        // Zeroing costs a hundredth of the read, and only `unsafe` code could avoid it.
        let mut bytes = vec![0; len];
        let read = self
            .file
            .read_at(&mut bytes, offset, reading)
            .map_err(|error| locate(error, offset))?;
        bytes.truncate(read);
        Ok(bytes)
    }
}

/// Lengths in a [`Location`] come from the caller's checked memory or files; longer ones than this
/// are compared with the file nevertheless.
const ALLOCATED_UNCHECKED_BYTES_MAX: usize = 1 << 20;

/// A device may return wrong data once: damaged data are read again before they are reported.
fn again_if_damaged<T>(read: impl Fn() -> Result<T>) -> Result<T> {
    match read() {
        Err(error) if error.is_damage() => read(),
        outcome => outcome,
    }
}

fn locate(error: DiskError, offset: u64) -> DiskError {
    if error.kind() == ErrorKind::WouldBlock || error.operation() != Operation::Read {
        return error;
    }
    error.at(offset)
}

pub(crate) fn check_front(
    header: &RecordHeader,
    bytes: &[u8],
    offset: u64,
    path: &Path,
) -> Result<()> {
    let got = header.front_checksum_of(&bytes[..front_end(header)]);
    if got != header.front_checksum {
        let expected = u64::from(header.front_checksum);
        let damaged = SegmentError::damaged(path, offset, Part::Front, u64::from(got), expected);
        return Err(damaged);
    }
    Ok(())
}

/// The front from `bytes`, which have at least header and front, both checked.
pub(crate) fn stored_front(header: &RecordHeader, mut bytes: Bytes, offset: u64) -> StoredFront {
    bytes.truncate(front_end(header));
    bytes.advance(RECORD_HEADER_BYTES);
    let raw_back_len = raw_len(header, &bytes);
    bytes.advance(header.raw_len_bytes());
    StoredFront {
        location: Location {
            offset,
            front_end: header.front_end(),
            len: header.len(),
        },
        sequence: header.sequence,
        kind: header.kind,
        removal: header.removal,
        batch: header.batch,
        raw_back_len,
        front: bytes,
    }
}

/// The record from `bytes`, which have the whole record. Header and front are checked; this checks
/// the back.
pub(crate) fn stored_record(
    header: &RecordHeader,
    mut bytes: Bytes,
    offset: u64,
    path: &Path,
) -> Result<StoredRecord> {
    let mut back = bytes.split_off(front_end(header));
    back.truncate(header.back_len as usize);
    let computed = checksum(&back);
    let got = mask_checksum(computed);
    if got != header.back_checksum {
        let expected = u64::from(header.back_checksum);
        let damaged = SegmentError::damaged(path, offset, Part::Back, u64::from(got), expected);
        return Err(damaged);
    }
    let head = stored_front(header, bytes, offset);
    Ok(StoredRecord {
        back: StoredBack {
            bytes: back,
            codec: header.codec,
            raw_len: head.raw_back_len,
            checksum: computed,
        },
        head,
    })
}

fn front_end(header: &RecordHeader) -> usize {
    RECORD_HEADER_BYTES + header.front_len as usize
}
