//! LevelDB's own key: the user's key, the sequence number of the write, and the kind of the record.

use bytes::Bytes;

const TRAILER_BYTES: usize = 8;
const EXPIRY_BYTES: usize = 8;

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// A deletion of the key.
    Deletion,
    /// A value.
    Value,
    /// A value with the time of writing, in microseconds since the Unix epoch; 0 for none. Basho's.
    WrittenAt(u64),
    /// A value with the time at which it expires, in microseconds since the Unix epoch; 0 for never.
    /// Basho's.
    ExpiresAt(u64),
}

impl RecordKind {
    /// The number of this kind.
    pub fn number(self) -> u8 {
        match self {
            Self::Deletion => 0,
            Self::Value => 1,
            Self::WrittenAt(_) => 2,
            Self::ExpiresAt(_) => 3,
        }
    }

    /// The kind with a number, and its time.
    pub fn of(number: u8, micros: u64) -> Option<Self> {
        match number {
            0 => Some(Self::Deletion),
            1 => Some(Self::Value),
            2 => Some(Self::WrittenAt(micros)),
            3 => Some(Self::ExpiresAt(micros)),
            _ => None,
        }
    }

    /// The time in the record.
    pub fn micros(self) -> u64 {
        match self {
            Self::Deletion | Self::Value => 0,
            Self::WrittenAt(micros) | Self::ExpiresAt(micros) => micros,
        }
    }
}

/// A key in a table. Keys sort by their user key, bytewise, and newest first among equals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InternalKey {
    /// The key of LevelDB's user.
    pub user_key: Bytes,
    /// The number of the write, from one upward.
    pub sequence: u64,
    /// The kind of the record.
    pub kind: RecordKind,
}

impl InternalKey {
    /// Decodes a key:
    ///
    /// ```text
    /// user key  [u64 time, of kinds 2 and 3]  u64 sequence << 8 | kind       little-endian
    /// ```
    pub fn decode(bytes: &Bytes) -> Option<Self> {
        let (front, trailer) = bytes.split_last_chunk::<TRAILER_BYTES>()?;
        let trailer = u64::from_le_bytes(*trailer);
        let number = trailer.to_le_bytes()[0];
        let (user_len, micros) = match number {
            2 | 3 => {
                let (user, micros) = front.split_last_chunk::<EXPIRY_BYTES>()?;
                (user.len(), u64::from_le_bytes(*micros))
            }
            _ => (front.len(), 0),
        };
        Some(Self {
            user_key: bytes.slice(..user_len),
            sequence: trailer >> 8,
            kind: RecordKind::of(number, micros)?,
        })
    }

    /// True if this key sorts before `other` in a table.
    pub fn is_before(&self, other: &Self) -> bool {
        (&self.user_key, other.sequence) < (&other.user_key, self.sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(bytes: &[u8]) -> Option<InternalKey> {
        InternalKey::decode(&Bytes::copy_from_slice(bytes))
    }

    #[test]
    fn keys_of_all_kinds_are_taken_apart() {
        let key = decode(b"ab\x01\x05\0\0\0\0\0\0").unwrap();
        assert_eq!((&key.user_key[..], key.sequence), (&b"ab"[..], 5));
        assert_eq!(key.kind, RecordKind::Value);
        let key = decode(b"\0\x05\0\0\0\0\0\0").unwrap();
        assert_eq!(key.kind, RecordKind::Deletion);
        assert!(key.user_key.is_empty());
        let key = decode(b"ab\x09\0\0\0\0\0\0\0\x03\x05\0\0\0\0\0\0").unwrap();
        assert_eq!((&key.user_key[..], key.sequence), (&b"ab"[..], 5));
        assert_eq!(key.kind, RecordKind::ExpiresAt(9));
        assert_eq!(decode(b"ab\x04\x05\0\0\0\0\0\0"), None);
        assert_eq!(decode(b"ab\x02\x05\0\0\0\0\0\0"), None);
        assert_eq!(decode(b"1234567"), None);
    }

    #[test]
    fn the_newest_of_equal_keys_stands_first() {
        let key = |user: &'static [u8], sequence| InternalKey {
            user_key: Bytes::from_static(user),
            sequence,
            kind: RecordKind::Value,
        };
        assert!(key(b"a", 9).is_before(&key(b"a", 8)));
        assert!(!key(b"a", 8).is_before(&key(b"a", 8)));
        assert!(!key(b"a", 7).is_before(&key(b"a", 8)));
        assert!(key(b"a", 1).is_before(&key(b"b", 9)));
        assert!(!key(b"b", 9).is_before(&key(b"a", 1)));
    }
}
