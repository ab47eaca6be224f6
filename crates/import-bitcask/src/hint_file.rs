//! Hint files: the keys of a data file and the offsets of their records.
//!
//! A hint file is used if its trailer's checksum matches, and its entries cover the data file from
//! the start to their end without gaps. These checks come before the use of the first entry. The
//! rest of the data file is scanned.

use kvorum_disk::DiskError;
use kvorum_import::{FileWindow, WINDOW_BYTES};

use crate::record::RECORD_HEADER_BYTES;

/// The length of an entry without its key.
pub const HINT_ENTRY_BYTES: usize = 18;

const TOMBSTONE_FLAG: u64 = 1 << 63;
const TRAILER_OFFSET: u64 = TOMBSTONE_FLAG - 1;

/// The fixed part of a hint entry, big-endian:
///
/// ```text
/// offset  size  field
///      0     4  time of writing, seconds since the Unix epoch
///      4     2  length of the key (k)
///      6     4  length of the whole record in the data file
///     10     8  highest bit: the record deletes its key; the rest: offset in the data file
///     18     k  key
/// ```
///
/// The trailer is an entry with time 0, no key and offset 2^63 - 1, whose record length is the
/// CRC-32 of all bytes before it. Files from before Riak 1.7 have no deletion bit, which offsets
/// never reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HintEntry {
    /// Time of writing, seconds since the Unix epoch.
    pub timestamp: u32,
    /// Length of the key, in bytes.
    pub key_len: u16,
    /// Length of the record, in bytes.
    pub total_len: u32,
    /// True if the record deletes its key.
    pub is_tombstone: bool,
    /// Offset of the record in the data file.
    pub offset: u64,
}

impl HintEntry {
    /// Decodes the fixed part.
    pub fn decode(bytes: &[u8; HINT_ENTRY_BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, place @ ..] = *bytes;
        let place = u64::from_be_bytes(place);
        Self {
            timestamp: u32::from_be_bytes([a, b, c, d]),
            key_len: u16::from_be_bytes([e, f]),
            total_len: u32::from_be_bytes([g, h, i, j]),
            is_tombstone: place & TOMBSTONE_FLAG != 0,
            offset: place & !TOMBSTONE_FLAG,
        }
    }

    fn is_trailer(&self) -> bool {
        self.timestamp == 0
            && self.key_len == 0
            && !self.is_tombstone
            && self.offset == TRAILER_OFFSET
    }
}

/// The reason to ignore a hint file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HintDoubt {
    /// The trailer is missing: Riak did not close the file.
    #[error("no trailer")]
    NoTrailer,
    /// The trailer's checksum differs.
    #[error("CRC-32 {got:08x} where the trailer has {expected:08x}")]
    Checksum {
        /// Checksum in the trailer.
        expected: u32,
        /// Checksum of the bytes.
        got: u32,
    },
    /// An entry does not fit the file, or its record does not fit the data file.
    #[error("entry at byte {offset} does not fit")]
    BadEntry {
        /// Offset of the entry.
        offset: u64,
    },
}

/// Checks a hint file against a data file of `data_len` bytes. Returns the length of the data file
/// that the hints cover, in bytes.
pub(crate) fn verify(
    window: &mut FileWindow,
    data_len: u64,
) -> Result<Result<u64, HintDoubt>, DiskError> {
    let Some(body_len) = window.len().checked_sub(HINT_ENTRY_BYTES as u64) else {
        return Ok(Err(HintDoubt::NoTrailer));
    };
    let trailer = window.look(body_len, HINT_ENTRY_BYTES)?;
    let Some(trailer) = trailer.first_chunk().map(HintEntry::decode) else {
        return Ok(Err(HintDoubt::NoTrailer));
    };
    if !trailer.is_trailer() {
        return Ok(Err(HintDoubt::NoTrailer));
    }
    let got = checksum(window, body_len)?;
    let expected = trailer.total_len;
    if got != expected {
        return Ok(Err(HintDoubt::Checksum { expected, got }));
    }
    let (mut covered, mut furthest, mut bad) = (0u64, 0u64, None);
    walk(window, &mut |at, entry, _| {
        let end = entry.offset + u64::from(entry.total_len);
        let shortest = RECORD_HEADER_BYTES as u64 + u64::from(entry.key_len);
        if entry.key_len == 0 || u64::from(entry.total_len) < shortest || end > data_len {
            bad.get_or_insert(at);
        }
        covered = covered.saturating_add(u64::from(entry.total_len));
        furthest = furthest.max(end);
    })?
    .unwrap_or_else(|at| bad = Some(at));
    Ok(match bad {
        Some(offset) => Err(HintDoubt::BadEntry { offset }),
        None if covered != furthest => Err(HintDoubt::BadEntry { offset: body_len }),
        None => Ok(furthest),
    })
}

/// Passes the entries before the trailer to `visit`, each with its offset and its key. The inner
/// error is the offset of an entry that does not fit the file.
pub(crate) fn walk(
    window: &mut FileWindow,
    visit: &mut dyn FnMut(u64, HintEntry, &[u8]),
) -> Result<Result<(), u64>, DiskError> {
    let end = window.len().saturating_sub(HINT_ENTRY_BYTES as u64);
    let mut at = 0;
    while at < end {
        let fixed = window.look(at, HINT_ENTRY_BYTES)?;
        let Some(entry) = fixed.first_chunk().map(HintEntry::decode) else {
            return Ok(Err(at));
        };
        let whole = HINT_ENTRY_BYTES + usize::from(entry.key_len);
        let bytes = window.look(at, whole)?;
        if bytes.len() < whole || at + whole as u64 > end {
            return Ok(Err(at));
        }
        visit(at, entry, &bytes[HINT_ENTRY_BYTES..]);
        at += whole as u64;
    }
    Ok(Ok(()))
}

fn checksum(window: &mut FileWindow, len: u64) -> Result<u32, DiskError> {
    let mut checksum = crc32fast::Hasher::new();
    let mut at = 0;
    while at < len {
        let wanted = usize::try_from(len - at).unwrap_or(usize::MAX);
        let chunk = window.look(at, wanted.min(WINDOW_BYTES))?;
        if chunk.is_empty() {
            break;
        }
        checksum.update(chunk);
        at += chunk.len() as u64;
    }
    Ok(checksum.finalize())
}
