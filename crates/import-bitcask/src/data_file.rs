//! Scans of data files from end to end, record by record, past damage.
//!
//! Bitcask skips a bad record by the lengths in its header, which may be damaged too, and gives up
//! a file after twenty bad records. Here a search for the next offset with a matching record
//! checksum follows a bad record, so damage costs only the bytes that it covers.

use kvorum_disk::DiskError;
use kvorum_import::{FileWindow, Scanned, WINDOW_BYTES};
use xxhash_rust::xxh3::Xxh3;

use crate::record::{RECORD_HEADER_BYTES, RecordHeader, TOMBSTONE_BYTES_MAX, ValueKind};

/// Maximum length of a value in the search after damage, in bytes. Random bytes give lengths up to
/// 4 GiB, and each candidate costs a checksum over its length.
const SEARCHED_VALUE_BYTES_MAX: u32 = 64 << 20;
/// Bytes that searches may checksum in one file before its rest is skipped.
const SEARCHED_BYTES_MAX: u64 = 16 << 30;
/// The first bytes of Riak's keys: version 1 without and with a type, and version 0.
const KEY_FIRST_BYTES: [u8; 3] = [0x02, 0x03, 131];
/// Bitcask's first public release, in seconds since the Unix epoch.
const EARLIEST_TIMESTAMP: u32 = 1_240_000_000;

/// An intact record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScannedRecord<'a> {
    /// Offset of its first byte.
    pub offset: u64,
    /// Its header.
    pub header: RecordHeader,
    /// Its key.
    pub key: &'a [u8],
    /// Value or deletion mark.
    pub kind: ValueKind,
    /// A hash of its value, which is never 0.
    pub value_digest: u64,
}

/// Scans the records from `start` to the end.
///
/// # Errors
/// If the device cannot read; all other defects are reported to `visit`.
pub(crate) fn scan(
    window: &mut FileWindow,
    start: u64,
    visit: &mut dyn FnMut(Scanned<ScannedRecord<'_>>),
) -> Result<(), DiskError> {
    let end = window.len();
    let mut offset = start;
    let mut search_budget = SEARCHED_BYTES_MAX;
    while offset < end {
        if let Some(checked) = check(window, offset)? {
            report(window, offset, &checked, visit)?;
            offset += checked.header.total_len();
            continue;
        }
        let len = end - offset;
        match search(window, offset, &mut search_budget)? {
            Search::Found(next) => {
                let len = next - offset;
                visit(Scanned::Damage { offset, len });
                offset = next;
            }
            Search::Nothing => {
                visit(Scanned::TornTail { offset, len });
                break;
            }
            Search::GivenUp => {
                visit(Scanned::GivenUp { offset, len });
                break;
            }
        }
    }
    Ok(())
}

struct Checked {
    header: RecordHeader,
    kind: ValueKind,
    value_digest: u64,
}

enum Search {
    Found(u64),
    Nothing,
    GivenUp,
}

fn header_at(window: &mut FileWindow, offset: u64) -> Result<Option<RecordHeader>, DiskError> {
    let bytes = window.look(offset, RECORD_HEADER_BYTES)?;
    Ok(bytes.first_chunk().map(RecordHeader::decode))
}

/// The record at `offset`, if it is complete and intact.
fn check(window: &mut FileWindow, offset: u64) -> Result<Option<Checked>, DiskError> {
    let Some(header) = header_at(window, offset)? else {
        return Ok(None);
    };
    let end = offset + header.total_len();
    if header.key_len == 0 || end > window.len() || u32::try_from(header.total_len()).is_err() {
        return Ok(None);
    }
    let value_at = offset + RECORD_HEADER_BYTES as u64 + u64::from(header.key_len);
    let before_value = usize::from(header.key_len) + RECORD_HEADER_BYTES;
    let head = window.look(offset, before_value)?;
    if head.len() < before_value {
        return Ok(None); // the file has become shorter
    }
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(&head[4..]);
    let mut digest = Xxh3::new();
    let mut kind = ValueKind::of(u64::from(header.value_len), &[]);
    let mut at = value_at;
    while at < end {
        let wanted = usize::try_from(end - at).unwrap_or(usize::MAX);
        let chunk = window.look(at, wanted.min(WINDOW_BYTES))?;
        if chunk.is_empty() {
            return Ok(None);
        }
        if at == value_at {
            let start = &chunk[..chunk.len().min(TOMBSTONE_BYTES_MAX)];
            kind = ValueKind::of(u64::from(header.value_len), start);
        }
        checksum.update(chunk);
        digest.update(chunk);
        at += chunk.len() as u64;
    }
    let is_right = checksum.finalize() == header.checksum;
    Ok(is_right.then(|| Checked {
        header,
        kind,
        value_digest: digest.digest().max(1),
    }))
}

fn report(
    window: &mut FileWindow,
    offset: u64,
    checked: &Checked,
    visit: &mut dyn FnMut(Scanned<ScannedRecord<'_>>),
) -> Result<(), DiskError> {
    let key_at = offset + RECORD_HEADER_BYTES as u64;
    let key = window.look(key_at, usize::from(checked.header.key_len))?;
    visit(Scanned::Record(ScannedRecord {
        offset,
        header: checked.header,
        key,
        kind: checked.kind,
        value_digest: checked.value_digest,
    }));
    Ok(())
}

/// The next offset with an intact record.
fn search(window: &mut FileWindow, bad: u64, budget: &mut u64) -> Result<Search, DiskError> {
    // Usually the lengths are right, and only the payload is damaged.
    if let Some(header) = header_at(window, bad)? {
        let next = bad + header.total_len();
        if next < window.len()
            && spend(budget, header.total_len())
            && check(window, next)?.is_some()
        {
            return Ok(Search::Found(next));
        }
    }
    for offset in bad + 1..window.len() {
        let bytes = window.look(offset, RECORD_HEADER_BYTES + 1)?;
        let Some((header, [first, ..])) = bytes.split_first_chunk() else {
            break;
        };
        let header = RecordHeader::decode(header);
        let is_plausible = header.key_len >= 3
            && KEY_FIRST_BYTES.contains(first)
            && header.value_len <= SEARCHED_VALUE_BYTES_MAX
            && header.timestamp >= EARLIEST_TIMESTAMP
            && offset + header.total_len() <= window.len();
        if !is_plausible {
            continue;
        }
        if !spend(budget, header.total_len()) {
            return Ok(Search::GivenUp);
        }
        if check(window, offset)?.is_some() {
            return Ok(Search::Found(offset));
        }
    }
    Ok(Search::Nothing)
}

fn spend(budget: &mut u64, bytes: u64) -> bool {
    let left = budget.checked_sub(bytes);
    *budget = left.unwrap_or(0);
    left.is_some()
}
