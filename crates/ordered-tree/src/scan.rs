//! Scans of a tree as it was at one moment.

use std::ops::Bound;

use bytes::Bytes;
use kvorum_backend::{Fields, FoldFilter, Result, Sequence};

/// A range of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanRange {
    /// Lower end.
    pub from: Bound<Bytes>,
    /// Upper end.
    pub to: Bound<Bytes>,
}

/// The continuation of a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScanStep {
    /// Continue with the next key.
    Next,
    /// Continue with the first key at or behind this one.
    SkipTo(Bytes),
    /// Stop.
    Stop,
}

/// The end of a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScanEnd {
    /// The whole range was visited.
    Complete,
    /// The visitor stopped the scan behind the last key.
    Stopped,
    /// The lease ran out before this key.
    LeaseExpired(Bytes),
}

/// A consistent view of a tree.
pub trait TreeView: Send + Sync + 'static {
    /// The part of an entry that a scan shows.
    type Entry<'a>: TreeEntry;

    /// The last batch that the view sees.
    fn sequence(&self) -> Sequence;

    /// True when a scan of this view has found damage that may have taken entries of its range.
    fn has_met_damage(&self) -> bool;

    /// Visits the unexpired entries of a range that the filter admits, in key order.
    ///
    /// # Errors
    /// Damage is not an error: damaged entries are skipped, and [`TreeView::has_met_damage`] reports it.
    fn scan(
        &self,
        range: &ScanRange,
        filter: &FoldFilter,
        visit: &mut dyn FnMut(&Self::Entry<'_>) -> ScanStep,
    ) -> Result<ScanEnd>;
}

/// An entry at which a scan has arrived.
pub trait TreeEntry {
    /// The key.
    fn key(&self) -> &[u8];

    /// The batch that wrote it.
    fn sequence(&self) -> Sequence;

    /// Fields that folds filter by.
    fn fields(&self) -> &Fields;

    /// Bytes that the tree's user keeps with the head.
    fn extra(&self) -> Bytes;

    /// The head.
    fn head(&self) -> Bytes;

    /// The body, from any place.
    ///
    /// # Errors
    /// [`kvorum_backend::ErrorKind::Corrupt`] when the body is damaged.
    fn body(&self) -> Result<Bytes>;

    /// Bytes that were read with the key: the extra bytes, the head, and a body stored with them.
    fn payload_bytes(&self) -> usize;
}
