//! Keys in the form of Riak's LevelDB backend, and their meaning.

use bytes::Bytes;
use kvorum_encoding::Address;
use kvorum_import::metadata::address_of;

use crate::sext::{Sext, SextError, put_binary};

/// The beginning of every object's key: a tuple of three that begins with the atom `o`.
pub(crate) const OBJECT_PREFIX: [u8; 9] = [16, 0, 0, 0, 3, 12, 0xb7, 0x80, 8];
/// The beginning of a bucket with a type: a tuple of two.
const TYPED_BUCKET: [u8; 5] = [16, 0, 0, 0, 2];

/// Meaning of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredKey {
    /// An object.
    Object(Address),
    /// An entry of a secondary index.
    Index(IndexKey),
    /// A note by Riak about the store.
    Note,
}

/// An entry of a secondary index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexKey {
    /// The object.
    pub address: Address,
    /// The field, with its suffix.
    pub field: Bytes,
    /// The term; an integer as decimal text.
    pub term: Bytes,
}

/// Failure to decode a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The key is not a term.
    #[error(transparent)]
    Sext(#[from] SextError),
    /// The term has another shape.
    #[error("a term that Riak's backend does not write")]
    Shape,
}

/// Decodes a key:
///
/// ```text
/// {o, Bucket, Key}                an object
/// {i, Bucket, Field, Term, Key}   an index entry
/// {md, Name}                      a note
/// ```
///
/// where `Bucket` is a binary or `{Type, Bucket}`.
///
/// # Errors
/// [`KeyError`].
pub fn decode_key(bytes: &[u8]) -> Result<StoredKey, KeyError> {
    let Sext::Tuple(parts) = Sext::decode(bytes)? else {
        return Err(KeyError::Shape);
    };
    let mut parts = parts.into_iter();
    let Some(Sext::Atom(name)) = parts.next() else {
        return Err(KeyError::Shape);
    };
    let parts: Vec<Sext> = parts.collect();
    match (&name[..], &parts[..]) {
        (b"o", [bucket, Sext::Binary(key)]) => address(bucket, key).map(StoredKey::Object),
        (b"i", [bucket, Sext::Binary(field), term, Sext::Binary(key)]) => {
            let term = match term {
                Sext::Binary(bytes) => Bytes::copy_from_slice(bytes),
                Sext::Integer(value) => value.to_string().into(),
                Sext::Atom(_) | Sext::Tuple(_) => return Err(KeyError::Shape),
            };
            Ok(StoredKey::Index(IndexKey {
                address: address(bucket, key)?,
                field: Bytes::copy_from_slice(field),
                term,
            }))
        }
        (b"md", [_]) => Ok(StoredKey::Note),
        _ => Err(KeyError::Shape),
    }
}

/// A key in words, for reports.
pub(crate) fn describe(key: &[u8]) -> String {
    match decode_key(key) {
        Ok(StoredKey::Object(address)) => address.to_string(),
        Ok(StoredKey::Index(entry)) => {
            let field = String::from_utf8_lossy(&entry.field).into_owned();
            format!("an index entry {field} of {}", entry.address)
        }
        Ok(StoredKey::Note) => "a note of Riak's".to_owned(),
        Err(_) => {
            let hex = key.iter().take(40).map(|byte| format!("{byte:02x}"));
            hex.collect()
        }
    }
}

/// The first possible key of objects with typed buckets.
pub(crate) fn first_typed() -> Vec<u8> {
    [&OBJECT_PREFIX[..], &TYPED_BUCKET].concat()
}

/// A key after all objects of a type.
pub(crate) fn behind_type(bucket_type: &[u8]) -> Vec<u8> {
    let mut key = first_typed();
    put_binary(&mut key, bucket_type);
    key.push(0xff);
    key
}

fn address(bucket: &Sext, key: &[u8]) -> Result<Address, KeyError> {
    let (bucket_type, bucket) = match bucket {
        Sext::Binary(bucket) => (None, bucket),
        Sext::Tuple(parts) => match &parts[..] {
            [Sext::Binary(bucket_type), Sext::Binary(bucket)] => (Some(bucket_type), bucket),
            _ => return Err(KeyError::Shape),
        },
        Sext::Atom(_) | Sext::Integer(_) => return Err(KeyError::Shape),
    };
    let bucket_type = bucket_type.map(|name| Bytes::copy_from_slice(name));
    let (bucket, key) = (Bytes::copy_from_slice(bucket), Bytes::copy_from_slice(key));
    address_of(bucket_type, bucket, key).ok_or(KeyError::Shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(parts: &[&[u8]], first: &[u8]) -> Vec<u8> {
        let mut out = first.to_vec();
        for part in parts {
            put_binary(&mut out, part);
        }
        out
    }

    #[test]
    fn objects_with_and_without_a_type_are_distinguished_and_sorted_by_type() {
        let untyped = key(&[b"b", b"k"], &OBJECT_PREFIX);
        let StoredKey::Object(address) = decode_key(&untyped).unwrap() else {
            unreachable!();
        };
        assert_eq!(address.to_string(), "default/b/k");
        let mut typed = key(&[b"t", b"b"], &first_typed());
        put_binary(&mut typed, b"k");
        assert_eq!(describe(&typed), "t/b/k");
        assert!(first_typed() < typed);
        assert!(typed < behind_type(b"t"));
        assert!(behind_type(b"t") < behind_type(b"t2"));
        assert!(behind_type(b"zzz") < untyped);
    }

    #[test]
    fn other_terms_are_refused() {
        let empty_key = key(&[b"b", b""], &OBJECT_PREFIX);
        assert_eq!(decode_key(&empty_key), Err(KeyError::Shape));
        let three = key(&[b"b", b"k"], &[16, 0, 0, 0, 3, 12, 0xb8, 0, 8]);
        assert_eq!(decode_key(&three), Err(KeyError::Shape));
        assert!(decode_key(b"").is_err());
        assert_eq!(describe(b"\x01\x02"), "0102");
    }
}
