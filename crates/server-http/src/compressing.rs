//! Answers in gzip, for clients that ask for it.
//!
//! Riak offered gzip for every body stored without an encoding of its own, and clients on slow
//! networks depend on it. Only whole bodies are compressed: a streamed listing is sent as it
//! arrives. The entity tag is unchanged, since it names the object's version, not its bytes on the
//! wire.

use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HeaderValue, VARY};
use http::request::Parts;
use http::{Method, StatusCode};
use kvorum_protocol::http_fields::choose_encoding;
use kvorum_runtime::Runtime;

use crate::body::Body;
use crate::reply::Answer;

/// A shorter body fits into one packet either way.
const BODY_BYTES_MIN: usize = 256;

/// Compressing a longer body would delay other requests on the same thread.
const INLINE_BYTES_MAX: usize = 32 << 10;

const GZIP: HeaderValue = HeaderValue::from_static("gzip");

/// Compresses the answer's body if the client prefers that and the body becomes smaller.
pub(crate) async fn compress(head: &Parts, answer: &mut Answer, runtime: &Runtime) {
    if !is_wanted(head, answer) {
        return;
    }
    let Body::Whole(plain) = answer.body() else {
        return;
    };
    let plain = plain.clone();
    let compressed = if plain.len() <= INLINE_BYTES_MAX {
        gzip(&plain)
    } else {
        let work = plain.clone();
        runtime.blocking(move || gzip(&work)).await
    };
    match compressed {
        Ok(compressed) if compressed.len() < plain.len() => {
            *answer.body_mut() = Body::Whole(compressed.into());
            answer.headers_mut().insert(CONTENT_ENCODING, GZIP);
        }
        Ok(_) => {}
        Err(error) => tracing::warn!(event = "http_gzip_failed", error = %error),
    }
}

fn is_wanted(head: &Parts, answer: &Answer) -> bool {
    let varies = answer.headers().get(VARY);
    let is_offered = varies.is_some_and(|vary| contains(vary.as_bytes(), b"Accept-Encoding"));
    let has_success = matches!(
        answer.status(),
        StatusCode::OK | StatusCode::CREATED | StatusCode::MULTIPLE_CHOICES
    );
    if !is_offered
        || !has_success
        || head.method == Method::HEAD
        || answer.headers().contains_key(CONTENT_ENCODING)
        || !matches!(answer.body(), Body::Whole(bytes) if bytes.len() >= BODY_BYTES_MIN)
    {
        return false;
    }
    let accepted = head.headers.get_all(ACCEPT_ENCODING).iter();
    let accepted: Vec<&[u8]> = accepted.map(HeaderValue::as_bytes).collect();
    !accepted.is_empty()
        && choose_encoding(&["identity", "gzip"], Some(&accepted.join(&b", "[..]))) == Some(1)
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|window| window == word)
}

fn gzip(plain: &Bytes) -> std::io::Result<Vec<u8>> {
    let room = Vec::with_capacity(plain.len() / 2);
    let mut encoder = GzEncoder::new(room, Compression::fast());
    encoder.write_all(plain)?;
    encoder.finish()
}
