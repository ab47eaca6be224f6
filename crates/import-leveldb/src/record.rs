//! A record of a store, from any kind of file.

use bytes::Bytes;

use crate::internal_key::InternalKey;

/// A record, and where it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) key: InternalKey,
    pub(crate) value: Bytes,
    /// Offset in its file: of the block, or of the log record.
    pub(crate) offset: u64,
}
