//! From the headers of a store request to the metadata of the object.

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, LINK};
use http::{HeaderValue, StatusCode};
use kvorum_object::{IndexEntry, Link, Metadata, UserMetadata};
use kvorum_protocol::http_fields::{
    ContentType, ContentTypeError, INDEX_HEADER_PREFIX, index_response_text, parse_index_header,
    parse_links, user_metadata_key,
};

use super::expiry;
use crate::exchange::Exchange;
use crate::reply::{Refusal, text};
use crate::route::Form;

/// What the headers say of the value.
pub(super) struct Described {
    /// Everything but the content type, if that was refused.
    pub(super) metadata: Metadata,
    /// Whether the content type is one; a refusal that comes after others.
    pub(super) media_type: Result<(), ContentTypeError>,
}

/// The content type header, which every store request has to have.
pub(super) fn required_content_type<'a>(
    exchange: &Exchange<'a>,
) -> Result<&'a HeaderValue, Refusal> {
    exchange.head.headers.get(CONTENT_TYPE).ok_or_else(|| {
        let message = "Missing Content-Type request header";
        text(StatusCode::BAD_REQUEST, message).into()
    })
}

/// Reads the headers; malformed links are refused before malformed indexes, as in Riak.
pub(super) fn describe(
    exchange: &Exchange<'_>,
    content_type: &HeaderValue,
    form: Form,
) -> Result<Described, Refusal> {
    let headers = &exchange.head.headers;
    let mut metadata = Metadata {
        links: links(exchange, form)?,
        indexes: indexes(exchange)?,
        expires_at: expiry::requested(exchange)?,
        user_metadata: user_metadata(exchange),
        ..Metadata::default()
    };
    if let Some(encoding) = headers.get(CONTENT_ENCODING) {
        metadata.content_encoding = Bytes::copy_from_slice(encoding.as_bytes());
    }
    let media_type = ContentType::parse(content_type.as_bytes()).map(|parsed| {
        metadata.content_type = Bytes::copy_from_slice(parsed.media_type);
        metadata.charset = parsed
            .charset
            .map(Bytes::copy_from_slice)
            .unwrap_or_default();
    });
    Ok(Described {
        metadata,
        media_type,
    })
}

fn links(exchange: &Exchange<'_>, form: Form) -> Result<Vec<Link>, Refusal> {
    let mut links = Vec::new();
    for header in exchange.head.headers.get_all(LINK) {
        parse_links(header.as_bytes(), &mut links).map_err(|error| {
            let message = error.response_text(form.generation());
            text(StatusCode::BAD_REQUEST, message)
        })?;
    }
    let own = |link: kvorum_protocol::http_fields::Link| Link {
        bucket: link.bucket,
        key: link.key,
        tag: link.tag,
    };
    Ok(links.into_iter().map(own).collect())
}

fn indexes(exchange: &Exchange<'_>) -> Result<Vec<IndexEntry>, Refusal> {
    let (mut entries, mut errors) = (Vec::new(), Vec::new());
    for (name, value) in &exchange.head.headers {
        if let Some(field) = name.as_str().strip_prefix(INDEX_HEADER_PREFIX) {
            let value = Bytes::copy_from_slice(value.as_bytes());
            parse_index_header(field.as_bytes(), &value, &mut entries, &mut errors);
        }
    }
    if !errors.is_empty() {
        return Err(text(StatusCode::BAD_REQUEST, index_response_text(&errors)).into());
    }
    let own = |entry: kvorum_protocol::http_fields::IndexEntry| IndexEntry {
        field: entry.field,
        value: entry.value,
    };
    Ok(entries.into_iter().map(own).collect())
}

fn user_metadata(exchange: &Exchange<'_>) -> Vec<UserMetadata> {
    let headers = &exchange.head.headers;
    let mut pairs = Vec::new();
    for name in headers.keys() {
        let Some(key) = user_metadata_key(name.as_str()) else {
            continue;
        };
        let value = exchange.header(name).unwrap_or_default();
        let value = Some(Bytes::from(value.into_owned()));
        pairs.push(UserMetadata {
            name: key.into(),
            value,
        });
    }
    pairs
}
