//! The reasons why a request is refused, in the words that clients match on.
//!
//! The displayed text goes into `RpbErrorResp`, so it keeps Riak's spelling.

use std::io;

use bytes::Bytes;
use kvorum_cluster::{ProposeError, UnknownBucketType};
use kvorum_coordinator::{IndexQueryError, RequestError};
use kvorum_data_types::Kind;
use kvorum_encoding::BucketType;
use kvorum_map_reduce_run::{NotAdmitted, RunError};
use kvorum_properties::PropertyErrors;
use kvorum_protocol::MessageCode;
use kvorum_protocol::frame::FrameError;
use kvorum_protocol::http_fields::IndexFieldError;

use crate::fault_log::Fault;

/// Maximum of links, user metadata and index entries of a put. An empty one takes two bytes of the
/// message and a hundred in memory, so they are counted before they are decoded.
pub(crate) const PIECES_MAX: usize = 100_000;

/// A refused request; the connection stays open.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// The coordinator failed; the text is Riak's term.
    #[error("{0}")]
    Failed(#[from] RequestError),
    /// The payload is not a message of its code.
    #[error("Message decoding error: {0}")]
    Undecodable(#[from] prost::DecodeError),
    /// The code is unknown.
    #[error("Unknown message code: {}", .0.0)]
    UnknownCode(MessageCode),
    /// Riak serves the request, this server does not yet.
    #[error("{what} not supported yet")]
    NotSupported {
        /// The request, with its verb.
        what: &'static str,
    },
    /// No replication queue has this name; there are none.
    #[error("queue_not_defined")]
    NoSuchQueue,
    /// Switched off by the operator.
    #[error("Operation '{{riak_kv,{class}}}' is not enabled")]
    Disabled {
        /// Riak's name of the job class.
        class: &'static str,
    },
    /// TLS is for clusters with security.
    #[error("Security not enabled; STARTTLS not allowed.")]
    NoTls,
    /// A name without a byte.
    #[error("{what} cannot be zero-length")]
    ZeroLength {
        /// Type, Bucket or Key.
        what: &'static str,
    },
    /// A vclock that no server of this kind made.
    #[error("Invalid vclock: {0}")]
    InvalidVclock(kvorum_object::DecodeError),
    /// More links, user metadata and index entries than an object may have.
    #[error("{pieces} links, metadata and index entries, at most {PIECES_MAX} are taken")]
    TooManyPieces {
        /// Their number.
        pieces: usize,
    },
    /// `sync_on_write` is none of its three words.
    #[error("Invalid sync_on_write: {0}")]
    InvalidSyncOnWrite(String),
    /// User metadata with an invalid time of expiry.
    #[error("{0}")]
    InvalidExpiry(&'static str),
    /// Index entries whose field or value cannot be read, in the words of Riak's check before the put.
    #[error("{{precommit_fail,[{}]}}", terms_of(.0))]
    InvalidIndexes(Vec<IndexFieldError>),
    /// Fields, values, pattern or continuation of an index query.
    #[error(transparent)]
    InvalidIndexQuery(#[from] IndexQueryError),
    /// A MapReduce job in an unknown format.
    #[error("{{unknown_content_type,<<\"{}\">>}}", String::from_utf8_lossy(.0))]
    UnknownContentType(Bytes),
    /// A MapReduce job that was not started.
    #[error("{}", .0.protocol_buffers())]
    NoJob(#[from] NotAdmitted),
    /// A MapReduce job that ended without all of its results.
    #[error("{}", .0.protocol_buffers())]
    JobFailed(#[from] RunError),
    /// An equality query without a value.
    #[error("Invalid equality query undefined")]
    InvalidEqualityQuery,
    /// A range query without both ends.
    #[error("Invalid range query: {first} -> {last}")]
    InvalidRangeQuery {
        /// The first value, as Riak shows it.
        first: String,
        /// The last value.
        last: String,
    },
    /// A fetch or an update in a type that is for plain objects.
    #[error("{prefix}`undefined` is not a supported type")]
    NoDataType {
        /// The text in front of it for updates.
        prefix: &'static str,
    },
    /// An operation on another data type than the bucket's.
    #[error("Operation type is `{operation}` but  bucket type is `{bucket}`.")]
    OtherDataType {
        /// The type of the operation.
        operation: Kind,
        /// The type of the bucket.
        bucket: Kind,
    },
    /// An incomplete operation on a data type.
    #[error("Invalid operation: {0}")]
    InvalidOperation(&'static str),
    /// A fold over keys with half a range, an unknown size of trees, or an unknown kind of search or
    /// change.
    #[error("\"Invalid AAE fold definition\"")]
    InvalidFold,
    /// A context that no server of this kind made.
    #[error("Invalid context: {0}")]
    InvalidContext(kvorum_data_types::DecodeError),
    /// There is no such active type, in a request about a data type.
    #[error("Error no bucket type `<<\"{0}\">>`")]
    NoBucketType(BucketType),
    /// There is no such active type.
    #[error(transparent)]
    UnknownType(#[from] UnknownBucketType),
    /// The same, in a request about the type itself.
    #[error("Invalid bucket type: <<\"{0}\">>")]
    InvalidType(BucketType),
    /// Properties with impossible values.
    #[error("Invalid bucket properties: {0}")]
    InvalidProperties(#[from] PropertyErrors),
    /// The cluster did not agree to a change; the text has the reason.
    #[error(transparent)]
    NotAgreed(#[from] ProposeError),
    /// The reply outgrows a frame.
    #[error("reply does not fit a frame: {0}")]
    ReplyTooLong(#[from] FrameError),
}

impl Refusal {
    /// The refusal with all details, for the log. It may contain paths of the server.
    pub(crate) fn in_full(&self) -> String {
        match self {
            Self::NotAgreed(error) => error.in_full(),
            other => other.to_string(),
        }
    }

    /// The kind under which it is logged; failures of requests are logged by the coordinator.
    pub(crate) fn fault(&self) -> Option<Fault> {
        Some(match self {
            Self::Failed(_) | Self::JobFailed(_) => return None,
            Self::Undecodable(_) => Fault::Undecodable,
            Self::UnknownCode(_) => Fault::UnknownCode,
            Self::NotSupported { .. } | Self::NoSuchQueue | Self::NoTls => Fault::NotSupported,
            Self::NotAgreed(_) => Fault::NotAgreed,
            Self::ReplyTooLong(_) => Fault::ReplyTooLong,
            Self::Disabled { .. }
            | Self::ZeroLength { .. }
            | Self::InvalidVclock(_)
            | Self::TooManyPieces { .. }
            | Self::InvalidSyncOnWrite(_)
            | Self::InvalidExpiry(_)
            | Self::InvalidIndexes(_)
            | Self::InvalidIndexQuery(_)
            | Self::UnknownContentType(_)
            | Self::NoJob(_)
            | Self::InvalidEqualityQuery
            | Self::InvalidRangeQuery { .. }
            | Self::NoDataType { .. }
            | Self::OtherDataType { .. }
            | Self::InvalidOperation(_)
            | Self::InvalidContext(_)
            | Self::InvalidFold
            | Self::NoBucketType(_)
            | Self::UnknownType(_)
            | Self::InvalidType(_)
            | Self::InvalidProperties(_) => Fault::BadRequest,
        })
    }
}

fn terms_of(errors: &[IndexFieldError]) -> String {
    let text = String::from_utf8_lossy;
    let term = |error: &IndexFieldError| match error {
        IndexFieldError::UnknownFieldType { field } => {
            format!("{{unknown_field_type,<<\"{}\">>}}", text(field))
        }
        IndexFieldError::FieldParsing { field, value } => format!(
            "{{field_parsing_failed,{{<<\"{}\">>,<<\"{}\">>}}}}",
            text(field),
            text(value)
        ),
    };
    let terms: Vec<String> = errors.iter().map(term).collect();
    terms.join(",")
}

/// The end of a request without a reply.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The client gets the reason.
    Refused(Refusal),
    /// The connection is lost.
    Lost(io::Error),
}

impl<E: Into<Refusal>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Refused(error.into())
    }
}
