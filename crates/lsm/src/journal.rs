//! Journal files: records of dropped segments of the value log, each named by its place in the log.
//!
//! An entry of a store with a journal always names the place where it was logged. Collections copy
//! records out of the log to journal files, and no table changes. A record is read from the log
//! while its segment exists, and then from a journal file. A record is whole, with its key and
//! head, so that the tables can be rebuilt from the log and these files, which have removals too
//! (`docs/decisions/0027-leveled.md`).
//!
//! A journal file is a sorted table with one record to a block. Its index maps places to blocks,
//! and is read in pieces, as in any table.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::{BackendError, ErrorKind, Result};
use kvorum_encoding::{ByteReader, Truncated, checksum, put_varint};
use kvorum_segment::{Codec, Compressor, StoredBack};
use kvorum_sst::{ReadContext, Table, hash_key};
use kvorum_storage_errors::from_sst;
use kvorum_value_log::{LogPlace, LoggedRecord};

use crate::log::{decode_front, key_of_entry};
use crate::{Entry, Op};

/// The length of a record's name in a file.
pub(crate) const NAME_BYTES: usize = 20;
const IS_REMOVAL: u8 = 1;

/// An open journal file.
pub(crate) struct JournalFile {
    pub(crate) number: u64,
    /// Its length, in bytes.
    pub(crate) file_len: u64,
    /// Bytes of its records in the log, of which tables count the bytes in use.
    pub(crate) logged_bytes: u64,
    /// The file was clean up to this batch: each record was the newest of its key when the file was
    /// written. So no record is older than an entry of its key with a sequence up to this one.
    pub(crate) clean_to: u64,
    /// The segments that its records come from, ascending.
    pub(crate) segments: Vec<u32>,
    /// `None` when the file cannot be opened.
    pub(crate) table: Option<Arc<Table>>,
}

/// The path of a journal file.
pub fn journal_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:010}.journal"))
}

/// The key of a record. The byte order of names is the order of logging. The sequence distinguishes
/// records of another value log with the same segment numbers: a node may have lost its log.
pub(crate) fn name_of(at: &LogPlace, sequence: u64) -> [u8; NAME_BYTES] {
    let mut name = [0; NAME_BYTES];
    name[..4].copy_from_slice(&at.segment.to_be_bytes());
    name[4..12].copy_from_slice(&at.record.offset.to_be_bytes());
    name[12..].copy_from_slice(&sequence.to_be_bytes());
    name
}

/// The segment and the offset of the record with this name.
pub fn place_named(name: &[u8]) -> Option<(u32, u64)> {
    let (segment, rest) = name.split_first_chunk::<4>()?;
    let (offset, sequence) = rest.split_first_chunk::<8>()?;
    let _whole: [u8; 8] = sequence.try_into().ok()?;
    let offset = *offset;
    Some((u32::from_be_bytes(*segment), u64::from_be_bytes(offset)))
}

/// A record of a journal file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalRecord {
    /// The record's batch.
    pub sequence: u64,
    /// The record is a removal.
    pub is_removal: bool,
    /// Its bytes in the log.
    pub logged_bytes: u64,
    /// Its key.
    pub key: Bytes,
    /// The front as it was logged: the key, and the entry without its body.
    pub front: Bytes,
    /// The body, as it was compressed.
    pub back: StoredBack,
}

impl JournalRecord {
    /// A record of the log; `None` for one that is not an entry.
    pub(crate) fn of_logged(record: &LoggedRecord) -> Option<Self> {
        let head = &record.stored.head;
        Some(Self {
            sequence: head.sequence,
            is_removal: head.removal,
            logged_bytes: crate::logged::taken_bytes(&record.place()),
            key: key_of_entry(head.kind, &head.front)?,
            front: head.front.clone(),
            back: record.stored.back.clone(),
        })
    }

    /// Compresses an uncompressed body if that pays.
    pub(crate) fn compress(&mut self, compressor: &Compressor) {
        if self.back.codec() == Codec::Plain {
            let raw = self.back.bytes().clone();
            self.back = StoredBack::of(compressor.encode(&raw), &raw);
        }
    }

    /// Appends the record:
    ///
    /// ```text
    /// size    field
    /// 1       flags: 0 removal
    /// 1       compression of the body, as in the log's records
    /// varint  sequence
    /// varint  bytes that the record took in the log
    /// varint  length of the body before compression
    /// varint  length of the front, then the front: varint length of the key, the key, the entry without
    ///         its body
    ///         the body as it was compressed, to the end
    /// ```
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(if self.is_removal { IS_REMOVAL } else { 0 });
        out.push(self.back.codec().number());
        for number in [self.sequence, self.logged_bytes, self.back.raw_len()] {
            put_varint(out, number);
        }
        put_varint(out, self.front.len() as u64);
        out.extend_from_slice(&self.front);
        out.extend_from_slice(self.back.bytes());
    }

    /// Decodes the form of [`JournalRecord::encode`]; parts are slices of `bytes`.
    ///
    /// # Errors
    /// The bytes are not a record.
    pub fn decode(bytes: &Bytes) -> std::result::Result<Self, Truncated> {
        let mut reader = ByteReader::new(bytes);
        let flags = reader.u8()?;
        let codec = Codec::from_number(reader.u8()?).ok_or(Truncated { offset: 1 })?;
        let (sequence, logged_bytes) = (reader.varint()?, reader.varint()?);
        let raw_len = reader.varint()?;
        let front_len = reader.take_prefixed()?.len();
        let at = reader.offset();
        let front = bytes.slice(at - front_len..at);
        let body = bytes.slice(at..);
        let mut reader = ByteReader::new(&front);
        let key_len = reader.take_prefixed()?.len();
        let key_end = reader.offset();
        if flags & !IS_REMOVAL != 0 {
            return Err(Truncated { offset: 0 });
        }
        Ok(Self {
            sequence,
            is_removal: flags & IS_REMOVAL != 0,
            logged_bytes,
            key: front.slice(key_end - key_len..key_end),
            front,
            // The record's block was checked.
            back: StoredBack::from_parts(body.clone(), codec, raw_len, checksum(&body)),
        })
    }

    /// The record's write, with its body at a place of the log.
    pub(crate) fn op(&self, at: LogPlace) -> std::result::Result<Option<Op>, Truncated> {
        decode_front(&self.front, at, self.back.raw_len())
    }
}

