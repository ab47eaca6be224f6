//! The value of a journal's record: an object, packed or not, and its changes of index entries.

use std::io::Read;

use bytes::Bytes;
use kvorum_erlang_terms::external_term::{Term, TermError};
use kvorum_import::inflate_lz4;

/// Seconds from the beginning of the year 0, from which Erlang counts, to the Unix epoch.
const UNIX_EPOCH_SECS: u64 = 62_167_219_200;
/// Maximum inflated length of an object, in bytes. Riak refuses objects above 50 MB unless
/// configured otherwise.
const INFLATED_BYTES_MAX: u32 = 512 << 20;

const FLAG_COMPRESSED: u8 = 1;
const FLAG_BINARY: u8 = 2;
const METHOD_BITS: u8 = 12;
const METHOD_ZLIB: u8 = 0;
const METHOD_LZ4: u8 = 4;
const METHOD_ZSTD: u8 = 12;

/// A value's parts, still packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalValue {
    flags: u8,
    packed: Bytes,
    changes: Bytes,
}

/// Defect of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// The lengths in the value do not fit.
    #[error("lengths do not fit the value")]
    Lengths,
    /// The compression is unknown to leveled.
    #[error("unknown compression, flags {flags}")]
    Compression {
        /// The byte with the method.
        flags: u8,
    },
    /// The object cannot be inflated.
    #[error("cannot be inflated")]
    Inflation,
    /// The changes of index entries are no Erlang term.
    #[error("index changes: {0}")]
    Term(#[from] TermError),
    /// The changes of index entries have another shape.
    #[error("index changes of an unexpected shape")]
    Shape,
}

impl JournalValue {
    /// Splits a value, which is read from its end:
    ///
    /// ```text
    /// object  index changes  u32 length of the index changes  u8 flags            big-endian
    ///
    /// flags   1   the object is compressed, if it is a binary
    ///         2   the object is a binary; otherwise it is an external term, which may be compressed
    ///             by itself
    ///        12   0 zlib, 4 lz4, 12 zstd
    /// ```
    ///
    /// # Errors
    /// [`ValueError::Lengths`].
    pub fn split(value: &Bytes) -> Result<Self, ValueError> {
        let (rest, tail) = value.split_last_chunk::<5>().ok_or(ValueError::Lengths)?;
        let [a, b, c, d, flags] = *tail;
        let len = usize::try_from(u32::from_be_bytes([a, b, c, d])).ok();
        let object_len = len.and_then(|len| rest.len().checked_sub(len));
        let object_len = object_len.ok_or(ValueError::Lengths)?;
        Ok(Self {
            flags,
            packed: value.slice(..object_len),
            changes: value.slice(object_len..rest.len()),
        })
    }

    /// The object's bytes.
    ///
    /// ```text
    /// zlib   a zlib stream
    /// lz4    u32 inflated length, little-endian, and one raw block
    /// zstd   a frame
    /// ```
    ///
    /// # Errors
    /// [`ValueError`].
    pub fn object(&self) -> Result<Bytes, ValueError> {
        let is_packed = self.flags & FLAG_BINARY != 0 && self.flags & FLAG_COMPRESSED != 0;
        if !is_packed {
            return Ok(self.packed.clone());
        }
        match self.flags & METHOD_BITS {
            METHOD_ZLIB => read_limited(flate2::read::ZlibDecoder::new(&self.packed[..])),
            METHOD_LZ4 => {
                inflate_lz4(&self.packed, INFLATED_BYTES_MAX as usize).ok_or(ValueError::Inflation)
            }
            METHOD_ZSTD => {
                let decoder = zstd::stream::read::Decoder::with_buffer(&self.packed[..]);
                read_limited(decoder.map_err(|_| ValueError::Inflation)?)
            }
            _ => Err(ValueError::Compression { flags: self.flags }),
        }
    }

