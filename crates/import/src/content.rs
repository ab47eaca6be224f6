//! The requests that store an object of Riak's here.
//!
//! Each sibling is a put `asis` under the object's translated clock, with its metadata and its
//! last-modified time. The server gives such a value a dot that follows from clock and content. So
//! a repeated put makes no second version, and siblings put under one clock stay siblings.

use bytes::Bytes;
use kvorum_client::pb;
use kvorum_data_types::{RIAK_TAG, decode_riak_value};
use kvorum_object::Timestamp;

use crate::counts::Counts;
use crate::riak_object::{RiakObject, RiakSibling, ValueForm};

const DATA_TYPE_CONTENT: &[u8] = b"application/riak_";
/// The content type in Riak's HTTP answers for a value that is an Erlang term.
const TERM_CONTENT_TYPE: &[u8] = b"application/x-erlang-binary";

/// The puts of one object.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectPuts {
    /// The clock of all puts, in the server's form.
    pub vclock: Bytes,
    /// One content for each sibling.
    pub contents: Vec<pb::RpbContent>,
}

/// The siblings with data types, such as counters, sets and maps. The server accepts them in Riak's
/// form.
pub(crate) fn data_types(object: &RiakObject) -> impl Iterator<Item = &RiakSibling> {
    object.siblings.iter().filter(|sibling| {
        sibling.metadata.content_type.starts_with(DATA_TYPE_CONTENT)
            && sibling.value.first() == Some(&RIAK_TAG)
    })
}

/// The defect of a data type among the siblings, if one cannot be imported.
pub(crate) fn unreadable_data_type(object: &RiakObject) -> Option<String> {
    data_types(object).find_map(|sibling| {
        let content_type = &sibling.metadata.content_type;
        match decode_riak_value(&sibling.value) {
            Ok(read) if read.value.kind().content_type().as_bytes() == content_type => None,
            Ok(read) => Some(format!(
                "a {} of Riak's under another type",
                read.value.kind()
            )),
            Err(error) => Some(error.to_string()),
        }
    })
}

/// True when every sibling is deleted.
pub(crate) fn is_tombstone(object: &RiakObject) -> bool {
    object
        .siblings
        .iter()
        .all(|sibling| sibling.metadata.deleted)
}

/// Turns an object into puts, and counts the properties that puts cannot carry. The time of expiry
/// is in microseconds since the Unix epoch.
pub(crate) fn puts_of(
    object: RiakObject,
    expires_at_usecs: Option<u64>,
    counts: &mut Counts,
) -> ObjectPuts {
    let newest = object.siblings.iter();
    let newest = newest
        .map(|sibling| sibling.metadata.last_modified_micros)
        .max();
    let newest = Timestamp::from_micros(newest.unwrap_or(0));
    let vclock = object.clock.translate(newest).encode();
    let contents = object.siblings.into_iter();
    let contents = contents
        .map(|sibling| pb::RpbContent {
            expires_at_usecs,
            ..content_of(sibling, counts)
        })
        .collect();
    ObjectPuts { vclock, contents }
}

fn content_of(sibling: RiakSibling, counts: &mut Counts) -> pb::RpbContent {
    let RiakSibling {
        metadata,
        value,
        form,
    } = sibling;
    counts.metadata_left_out += u64::from(metadata.not_understood);
    let mut content_type = metadata.content_type;
    match form {
        ValueForm::Raw => {}
        ValueForm::Term => {
            counts.term_values += 1;
            if content_type.is_empty() {
                content_type = Bytes::from_static(TERM_CONTENT_TYPE);
            }
        }
        ValueForm::Encoded(_) => counts.encoded_values += 1,
    }
    let typed_links = metadata.links.iter().filter(|link| link.is_typed).count();
    counts.link_types_left_out += typed_links as u64;
    let links = metadata.links.into_iter().map(|link| pb::RpbLink {
        bucket: Some(link.bucket),
        key: Some(link.key),
        tag: Some(link.tag),
    });
    let (last_mod, last_mod_usecs) = split_time(metadata.last_modified_micros);
    pb::RpbContent {
        value: match metadata.deleted {
            true => Bytes::new(),
            false => value,
        },
        content_type: some(content_type),
        charset: some(metadata.charset),
        content_encoding: some(metadata.content_encoding),
        links: links.collect(),
        last_mod,
        last_mod_usecs,
        usermeta: metadata.user_metadata.into_iter().map(pair).collect(),
        indexes: metadata.indexes.into_iter().map(pair).collect(),
        deleted: metadata.deleted.then_some(true),
        ..pb::RpbContent::default()
    }
}

fn some(bytes: Bytes) -> Option<Bytes> {
    Some(bytes).filter(|bytes| !bytes.is_empty())
}

fn pair((key, value): (Bytes, Bytes)) -> pb::RpbPair {
    pb::RpbPair {
        key,
        value: Some(value),
    }
}

/// Seconds and microseconds in the protocol's form; `None` for a time that Riak did not record, or
/// beyond 32 bits.
fn split_time(micros: u64) -> (Option<u32>, Option<u32>) {
    match (micros, u32::try_from(micros / 1_000_000)) {
        (0, _) | (_, Err(_)) => (None, None),
        (_, Ok(seconds)) => (Some(seconds), u32::try_from(micros % 1_000_000).ok()),
    }
}
