//! The key space of the tree, shared by objects and index entries.
//!
//! ```text
//! object       'o' storage key
//! index entry  'i' bucket prefix, part(field), part(term), storage key
//! part(x)      x with each 0x00 written as 0x00 0xFF, then 0x00 0x01
//! ```
//!
//! A bucket prefix has a recognizable end, so the entries of one index of one bucket are a range,
//! in the order of terms and then of keys.

use std::ops::Bound;

use bytes::Bytes;
use kvorum_backend::{FoldRange, IndexEntry, IndexRange};
use kvorum_encoding::{KeyRange, StorageKey, key_segment, successor};

const OBJECT: u8 = b'o';
const INDEX: u8 = b'i';
const ESCAPED_ZERO: [u8; 2] = [0x00, 0xff];
const PART_END: [u8; 2] = [0x00, 0x01];

/// The tree's key of an object.
pub fn object_key(key: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(1 + key.len());
    out.push(OBJECT);
    out.extend_from_slice(key);
    out.into()
}

/// True for the tree's key of an object.
pub fn is_object(key: &[u8]) -> bool {
    key.first() == Some(&OBJECT)
}

/// The anti-entropy segment of an object, by the tree's key; `None` for an index entry.
pub fn object_segment(key: &[u8]) -> Option<u32> {
    let (kind, storage_key) = key.split_first()?;
    (*kind == OBJECT).then(|| key_segment(storage_key))
}

/// The storage key in the tree's key of an object.
pub fn storage_key(object_key: &[u8]) -> StorageKey {
    let key = object_key.get(1..).unwrap_or_default();
    StorageKey::from_encoded(Bytes::copy_from_slice(key))
}

/// A key of the tree for display: an object's type, bucket and key, or an index entry's bytes.
pub fn key_shown(key: &[u8]) -> String {
    let object = key.split_first().filter(|(kind, _)| **kind == OBJECT);
    let address = object.and_then(|_| storage_key(key).decode().ok());
    match address {
        Some(address) => address.to_string(),
        None => kvorum_disk::anatomy::shown(key),
    }
}

/// The range of all objects.
pub fn all_objects() -> (Bound<Bytes>, Bound<Bytes>) {
    let from = Bytes::from_static(&[OBJECT]);
    let to = Bytes::from_static(&[OBJECT + 1]);
    (Bound::Included(from), Bound::Excluded(to))
}

/// The tree's range for a range of storage keys.
pub fn object_range(range: &FoldRange) -> (Bound<Bytes>, Bound<Bytes>) {
    let (all_from, all_to) = all_objects();
    let within = |bound: &Bound<Bytes>, open: Bound<Bytes>| match bound {
        Bound::Included(key) => Bound::Included(object_key(key)),
        Bound::Excluded(key) => Bound::Excluded(object_key(key)),
        Bound::Unbounded => open,
    };
    (within(&range.from, all_from), within(&range.to, all_to))
}

/// The tree's key of an index entry.
pub fn index_key(key: &StorageKey, entry: &IndexEntry) -> Bytes {
    let prefix_len = key.bucket_prefix_len().unwrap_or(0);
    let mut out = index_prefix(&key.as_bytes()[..prefix_len], &entry.field);
    put_part(&mut out, &entry.term);
    out.extend_from_slice(key.as_bytes());
    out.into()
}

/// The tree's range for a range of terms.
pub fn index_range(range: &IndexRange) -> (Bound<Bytes>, Bound<Bytes>) {
    let index = index_prefix(&range.bucket_prefix, &range.field);
    let at_term = |term: &Bytes| {
        let mut out = index.clone();
        put_part(&mut out, term);
        out
    };
    let from = match &range.from {
        Bound::Unbounded => index.clone(),
        Bound::Included(term) => at_term(term),
        Bound::Excluded(term) => behind(at_term(term)),
    };
    let to = match &range.to {
        Bound::Unbounded => behind(index.clone()),
        Bound::Included(term) => behind(at_term(term)),
        Bound::Excluded(term) => at_term(term),
    };
    let from = match &range.after {
        None => from,
        Some((term, key)) => {
            let mut after = at_term(term);
            after.extend_from_slice(key.as_bytes());
            after.push(0);
            after.max(from)
        }
    };
    (Bound::Included(from.into()), Bound::Excluded(to.into()))
}

/// Decodes the tree's keys of the entries of one index.
pub struct IndexKeys {
    prefix: Vec<u8>,
}

impl IndexKeys {
    /// For the index of this range.
    pub fn of(range: &IndexRange) -> Self {
        Self {
            prefix: index_prefix(&range.bucket_prefix, &range.field),
        }
    }

