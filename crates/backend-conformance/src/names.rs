//! The keys and index terms that scripts use: few, so that they collide, and of awkward shapes.

use bytes::Bytes;
use kvorum_backend::IndexEntry;
use kvorum_encoding::{Bucket, BucketType, Key, StorageKey, bucket_prefix};

/// The number of keys in scripts.
pub(crate) const KEYS: usize = 14;
/// The number of the keys' buckets.
pub(crate) const BUCKETS_USED: usize = BUCKETS.len();
/// The number of terms in scripts.
pub(crate) const TERMS: usize = 5;

const BUCKETS: [(&[u8], &[u8]); 4] = [
    (b"default", b"a"),
    (b"default", b"b\0\x01"),
    (b"maps", b"a"),
    (b"maps", b"\xff\xff"),
];
const NAMES: [&[u8]; 4] = [b"k", b"k\0", b"\xff", b"a longer key, as applications have"];

/// The key with this number.
pub(crate) fn key(number: usize) -> StorageKey {
    let number = number % KEYS;
    let (bucket_type, bucket) = BUCKETS[number % BUCKETS.len()];
    let name = NAMES[number / BUCKETS.len()];
    StorageKey::new(
        &BucketType::from(bucket_type),
        &Bucket::from(bucket),
        &Key::from(name),
    )
}

/// All keys, in no particular order.
pub(crate) fn keys() -> impl Iterator<Item = StorageKey> {
    (0..KEYS).map(key)
}

/// The prefix of the bucket with this number.
pub(crate) fn prefix(number: usize) -> Bytes {
    let (bucket_type, bucket) = BUCKETS[number % BUCKETS.len()];
    bucket_prefix(&BucketType::from(bucket_type), &Bucket::from(bucket)).into()
}

/// The index entry with this number.
pub(crate) fn index_entry(number: usize) -> IndexEntry {
    let number = number % TERMS;
    IndexEntry {
        field: index_field(number),
        term: index_term(number),
    }
}

/// The name of an index.
pub(crate) fn index_field(number: usize) -> Bytes {
    Bytes::from_static(if number.is_multiple_of(2) {
        b"age_int"
    } else {
        b"name_bin"
    })
}

/// A term, in the order of the numbers.
pub(crate) fn index_term(number: usize) -> Bytes {
    let terms: [&'static [u8]; TERMS] = [b"", b"\0", b"m", b"m\0m", b"\xff"];
    Bytes::from_static(terms[number % TERMS])
}
