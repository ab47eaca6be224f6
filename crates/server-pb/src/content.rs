//! The content of a write, read from its message. Replies to gets and puts are made in
//! `object_reply.rs`; objects within other messages are made here.

use bytes::Bytes;
use kvorum_encoding::ByteReader;
use kvorum_object::{
    Content, IndexEntry, Link, Metadata, Object, Sibling, Timestamp, UserMetadata,
};
use kvorum_protocol::http_fields::parse_index_value;
use kvorum_protocol::pb;
use kvorum_runtime::Runtime;

use crate::expiry;
use crate::object_reply::last_modified;
use crate::refusal::{PIECES_MAX, Refusal};

/// The use of the last-modified time in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GivenTime {
    /// The time is dropped, and the write sets its own.
    Drop,
    /// The object is stored as it is, times included.
    Keep,
}

/// The number of a put's field for its content, and of the content's repeated fields.
const CONTENT: u64 = 4;
const PIECES: [u64; 3] = [6, 9, 10];

/// Refuses a put whose content has more than [`PIECES_MAX`] pieces.
pub(crate) fn check_pieces(put: &[u8]) -> Result<(), Refusal> {
    let mut pieces = 0;
    each_field(put, &mut |field, content| {
        if field == CONTENT {
            each_field(content, &mut |field, _| {
                pieces += usize::from(PIECES.contains(&field));
            });
        }
    });
    if pieces > PIECES_MAX {
        return Err(Refusal::TooManyPieces { pieces });
    }
    Ok(())
}

/// Visits the length-delimited fields of a message, up to the first error, which the decoder
/// reports.
fn each_field(message: &[u8], found: &mut dyn FnMut(u64, &[u8])) {
    let mut reader = ByteReader::new(message);
    while let Ok(key) = reader.varint() {
        let skipped = match key & 7 {
            0 => reader.varint().map(|_| ()),
            1 => reader.take(8).map(|_| ()),
            2 => reader.take_prefixed().map(|value| found(key >> 3, value)),
            5 => reader.take(4).map(|_| ()),
            _ => return,
        };
        if skipped.is_err() {
            return;
        }
    }
}

/// The content of a message. Its vtag is dropped, since the write sets a new one. A message marked
/// as deleted is a tombstone, which has no value. A time to live counts from the time of `runtime`.
pub(crate) fn content_of(
    message: pb::RpbContent,
    time: GivenTime,
    runtime: &Runtime,
) -> Result<Content, Refusal> {
    let last_modified = match time {
        GivenTime::Keep => time_of(&message),
        GivenTime::Drop => Timestamp::ZERO,
    };
    let exact_end = message
        .expires_at_usecs
        .filter(|_| time == GivenTime::Keep)
        .map(Timestamp::from_micros);
    let deleted = message.deleted();
    let links = message.links.into_iter().map(|link| Link {
        bucket: link.bucket.unwrap_or_default(),
        key: link.key.unwrap_or_default(),
        tag: link.tag.unwrap_or_default(),
    });
    let user_metadata = message.usermeta.into_iter().map(|pair| UserMetadata {
        name: pair.key,
        value: pair.value,
    });
    let mut user_metadata: Vec<UserMetadata> = user_metadata.collect();
    let end = expiry::take_out(&mut user_metadata, runtime)?;
    let metadata = Metadata {
        last_modified,
        // An expired tombstone would no longer hide older versions on other replicas.
        expires_at: exact_end.or(end.filter(|_| !deleted)),
        deleted,
        content_type: message.content_type.unwrap_or_default(),
        charset: message.charset.unwrap_or_default(),
        content_encoding: message.content_encoding.unwrap_or_default(),
        links: links.collect(),
        user_metadata,
        indexes: indexes_of(message.indexes)?,
        ..Metadata::default()
    };
    let value = match deleted {
        true => bytes::Bytes::new(),
        false => message.value,
    };
    Ok(Content { metadata, value })
}

fn indexes_of(pairs: Vec<pb::RpbPair>) -> Result<Vec<IndexEntry>, Refusal> {
    let (mut entries, mut errors) = (Vec::with_capacity(pairs.len()), Vec::new());
    for pair in pairs {
        match parse_index_value(&pair.key, pair.value.unwrap_or_default()) {
            Ok(entry) => entries.push(IndexEntry {
                field: entry.field,
                value: entry.value,
            }),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() {
        Ok(entries)
    } else {
        Err(Refusal::InvalidIndexes(errors))
    }
}

/// An object as a get returns it, its siblings in the order of their values.
pub(crate) fn object_message(object: &Object) -> pb::RpbGetResp {
    let siblings = object.siblings_by_value();
    pb::RpbGetResp {
        content: siblings.into_iter().map(content_message).collect(),
        vclock: Some(object.clock().encode()),
        unchanged: None,
    }
}

fn content_message(sibling: &Sibling) -> pb::RpbContent {
    let metadata = &sibling.metadata;
    let if_any = |bytes: &Bytes| (!bytes.is_empty()).then(|| bytes.clone());
    let link = |link: &Link| pb::RpbLink {
        bucket: Some(link.bucket.clone()),
        key: Some(link.key.clone()),
        tag: Some(link.tag.clone()),
    };
    let user = |pair: &UserMetadata| pb::RpbPair {
        key: pair.name.clone(),
        value: pair.value.clone(),
    };
    let index = |entry: &IndexEntry| pb::RpbPair {
        key: entry.field.clone(),
        value: Some(entry.value.clone()),
    };
    let end = metadata.expires_at.map(|end| pb::RpbPair {
        key: Bytes::from_static(expiry::EXPIRES_AT),
        value: Some(expiry::shown(end).into()),
    });
    let (last_mod, last_mod_usecs) = last_modified(metadata);
    pb::RpbContent {
        value: sibling.value.clone(),
        content_type: if_any(&metadata.content_type),
        charset: if_any(&metadata.charset),
        content_encoding: if_any(&metadata.content_encoding),
        vtag: Some(Bytes::copy_from_slice(sibling.etag().as_bytes())),
        links: metadata.links.iter().map(link).collect(),
        last_mod: Some(last_mod),
        last_mod_usecs: Some(last_mod_usecs),
        usermeta: metadata.user_metadata.iter().map(user).chain(end).collect(),
        indexes: metadata.indexes.iter().map(index).collect(),
        deleted: metadata.deleted.then_some(true),
        expires_at_usecs: None,
    }
}

fn time_of(message: &pb::RpbContent) -> Timestamp {
    let micros = u64::from(message.last_mod()) * 1_000_000;
    Timestamp::from_micros(micros + u64::from(message.last_mod_usecs()))
}
