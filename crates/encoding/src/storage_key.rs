//! The storage key: an address as one byte string whose order is the order of addresses.
//!
//! Engines sort and compare these bytes and have no notion of buckets. The order is (bucket type,
//! bucket, key), each compared as bytes, so that a bucket is one contiguous range in every ordered
//! engine and a bucket listing is a walk with seeks.
//!
//! ```text
//! storage key  = part(bucket type) part(bucket) key
//! part(x)      = x with each 0x00 written as 0x00 0xFF, then 0x00 0x01
//! bucket type  = empty for the default type, which therefore sorts first
//! key          = the key's bytes as they are, to the end
//! ```

use std::borrow::Borrow;
use std::fmt;

use bytes::Bytes;

use crate::page_key::MARK;
use crate::{Address, Bucket, BucketType, Key};

const ESCAPED_ZERO: [u8; 2] = [0x00, 0xff];
const PART_END: [u8; 2] = [0x00, 0x01];

/// An address as ordered bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StorageKey(Bytes);

/// The bytes are not a storage key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed storage key at byte {offset}")]
pub struct StorageKeyError {
    /// The offset at which decoding stopped, in bytes.
    pub offset: usize,
}

impl StorageKey {
    /// Encodes an address.
    pub fn new(bucket_type: &BucketType, bucket: &Bucket, key: &Key) -> Self {
        let type_name = stored_type(bucket_type);
        let parts_len = type_name.len() + bucket.as_bytes().len() + 2 * PART_END.len();
        let len = parts_len + key.as_bytes().len();
        let is_plain = !type_name.contains(&0) && !bucket.as_bytes().contains(&0);
        if is_plain && len <= SHORT_LEN_MAX {
            let parts = [type_name, &PART_END, bucket.as_bytes(), &PART_END];
            return Self(Bytes::from_owner(ShortKey::new(parts, key.as_bytes())));
        }
        let mut out = Vec::with_capacity(len);
        put_type(&mut out, bucket_type);
        put_part(&mut out, bucket.as_bytes());
        out.extend_from_slice(key.as_bytes());
        Self(out.into())
    }

    /// Encodes an address.
    pub fn from_address(address: &Address) -> Self {
        Self::new(&address.bucket_type, &address.bucket, &address.key)
    }

    /// Takes bytes that were written by [`StorageKey::new`], or that only an engine will see.
    pub fn from_encoded(bytes: impl Into<Bytes>) -> Self {
        Self(bytes.into())
    }

    /// The encoded bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The encoded bytes as a shared handle, without a copy.
    pub fn to_bytes(&self) -> Bytes {
        self.0.clone()
    }

    /// The address that was encoded.
    pub fn decode(&self) -> Result<Address, StorageKeyError> {
        let (bucket_type, after_type) = take_part(&self.0, 0)?;
        let (bucket, after_bucket) = take_part(&self.0, after_type)?;
        let bucket_type = if bucket_type.is_empty() {
            BucketType::default_type()
        } else {
            BucketType::new(bucket_type)
        };
        let key = Key::new(self.0.slice(after_bucket..));
        Ok(Address {
            bucket_type,
            bucket: Bucket::new(bucket),
            key,
        })
    }

    /// The length of the part with type and bucket, which all keys of a bucket share.
    pub fn bucket_prefix_len(&self) -> Result<usize, StorageKeyError> {
        prefix_lens(&self.0).map(|(_, bucket_len)| bucket_len)
    }
}

impl Borrow<[u8]> for StorageKey {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for StorageKey {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for StorageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StorageKey(\"{}\")", self.0.escape_ascii())
    }
}

/// The common prefix of all storage keys of a bucket type.
pub fn type_prefix(bucket_type: &BucketType) -> Vec<u8> {
    let mut out = Vec::new();
    put_type(&mut out, bucket_type);
    out
}

/// The common prefix of all storage keys of a bucket.
pub fn bucket_prefix(bucket_type: &BucketType, bucket: &Bucket) -> Vec<u8> {
    let mut out = type_prefix(bucket_type);
    put_part(&mut out, bucket.as_bytes());
    out
}

/// The lengths of an encoded key's prefixes by [`type_prefix`] and [`bucket_prefix`]. The key of a
/// page has the prefixes of [`crate::pages_prefix`].
///
/// # Errors
/// The bytes do not begin as a storage key or the key of a page does.
pub fn prefix_lens(encoded: &[u8]) -> Result<(usize, usize), StorageKeyError> {
    let start = match encoded.starts_with(&MARK) {
        true => MARK.len(),
        false => 0,
    };
    let after_type = skip_part(encoded, start)?;
    Ok((after_type, skip_part(encoded, after_type)?))
}

fn put_type(out: &mut Vec<u8>, bucket_type: &BucketType) {
    put_part(out, stored_type(bucket_type));
}

fn stored_type(bucket_type: &BucketType) -> &[u8] {
    if bucket_type.is_default() {
        &[]
    } else {
        bucket_type.as_bytes()
    }
}

