//! What a client wants stored, out of its message. The way back is `object_reply.rs`.

use kvorum_object::{Content, IndexEntry, Link, Metadata, Timestamp, UserMetadata};
use kvorum_protocol::pb;

/// What becomes of the last-modified time in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GivenTime {
    /// The write gets its own.
    Drop,
    /// The object is stored as it is, time included.
    Keep,
}

/// The content that a message holds. Its vtag is dropped: that of the write takes its place. A
/// message that is marked as deleted is a tombstone, which has no value.
pub(crate) fn content_of(message: pb::RpbContent, time: GivenTime) -> Content {
    let last_modified = match time {
        GivenTime::Keep => last_modified(&message),
        GivenTime::Drop => Timestamp::ZERO,
    };
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
    let indexes = message.indexes.into_iter().map(|pair| IndexEntry {
        field: pair.key,
        value: pair.value.unwrap_or_default(),
    });
    let metadata = Metadata {
        last_modified,
        deleted,
        content_type: message.content_type.unwrap_or_default(),
        charset: message.charset.unwrap_or_default(),
        content_encoding: message.content_encoding.unwrap_or_default(),
        links: links.collect(),
        user_metadata: user_metadata.collect(),
        indexes: indexes.collect(),
        ..Metadata::default()
    };
    let value = match deleted {
        true => bytes::Bytes::new(),
        false => message.value,
    };
    Content { metadata, value }
}

fn last_modified(message: &pb::RpbContent) -> Timestamp {
    let micros = u64::from(message.last_mod()) * 1_000_000;
    Timestamp::from_micros(micros + u64::from(message.last_mod_usecs()))
}
