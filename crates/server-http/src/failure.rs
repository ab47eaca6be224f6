//! Failures of the coordinator and of request bodies as statuses and texts.
//!
//! Riak's, with one exception: what may succeed later without being changed is 503 with a hint when
//! to retry, where Riak answered an overload with 500.

use std::error::Error as _;

use http::StatusCode;
use http::header::{CONNECTION, HeaderValue, RETRY_AFTER};
use kvorum_coordinator::RequestError;
use kvorum_encoding::BucketType;

use crate::body::BodyError;
use crate::reply::{Answer, Refusal, empty, text};

/// Seconds after which a request that was refused for want of room may be sent again.
const RETRY_AFTER_SECONDS: HeaderValue = HeaderValue::from_static("1");

/// The answer to a failed request on `bucket_type`.
pub(crate) fn of_request(error: &RequestError, bucket_type: &BucketType) -> Refusal {
    let (status, message) = match error {
        RequestError::UnknownBucketType => return unknown_type(bucket_type),
        RequestError::MatchFound | RequestError::Modified | RequestError::ConditionNotFound => {
            return empty(StatusCode::PRECONDITION_FAILED).into();
        }
        RequestError::Overload | RequestError::VnodeNotReady | RequestError::DiskFull(_) => {
            return retry_later(&error.to_string()).into();
        }
        RequestError::QuorumAboveN { n_val } | RequestError::RequestNAboveBucketN { n_val } => (
            StatusCode::BAD_REQUEST,
            format!(
                "Specified w/dw/pw/node_confirms values invalid for bucket n value of {n_val}\n"
            ),
        ),
        RequestError::ReadsUnsatisfied { wanted, got } => unsatisfied("R", *wanted, *got),
        RequestError::PrimaryReadsUnsatisfied { wanted, got } => unsatisfied("PR", *wanted, *got),
        RequestError::WritesUnsatisfied { wanted, got } => unsatisfied("W", *wanted, *got),
        RequestError::DurableWritesUnsatisfied { wanted, got } => unsatisfied("DW", *wanted, *got),
        RequestError::PrimaryWritesUnsatisfied { wanted, got } => unsatisfied("PW", *wanted, *got),
        RequestError::NodeConfirmsUnsatisfied { wanted, got } => {
            unsatisfied("node_confirms", *wanted, *got)
        }
        RequestError::Timeout => (
            StatusCode::SERVICE_UNAVAILABLE,
            "request timed out\n".to_owned(),
        ),
        RequestError::AllNodesDown
        | RequestError::InsufficientVnodes { .. }
        | RequestError::InsufficientNodes { .. } => (StatusCode::SERVICE_UNAVAILABLE, term(error)),
        RequestError::ObjectTooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, explained(error)),
        RequestError::TooManySiblings { .. } => (StatusCode::CONFLICT, explained(error)),
        RequestError::KeyTooLarge { .. } => (StatusCode::BAD_REQUEST, term(error)),
        RequestError::Storage(_) | RequestError::Internal(_) => {
            (StatusCode::INTERNAL_SERVER_ERROR, term(error))
        }
    };
    text(status, message).into()
}

/// The answer where no active bucket type has this name.
pub(crate) fn unknown_type(bucket_type: &BucketType) -> Refusal {
    let name = String::from_utf8_lossy(bucket_type.as_bytes());
    text(
        StatusCode::NOT_FOUND,
        format!("Unknown bucket type: {name}"),
    )
    .into()
}

/// 503 with a hint when to come back.
pub(crate) fn retry_later(reason: &str) -> Answer {
    let mut answer = text(StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n"));
    answer
        .headers_mut()
        .insert(RETRY_AFTER, RETRY_AFTER_SECONDS);
    answer
}

/// The answer to a request whose body was not taken.
pub(crate) fn of_body(error: &BodyError) -> Refusal {
    let status = match error {
        BodyError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        BodyError::TooSlow => StatusCode::REQUEST_TIMEOUT,
        BodyError::Broken(cause) => {
            tracing::debug!(event = "http_body_broken", error = %cause, cause = ?cause.source());
            StatusCode::BAD_REQUEST
        }
    };
    let mut answer = text(status, format!("{error}\n"));
    // Where the next request would begin is not known.
    answer
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
    answer.into()
}

fn unsatisfied(name: &str, wanted: usize, got: usize) -> (StatusCode, String) {
    (
        StatusCode::SERVICE_UNAVAILABLE,
        format!("{name}-value unsatisfied: {got}/{wanted}\n"),
    )
}

fn term(error: &RequestError) -> String {
    format!("Error:\n{error}\n")
}

fn explained(error: &RequestError) -> String {
    format!("{error}: {}\n", error.explain())
}
