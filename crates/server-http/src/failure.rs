//! Failures of the coordinator and of request bodies as statuses and texts.
//!
//! They are Riak's, with one exception: a request that may succeed later gets 503 with a time to
//! retry, where Riak answered an overload with 500.

use std::error::Error as _;

use http::StatusCode;
use http::header::{CONNECTION, HeaderValue, RETRY_AFTER};
use kvorum_coordinator::RequestError;
use kvorum_encoding::BucketType;

use crate::body::BodyError;
use crate::reply::{Answer, Refusal, empty, page, text};

/// Seconds after which a request that was refused for lack of room may be sent again.
const RETRY_AFTER_SECONDS: HeaderValue = HeaderValue::from_static("1");

const COUNTERS_NEED_SIBLINGS: &str = "Counters require bucket property 'allow_mult=true'";

/// The answer to a failed request on `bucket_type`.
pub(crate) fn of_request(error: &RequestError, bucket_type: &BucketType) -> Refusal {
    let (status, message) = match error {
        RequestError::UnknownBucketType => return unknown_type(bucket_type),
        RequestError::MatchFound | RequestError::Modified | RequestError::ConditionNotFound => {
            return empty(StatusCode::PRECONDITION_FAILED).into();
        }
        RequestError::Overload
        | RequestError::VnodeNotReady
        | RequestError::VnodeOpening
        | RequestError::VnodeFailed
        | RequestError::DiskFull(_) => {
            return retry_later(&error.to_string()).into();
        }
        RequestError::QuorumAboveN { n_val } | RequestError::RequestNAboveBucketN { n_val, .. } => {
            (
                StatusCode::BAD_REQUEST,
                format!(
                    "Specified w/dw/pw/node_confirms values invalid for bucket n value of {n_val}\n"
                ),
            )
        }
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
        RequestError::OutcomeUnknown => (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("request timed out: {}\n", error.explain()),
        ),
        RequestError::AllNodesDown
        | RequestError::InsufficientVnodes { .. }
        | RequestError::InsufficientNodes { .. } => (StatusCode::SERVICE_UNAVAILABLE, term(error)),
        RequestError::ObjectTooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, explained(error)),
        RequestError::TooManySiblings { .. } => (StatusCode::CONFLICT, explained(error)),
        RequestError::KeyTooLarge { .. } | RequestError::AnswerTooLarge { .. } => {
            (StatusCode::BAD_REQUEST, term(error))
        }
        RequestError::OperationRefused(_) => (StatusCode::BAD_REQUEST, format!("{error}\n")),
        RequestError::Rejected(detail) => (StatusCode::FORBIDDEN, format!("{detail}\n")),
        RequestError::CountersNeedSiblings => (StatusCode::CONFLICT, COUNTERS_NEED_SIBLINGS.into()),
        RequestError::NotPresent(_)
        | RequestError::Storage(_)
        | RequestError::Internal(_)
        | RequestError::IndexesNotSupported(_) => (StatusCode::INTERNAL_SERVER_ERROR, term(error)),
    };
    text(status, message).into()
}

/// The answer if no active bucket type has this name.
pub(crate) fn unknown_type(bucket_type: &BucketType) -> Refusal {
    let name = String::from_utf8_lossy(bucket_type.as_bytes());
    text(
        StatusCode::NOT_FOUND,
        format!("Unknown bucket type: {name}"),
    )
    .into()
}

/// The answer to a request for one of a type's listings, where an unknown type is an unknown path.
pub(crate) fn of_listing(error: &RequestError, bucket_type: &BucketType) -> Refusal {
    match error {
        RequestError::UnknownBucketType => page(StatusCode::NOT_FOUND).into(),
        error => of_request(error, bucket_type),
    }
}

