//! One change to a store, and its limits.

use bytes::Bytes;
use kvorum_backend::{BackendError, ErrorKind, Result, Tag};
use kvorum_sst::KEY_BYTES_MAX;

use crate::entry::Value;

/// The largest body that fits into a table's block and a log's record.
const BODY_BYTES_MAX: u64 = 256 << 20;

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Stores a value in place of the key's old one. Its body is inline, or, in a replay of the
    /// log, in its place there.
    Put {
        /// The key.
        key: Bytes,
        /// The value. A large value is kept in memory as it was passed: a slice of a larger buffer
        /// keeps the buffer too.
        value: Value,
    },
    /// Removes a key.
    Remove {
        /// The key.
        key: Bytes,
    },
    /// Removes all keys from `from` up to `to`, without `to`.
    RemoveRange {
        /// The first key.
        from: Bytes,
        /// The first key behind the range.
        to: Bytes,
    },
}

impl Op {
    /// True for a write that ends in free space.
    pub(crate) fn frees(&self) -> bool {
        match self {
            Self::Put { value, .. } => value.fields.tag == Tag::TOMBSTONE,
            Self::Remove { .. } | Self::RemoveRange { .. } => true,
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        let too_large = |what: &str, got: usize| {
            let detail = format!("{what} of {got} bytes");
            Err(BackendError::new(ErrorKind::TooLarge, detail))
        };
        let (key, value) = match self {
            Self::Put { key, value } => (key, Some(value)),
            Self::Remove { key } => (key, None),
            Self::RemoveRange { from, to } => (if from > to { from } else { to }, None),
        };
        if key.len() >= KEY_BYTES_MAX {
            return too_large("key", key.len());
        }
        if let Some(value) = value {
            let front = value.head.len() + value.extra.len();
            if front > 32 << 20 {
                return too_large("head", front);
            }
            if value.body_len() > BODY_BYTES_MAX {
                return too_large(
                    "body",
                    usize::try_from(value.body_len()).unwrap_or(usize::MAX),
                );
            }
        }
        Ok(())
    }
}
