//! Walking a tree as it was at one moment.

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
    /// With the next key.
    Next,
    /// With the first key at or behind this one.
    SkipTo(Bytes),
    /// Not at all.
    Stop,
}

/// The end of a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScanEnd {
    /// All of the range was visited.
    Complete,
    /// The visitor stopped it behind the last key.
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

    /// True when a scan of this view met a place where damage may have taken entries of its range.
    fn has_met_damage(&self) -> bool;

    /// Visits the unexpired entries of a range that the filter admits, in key order.
    ///
    /// # Errors
    /// Damage is none: damaged entries are skipped, and [`TreeView::has_met_damage`] reports it.
    fn scan(
        &self,
        range: &ScanRange,
        filter: &FoldFilter,
        visit: &mut dyn FnMut(&Self::Entry<'_>) -> ScanStep,
    ) -> Result<ScanEnd>;
}

/// An entry that a scan has come to.
pub trait TreeEntry {
    /// The key.
    fn key(&self) -> &[u8];

    /// The batch that wrote it.
    fn sequence(&self) -> Sequence;

    /// Fields that folds filter by.
    fn fields(&self) -> &Fields;

    /// Bytes that the tree's user keeps beside the head.
    fn extra(&self) -> Bytes;

    /// The head.
    fn head(&self) -> Bytes;

    /// The body, from any place.
    ///
    /// # Errors
    /// [`kvorum_backend::ErrorKind::Corrupt`] when the body is damaged.
    fn body(&self) -> Result<Bytes>;

    /// Bytes that were read with the key: the extra bytes, the head, and a body that is kept with
    /// them.
    fn payload_bytes(&self) -> usize;
}
