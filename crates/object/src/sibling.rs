//! Siblings: versions of a key of which none has superseded another.

use bytes::Bytes;

use crate::{Dot, Metadata};

/// One version among those that nothing has superseded yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sibling {
    /// The write that made it.
    pub dot: Dot,
    /// Its metadata.
    pub metadata: Metadata,
    /// Its value; empty for a tombstone.
    pub value: Bytes,
}

/// A sibling without its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiblingHead {
    /// The write that made it.
    pub dot: Dot,
    /// Its metadata.
    pub metadata: Metadata,
    /// The length of its value, in bytes.
    pub value_len: usize,
}