impl JournalFile {
    /// True when the file may have records of segments in this range, both ends included.
    pub(crate) fn has_any_of(&self, first: u32, last: u32) -> bool {
        let at = self.segments.partition_point(|it| *it < first);
        self.segments.get(at).is_some_and(|it| *it <= last)
    }

    /// Reads the record of a batch that was logged at a place. The inner `None`: there is none; the
    /// outer `None`: the read would have had to wait.
    pub(crate) fn read(
        &self,
        at: &LogPlace,
        sequence: u64,
        context: &ReadContext<'_>,
    ) -> Result<Option<Option<JournalRecord>>> {
        let corrupt = |what: &str| {
            let (number, offset) = (at.segment, at.record.offset);
            let detail = format!(
                "{what} of byte {offset} of segment {number} of the value log, in {:010}.journal",
                self.number
            );
            BackendError::new(ErrorKind::Corrupt, detail)
        };
        let table = self.table.as_ref();
        let table = table.ok_or_else(|| corrupt("the file is lost with the record"))?;
        let name = name_of(at, sequence);
        let found = match table.get(&name, hash_key(&name), context) {
            Err(error) if error.would_block() => return Ok(None),
            Err(error) => return Err(from_sst(&error)),
            Ok(found) => found,
        };
        let Some(found) = found else {
            return Ok(Some(None));
        };
        let record = JournalRecord::decode(&found.value);
        record
            .map(|it| Some(Some(it)))
            .map_err(|_| corrupt("a good checksum and no record"))
    }
}

/// The entry of a record for a table, if it decodes.
pub(crate) fn entry_of(record: &JournalRecord, at: LogPlace) -> Option<Entry> {
    Some(match record.op(at).ok()?? {
        Op::Put { value, .. } => Entry::of(record.sequence, Some(value)),
        Op::Remove { .. } => Entry {
            removed_at: Some(Box::new(at)),
            ..Entry::removal(record.sequence)
        },
        Op::RemoveRange { .. } => return None,
    })
}

#[cfg(test)]
mod tests {
    use kvorum_golden::assert_bytes;
    use kvorum_segment::Location;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn at(segment: u32, offset: u64) -> LogPlace {
        let record = Location {
            offset,
            front_end: 0,
            len: 0,
        };
        LogPlace { segment, record }
    }

    fn record() -> JournalRecord {
        let body = Bytes::from_static(b"body");
        JournalRecord {
            sequence: 300,
            is_removal: false,
            logged_bytes: 64,
            key: Bytes::from_static(b"ok"),
            front: Bytes::from_static(b"\x02ok\x00rest"),
            back: StoredBack::from_parts(body.clone(), Codec::Plain, 4, checksum(&body)),
        }
    }

    #[test]
    fn names_are_in_the_order_of_places() {
        let places = [at(1, 16), at(1, 1 << 33), at(2, 0), at(256, 3)];
        let name_of = |at: &LogPlace| name_of(at, 9);
        assert!(
            places
                .windows(2)
                .all(|it| name_of(&it[0]) < name_of(&it[1]))
        );
        assert_eq!(place_named(&name_of(&at(7, 9))), Some((7, 9)));
        assert_eq!(place_named(b"short"), None);
    }

    #[test]
    fn the_bytes_are_as_drawn() {
        let mut out = Vec::new();
        record().encode(&mut out);
        let drawing = [("the record but its body", out.len() - 4), ("body", 4)];
        assert_bytes("journal.hex", &drawing, &out);
        assert_eq!(JournalRecord::decode(&out.clone().into()), Ok(record()));
        // A byte of a newer version.
        out[0] = 2;
        assert!(JournalRecord::decode(&out.into()).is_err());
    }

    #[test]
    fn cut_bytes_are_no_record() {
        let mut out = Vec::new();
        record().encode(&mut out);
        for len in 0..out.len() - b"body".len() {
            let cut = Bytes::copy_from_slice(&out[..len]);
            assert!(JournalRecord::decode(&cut).is_err(), "{len} bytes");
        }
    }

    proptest! {
        #[test]
        fn hostile_bytes_are_refused_without_a_panic(bytes in vec(any::<u8>(), 0..60)) {
            check_hostile(bytes);
        }

        #[test]
        fn changed_bytes_are_refused_or_read_without_a_panic(
            changes in vec((0_usize..19, any::<u8>()), 1..4),
        ) {
            let mut bytes = Vec::new();
            record().encode(&mut bytes);
            for (at, byte) in changes {
                bytes[at] = byte;
            }
            check_hostile(bytes);
        }
    }

    /// Any bytes are refused, or decode to a record that encodes to the same bytes.
    fn check_hostile(bytes: Vec<u8>) {
        let Ok(decoded) = JournalRecord::decode(&bytes.into()) else {
            return;
        };
        let _entry = entry_of(&decoded, at(1, 2));
        let mut again = Vec::new();
        decoded.encode(&mut again);
        assert_eq!(JournalRecord::decode(&again.into()), Ok(decoded));
    }
}
