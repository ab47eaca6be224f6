//! The small files of the log beside its segments: their common beginning and end.
//!
//! ```text
//! offset  size  field
//!      0     8  magic, which says what the file holds
//!      8     1  format version, 1
//!      9     3  zero
//!     12     8  log id
//!     20     -  what the file holds
//!      -     4  masked CRC-32C of all before
//! ```

use std::path::Path;

use kvorum_backend::{BackendError, ErrorKind, Result};
use kvorum_disk::{Disk, read_file, replace_file};
use kvorum_encoding::{ByteReader, Truncated, checksum, mask_checksum};

use crate::error::from_disk;

const VERSION: u8 = 1;
/// A million rows of the longest: a store, its first and its last batch. Bytes.
pub(crate) const FILE_BYTES_MAX: u64 = 24 << 20;

/// The beginning of a file.
pub(crate) fn begin(magic: &[u8; 8], log_id: u64) -> Vec<u8> {
    let mut out = magic.to_vec();
    out.extend_from_slice(&[VERSION, 0, 0, 0]);
    out.extend_from_slice(&log_id.to_le_bytes());
    out
}

/// Appends the number of the rows that follow, in 4 bytes.
pub(crate) fn push_count(out: &mut Vec<u8>, count: usize) {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    out.extend_from_slice(&count.to_le_bytes());
}

/// The whole file: its contents so far, and their checksum.
pub(crate) fn sealed(mut out: Vec<u8>) -> Vec<u8> {
    let check = mask_checksum(checksum(&out));
    out.extend_from_slice(&check.to_le_bytes());
    out
}

/// Decodes a file: `rest` reads the part behind the log's id, and returns `None` if that part is
/// malformed. `None` for anything but a whole file of this magic; the inner error is the version of
/// a file that is newer than this program.
pub(crate) fn decode<T>(
    bytes: &[u8],
    magic: &[u8; 8],
    rest: impl FnOnce(u64, &mut ByteReader<'_>) -> std::result::Result<Option<T>, Truncated>,
) -> Option<std::result::Result<T, u8>> {
    let (covered, check) = bytes.split_last_chunk::<4>()?;
    let covered =
        (u32::from_le_bytes(*check) == mask_checksum(checksum(covered))).then_some(covered)?;
    let mut reader = ByteReader::new(covered.strip_prefix(magic)?);
    let version = reader.u8().ok()?;
    if version > VERSION {
        return Some(Err(version));
    }
    let _zero = reader.array::<3>().ok()?;
    let log_id = reader.u64().ok()?;
    rest(log_id, &mut reader).ok().flatten().map(Ok)
}

/// Writes a file, and returns its length in bytes.
pub(crate) fn write(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> Result<u64> {
    replace_file(disk, path, bytes).map_err(|error| from_disk(&error))?;
    Ok(bytes.len() as u64)
}

/// Reads a file; `None` when it is missing or damaged.
///
/// # Errors
/// Those of the disk; [`ErrorKind::NewerFormat`].
pub(crate) fn read<T>(
    disk: &dyn Disk,
    path: &Path,
    decode: impl Fn(&[u8]) -> Option<std::result::Result<T, u8>>,
) -> Result<Option<T>> {
    let read = || match read_file(disk, path, FILE_BYTES_MAX) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if is_no_file_of_ours(error.kind()) => Ok(None),
        Err(error) => Err(from_disk(&error)),
    };
    let Some(bytes) = read()? else {
        return Ok(None);
    };
    let decoded = match decode(&bytes) {
        // A device may fail once: a file that looks damaged is read again.
        None => read()?.and_then(|bytes| decode(&bytes)),
        decoded => decoded,
    };
    decoded.transpose().map_err(|version| {
        let path = path.display();
        let detail = format!("{path} has version {version}, supported is {VERSION}");
        BackendError::new(ErrorKind::NewerFormat, detail)
    })
}

fn is_no_file_of_ours(kind: kvorum_disk::ErrorKind) -> bool {
    use kvorum_disk::ErrorKind::{NotFound, TooLarge};
    matches!(kind, NotFound | TooLarge)
}