    /// The term and the storage key in the tree's key of an entry; `None` for an entry of another
    /// index.
    pub fn term_and_key(&self, index_key: &[u8]) -> Option<(Bytes, StorageKey)> {
        let rest = index_key.strip_prefix(&self.prefix[..])?;
        let (term, key) = take_part(rest)?;
        let key = StorageKey::from_encoded(Bytes::copy_from_slice(key));
        Some((term, key))
    }
}

/// All index entries.
pub fn all_entries() -> KeyRange {
    KeyRange {
        from: Bytes::from_static(&[INDEX]),
        to: Some(Bytes::from_static(&[INDEX + 1])),
    }
}

/// All objects.
pub fn objects() -> KeyRange {
    KeyRange {
        from: Bytes::from_static(&[OBJECT]),
        to: Some(Bytes::from_static(&[OBJECT + 1])),
    }
}

/// The range of one object.
pub fn object_range_of(key: &StorageKey) -> KeyRange {
    let from = object_key(key.as_bytes());
    let to = Some(successor(&from));
    KeyRange { from, to }
}

/// The range of objects that may have entries in a range of the tree: all objects of its buckets.
/// The ends of the range may be anywhere, even within a bucket's prefix.
pub fn objects_of_entries(entries: &KeyRange) -> KeyRange {
    let mut objects = objects();
    if entries.from.first() == Some(&INDEX) {
        let rest = &entries.from[1..];
        objects.from = object_key(bucket_of(rest).unwrap_or(rest));
    }
    if let Some(to) = entries.to.as_ref().filter(|to| to.first() == Some(&INDEX)) {
        let rest = &to[1..];
        objects.to = match bucket_of(rest) {
            Some(bucket) => Some(behind(object_key(bucket).to_vec()).into()),
            None => Some(object_key(rest)),
        };
    }
    objects
}

/// The index entry and the storage key in the tree's key of an index entry.
pub fn entry_and_key(index_key: &[u8]) -> Option<(IndexEntry, StorageKey)> {
    let rest = index_key.strip_prefix(&[INDEX])?;
    let parts = &rest[bucket_of(rest)?.len()..];
    let (field, parts) = take_part(parts)?;
    let (term, key) = take_part(parts)?;
    let entry = IndexEntry { field, term };
    let key = StorageKey::from_encoded(Bytes::copy_from_slice(key));
    Some((entry, key))
}

/// The bucket's prefix at the beginning of these bytes, if it is whole.
fn bucket_of(bytes: &[u8]) -> Option<&[u8]> {
    let key = StorageKey::from_encoded(Bytes::copy_from_slice(bytes));
    let len = key.bucket_prefix_len().ok()?;
    bytes.get(..len)
}

fn index_prefix(bucket_prefix: &[u8], field: &[u8]) -> Vec<u8> {
    let mut out = vec![INDEX];
    out.extend_from_slice(bucket_prefix);
    put_part(&mut out, field);
    out
}

/// The first key behind all keys with this prefix, which ends with a part's end.
fn behind(mut prefix: Vec<u8>) -> Vec<u8> {
    if let Some(last) = prefix.last_mut() {
        *last += 1;
    }
    prefix
}

fn put_part(out: &mut Vec<u8>, part: &[u8]) {
    for byte in part {
        match byte {
            0 => out.extend_from_slice(&ESCAPED_ZERO),
            byte => out.push(*byte),
        }
    }
    out.extend_from_slice(&PART_END);
}

/// The first part, and the bytes behind it.
fn take_part(bytes: &[u8]) -> Option<(Bytes, &[u8])> {
    let zero_at = bytes.iter().position(|it| *it == 0)?;
    let (plain, rest) = bytes.split_at(zero_at);
    match rest.strip_prefix(&PART_END) {
        Some(behind) => Some((Bytes::copy_from_slice(plain), behind)),
        None => take_escaped_part(plain.to_vec(), rest),
    }
}

