//! Scans of journal files from end to end, record by record, past damage.
//!
//! leveled finds the records of a completed file through hash tables after them, without a
//! checksum, and cuts the active file at the first bad record. Here the tables only give the end of
//! the records, and only if they fit each other and the file. A search for the next offset with a
//! matching record checksum follows a bad record, so damage costs only the bytes that it covers.

use kvorum_disk::DiskError;
use kvorum_import::{FileWindow, Scanned, WINDOW_BYTES};
use xxhash_rust::xxh3::Xxh3;

use crate::journal_key::KEY_START;
use crate::record::{CHECKSUM_BYTES, RECORD_HEADER_BYTES, RecordHeader};

/// The number of hash tables of a file.
const TABLES: u64 = 256;
/// Bytes of a table's place in front of the records, and of a slot in a table.
const SLOT_BYTES: usize = 8;
/// Offset of the first record.
const FRONT_BYTES: usize = 2048;
/// Slots for each record in a completed file.
const SLOTS_A_RECORD: u64 = 2;
/// Maximum length of a key, in bytes.
const KEY_BYTES_MAX: u32 = 512 << 10;
/// Maximum length of a payload in the search after damage, in bytes. Random bytes give lengths up
/// to 4 GiB, and each candidate costs a checksum over its length.
const SEARCHED_PAYLOAD_BYTES_MAX: u32 = 64 << 20;
/// Bytes that searches may checksum in one file before its rest is skipped.
const SEARCHED_BYTES_MAX: u64 = 16 << 30;

/// An intact record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScannedRecord<'a> {
    /// Offset of its first byte.
    pub offset: u64,
    /// Its lengths.
    pub header: RecordHeader,
    /// Its key.
    pub key: &'a [u8],
    /// A hash of its value.
    pub value_digest: u64,
}

/// Scans the records of a file:
///
/// ```text
/// place*  record*  table*                                        little-endian
///
/// place = u32 offset of a table  u32 slots of it        256 of them; zeros in the active file
/// table = slot*                                         two for each record, and half of them zeros
/// slot  = u32 hash of a key  u32 offset of its record
/// ```
///
/// # Errors
/// If the device cannot read; all other defects are reported to `visit`.
pub(crate) fn scan(
    window: &mut FileWindow,
    is_completed: bool,
    visit: &mut dyn FnMut(Scanned<ScannedRecord<'_>>),
) -> Result<(), DiskError> {
    let tables = tables_start(window)?;
    let mut scan = Scan {
        end: tables.unwrap_or(window.len()),
        window,
        has_tables: tables.is_some(),
        is_completed,
        records: 0,
        search_budget: SEARCHED_BYTES_MAX,
    };
    let mut offset = FRONT_BYTES as u64;
    while offset < scan.end {
        if let Some(checked) = scan.check(offset)? {
            scan.report(offset, &checked, visit)?;
            offset += checked.header.total_len();
            continue;
        }
        match scan.search(offset)? {
            Search::Found(next) => {
                let len = next - offset;
                visit(Scanned::Damage { offset, len });
                offset = next;
            }
            Search::Nothing => return scan.conclude(offset, visit),
            Search::GivenUp => {
                let len = scan.end - offset;
                visit(Scanned::GivenUp { offset, len });
                return Ok(());
            }
        }
    }
    match scan.window.len() < FRONT_BYTES as u64 {
        true => scan.conclude(0, visit),
        false => Ok(()),
    }
}

/// The offset of the tables at the end of the file; `None` unless their places are contiguous from
/// there to the end, which does not happen by chance.
fn tables_start(window: &mut FileWindow) -> Result<Option<u64>, DiskError> {
    let len = window.len();
    let front = window.look(0, FRONT_BYTES)?;
    let (places, rest) = front.as_chunks::<SLOT_BYTES>();
    if places.len() as u64 != TABLES || !rest.is_empty() {
        return Ok(None);
    }
    let first = place(&places[0]).0;
    let mut next = first;
    for (at, slots) in places.iter().map(place) {
        if at != next {
            return Ok(None);
        }
        next += slots * SLOT_BYTES as u64;
    }
    Ok((first >= FRONT_BYTES as u64 && next == len).then_some(first))
}

/// Two numbers side by side.
fn place(bytes: &[u8; SLOT_BYTES]) -> (u64, u64) {
    let [a, b, c, d, e, f, g, h] = *bytes;
    let number = |bytes| u64::from(u32::from_le_bytes(bytes));
    (number([a, b, c, d]), number([e, f, g, h]))
}

struct Scan<'a> {
    window: &'a mut FileWindow,
    /// The end of the records: the tables, or the file's end if the tables are unknown.
    end: u64,
    has_tables: bool,
    is_completed: bool,
    /// Records found.
    records: u64,
    /// Bytes that searches may still checksum.
    search_budget: u64,
}

struct Checked {
    header: RecordHeader,
    value_digest: u64,
}

enum Search {
    Found(u64),
    Nothing,
    GivenUp,
}