/// Most storage keys are no longer. With a byte for the length, they take 64 bytes.
const SHORT_LEN_MAX: usize = 63;

/// A short storage key, stored beside its reference count. Every request makes one, and a shared
/// `Vec` would take a second allocation.
struct ShortKey {
    len: u8,
    bytes: [u8; SHORT_LEN_MAX],
}

impl ShortKey {
    /// The parts and the key in a row; together no longer than [`SHORT_LEN_MAX`].
    fn new(parts: [&[u8]; 4], key: &[u8]) -> Self {
        let mut bytes = [0; SHORT_LEN_MAX];
        let mut room = &mut bytes[..];
        for part in parts.into_iter().chain([key]) {
            let taken = room.len().min(part.len());
            let (place, rest) = room.split_at_mut(taken);
            place.copy_from_slice(&part[..taken]);
            room = rest;
        }
        let len = SHORT_LEN_MAX - room.len();
        let len = u8::try_from(len).unwrap_or(u8::MAX);
        Self { len, bytes }
    }
}

impl AsRef<[u8]> for ShortKey {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len.into()]
    }
}

fn put_part(out: &mut Vec<u8>, part: &[u8]) {
    let mut pieces = part.split(|byte| *byte == 0);
    if let Some(first) = pieces.next() {
        out.extend_from_slice(first);
    }
    for piece in pieces {
        out.extend_from_slice(&ESCAPED_ZERO);
        out.extend_from_slice(piece);
    }
    out.extend_from_slice(&PART_END);
}

/// The part that starts at `start`, unescaped, and the offset behind its end mark.
fn take_part(bytes: &Bytes, start: usize) -> Result<(Bytes, usize), StorageKeyError> {
    let end = skip_part(bytes, start)?;
    let raw = bytes.slice(start..end - PART_END.len());
    if !raw.contains(&0) {
        return Ok((raw, end));
    }
    let mut out = Vec::with_capacity(raw.len());
    let mut rest = &raw[..];
    while let Some(zero) = rest.iter().position(|byte| *byte == 0) {
        out.extend_from_slice(&rest[..=zero]);
        rest = &rest[zero + ESCAPED_ZERO.len()..];
    }
    out.extend_from_slice(rest);
    Ok((out.into(), end))
}

/// The offset behind the end mark of the part that starts at `start`.
fn skip_part(bytes: &[u8], start: usize) -> Result<usize, StorageKeyError> {
    let mut offset = start;
    while let Some(zero) = bytes[offset..].iter().position(|byte| *byte == 0) {
        let at = offset + zero;
        match bytes.get(at + 1) {
            Some(0x01) => return Ok(at + PART_END.len()),
            Some(0xff) => offset = at + ESCAPED_ZERO.len(),
            _ => return Err(StorageKeyError { offset: at }),
        }
    }
    Err(StorageKeyError { offset })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn address(bucket_type: &[u8], bucket: &[u8], key: &[u8]) -> Address {
        Address {
            bucket_type: BucketType::new(bucket_type.to_vec()),
            bucket: Bucket::new(bucket.to_vec()),
            key: Key::new(key.to_vec()),
        }
    }

    #[test]
    fn the_bytes_are_as_drawn() {
        let key = StorageKey::from_address(&address(b"default", b"a\0b", b"k\0"));
        assert_eq!(key.as_bytes(), b"\x00\x01a\x00\xffb\x00\x01k\x00");
        assert_eq!(key.bucket_prefix_len(), Ok(8));
    }

    #[test]
    fn short_and_long_keys_have_the_same_form() {
        for key_len in 1..2 * SHORT_LEN_MAX {
            let address = address(b"t", b"b", &vec![b'k'; key_len]);
            let key = StorageKey::from_address(&address);
            let drawn = [&b"t\x00\x01b\x00\x01"[..], address.key.as_bytes()].concat();
            assert_eq!(key.as_bytes(), drawn);
        }
    }

    #[test]
    fn a_key_without_its_end_marks_is_refused() {
        for bytes in [&b""[..], b"a", b"a\x00", b"a\x00\x02b", b"a\x00\x01b"] {
            assert!(
                StorageKey::from_encoded(bytes.to_vec()).decode().is_err(),
                "{bytes:?}"
            );
        }
    }

    fn part() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(
            prop_oneof![Just(0u8), Just(1), Just(0xff), any::<u8>()],
            1..6,
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn addresses_round_trip_and_keep_their_order(
            a in (part(), part(), part()),
            b in (part(), part(), part()),
        ) {
            let a = address(&a.0, &a.1, &a.2);
            let b = address(&b.0, &b.1, &b.2);
            let (key_a, key_b) = (StorageKey::from_address(&a), StorageKey::from_address(&b));
            prop_assert_eq!(key_a.cmp(&key_b), a.cmp(&b));
            prop_assert!(key_a.as_bytes().starts_with(&bucket_prefix(&a.bucket_type, &a.bucket)));
            prop_assert_eq!(key_a.decode().unwrap(), a);
        }
    }
}
