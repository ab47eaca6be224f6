//! Objects as answers: headers, one value, or the list of siblings in its two forms.

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, ETAG, LAST_MODIFIED, LINK, VARY};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use kvorum_object::{Metadata, Object, Sibling, Timestamp};
use kvorum_protocol::http_fields::{
    DEFAULT_MEDIA_TYPE, INDEX_HEADER_PREFIX, MultipartWriter, ObjectHeaders, PartHead,
    StoredFields, encode_vclock, format_entity_tag, format_http_date,
};

use super::expiry::EXPIRES_AT;
use crate::body::Body;
use crate::exchange::Exchange;
use crate::reply::{
    ACCEPT_AND_ENCODING, ACCEPT_ENCODING, Answer, DELETED, TEXT, VCLOCK, assembled,
};
use crate::route::BucketPath;
use crate::spelling::{spell, spell_fixed};

/// Maximum of headers made from an object; a set of headers can hold 24,576.
const HEADERS_MAX: usize = 20_000;
pub(super) const TRUE: HeaderValue = HeaderValue::from_static("true");

/// The form of siblings in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SiblingsForm {
    /// Their tags, one a line.
    Tags,
    /// Everything, as `multipart/mixed`.
    Multipart,
}

impl SiblingsForm {
    /// The form that the client accepts; `None` if neither.
    pub(super) fn negotiate(exchange: &Exchange<'_>) -> Option<Self> {
        match exchange.choose_type(&["text/plain", "multipart/mixed"])? {
            0 => Some(Self::Tags),
            _ => Some(Self::Multipart),
        }
    }
}

/// The stored media type, or the default.
pub(super) fn media_type(metadata: &Metadata) -> &[u8] {
    if metadata.content_type.is_empty() {
        DEFAULT_MEDIA_TYPE
    } else {
        &metadata.content_type
    }
}

/// An object of one value, or one of its siblings. The value is not copied.
pub(super) fn one(
    path: &BucketPath,
    object: &Object,
    sibling: &Sibling,
    status: StatusCode,
) -> Answer {
    let metadata = &sibling.metadata;
    let mut headers = HeaderMap::with_capacity(16);
    headers.insert(VCLOCK, vclock(object));
    headers.insert(VARY, ACCEPT_ENCODING);
    put_version(
        &mut headers,
        sibling.etag().as_bytes(),
        metadata.last_modified.as_secs(),
    );
    let stored = stored(path, metadata);
    put(&mut headers, LINK, stored.link.as_bytes());
    put(&mut headers, CONTENT_TYPE, &stored.content_type);
    if let Some(encoding) = &stored.content_encoding {
        put(&mut headers, CONTENT_ENCODING, encoding);
    }
    if metadata.deleted {
        headers.insert(DELETED, TRUE);
    }
    if let Some(time) = metadata.expires_at {
        let date = format_http_date(time.as_secs());
        put(&mut headers, EXPIRES_AT, date.as_bytes());
    }
    let index_names = put_others(&mut headers, &stored);
    let mut answer = assembled(status, headers, Body::Whole(sibling.value.clone()));
    spell(&mut answer, &index_names);
    answer
}

/// All siblings: 300.
pub(super) fn several(
    exchange: &Exchange<'_>,
    path: &BucketPath,
    object: &Object,
    form: SiblingsForm,
) -> Answer {
    let mut headers = HeaderMap::with_capacity(8);
    headers.insert(VCLOCK, vclock(object));
    headers.insert(VARY, ACCEPT_AND_ENCODING);
    put_version(
        &mut headers,
        object.etag().as_bytes(),
        object.last_modified().as_secs(),
    );
    let body = match form {
        SiblingsForm::Tags => {
            headers.insert(CONTENT_TYPE, TEXT);
            tags(object)
        }
        SiblingsForm::Multipart => {
            let runtime = exchange.coordinator().runtime();
            let boundary = format!("{:016x}{:016x}", runtime.random_u64(), runtime.random_u64());
            let mut parts = MultipartWriter::new(boundary);
            put(&mut headers, CONTENT_TYPE, parts.content_type().as_bytes());
            for sibling in object.siblings_by_value() {
                push_part(&mut parts, path, sibling);
            }
            parts.finish()
        }
    };
    let mut answer = assembled(StatusCode::MULTIPLE_CHOICES, headers, Body::Whole(body));
    spell_fixed(&mut answer);
    answer
}

