//! Answers: with a body of their own, and without.

use bytes::Bytes;
use futures_util::Stream;
use http::header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue, VARY};
use http::{HeaderMap, Response, StatusCode};

use crate::body::{Abandoned, Body};

/// An answer.
pub(crate) type Answer = Response<Body>;

/// An answer that ends the handling of a request early. Boxed: errors should be small.
#[derive(Debug)]
pub(crate) struct Refusal(Box<Answer>);

/// The result of a handler.
pub(crate) type Outcome = Result<Answer, Refusal>;

pub(crate) const TEXT: HeaderValue = HeaderValue::from_static("text/plain");
pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(crate) const HTML: HeaderValue = HeaderValue::from_static("text/html");

pub(crate) const VCLOCK: HeaderName = HeaderName::from_static("x-riak-vclock");
pub(crate) const DELETED: HeaderName = HeaderName::from_static("x-riak-deleted");

pub(crate) const ACCEPT_ENCODING: HeaderValue = HeaderValue::from_static("Accept-Encoding");
pub(crate) const ACCEPT_AND_ENCODING: HeaderValue =
    HeaderValue::from_static("Accept, Accept-Encoding");

impl From<Answer> for Refusal {
    fn from(answer: Answer) -> Self {
        Self(Box::new(answer))
    }
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Self {
        *refusal.0
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Whole(bytes) => write!(f, "Whole({} bytes)", bytes.len()),
            Self::Pieces(_) => f.write_str("Pieces"),
        }
    }
}

/// An answer with a body.
pub(crate) fn with_body(status: StatusCode, content_type: HeaderValue, body: Body) -> Answer {
    let mut headers = HeaderMap::with_capacity(8);
    headers.insert(CONTENT_TYPE, content_type);
    assembled(status, headers, body)
}

/// An answer with the given headers.
pub(crate) fn assembled(status: StatusCode, headers: HeaderMap, body: Body) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    *answer.headers_mut() = headers;
    answer
}

/// An answer without a body.
pub(crate) fn empty(status: StatusCode) -> Answer {
    assembled(status, HeaderMap::new(), Body::EMPTY)
}

/// An answer in plain text.
pub(crate) fn text(status: StatusCode, text: impl Into<Bytes>) -> Answer {
    with_body(status, TEXT, Body::Whole(text.into()))
}

/// An answer in JSON.
pub(crate) fn json(status: StatusCode, json: impl Into<Bytes>) -> Answer {
    let mut answer = with_body(status, JSON, Body::Whole(json.into()));
    answer.headers_mut().insert(VARY, ACCEPT_ENCODING);
    answer
}

/// An answer whose pieces are sent as they arrive.
pub(crate) fn in_pieces(
    content_type: HeaderValue,
    pieces: impl Stream<Item = Result<Bytes, Abandoned>> + Send + 'static,
) -> Answer {
    let mut answer = with_body(StatusCode::OK, content_type, Body::Pieces(Box::pin(pieces)));
    answer.headers_mut().insert(VARY, ACCEPT_ENCODING);
    answer
}

/// A small HTML page for people. Clients read only the status.
pub(crate) fn page(status: StatusCode) -> Answer {
    let reason = status.canonical_reason().unwrap_or("Error");
    let page = format!(
        "<html><head><title>{} {reason}</title></head><body><h1>{reason}</h1></body></html>\n",
        status.as_u16()
    );
    with_body(status, HTML, Body::Whole(page.into()))
}

/// The answer to a method that a resource does not have.
pub(crate) fn method_not_allowed(allowed: &[&str]) -> Answer {
    let mut answer = page(StatusCode::METHOD_NOT_ALLOWED);
    if let Ok(allowed) = HeaderValue::from_str(&allowed.join(", ")) {
        answer.headers_mut().insert(ALLOW, allowed);
    }
    answer
}