/// 503 with a time to retry.
pub(crate) fn retry_later(reason: &str) -> Answer {
    let mut answer = text(StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n"));
    answer
        .headers_mut()
        .insert(RETRY_AFTER, RETRY_AFTER_SECONDS);
    answer
}

/// The answer to a request whose body was refused.
pub(crate) fn of_body(error: &BodyError) -> Refusal {
    let status = match error {
        BodyError::NoRoom => StatusCode::SERVICE_UNAVAILABLE,
        BodyError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        BodyError::TooSlow => StatusCode::REQUEST_TIMEOUT,
        BodyError::Broken(cause) => {
            tracing::debug!(event = "http_body_broken", error = %cause, cause = ?cause.source());
            StatusCode::BAD_REQUEST
        }
    };
    let mut answer = text(status, format!("{error}\n"));
    if matches!(error, BodyError::NoRoom) {
        // The rest of it is read and dropped.
        answer
            .headers_mut()
            .insert(RETRY_AFTER, RETRY_AFTER_SECONDS);
        return answer.into();
    }
    // The beginning of the next request is unknown.
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

#[cfg(test)]
mod tests {
    use http::header::RETRY_AFTER;
    use kvorum_coordinator::RequestError;
    use kvorum_encoding::BucketType;

    use super::of_request;
    use crate::body::Body;
    use crate::reply::Answer;

    #[test]
    fn every_failure_has_its_status_and_text() {
        let (wanted, got) = (2, 1);
        let invalid = "Specified w/dw/pw/node_confirms values invalid for bucket n value of 3\n";
        let cases = [
            (
                RequestError::UnknownBucketType,
                404,
                "Unknown bucket type: t",
            ),
            (RequestError::QuorumAboveN { n_val: 3 }, 400, invalid),
            (
                RequestError::RequestNAboveBucketN {
                    requested: 4,
                    n_val: 3,
                },
                400,
                invalid,
            ),
            (RequestError::AllNodesDown, 503, "Error:\nall_nodes_down\n"),
            (
                RequestError::InsufficientVnodes { wanted, got },
                503,
                "Error:\n{insufficient_vnodes,1,need,2}\n",
            ),
            (
                RequestError::InsufficientNodes { wanted, got },
                503,
                "Error:\n{insufficient_nodes,1,need,2}\n",
            ),
            (
                RequestError::ReadsUnsatisfied { wanted, got },
                503,
                "R-value unsatisfied: 1/2\n",
            ),
            (
                RequestError::PrimaryReadsUnsatisfied { wanted, got },
                503,
                "PR-value unsatisfied: 1/2\n",
            ),
            (
                RequestError::WritesUnsatisfied { wanted, got },
                503,
                "W-value unsatisfied: 1/2\n",
            ),
            (
                RequestError::DurableWritesUnsatisfied { wanted, got },
                503,
                "DW-value unsatisfied: 1/2\n",
            ),
            (
                RequestError::PrimaryWritesUnsatisfied { wanted, got },
                503,
                "PW-value unsatisfied: 1/2\n",
            ),
            (
                RequestError::NodeConfirmsUnsatisfied { wanted, got },
                503,
                "node_confirms-value unsatisfied: 1/2\n",
            ),
            (RequestError::MatchFound, 412, ""),
            (RequestError::Modified, 412, ""),
            (RequestError::ConditionNotFound, 412, ""),
            (RequestError::Timeout, 503, "request timed out\n"),
            (
                RequestError::OutcomeUnknown,
                503,
                "request timed out: the connection to a replica broke during the write, which may \
                 be stored or not; read before writing again\n",
            ),
            (RequestError::Overload, 503, "overload\n"),
            (RequestError::VnodeNotReady, 503, "vnode_not_ready\n"),
            (
                RequestError::VnodeOpening,
                503,
                "vnode_not_ready: its store is still being opened, retry shortly\n",
            ),
            (
                RequestError::VnodeFailed,
                503,
                "vnode_failed: its store could not be opened, see the node's log\n",
            ),
            (
                RequestError::DiskFull("/data".into()),
                503,
                "disk_full: the disk of a replica has no room, see its node's log; reads go on\n",
            ),
            (
                RequestError::KeyTooLarge { bytes: 70_000 },
                400,
                "Error:\n{key_too_large,70000}\n",
            ),
            (
                RequestError::AnswerTooLarge { bytes_max: 9 },
                400,
                "Error:\nanswer_too_large: it would have more than 9 bytes, ask for a narrower range\n",
            ),
            (
                RequestError::Storage("file".into()),
                500,
                "Error:\nstorage: a store failed, see its node's log\n",
            ),
            (
                RequestError::IndexesNotSupported("bitcask".into()),
                500,
                "Error:\n{error,{indexes_not_supported,bitcask}}\n",
            ),
            (
                RequestError::CountersNeedSiblings,
                409,
                "Counters require bucket property 'allow_mult=true'",
            ),
            (
                RequestError::NotPresent("{precondition,{not_present,<<\"x\">>}}".into()),
                500,
                "Error:\n{precondition,{not_present,<<\"x\">>}}\n",
            ),
            (
                RequestError::OperationRefused("too deep".into()),
                400,
                "too deep\n",
            ),
            (
                RequestError::Rejected("max_bytes: the value has 9 bytes".into()),
                403,
                "max_bytes: the value has 9 bytes\n",
            ),
            (
                RequestError::Internal("bug".into()),
                500,
                "Error:\ninternal: a rule of the server was broken, see its node's log\n",
            ),
        ];
        for (error, status, text) in cases {
            let answer = Answer::from(of_request(&error, &BucketType::from("t")));
            assert_eq!(answer.status().as_u16(), status, "{error:?}");
            let retries = matches!(
                error,
                RequestError::Overload
                    | RequestError::VnodeNotReady
                    | RequestError::VnodeOpening
                    | RequestError::VnodeFailed
                    | RequestError::DiskFull(_)
            );
            assert_eq!(
                answer.headers().contains_key(RETRY_AFTER),
                retries,
                "{error:?}"
            );
            let Body::Whole(body) = answer.into_body() else {
                panic!("a stream")
            };
            assert_eq!(body, text, "{error:?}");
        }
    }
}
