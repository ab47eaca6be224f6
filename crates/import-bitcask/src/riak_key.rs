//! Keys in the form of Riak's bitcask backend, and their addresses.

use bytes::Bytes;
use kvorum_encoding::Address;
use kvorum_erlang_terms::external_term::{FORMAT_BYTE, Term, TermError};
use kvorum_import::metadata::{address_of, bucket_of_term};

const UNTYPED: u8 = 0x02;
const TYPED: u8 = 0x03;

/// Failure to decode a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// No key of Riak's begins with this byte.
    #[error("unknown form {first}")]
    Form {
        /// The first byte.
        first: u8,
    },
    /// A length reaches beyond the key, or no bytes are left for a name.
    #[error("lengths do not fit the key")]
    Lengths,
    /// The old form is not an Erlang term.
    #[error("no Erlang term: {0}")]
    Term(#[from] TermError),
    /// The old form is a term with another shape.
    #[error("a term that is no bucket and key")]
    Shape,
}

/// Decodes a key:
///
/// ```text
/// version 1, untyped   0x02  u16 length of bucket  bucket  key
/// version 1, typed     0x03  u16 length of type  type  u16 length of bucket  bucket  key
/// version 0            external term {Bucket, Key}, where Bucket may be {Type, Bucket}
/// ```
///
/// Lengths are big-endian; the key extends to the end.
///
/// # Errors
/// [`KeyError`].
pub fn decode_key(bytes: &Bytes) -> Result<Address, KeyError> {
    match bytes.first() {
        Some(&UNTYPED) => {
            let (bucket, key) = split_name(&bytes.slice(1..))?;
            address(None, bucket, key)
        }
        Some(&TYPED) => {
            let (bucket_type, rest) = split_name(&bytes.slice(1..))?;
            let (bucket, key) = split_name(&rest)?;
            address(Some(bucket_type), bucket, key)
        }
        Some(&FORMAT_BYTE) => from_term(&Term::decode(bytes)?),
        first => Err(KeyError::Form {
            first: first.copied().unwrap_or(0),
        }),
    }
}

fn split_name(bytes: &Bytes) -> Result<(Bytes, Bytes), KeyError> {
    let len = bytes.first_chunk::<2>().ok_or(KeyError::Lengths)?;
    let end = 2 + usize::from(u16::from_be_bytes(*len));
    if end > bytes.len() {
        return Err(KeyError::Lengths);
    }
    Ok((bytes.slice(2..end), bytes.slice(end..)))
}

fn from_term(term: &Term) -> Result<Address, KeyError> {
    let Some([bucket, key]) = term.as_tuple() else {
        return Err(KeyError::Shape);
    };
    let key = key.as_binary().ok_or(KeyError::Shape)?.clone();
    let (bucket_type, bucket) = bucket_of_term(bucket).ok_or(KeyError::Shape)?;
    address(bucket_type, bucket, key)
}

fn address(bucket_type: Option<Bytes>, bucket: Bytes, key: Bytes) -> Result<Address, KeyError> {
    address_of(bucket_type, bucket, key).ok_or(KeyError::Lengths)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(bytes: &[u8]) -> Result<String, KeyError> {
        decode_key(&Bytes::copy_from_slice(bytes)).map(|address| address.to_string())
    }

    #[test]
    fn all_forms_of_a_key_name_the_same_object() {
        assert_eq!(decode(b"\x02\0\x03bktk1").unwrap(), "default/bkt/k1");
        let old = b"\x83h\x02m\0\0\0\x03bktm\0\0\0\x02k1";
        assert_eq!(decode(old).unwrap(), "default/bkt/k1");
        assert_eq!(decode(b"\x03\0\x01t\0\x03bktk1").unwrap(), "t/bkt/k1");
        let old = b"\x83h\x02h\x02m\0\0\0\x01tm\0\0\0\x03bktm\0\0\0\x02k1";
        assert_eq!(decode(old).unwrap(), "t/bkt/k1");
    }

    #[test]
    fn truncated_keys_are_refused_or_shorter_keys() {
        let typed = b"\x03\0\x01t\0\x03bktk1";
        for len in 0..typed.len() {
            let decoded = decode(&typed[..len]);
            assert_eq!(decoded.is_ok(), len == typed.len() - 1, "{len}");
        }
        let old = b"\x83h\x02m\0\0\0\x03bktm\0\0\0\x02k1";
        for len in 0..old.len() {
            assert!(decode(&old[..len]).is_err(), "{len}");
        }
    }
}
