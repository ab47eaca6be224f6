//! Objects as a vnode's store has them: under the number of their kind, from which is known how to read them.

use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::{Fields, IndexEntry, Tag, Timestamp};
use kvorum_encoding::{StorageKey, checksum};
use kvorum_object::{DecodeError, Encoded, Head, Object, ObjectTag, OpenedHead, Resolution};

/// Marks entries that are tombstones, so that listings leave them out without reading heads.
pub const TOMBSTONE_TAG: Tag = Tag::TOMBSTONE;

/// An object of another replica, and the rules of its bucket.
pub(crate) struct Incoming<'a> {
    pub(crate) object: &'a Object,
    pub(crate) resolution: Resolution,
    pub(crate) tag: ObjectTag,
}

impl Incoming<'_> {
    /// True when the object with this head has to be read for the merge.
    pub(crate) fn needs_body_of(&self, stored: &Head) -> bool {
        kvorum_object::merge_needs_body(stored, self.object, self.resolution)
    }
}

/// The fields that folds filter by.
pub(crate) fn fields_of(key: &StorageKey, object: &Object, tag: ObjectTag) -> Fields {
    let store_time = |it: kvorum_object::Timestamp| Timestamp(it.as_micros());
    Fields {
        segment: checksum(key.as_bytes()),
        last_modified: store_time(object.last_modified()),
        expiry: object.expires_at().map(store_time),
        tag: match object.is_tombstone() {
            true => TOMBSTONE_TAG,
            false => Tag(tag.number()),
        },
    }
}

/// The head of an object, as it was stored.
pub(crate) fn head_of(tag: Tag, stored: &Bytes) -> Result<Head, DecodeError> {
    match is_plain(tag) {
        true => Head::from_engine(stored),
        false => Head::from_engine(&OpenedHead::of(tag.0, stored)?.head),
    }
}

/// The hash of the body, in a head that is about to be stored.
pub(crate) fn body_hash_of(tag: Tag, stored: &Bytes) -> Result<u64, DecodeError> {
    match is_plain(tag) {
        true => Head::body_hash_of(stored),
        false => Head::body_hash_of(&OpenedHead::of(tag.0, stored)?.head),
    }
}

/// The object of an entry, as it was stored.
pub(crate) fn object_of(tag: Tag, head: &Bytes, body: Bytes) -> Result<Arc<Object>, DecodeError> {
    if is_plain(tag) {
        return Object::from_engine(head, body);
    }
    let Encoded { head, body } = OpenedHead::of(tag.0, head)?.with_body(body);
    Object::from_engine(&head, body)
}

/// The encoded head and body of the object of an entry.
pub(crate) fn parts_of(tag: Tag, head: &Bytes, body: Bytes) -> Result<Encoded, DecodeError> {
    Ok(OpenedHead::of(tag.0, head)?.with_body(body))
}

/// The index entries of a stored object, as its put made them; none for a tombstone, and for one that
/// cannot be read.
pub fn index_entries(tag: Tag, head: &Bytes, body: &Bytes) -> Vec<IndexEntry> {
    let Some(kind) = ObjectTag::numbered(tag.0) else {
        return Vec::new();
    };
    let object = object_of(tag, head, body.clone());
    let terms = object.map(|it| kind.index_terms(&it)).unwrap_or_default();
    let entries = terms.into_iter();
    entries
        .map(|(field, term)| IndexEntry { field, term })
        .collect()
}

/// Nearly all are.
fn is_plain(tag: Tag) -> bool {
    tag == Tag::default() || tag == TOMBSTONE_TAG
}
