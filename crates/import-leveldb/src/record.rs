//! A record of a store, from any kind of file.

use bytes::Bytes;

use crate::internal_key::InternalKey;

/// A record and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) key: InternalKey,
    pub(crate) value: Bytes,
    /// The offset of its block or log record in the file.
    pub(crate) offset: u64,
}
