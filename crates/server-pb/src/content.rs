//! What a client wants stored, out of its message. The way back of gets and puts is
//! `object_reply.rs`; objects within other messages go back from here.

use bytes::Bytes;
use kvorum_object::{
    Content, IndexEntry, Link, Metadata, Object, Sibling, Timestamp, UserMetadata,
};
use kvorum_protocol::http_fields::parse_index_value;
use kvorum_protocol::pb;

use crate::object_reply::last_modified;
use crate::refusal::Refusal;

/// What becomes of the last-modified time in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GivenTime {
    /// The write gets its own.
    Drop,
    /// The object is stored as it is, times included.
    Keep,
}

/// The content that a message holds. Its vtag is dropped: that of the write takes its place. A
/// message that is marked as deleted is a tombstone, which has no value.
pub(crate) fn content_of(message: pb::RpbContent, time: GivenTime) -> Result<Content, Refusal> {
    let last_modified = match time {
        GivenTime::Keep => time_of(&message),
        GivenTime::Drop => Timestamp::ZERO,
    };
    let expires_at = message
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
    let metadata = Metadata {
        last_modified,
        expires_at,
        deleted,
        content_type: message.content_type.unwrap_or_default(),
        charset: message.charset.unwrap_or_default(),
        content_encoding: message.content_encoding.unwrap_or_default(),
        links: links.collect(),
        user_metadata: user_metadata.collect(),
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

/// An object as a get returns it.
pub(crate) fn object_message(object: &Object) -> pb::RpbGetResp {
    pb::RpbGetResp {
        content: object.siblings().iter().map(content_message).collect(),
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
        usermeta: metadata.user_metadata.iter().map(user).collect(),
        indexes: metadata.indexes.iter().map(index).collect(),
        deleted: metadata.deleted.then_some(true),
        expires_at_usecs: None,
    }
}

fn time_of(message: &pb::RpbContent) -> Timestamp {
    let micros = u64::from(message.last_mod()) * 1_000_000;
    Timestamp::from_micros(micros + u64::from(message.last_mod_usecs()))
}