    /// Time of expiry, in seconds since the Unix epoch; `None` for an object without one.
    ///
    /// ```text
    /// {[{add | remove, Field, Term}], infinity | the last second in which the object is there}
    /// ```
    ///
    /// # Errors
    /// [`ValueError`].
    pub fn expires_at_secs(&self) -> Result<Option<u64>, ValueError> {
        let changes = self.changes()?;
        match changes.as_tuple() {
            Some([_, expiry]) if expiry.is_atom("infinity") => Ok(None),
            Some([_, expiry]) => {
                let last = expiry.as_u64().ok_or(ValueError::Shape)?;
                Ok(Some(last.saturating_sub(UNIX_EPOCH_SECS).saturating_add(1)))
            }
            _ => Err(ValueError::Shape),
        }
    }

    /// The number of entries in a batch of head-only entries.
    ///
    /// # Errors
    /// [`ValueError`].
    pub fn batch_entries(&self) -> Result<usize, ValueError> {
        let Term::Tuple(parts) = self.changes()? else {
            return Err(ValueError::Shape);
        };
        let entries = parts.into_iter().next().and_then(Term::into_list);
        entries
            .map(|entries| entries.len())
            .ok_or(ValueError::Shape)
    }

    fn changes(&self) -> Result<Term, ValueError> {
        Ok(Term::decode(&self.changes)?)
    }
}

fn read_limited(reader: impl Read) -> Result<Bytes, ValueError> {
    let mut inflated = Vec::new();
    let read = reader
        .take(u64::from(INFLATED_BYTES_MAX) + 1)
        .read_to_end(&mut inflated);
    match read {
        Ok(len) if len as u64 <= u64::from(INFLATED_BYTES_MAX) => Ok(inflated.into()),
        _ => Err(ValueError::Inflation),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(object: &[u8], changes: &[u8], flags: u8) -> Result<JournalValue, ValueError> {
        let len = u32::try_from(changes.len()).unwrap().to_be_bytes();
        let value = [object, changes, &len, &[flags]].concat();
        JournalValue::split(&value.into())
    }

    #[test]
    fn lengths_that_do_not_fit_and_unknown_compressions_are_refused() {
        for len in 0..5 {
            let short = Bytes::from(vec![0; len]);
            assert_eq!(JournalValue::split(&short), Err(ValueError::Lengths));
        }
        let long = Bytes::from_static(b"ab\0\0\0\x03\x02");
        assert_eq!(JournalValue::split(&long), Err(ValueError::Lengths));
        let object = |bytes, flags| split(bytes, b"", flags).unwrap().object();
        assert_eq!(object(b"plain", 2).unwrap(), "plain");
        assert_eq!(object(b"\x83a\x01", 1).unwrap(), &b"\x83a\x01"[..]);
        assert_eq!(
            object(b"plain", 11),
            Err(ValueError::Compression { flags: 11 })
        );
        for flags in [3, 7, 15] {
            assert_eq!(object(b"plain", flags), Err(ValueError::Inflation));
            assert_eq!(object(b"", flags), Err(ValueError::Inflation));
        }
        // A length of four gigabytes without content.
        assert_eq!(object(b"\xff\xff\xff\xff\0", 7), Err(ValueError::Inflation));
    }

    #[test]
    fn a_time_of_expiry_is_the_last_second_of_the_object() {
        let expiry = |changes: &[u8]| split(b"", changes, 2).unwrap().expires_at_secs();
        assert_eq!(expiry(b"\x83h\x02jw\x08infinity"), Ok(None));
        // 62167219200 + 1000
        let last = b"\x83h\x02jn\x05\0\xe8\x7f\x74\x79\x0e";
        assert_eq!(expiry(last), Ok(Some(1001)));
        assert_eq!(expiry(b"\x83h\x02jj"), Err(ValueError::Shape));
        assert!(matches!(expiry(b"\x83h\x02j"), Err(ValueError::Term(_))));
        let batch = split(b"", b"\x83h\x02l\0\0\0\x02jjjw\x08infinity", 0).unwrap();
        assert_eq!(batch.batch_entries(), Ok(2));
    }
}
