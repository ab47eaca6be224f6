//! Facets: powers that some engines have. Asked for, not tried.

use std::ops::Bound;
use std::path::Path;

use bytes::Bytes;
use kvorum_encoding::StorageKey;

use crate::{Flow, FoldEnd, Lease, Result, Timestamp};

/// What an engine can do, as a value. The facets of [`crate::Backend`] say the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Capabilities {
    /// Data survives the process.
    pub persistent: bool,
    /// A head is read without reading the body, so HEAD requests are cheap.
    pub cheap_heads: bool,
    /// Keys are kept in order, so a fold costs what it visits.
    pub ordered: bool,
    /// [`crate::Backend::indexes`] is there.
    pub indexes: bool,
    /// [`crate::Backend::backups`] is there.
    pub backups: bool,
}

/// A range of terms in one index of one bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexRange {
    /// The prefix that the storage keys of the bucket share.
    pub bucket_prefix: Bytes,
    /// The index.
    pub field: Bytes,
    /// The first term.
    pub from: Bound<Bytes>,
    /// The last term.
    pub to: Bound<Bytes>,
    /// Continue behind this (term, key).
    pub after: Option<(Bytes, StorageKey)>,
}

/// What an index fold calls for each entry: its term and the object's key.
pub type IndexVisitor<'a> = dyn FnMut(&Bytes, &StorageKey) -> Flow + 'a;

/// Secondary indexes: entries change atomically with their object and are visited in order of
/// (term, key).
pub trait IndexFolds: Send + Sync {
    /// Visits index entries of unexpired objects, as they were when the fold began. The key in the
    /// returned [`FoldEnd`] names an object and no position: to continue, set [`IndexRange::after`]
    /// to what the visitor saw last.
    fn fold_index(
        &self,
        range: &IndexRange,
        lease: Lease,
        now: Timestamp,
        visitor: &mut IndexVisitor<'_>,
    ) -> Result<FoldEnd>;
}

/// Backups while serving.
pub trait Backups: Send + Sync {
    /// Makes a consistent copy in `directory`, which must not exist, sharing files by hard links
    /// where the filesystem can.
    fn backup(&self, directory: &Path) -> Result<()>;
}
