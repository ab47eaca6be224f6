//! The time at which an object expires, as pairs of user metadata. Riak's clients have no field for it, and
//! all of them carry user metadata. The names are those of the headers over HTTP.
//!
//! ```text
//! X-Kvorum-TTL: 3600                                       of a put: seconds from now
//! X-Kvorum-Expires-At: Thu, 01 Jan 2026 01:00:00 GMT       of a put and of answers
//! ```
//!
//! Clients write back the user metadata that they have read. So a TTL beside a date is no
//! contradiction, unlike in headers: the client has read the date and set the TTL, and the TTL
//! counts.

use std::time::Duration;

use bytes::Bytes;
use kvorum_object::{Timestamp, UserMetadata};
use kvorum_protocol::http_fields::{format_http_date, parse_http_date};
use kvorum_runtime::{Runtime, WallTime};

use crate::refusal::Refusal;

/// The name of the pair with the time of expiry.
pub(crate) const EXPIRES_AT: &[u8] = b"X-Kvorum-Expires-At";
const TTL: &[u8] = b"X-Kvorum-TTL";

/// Removes the pairs about expiry from the pairs to be stored, and returns the time; `None` means
/// never.
pub(crate) fn take_out(
    pairs: &mut Vec<UserMetadata>,
    runtime: &Runtime,
) -> Result<Option<Timestamp>, Refusal> {
    let (seconds, date) = (take(pairs, TTL), take(pairs, EXPIRES_AT));
    match (seconds, date) {
        (Some(seconds), _) => end_of_ttl(&seconds, runtime).map(Some),
        (None, Some(date)) => end_on(&date).map(Some),
        (None, None) => Ok(None),
    }
}

/// A time of expiry as answers show it, to the second.
pub(crate) fn shown(end: Timestamp) -> String {
    format_http_date(end.as_secs())
}

/// Removes the pairs of a name in any case; returns the value of the last one.
fn take(pairs: &mut Vec<UserMetadata>, name: &[u8]) -> Option<Bytes> {
    let mut value = None;
    pairs.retain_mut(|pair| {
        let is_taken = pair.name.eq_ignore_ascii_case(name);
        if is_taken {
            value = Some(pair.value.take().unwrap_or_default());
        }
        !is_taken
    });
    value
}

fn end_of_ttl(seconds: &[u8], runtime: &Runtime) -> Result<Timestamp, Refusal> {
    let text = str::from_utf8(seconds).ok();
    let seconds = text.and_then(|text| text.parse().ok());
    match seconds.filter(|seconds: &u64| *seconds > 0) {
        Some(seconds) => {
            let end = runtime.wall_time().plus(Duration::from_secs(seconds));
            Ok(Timestamp::from_micros(end.micros()))
        }
        None => Err(Refusal::InvalidExpiry(
            "X-Kvorum-TTL is not a whole number of seconds above 0",
        )),
    }
}

fn end_on(date: &[u8]) -> Result<Timestamp, Refusal> {
    let end = parse_http_date(date).map(WallTime::from_seconds);
    let end = end.map(|end| Timestamp::from_micros(end.micros()));
    end.ok_or(Refusal::InvalidExpiry(
        "X-Kvorum-Expires-At is not a date as HTTP has it",
    ))
}
