//! Records: a data file of bitcask is a sequence of records.
//!
//! The format is big-endian. A length may be damaged, so memory for it is only allocated after a
//! check of the checksum.

/// The length of the fixed header.
pub const RECORD_HEADER_BYTES: usize = 14;
/// The longest value of a deletion mark.
pub(crate) const TOMBSTONE_BYTES_MAX: usize = 22;

const TOMBSTONE_PREFIX: &[u8] = b"bitcask_tombstone";

/// The fixed header of a record:
///
/// ```text
/// offset  size  field
///      0     4  CRC-32 (zlib's polynomial) of everything after it in the record
///      4     4  time of writing, seconds since the Unix epoch
///      8     2  length of the key (k), never 0
///     10     4  length of the value (v)
///     14     k  key
///   14+k     v  value
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// CRC-32 of the rest of the record.
    pub checksum: u32,
    /// Time of writing, seconds since the Unix epoch.
    pub timestamp: u32,
    /// Length of the key, in bytes.
    pub key_len: u16,
    /// Length of the value, in bytes.
    pub value_len: u32,
}

impl RecordHeader {
    /// Decodes the header, without a check of the checksum.
    pub fn decode(bytes: &[u8; RECORD_HEADER_BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n] = *bytes;
        Self {
            checksum: u32::from_be_bytes([a, b, c, d]),
            timestamp: u32::from_be_bytes([e, f, g, h]),
            key_len: u16::from_be_bytes([i, j]),
            value_len: u32::from_be_bytes([k, l, m, n]),
        }
    }

    /// The length of the whole record, in bytes.
    pub fn total_len(&self) -> u64 {
        RECORD_HEADER_BYTES as u64 + u64::from(self.key_len) + u64::from(self.value_len)
    }
}

/// A complete record with a matching checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its header.
    pub header: RecordHeader,
    /// Its key.
    pub key: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
}

/// Failure to decode a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The lengths in the header reach beyond the end of the bytes.
    #[error("record of {expected} bytes where {got} are left")]
    Cut {
        /// The length in the header, in bytes.
        expected: u64,
        /// Bytes left.
        got: u64,
    },
    /// The key is empty according to the header; Riak never writes such a record.
    #[error("record without a key")]
    NoKey,
    /// The checksum differs.
    #[error("CRC-32 {got:08x} where the record has {expected:08x}")]
    Checksum {
        /// Checksum in the header.
        expected: u32,
        /// Checksum of the bytes.
        got: u32,
    },
}

impl<'a> Record<'a> {
    /// Checks and decodes the record at the start of `bytes`.
    ///
    /// # Errors
    /// [`RecordError`], for anything but a complete and intact record.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, RecordError> {
        let cut = |expected: u64| RecordError::Cut {
            expected,
            got: bytes.len() as u64,
        };
        let head = bytes
            .first_chunk::<RECORD_HEADER_BYTES>()
            .ok_or(cut(RECORD_HEADER_BYTES as u64))?;
        let header = RecordHeader::decode(head);
        if header.key_len == 0 {
            return Err(RecordError::NoKey);
        }
        let total = header.total_len();
        let end = usize::try_from(total).map_err(|_| cut(total))?;
        let whole = bytes.get(..end).ok_or(cut(total))?;
        let got = crc32fast::hash(&whole[4..]);
        if got != header.checksum {
            return Err(RecordError::Checksum {
                expected: header.checksum,
                got,
            });
        }
        let payload = &whole[RECORD_HEADER_BYTES..];
        let (key, value) = payload.split_at(usize::from(header.key_len));
        Ok(Self { header, key, value })
    }
}

/// The meaning of a value for its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// The key's value.
    Data,
    /// A deletion of the key.
    Tombstone,
    /// A value that begins like a deletion mark and is not one. Bitcask hides it.
    LooksDeleted,
}

impl ValueKind {
    /// Judges a value by its length and its first `TOMBSTONE_BYTES_MAX` bytes:
    ///
    /// ```text
    /// version 0   "bitcask_tombstone"
    /// version 1   "bitcask_tombstone1"  u32 file id: what is deleted may be in older files than this
    /// version 2   "bitcask_tombstone2"  u32 file id: what is deleted is in this file
    /// ```
    ///
    /// The file id only matters to merges: read in order, every deletion mark removes the key.
    pub fn of(value_len: u64, start: &[u8]) -> Self {
        if !start.starts_with(TOMBSTONE_PREFIX) {
            return Self::Data;
        }
        let version = start.get(TOMBSTONE_PREFIX.len());
        match (value_len, version) {
            (17, _) | (22, Some(b'1' | b'2')) => Self::Tombstone,
            _ => Self::LooksDeleted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record that bitcask wrote.
    const RECORDED: [u8; 24] = [
        0x77, 0x39, 0x9b, 0xd6, 0x6b, 0x01, 0xe5, 0xbd, 0x00, 0x08, 0x00, 0x00, 0x00, 0x02, 0x02,
        0x00, 0x03, 0x62, 0x6b, 0x74, 0x6b, 0x31, 0x76, 0x31,
    ];

    #[test]
    fn a_record_written_by_bitcask_is_understood() {
        let record = Record::decode(&RECORDED).unwrap();
        assert_eq!(record.header.timestamp, 0x6b01_e5bd);
        assert_eq!(record.key, b"\x02\x00\x03bktk1");
        assert_eq!(record.value, b"v1");
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        for bit in 0..RECORDED.len() * 8 {
            let mut bytes = RECORDED;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Record::decode(&bytes).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn every_truncation_is_noticed() {
        for len in 0..RECORDED.len() {
            let decoded = Record::decode(&RECORDED[..len]);
            assert!(matches!(decoded, Err(RecordError::Cut { .. })), "{len}");
        }
    }

    #[test]
    fn deletion_marks_of_all_versions_are_distinguished_from_values_that_look_like_them() {
        let kind = |value: &[u8]| ValueKind::of(value.len() as u64, value);
        assert_eq!(kind(b"bitcask_tombstone"), ValueKind::Tombstone);
        assert_eq!(
            kind(b"bitcask_tombstone1\x00\x00\x00\x07"),
            ValueKind::Tombstone
        );
        assert_eq!(
            kind(b"bitcask_tombstone2\x00\x00\x00\x07"),
            ValueKind::Tombstone
        );
        assert_eq!(
            kind(b"bitcask_tombstone3\x00\x00\x00\x07"),
            ValueKind::LooksDeleted
        );
        assert_eq!(kind(b"bitcask_tombstones are fun"), ValueKind::LooksDeleted);
        assert_eq!(kind(b"bitcask_tombston"), ValueKind::Data);
        assert_eq!(kind(b""), ValueKind::Data);
    }
}