/// The rest of a part with zeros, of which the bytes up to the first zero were taken.
fn take_escaped_part(mut part: Vec<u8>, mut rest: &[u8]) -> Option<(Bytes, &[u8])> {
    loop {
        match rest {
            [0x00, 0xff, behind @ ..] => {
                part.push(0);
                rest = behind;
            }
            [0x00, 0x01, behind @ ..] => return Some((part.into(), behind)),
            [0x00, ..] | [] => return None,
            [byte, behind @ ..] => {
                part.push(*byte);
                rest = behind;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use kvorum_encoding::{Bucket, BucketType, Key, bucket_prefix};
    use kvorum_golden::assert_bytes;
    use proptest::prelude::*;

    use super::*;

    fn key(bucket: &[u8], key: &[u8]) -> StorageKey {
        let bucket_type = BucketType::default_type();
        StorageKey::new(
            &bucket_type,
            &Bucket::new(bucket.to_vec()),
            &Key::new(key.to_vec()),
        )
    }

    #[test]
    fn the_bytes_are_as_drawn() {
        let storage_key = key(b"b", b"k");
        let object = object_key(storage_key.as_bytes());
        let drawing = [
            ("'o', an object", 1),
            ("storage key", storage_key.as_bytes().len()),
        ];
        assert_bytes("keyspace.object.hex", &drawing, &object);
        let entry = IndexEntry {
            field: Bytes::from("f_bin"),
            term: Bytes::from_static(b"a\0b"),
        };
        let prefix = storage_key.as_bytes().len() - 1;
        let drawing = [
            ("'i', an index entry", 1),
            ("bucket prefix", prefix),
            ("field and its end", 7),
            ("term, whose zero is followed by ff, and its end", 6),
            ("storage key", storage_key.as_bytes().len()),
        ];
        let bytes = index_key(&storage_key, &entry);
        assert_bytes("keyspace.index_entry.hex", &drawing, &bytes);
    }

    fn part() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![Just(0u8), Just(1), Just(0xff), any::<u8>()];
        proptest::collection::vec(byte, 0..4)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn the_object_of_an_entry_is_among_those_of_any_range_with_the_entry(
            name in part(),
            term in part(),
            bucket in part(),
            from in (part(), part(), 0..12usize),
            to in (part(), part(), 0..12usize),
        ) {
            let entry = |term: &[u8]| IndexEntry { field: Bytes::from("f_bin"), term: Bytes::copy_from_slice(term) };
            let end = |(bucket, term, kept): (Vec<u8>, Vec<u8>, usize)| {
                let whole = index_key(&key(&bucket, b"k"), &entry(&term));
                whole.slice(..whole.len().min(1 + kept))
            };
            let range = KeyRange { from: end(from), to: Some(end(to)) };
            let storage_key = key(&bucket, &name);
            if range.contains(&index_key(&storage_key, &entry(&term))) {
                prop_assert!(objects_of_entries(&range).contains(&object_key(storage_key.as_bytes())));
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn index_keys_sort_by_term_and_key_and_ranges_hold_what_they_should(
            entries in proptest::collection::vec((part(), part()), 2..10),
            from in part(),
            to in part(),
            includes: (bool, bool),
        ) {
            let bucket = b"b\0c";
            let field = Bytes::from("age_int");
            let range = IndexRange {
                bucket_prefix: bucket_prefix(&BucketType::default_type(), &Bucket::new(bucket.to_vec())).into(),
                field: field.clone(),
                from: if includes.0 { Bound::Included(from.clone().into()) } else { Bound::Excluded(from.clone().into()) },
                to: if includes.1 { Bound::Included(to.clone().into()) } else { Bound::Excluded(to.clone().into()) },
                after: None,
            };
            let (low, high) = index_range(&range);
            let encoded = |(term, name): &(Vec<u8>, Vec<u8>)| {
                let entry = IndexEntry { field: field.clone(), term: term.clone().into() };
                index_key(&key(bucket, name), &entry)
            };
            for entry in &entries {
                let at = encoded(entry);
                let is_in = FoldRange { from: low.clone(), to: high.clone() }.contains(&at);
                let after = if includes.0 { entry.0 >= from } else { entry.0 > from };
                let before = if includes.1 { entry.0 <= to } else { entry.0 < to };
                prop_assert_eq!(is_in, after && before);
                let parsed = entry_and_key(&at).unwrap();
                prop_assert_eq!(&parsed.0.term[..], &entry.0[..]);
                prop_assert_eq!((parsed.0.field, parsed.1), (field.clone(), key(bucket, &entry.1)));
                let (term, found) = IndexKeys::of(&range).term_and_key(&at).unwrap();
                prop_assert_eq!(&term[..], &entry.0[..]);
                prop_assert_eq!(found, key(bucket, &entry.1));
                for other in &entries {
                    prop_assert_eq!(at.cmp(&encoded(other)), entry.cmp(other));
                }
                let resumed = IndexRange { after: Some((term, key(bucket, &entry.1))), from: Bound::Unbounded, to: Bound::Unbounded, ..range.clone() };
                let (low, high) = index_range(&resumed);
                for other in &entries {
                    let is_in = FoldRange { from: low.clone(), to: high.clone() }.contains(&encoded(other));
                    prop_assert_eq!(is_in, other > entry);
                }
            }
        }
    }
}
