//! The head of a segment file, and the file's name.

use std::path::Path;

use kvorum_disk::{Disk, EntryKind};
use kvorum_encoding::{ByteReader, checksum, mask_checksum};

use crate::{Part, Result, SegmentError};

/// The length of the file header; the first record starts behind it.
pub const FILE_HEADER_BYTES: u64 = FILE_HEADER_LEN as u64;

pub(crate) const FILE_HEADER_LEN: usize = 32;

pub(crate) const MAGIC: [u8; 8] = *b"KVsegmnt";
const VERSION: u8 = 1;
const SUFFIX: &str = ".segment";

/// The identity of a segment: its log and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentId {
    /// The log's id: random, so that a file of another log is never mistaken for a file of this
    /// one.
    pub log_id: u64,
    /// The segment's number in its log; later segments have higher numbers.
    pub number: u64,
    /// The log's kind in its writer's numbering, for tools that inspect files.
    pub kind: u8,
}

/// Encodes a file header:
///
/// ```text
/// offset  size  field
///      0     8  magic "KVsegmnt"
///      8     1  format version, 1
///      9     1  kind
///     10     2  zero
///     12     8  log id
///     20     8  segment number
///     28     4  masked CRC-32C of bytes 0..28
/// ```
pub(crate) fn encode_file_header(id: &SegmentId) -> [u8; FILE_HEADER_LEN] {
    let mut out = [0; FILE_HEADER_LEN];
    out[..8].copy_from_slice(&MAGIC);
    out[8] = VERSION;
    out[9] = id.kind;
    out[12..20].copy_from_slice(&id.log_id.to_le_bytes());
    out[20..28].copy_from_slice(&id.number.to_le_bytes());
    let check = mask_checksum(checksum(&out[..28]));
    out[28..].copy_from_slice(&check.to_le_bytes());
    out
}

/// Checks a file header against the expected identity, and returns its kind.
pub(crate) fn check_file_header(bytes: &[u8], expected: &SegmentId, path: &Path) -> Result<u8> {
    let cut_short = |_| {
        let (got, expected) = (bytes.len() as u64, FILE_HEADER_BYTES);
        SegmentError::damaged(path, 0, Part::FileHeader, got, expected)
    };
    let covered = bytes.get(..28).unwrap_or(bytes);
    let mut reader = ByteReader::new(bytes);
    let magic = reader.array::<8>().map_err(cut_short)?;
    let version = reader.u8().map_err(cut_short)?;
    let kind = reader.u8().map_err(cut_short)?;
    let _zero = reader.u16().map_err(cut_short)?;
    let log_id = reader.u64().map_err(cut_short)?;
    let number = reader.u64().map_err(cut_short)?;
    let stored = reader.u32().map_err(cut_short)?;
    let computed = mask_checksum(checksum(covered));
    if magic != MAGIC || stored != computed {
        let (got, expected) = (u64::from(computed), u64::from(stored));
        let damaged = SegmentError::damaged(path, 0, Part::FileHeader, got, expected);
        return Err(damaged);
    }
    if version > VERSION {
        return Err(SegmentError::NewerFormat {
            path: path.to_owned(),
            got: version,
            expected: VERSION,
        });
    }
    if log_id != expected.log_id || number != expected.number {
        return Err(SegmentError::Foreign {
            path: path.to_owned(),
            got_log: log_id,
            got_number: number,
            expected_log: expected.log_id,
            expected_number: expected.number,
        });
    }
    Ok(kind)
}

/// The name of a segment's file: its number, so that the order of names is the order of the log.
pub fn file_name(number: u64) -> String {
    format!("{number:010}{SUFFIX}")
}

/// The number in a segment's file name, or `None` for other files.
pub fn parse_file_name(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(SUFFIX)?;
    let number = digits.parse().ok()?;
    (file_name(number) == name).then_some(number)
}

/// The numbers of all segments in a directory, ascending.
pub fn list_segments(disk: &dyn Disk, directory: &Path) -> Result<Vec<u64>> {
    let mut numbers: Vec<u64> = disk
        .list(directory)?
        .into_iter()
        .filter(|entry| entry.kind == EntryKind::File)
        .filter_map(|entry| parse_file_name(&entry.name))
        .collect();
    numbers.sort_unstable();
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use kvorum_golden::assert_bytes;

    use super::*;

    const ID: SegmentId = SegmentId {
        log_id: 0x0102_0304_0506_0708,
        number: 9,
        kind: 3,
    };

    fn check(bytes: &[u8], expected: SegmentId) -> Result<u8> {
        check_file_header(bytes, &expected, Path::new("x"))
    }

    #[test]
    fn the_bytes_are_as_drawn() {
        let bytes = encode_file_header(&ID);
        let drawing = [
            ("magic \"KVsegmnt\"", 8),
            ("format version, 1", 1),
            ("kind", 1),
            ("zero", 2),
            ("log id", 8),
            ("segment number", 8),
            ("masked CRC-32C of bytes 0..28", 4),
        ];
        assert_bytes("file_header.hex", &drawing, &bytes);
        assert_eq!(check(&bytes, ID).unwrap(), ID.kind);
    }

    #[test]
    fn any_flip_or_cut_is_refused() {
        let good = encode_file_header(&ID);
        for at in 0..good.len() {
            let mut bad = good;
            bad[at] ^= 0x10;
            assert!(check(&bad, ID).is_err(), "byte {at}");
            assert!(check(&good[..at], ID).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn a_file_of_another_log_or_number_is_foreign() {
        let bytes = encode_file_header(&ID);
        let other_log = SegmentId { log_id: 1, ..ID };
        let other_number = SegmentId { number: 1, ..ID };
        for expected in [other_log, other_number] {
            assert!(matches!(
                check(&bytes, expected),
                Err(SegmentError::Foreign { .. })
            ));
        }
    }

    #[test]
    fn a_newer_version_is_named() {
        let mut bytes = encode_file_header(&ID);
        bytes[8] = VERSION + 1;
        let check_bytes = mask_checksum(checksum(&bytes[..28])).to_le_bytes();
        bytes[28..].copy_from_slice(&check_bytes);
        assert!(matches!(
            check(&bytes, ID),
            Err(SegmentError::NewerFormat { got: 2, .. })
        ));
    }

    #[test]
    fn only_names_of_segments_parse() {
        assert_eq!(parse_file_name(&file_name(12)), Some(12));
        assert_eq!(parse_file_name("12.segment"), None);
        assert_eq!(parse_file_name("0000000012.hint"), None);
        assert_eq!(parse_file_name("+000000012.segment"), None);
    }
}
