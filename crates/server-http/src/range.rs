//! A part of an answer's body, for requests that name one (`Range: bytes=0-99`).
//!
//! One range is served. A list of several ranges, a range in another unit, and a range beyond the body get
//! the whole body with 200, as Webmachine does and the standard allows.

use http::header::{ACCEPT_RANGES, CONTENT_RANGE, ETAG, HeaderValue, IF_RANGE, RANGE};
use http::request::Parts;
use http::{Method, StatusCode};

use crate::body::Body;
use crate::reply::Answer;

/// Cuts the answer's body to the requested range, if the request has one that can be served.
pub(crate) fn cut(head: &Parts, answer: &mut Answer) {
    if head.method != Method::GET || answer.status() != StatusCode::OK {
        return;
    }
    let Some(asked) = head.headers.get(RANGE) else {
        return;
    };
    if let Some(version) = head.headers.get(IF_RANGE)
        && answer.headers().get(ETAG) != Some(version)
    {
        return;
    }
    let Body::Whole(whole) = answer.body() else {
        return;
    };
    let size = whole.len() as u64;
    let Some((first, last)) = asked.to_str().ok().and_then(|it| span(it, size)) else {
        return;
    };
    let position = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
    let part = whole.slice(position(first)..=position(last));
    *answer.body_mut() = Body::Whole(part);
    *answer.status_mut() = StatusCode::PARTIAL_CONTENT;
    let headers = answer.headers_mut();
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if let Ok(range) = HeaderValue::from_str(&format!("bytes {first}-{last}/{size}")) {
        headers.insert(CONTENT_RANGE, range);
    }
}

/// The first and the last byte of the requested range, within a body of `size` bytes.
fn span(asked: &str, size: u64) -> Option<(u64, u64)> {
    let (first, last) = asked.trim().strip_prefix("bytes=")?.split_once('-')?;
    let number = |digits: &str| {
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| digits.parse().unwrap_or(u64::MAX))
    };
    let end = size.checked_sub(1)?;
    let (first, last) = match (number(first), number(last)) {
        (Some(first), Some(last)) => (first, last.min(end)),
        (Some(first), None) if last.is_empty() => (first, end),
        (None, Some(length)) if first.is_empty() && length > 0 => {
            (size.saturating_sub(length), end)
        }
        _ => return None,
    };
    (first <= last).then_some((first, last))
}

#[cfg(test)]
mod tests {
    use super::span;

    #[test]
    fn one_range_within_the_body_is_served() {
        let cases = [
            ("bytes=0-1", Some((0, 1))),
            ("bytes=2-", Some((2, 9))),
            ("bytes=-3", Some((7, 9))),
            ("bytes=-30", Some((0, 9))),
            ("bytes=8-99", Some((8, 9))),
            ("bytes=9-9", Some((9, 9))),
            ("bytes=10-11", None),
            ("bytes=3-2", None),
            ("bytes=-0", None),
            ("bytes=-", None),
            ("bytes=a-b", None),
            ("bytes=0-1,3-4", None),
            ("lines=0-1", None),
        ];
        for (asked, expected) in cases {
            assert_eq!(span(asked, 10), expected, "{asked}");
        }
        assert_eq!(span("bytes=0-", 0), None);
    }
}
