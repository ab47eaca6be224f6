//! The expiry of an object in headers. Riak has no such headers, so the names are ours.
//!
//! ```text
//! X-Kvorum-TTL: 3600                                       of a store request: seconds from now
//! X-Kvorum-Expires-At: Thu, 01 Jan 2026 01:00:00 GMT       of a store request and of answers
//! ```

use std::time::Duration;

use http::{HeaderName, StatusCode};
use kvorum_object::Timestamp;
use kvorum_protocol::http_fields::parse_http_date;
use kvorum_runtime::WallTime;

use crate::exchange::Exchange;
use crate::reply::{Refusal, text};

const TTL: HeaderName = HeaderName::from_static("x-kvorum-ttl");
pub(super) const EXPIRES_AT: HeaderName = HeaderName::from_static("x-kvorum-expires-at");

/// The time of expiry in a store request; `None` means never.
pub(super) fn requested(exchange: &Exchange<'_>) -> Result<Option<Timestamp>, Refusal> {
    let headers = &exchange.head.headers;
    let refused = |message: &'static str| Err(text(StatusCode::BAD_REQUEST, message).into());
    match (headers.get(TTL), headers.get(EXPIRES_AT)) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => {
            refused("X-Kvorum-TTL and X-Kvorum-Expires-At: only one of them may be given\n")
        }
        (Some(seconds), None) => {
            let seconds = seconds.to_str().ok().and_then(|text| text.parse().ok());
            match seconds.filter(|seconds: &u64| *seconds > 0) {
                Some(seconds) => {
                    let now = exchange.coordinator().runtime().wall_time();
                    Ok(Some(stored(now.plus(Duration::from_secs(seconds)))))
                }
                None => refused("X-Kvorum-TTL is not a whole number of seconds above 0\n"),
            }
        }
        (None, Some(date)) => match parse_http_date(date.as_bytes()) {
            Some(seconds) => Ok(Some(stored(WallTime::from_seconds(seconds)))),
            None => refused("X-Kvorum-Expires-At is not a date as HTTP has it\n"),
        },
    }
}

fn stored(time: WallTime) -> Timestamp {
    Timestamp::from_micros(time.micros())
}