impl Scan<'_> {
    fn header_at(&mut self, offset: u64) -> Result<Option<RecordHeader>, DiskError> {
        let bytes = self.window.look(offset, RECORD_HEADER_BYTES)?;
        Ok(bytes.first_chunk().map(RecordHeader::decode))
    }

    /// The record at `offset`, if it is complete and intact.
    fn check(&mut self, offset: u64) -> Result<Option<Checked>, DiskError> {
        let Some(header) = self.header_at(offset)? else {
            return Ok(None);
        };
        let end = offset + header.total_len();
        let has_key = (1..=KEY_BYTES_MAX).contains(&header.key_len);
        let has_payload = header.payload_len as usize >= CHECKSUM_BYTES;
        let is_sized = u32::try_from(header.total_len()).is_ok() && end <= self.end;
        if !(has_key && has_payload && is_sized) {
            return Ok(None);
        }
        let before_value = RECORD_HEADER_BYTES + header.key_len as usize + CHECKSUM_BYTES;
        let head = self.window.look(offset, before_value)?;
        let Some((key, expected)) = head
            .get(RECORD_HEADER_BYTES..before_value)
            .and_then(<[u8]>::split_last_chunk::<CHECKSUM_BYTES>)
        else {
            return Ok(None); // the file has become shorter
        };
        let expected = u32::from_be_bytes(*expected);
        let mut checksum = crc32fast::Hasher::new();
        checksum.update(key);
        let mut digest = Xxh3::new();
        let mut at = offset + before_value as u64;
        while at < end {
            let wanted = usize::try_from(end - at).unwrap_or(usize::MAX);
            let chunk = self.window.look(at, wanted.min(WINDOW_BYTES))?;
            if chunk.is_empty() {
                return Ok(None);
            }
            checksum.update(chunk);
            digest.update(chunk);
            at += chunk.len() as u64;
        }
        let is_right = checksum.finalize() == expected;
        Ok(is_right.then(|| Checked {
            header,
            value_digest: digest.digest(),
        }))
    }

    fn report(
        &mut self,
        offset: u64,
        checked: &Checked,
        visit: &mut dyn FnMut(Scanned<ScannedRecord<'_>>),
    ) -> Result<(), DiskError> {
        self.records += 1;
        let key_at = offset + RECORD_HEADER_BYTES as u64;
        let key = self.window.look(key_at, checked.header.key_len as usize)?;
        visit(Scanned::Record(ScannedRecord {
            offset,
            header: checked.header,
            key,
            value_digest: checked.value_digest,
        }));
        Ok(())
    }

    /// The next offset with an intact record.
    fn search(&mut self, bad: u64) -> Result<Search, DiskError> {
        // Usually the lengths are right, and only the payload is damaged.
        if let Some(header) = self.header_at(bad)? {
            let next = bad + header.total_len();
            if next < self.end && self.spend(header.total_len()) && self.check(next)?.is_some() {
                return Ok(Search::Found(next));
            }
        }
        for offset in bad + 1..self.end {
            let bytes = self
                .window
                .look(offset, RECORD_HEADER_BYTES + KEY_START.len())?;
            let Some((header, key)) = bytes.split_first_chunk() else {
                break;
            };
            let header = RecordHeader::decode(header);
            let is_plausible = key == KEY_START
                && header.payload_len <= SEARCHED_PAYLOAD_BYTES_MAX
                && offset + header.total_len() <= self.end;
            if !is_plausible {
                continue;
            }
            if !self.spend(header.total_len()) {
                return Ok(Search::GivenUp);
            }
            if self.check(offset)?.is_some() {
                return Ok(Search::Found(offset));
            }
        }
        Ok(Search::Nothing)
    }

    fn spend(&mut self, bytes: u64) -> bool {
        let left = self.search_budget.checked_sub(bytes);
        self.search_budget = left.unwrap_or(0);
        left.is_some()
    }

    /// Judges the bytes from `offset` on, which contain no complete record.
    fn conclude(
        &mut self,
        offset: u64,
        visit: &mut dyn FnMut(Scanned<ScannedRecord<'_>>),
    ) -> Result<(), DiskError> {
        let len = self.end - offset;
        if !self.has_tables && self.are_tables(offset)? {
            return Ok(());
        }
        let is_torn = !self.is_completed && self.is_cut(offset)?;
        if is_torn && len > 0 {
            visit(Scanned::TornTail { offset, len });
        } else if !is_torn {
            visit(Scanned::Damage { offset, len });
        }
        Ok(())
    }

    /// True for tables with damaged places, and for a part of tables: nearly all slots are empty or
    /// point to records. If all slots are empty, their number has to match the number of records.
    fn are_tables(&mut self, offset: u64) -> Result<bool, DiskError> {
        let (mut slots, mut right, mut used) = (0u64, 0u64, 0u64);
        let mut at = offset;
        while at < self.end {
            let wanted = usize::try_from(self.end - at).unwrap_or(usize::MAX);
            let chunk = self.window.look(at, wanted.min(WINDOW_BYTES))?;
            let (whole, _) = chunk.as_chunks::<SLOT_BYTES>();
            for (hash, record) in whole.iter().map(place) {
                let is_used = (FRONT_BYTES as u64..offset).contains(&record);
                slots += 1;
                used += u64::from(is_used);
                right += u64::from(is_used || (hash, record) == (0, 0));
            }
            at += match whole.len() {
                0 => break,
                count => (count * SLOT_BYTES) as u64,
            };
        }
        let is_as_long = slots > 0 && slots == self.records * SLOTS_A_RECORD;
        Ok((used > 0 || is_as_long) && right * 8 >= slots * 7)
    }

    /// True for the beginning of a record whose end is missing, and for zeros up to the end.
    fn is_cut(&mut self, offset: u64) -> Result<bool, DiskError> {
        let header = self.header_at(offset)?;
        if offset < FRONT_BYTES as u64
            || header.is_none_or(|header| offset + header.total_len() > self.end)
        {
            return Ok(true);
        }
        let mut at = offset;
        while at < self.end {
            let chunk = self.window.look(at, WINDOW_BYTES)?;
            if chunk.is_empty() || chunk.iter().any(|byte| *byte != 0) {
                return Ok(chunk.is_empty());
            }
            at += chunk.len() as u64;
        }
        Ok(true)
    }
}
