//! From the headers of a store request to the metadata of the object.

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, LINK};
use http::{HeaderName, HeaderValue, StatusCode};
use kvorum_object::{IndexEntry, Link, Metadata, UserMetadata};
use kvorum_protocol::http_fields::{
    ContentType, ContentTypeError, EXACT_HEADER, ExactFields, INDEX_HEADER_PREFIX,
    USER_METADATA_HEADER_PREFIX, index_response_text, parse_index_header, parse_index_value,
    parse_links,
};

use super::expiry;
use crate::exchange::Exchange;
use crate::reply::{Refusal, text};
use crate::route::Form;

/// The headers' description of the value.
pub(super) struct Described {
    /// Everything but the content type, if that was refused.
    pub(super) metadata: Metadata,
    /// The error of a bad content type. Other refusals precede it.
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
    let exact = exact_fields(exchange)?;
    let mut metadata = Metadata {
        links: links(exchange, form, &exact)?,
        indexes: indexes(exchange, &exact)?,
        expires_at: expiry::requested(exchange)?,
        user_metadata: user_metadata(exchange, &exact),
        ..Metadata::default()
    };
    let encoding = headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes);
    metadata.content_encoding = match exact.content_encoding(encoding) {
        Some(encoding) => encoding.clone(),
        None => Bytes::copy_from_slice(encoding.unwrap_or_default()),
    };
    let media_type = match exact.content_type(content_type.as_bytes()) {
        Some((media_type, charset)) => {
            (metadata.content_type, metadata.charset) = (media_type.clone(), charset.clone());
            Ok(())
        }
        None => ContentType::parse(content_type.as_bytes()).map(|parsed| {
            metadata.content_type = Bytes::copy_from_slice(parsed.media_type);
            metadata.charset = parsed
                .charset
                .map(Bytes::copy_from_slice)
                .unwrap_or_default();
        }),
    };
    Ok(Described {
        metadata,
        media_type,
    })
}

/// The exact fields that the client received and sends back.
fn exact_fields(exchange: &Exchange<'_>) -> Result<ExactFields, Refusal> {
    let header = exchange.header(&HeaderName::from_static(EXACT_HEADER));
    let fields = header.map(|header| ExactFields::parse(&header)).transpose();
    let fields = fields.map_err(|error| text(StatusCode::BAD_REQUEST, error.response_text()))?;
    Ok(fields.unwrap_or_default())
}

fn links(exchange: &Exchange<'_>, form: Form, exact: &ExactFields) -> Result<Vec<Link>, Refusal> {
    let mut links = Vec::new();
    for header in exchange.head.headers.get_all(LINK) {
        parse_links(header.as_bytes(), &mut links).map_err(|error| {
            let message = error.response_text(form.generation());
            text(StatusCode::BAD_REQUEST, message)
        })?;
    }
    links.extend_from_slice(exact.links());
    let own = |link: kvorum_protocol::http_fields::Link| Link {
        bucket: link.bucket,
        key: link.key,
        tag: link.tag,
    };
    Ok(links.into_iter().map(own).collect())
}

fn indexes(exchange: &Exchange<'_>, exact: &ExactFields) -> Result<Vec<IndexEntry>, Refusal> {
    let (mut entries, mut errors) = (Vec::new(), Vec::new());
    for (name, value) in &exchange.head.headers {
        if let Some(field) = name.as_str().strip_prefix(INDEX_HEADER_PREFIX) {
            let value = Bytes::copy_from_slice(value.as_bytes());
            parse_index_header(field.as_bytes(), &value, &mut entries, &mut errors);
        }
    }
    for (field, value) in exact.indexes() {
        match parse_index_value(field, value.clone()) {
            Ok(entry) => entries.push(entry),
            Err(error) => errors.push(error),
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

fn user_metadata(exchange: &Exchange<'_>, exact: &ExactFields) -> Vec<UserMetadata> {
    let headers = &exchange.head.headers;
    let pairs = headers.keys().filter_map(|header| {
        let has_prefix = header.as_str().starts_with(USER_METADATA_HEADER_PREFIX);
        let sent = exchange.header(header).filter(|_| has_prefix)?;
        let (name, value) = exact.user_metadata(header.as_str(), sent.into_owned().into())?;
        Some(UserMetadata { name, value })
    });
    pairs.collect()
}
