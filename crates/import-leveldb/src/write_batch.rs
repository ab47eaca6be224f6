//! The records of a log: puts and deletes that were written together.

use kvorum_encoding::{ByteReader, Truncated};

use crate::internal_key::RecordKind;

/// One put or delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write<'a> {
    /// The key of LevelDB's user.
    pub key: &'a [u8],
    /// The number of the write.
    pub sequence: u64,
    /// The kind of the write.
    pub kind: RecordKind,
    /// The value; empty for a deletion.
    pub value: &'a [u8],
}

/// Failure to decode a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// The bytes end within the batch.
    #[error("batch is cut off at byte {offset}")]
    Cut {
        /// Offset of the missing bytes.
        offset: usize,
    },
    /// A kind of record is unknown to Basho's LevelDB.
    #[error("unknown kind {kind} at byte {offset}")]
    Kind {
        /// The kind.
        kind: u8,
        /// Offset of the byte.
        offset: usize,
    },
    /// The number of records differs from the header.
    #[error("batch holds {got} records instead of {expected}")]
    Count {
        /// Number of records in the batch.
        got: u32,
        /// Number in the header.
        expected: u32,
    },
}

impl From<Truncated> for BatchError {
    fn from(truncated: Truncated) -> Self {
        let offset = truncated.offset;
        Self::Cut { offset }
    }
}

/// Decodes a batch:
///
/// ```text
/// batch  = u64 sequence of the first record  u32 count of records  record*      little-endian
/// record = 0  text                      delete
///          1  text text                 put
///          2  text varint text          put, with the time of writing in microseconds (Basho)
///          3  text varint text          put, with the time of expiry in microseconds (Basho)
/// text   = varint length  bytes
/// ```
///
/// # Errors
/// [`BatchError`]; earlier writes have been passed to `take`.
pub fn decode_batch(bytes: &[u8], mut take: impl FnMut(Write<'_>)) -> Result<(), BatchError> {
    let mut reader = ByteReader::new(bytes);
    let first = reader.u64()?;
    let expected = reader.u32()?;
    let mut got = 0u32;
    while !reader.is_empty() {
        let offset = reader.offset();
        let number = reader.u8()?;
        let key = reader.take_prefixed()?;
        let micros = match number {
            2 | 3 => reader.varint()?,
            _ => 0,
        };
        let kind = RecordKind::of(number, micros);
        let kind = kind.ok_or(BatchError::Kind {
            kind: number,
            offset,
        })?;
        let value = match kind {
            RecordKind::Deletion => &[][..],
            _ => reader.take_prefixed()?,
        };
        let sequence = first.wrapping_add(u64::from(got));
        take(Write {
            key,
            sequence,
            kind,
            value,
        });
        got = got.saturating_add(1);
    }
    match got == expected {
        true => Ok(()),
        false => Err(BatchError::Count { got, expected }),
    }
}
