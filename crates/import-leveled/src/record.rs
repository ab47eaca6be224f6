//! Records: a journal file of leveled is a sequence of records.
//!
//! A length may be damaged, so it is only used after a check of the checksum.

/// The bytes of the two lengths in front of a record.
pub const RECORD_HEADER_BYTES: usize = 8;
/// The length of the checksum between key and value.
pub const CHECKSUM_BYTES: usize = 4;

/// The lengths in front of a record:
///
/// ```text
/// offset  size  field
///      0     4  length of the key (k), little-endian
///      4     4  length of checksum and value (4 + v), little-endian
///      8     k  key
///    8+k     4  CRC-32 (zlib's polynomial) of key and value, big-endian
///   12+k     v  value
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// Length of the key, in bytes.
    pub key_len: u32,
    /// Length of the checksum and the value, in bytes.
    pub payload_len: u32,
}

impl RecordHeader {
    /// Decodes the header, without a check of the checksum.
    pub fn decode(bytes: &[u8; RECORD_HEADER_BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h] = *bytes;
        Self {
            key_len: u32::from_le_bytes([a, b, c, d]),
            payload_len: u32::from_le_bytes([e, f, g, h]),
        }
    }

    /// The length of the whole record, in bytes.
    pub fn total_len(&self) -> u64 {
        RECORD_HEADER_BYTES as u64 + u64::from(self.key_len) + u64::from(self.payload_len)
    }
}

/// A complete record with a matching checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
}

/// Failure to decode a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The lengths differ from the length of the bytes.
    #[error("record of {expected} bytes in {got}")]
    Length {
        /// The length in the header, in bytes.
        expected: u64,
        /// Bytes left.
        got: u64,
    },
    /// The checksum differs.
    #[error("CRC-32 {got:08x} where the record has {expected:08x}")]
    Checksum {
        /// Checksum in the record.
        expected: u32,
        /// Checksum of the bytes.
        got: u32,
    },
}

impl<'a> Record<'a> {
    /// Checks and decodes a record with nothing after it.
    ///
    /// # Errors
    /// [`RecordError`], for anything but one complete and intact record.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, RecordError> {
        let got = bytes.len() as u64;
        let cut = |expected| RecordError::Length { expected, got };
        let (head, rest) = bytes
            .split_first_chunk::<RECORD_HEADER_BYTES>()
            .ok_or(cut(RECORD_HEADER_BYTES as u64))?;
        let header = RecordHeader::decode(head);
        let expected = header.total_len();
        let key_len = usize::try_from(header.key_len).map_err(|_| cut(expected))?;
        let (key, payload) = rest.split_at_checked(key_len).ok_or(cut(expected))?;
        let (checksum, value) = payload
            .split_first_chunk::<CHECKSUM_BYTES>()
            .filter(|_| expected == got)
            .ok_or(cut(expected))?;
        let expected = u32::from_be_bytes(*checksum);
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(key);
        hasher.update(value);
        match hasher.finalize() {
            got if got == expected => Ok(Self { key, value }),
            got => Err(RecordError::Checksum { expected, got }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record that a node of Riak 3.2 wrote, without the middle of its value and with a checksum
    /// of the rest.
    const RECORD: &[u8] = b"\x0a\0\0\0\x08\0\0\0\x83h\x03a\x01d\0\x01xj\x3d\x4a\x21\x5ejunk";

    fn right() -> Vec<u8> {
        let mut bytes = RECORD.to_vec();
        let sum = crc32fast::hash(&[&RECORD[8..18], &RECORD[22..]].concat());
        bytes[18..22].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    #[test]
    fn every_flipped_bit_and_every_truncation_is_noticed() {
        let bytes = right();
        assert_eq!(Record::decode(&bytes).unwrap().value, b"junk");
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Record::decode(&flipped).is_err(), "bit {bit}");
        }
        for len in 0..bytes.len() {
            let decoded = Record::decode(&bytes[..len]);
            assert!(matches!(decoded, Err(RecordError::Length { .. })), "{len}");
        }
    }
}
