//! Objects as a vnode's store has them: each with the number of its kind, which decides how it is read.

use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::{Fields, IndexEntry, Tag, Timestamp};
use kvorum_encoding::{ByteReader, StorageKey, Truncated, key_segment, put_varint};
use kvorum_object::{DecodeError, Encoded, Head, Object, ObjectTag, OpenedHead, Part, Resolution};

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

/// The extent of the pages that an object's value is in; none for most objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InPages {
    /// The number of pages.
    pub(crate) count: u32,
    /// The bytes of the value in them, as limits count them.
    pub(crate) bytes: u64,
}

/// The fields that folds filter by.
pub(crate) fn fields_of(
    key: &StorageKey,
    object: &Object,
    tag: ObjectTag,
    in_pages: Option<InPages>,
) -> Fields {
    let store_time = |it: kvorum_object::Timestamp| Timestamp(it.as_micros());
    Fields {
        segment: key_segment(key.as_bytes()),
        last_modified: store_time(object.last_modified()),
        expiry: object.expires_at().map(store_time),
        tag: match (object.is_tombstone(), in_pages) {
            (true, _) => TOMBSTONE_TAG,
            (false, None) => Tag(tag.number()),
            (false, Some(_)) => Tag(tag.number() | Tag::IN_PAGES),
        },
    }
}

/// The fields of an object's page. A page never expires by its age: its object decides.
pub(crate) fn fields_of_page(key: &StorageKey) -> Fields {
    Fields {
        segment: key_segment(key.as_bytes()),
        last_modified: Timestamp(u64::MAX),
        expiry: None,
        tag: Tag::PAGE,
    }
}

/// The byte strings to store. Those of an object in pages have the extent of the pages before the head:
///
/// ```text
/// head in pages = count   varint  number of pages
///                 bytes   varint  of the value in them, as limits count them
///                 head            as its kind has it; the value in the body is the head of the set
/// ```
pub(crate) fn encode(object: &Object, tag: ObjectTag, in_pages: Option<InPages>) -> Encoded {
    let encoded = tag.encode(object);
    let Some(InPages { count, bytes }) = in_pages else {
        return encoded;
    };
    let mut head = Vec::with_capacity(16 + encoded.head.len());
    put_varint(&mut head, count.into());
    put_varint(&mut head, bytes);
    head.extend_from_slice(&encoded.head);
    Encoded {
        head: head.into(),
        ..encoded
    }
}

/// The extent of the pages of a stored object.
pub(crate) fn in_pages(tag: Tag, stored: &Bytes) -> Result<InPages, DecodeError> {
    Ok(opened(tag, stored)?.1)
}

/// The head as its kind has it, and the extent of the pages.
fn opened(tag: Tag, stored: &Bytes) -> Result<(Bytes, InPages), DecodeError> {
    if !tag.is_in_pages() {
        return Ok((stored.clone(), InPages::default()));
    }
    let mut reader = ByteReader::new(stored);
    let malformed = |Truncated { offset }| DecodeError::Malformed {
        part: Part::Head,
        offset,
    };
    let count = reader.varint().map_err(malformed)?;
    let bytes = reader.varint().map_err(malformed)?;
    let offset = reader.offset();
    let count = u32::try_from(count).map_err(|_| malformed(Truncated { offset }))?;
    Ok((stored.slice(offset..), InPages { count, bytes }))
}

/// The head of an object, as it was stored.
pub(crate) fn head_of(tag: Tag, stored: &Bytes) -> Result<Head, DecodeError> {
    if is_plain(tag) {
        return Head::from_engine(stored);
    }
    let (stored, in_pages) = opened(tag, stored)?;
    let head = Head::from_engine(&OpenedHead::of(tag.kind().0, &stored)?.head)?;
    Ok(head.with_bytes_beside(in_pages.bytes))
}

/// The hash of the body, in a head that is about to be stored.
pub(crate) fn body_hash_of(tag: Tag, stored: &Bytes) -> Result<u64, DecodeError> {
    if is_plain(tag) {
        return Head::body_hash_of(stored);
    }
    let (stored, _) = opened(tag, stored)?;
    Head::body_hash_of(&OpenedHead::of(tag.kind().0, &stored)?.head)
}

/// The object of an entry, as it was stored: an object in pages has the head of its set as its value.
pub(crate) fn object_of(tag: Tag, head: &Bytes, body: Bytes) -> Result<Arc<Object>, DecodeError> {
    if is_plain(tag) {
        return Object::from_engine(head, body);
    }
    let Encoded { head, body } = parts_of(tag, head, body)?;
    Object::from_engine(&head, body)
}

/// The encoded head and body of the object of an entry.
pub(crate) fn parts_of(tag: Tag, head: &Bytes, body: Bytes) -> Result<Encoded, DecodeError> {
    let (head, _) = opened(tag, head)?;
    Ok(OpenedHead::of(tag.kind().0, &head)?.with_body(body))
}

/// The index entries of a stored object, as its put made them; none for a tombstone or an
/// unreadable object.
pub fn index_entries(tag: Tag, head: &Bytes, body: &Bytes) -> Vec<IndexEntry> {
    if tag == Tag::PAGE {
        return Vec::new();
    }
    let Some(kind) = ObjectTag::numbered(tag.kind().0) else {
        return Vec::new();
    };
    let object = object_of(tag, head, body.clone());
    let terms = object.map(|it| kind.index_terms(&it)).unwrap_or_default();
    let entries = terms.into_iter();
    entries
        .map(|(field, term)| IndexEntry { field, term })
        .collect()
}

/// True for objects of the default kind and tombstones: nearly all.
fn is_plain(tag: Tag) -> bool {
    tag == Tag::default() || tag == TOMBSTONE_TAG
}
