//! The versions that a client has seen, from its headers.

use http::{HeaderName, StatusCode};
use kvorum_object::Clock;
use kvorum_protocol::http_fields::decode_vclock;

use crate::exchange::Exchange;
use crate::reply::{Refusal, VCLOCK, text};

const IF_NOT_MODIFIED: HeaderName = HeaderName::from_static("x-riak-if-not-modified");

/// The clock in `X-Riak-Vclock`, if the client sent one.
pub(super) fn vclock(exchange: &Exchange<'_>) -> Result<Option<Clock>, Refusal> {
    clock(exchange, &VCLOCK, "X-Riak-Vclock")
}

/// The clock in `X-Riak-If-Not-Modified`, if the client sent one.
pub(super) fn if_not_modified(exchange: &Exchange<'_>) -> Result<Option<Clock>, Refusal> {
    clock(exchange, &IF_NOT_MODIFIED, "X-Riak-If-Not-Modified")
}

fn clock(
    exchange: &Exchange<'_>,
    name: &HeaderName,
    spelled: &str,
) -> Result<Option<Clock>, Refusal> {
    let Some(value) = exchange.head.headers.get(name) else {
        return Ok(None);
    };
    let bytes = decode_vclock(value.as_bytes()).ok();
    match bytes.and_then(|bytes| Clock::decode(&bytes).ok()) {
        Some(clock) => Ok(Some(clock)),
        None => {
            let message = format!("{spelled} header is not a vclock of this cluster\n");
            Err(text(StatusCode::BAD_REQUEST, message).into())
        }
    }
}
