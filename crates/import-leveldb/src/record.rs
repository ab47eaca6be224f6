//! A record of a store, wherever it comes from.

use bytes::Bytes;

use crate::internal_key::InternalKey;

/// A record, and where it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) key: InternalKey,
    pub(crate) value: Bytes,
    /// Where in its file: the block's first byte, or the log record's.
    pub(crate) offset: u64,
}