/// The answer to a client that already has the object.
pub(super) fn not_modified(whole: &Answer) -> Answer {
    let mut headers = HeaderMap::with_capacity(4);
    for name in [ETAG, VARY] {
        if let Some(value) = whole.headers().get(&name) {
            headers.insert(name, value.clone());
        }
    }
    let mut answer = assembled(StatusCode::NOT_MODIFIED, headers, Body::EMPTY);
    spell_fixed(&mut answer);
    answer
}

/// The clock as clients send it back.
pub(super) fn vclock(object: &Object) -> HeaderValue {
    let encoded = encode_vclock(&object.clock().encode());
    HeaderValue::from_maybe_shared(Bytes::from(encoded)).unwrap_or(HeaderValue::from_static(""))
}

fn tags(object: &Object) -> Bytes {
    let mut list = b"Siblings:\n".to_vec();
    for sibling in object.siblings_by_value() {
        list.extend_from_slice(sibling.etag().as_bytes());
        list.push(b'\n');
    }
    list.into()
}

fn push_part(parts: &mut MultipartWriter, path: &BucketPath, sibling: &Sibling) {
    let metadata = &sibling.metadata;
    let entity_tag = sibling.etag();
    let head = PartHead {
        stored: stored(path, metadata),
        vtag: entity_tag.as_bytes(),
        last_modified_seconds: metadata.last_modified.as_secs(),
        is_deleted: metadata.deleted,
        expires_at_seconds: metadata.expires_at.map(Timestamp::as_secs),
    };
    parts.push(&head, &sibling.value);
}

fn put_version(headers: &mut HeaderMap, entity_tag: &[u8], last_modified_seconds: u64) {
    put(headers, ETAG, format_entity_tag(entity_tag).as_bytes());
    put(
        headers,
        LAST_MODIFIED,
        format_http_date(last_modified_seconds).as_bytes(),
    );
}

/// The fields that the client stored beside the value, as headers.
pub(super) fn stored(path: &BucketPath, metadata: &Metadata) -> ObjectHeaders {
    let link = |link: &kvorum_object::Link| kvorum_protocol::http_fields::Link {
        bucket: link.bucket.clone(),
        key: link.key.clone(),
        tag: link.tag.clone(),
    };
    let user_metadata = metadata.user_metadata.iter();
    let indexes = metadata.indexes.iter();
    let fields = StoredFields {
        content_type: &metadata.content_type,
        charset: &metadata.charset,
        content_encoding: &metadata.content_encoding,
        links: metadata.links.iter().map(link).collect(),
        user_metadata: user_metadata
            .map(|pair| (&pair.name[..], pair.value.as_deref()))
            .collect(),
        indexes: indexes
            .map(|entry| (&entry.field[..], &entry.value[..]))
            .collect(),
    };
    ObjectHeaders::of(&fields, path.form.generation(), path.bucket.as_bytes())
}

/// Returns the spelling of index headers, with the field's name unchanged.
fn put_others(headers: &mut HeaderMap, stored: &ObjectHeaders) -> Vec<Vec<u8>> {
    let mut index_names = Vec::new();
    for (name, value) in &stored.others {
        if let Ok(header) = HeaderName::from_bytes(name.as_bytes()) {
            put(headers, header, value);
            if name.starts_with(INDEX_HEADER_PREFIX) {
                index_names.push(name.clone().into_bytes());
            }
        }
    }
    index_names
}

/// Inserts a header, unless its value is invalid in a header or the set of headers is full.
fn put(headers: &mut HeaderMap, name: HeaderName, value: &[u8]) {
    if headers.len() >= HEADERS_MAX {
        return;
    }
    if let Ok(value) = HeaderValue::from_bytes(value) {
        let _ = headers.try_insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use kvorum_encoding::BucketType;
    use kvorum_object::UserMetadata;

    use super::*;
    use crate::route::Form;

    #[test]
    fn any_number_of_metadata_leaves_room_for_the_answers_own_headers() {
        let pair = |number: u32| UserMetadata {
            name: Bytes::from(format!("name-{number}")),
            value: None,
        };
        let metadata = Metadata {
            user_metadata: (0..30_000).map(pair).collect(),
            ..Metadata::default()
        };
        let path = BucketPath {
            form: Form::Untyped,
            bucket_type: BucketType::default_type(),
            bucket: "b".into(),
        };
        let mut headers = HeaderMap::new();
        put_others(&mut headers, &stored(&path, &metadata));
        assert_eq!(headers.len(), HEADERS_MAX);
        headers.insert("server", HeaderValue::from_static("kvorum"));
    }
}
