//! Removes tombstones that may go, a page at a time.
//!
//! The caller decides which may: those within the mark of a completed round (decision 37). Each is
//! read again under its key's lock, and removed from the store and from its tree. A tombstone has
//! no index entries, since its put has removed those of the value.

use kvorum_backend::{FoldClock, FoldDetail, FoldRange, Lease, ReadAt, Reading, Sequence, Visited};
use kvorum_encoding::StorageKey;
use kvorum_object::DecodeError;
use kvorum_ring::Epoch;

use crate::page::PageFailure;
use crate::scanning::{ScanLimits, ScanRequest, Scanned};
use crate::stored_form::TOMBSTONE_TAG;
use crate::vnode::{Interrupted, Vnode};

/// A page of entries whose tombstones may be removed.
#[derive(Clone, Debug)]
pub struct ReapRequest {
    /// The partition's epoch in the ring of the round.
    pub epoch: Epoch,
    /// The keys of the page. The next page begins at [`ReapPage::next`].
    pub range: FoldRange,
    /// The time of the removals, and of the lease.
    pub clock: FoldClock,
    /// The time limit for reading the page.
    pub lease: Lease,
    /// The most entries to look at, tombstones or not.
    pub entries_max: usize,
}

/// The outcome of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReapPage {
    /// Entries of the page.
    pub entries: u64,
    /// Tombstones among them.
    pub tombstones: u64,
    /// Tombstones that were removed.
    pub reaped: u64,
    /// The beginning of the next page; `None` when this was the last.
    pub next: Option<StorageKey>,
}

/// The needed part of an entry: its key, and for a tombstone the batch that wrote it.
struct Candidate(StorageKey, Option<Sequence>);

impl Scanned for Candidate {
    const DETAIL: FoldDetail = FoldDetail::Keys;

    fn of(visited: &Visited<'_>) -> Result<Self, DecodeError> {
        let is_tombstone = visited.fields.tag == TOMBSTONE_TAG;
        let written_by = is_tombstone.then_some(visited.sequence);
        Ok(Self(visited.key.clone(), written_by))
    }
}

impl Vnode {
    /// Removes the tombstones of a page that `may_go` admits by the batch that wrote them. In a
    /// store of several backends, that is a batch of the entry's own backend. Removals are not
    /// synced: a crash that undoes one leaves the tombstone. Blocks.
    ///
    /// # Errors
    /// When the store fails, the lease ended before the first key, or the epoch has
    /// passed. Earlier removals stay in effect.
    pub fn reap_page(
        &self,
        request: &ReapRequest,
        may_go: &mut dyn FnMut(&StorageKey, Sequence) -> bool,
    ) -> Result<ReapPage, PageFailure> {
        self.check_epoch(request.epoch)?;
        let scan = ScanRequest {
            range: request.range.clone(),
            clock: request.clock.clone(),
            lease: request.lease,
            limits: ScanLimits {
                entries_max: request.entries_max.max(1),
                ..ScanLimits::NONE
            },
        };
        let scanned = self.scan::<Candidate>(&scan, &mut |_| true)?;
        let mut page = ReapPage {
            entries: scanned.entries.len() as u64,
            next: scanned.next,
            ..ReapPage::default()
        };
        let at = ReadAt {
            reading: Reading::MayBlock,
            now: request.clock.now(),
        };
        for Candidate(key, written_by) in scanned.entries {
            let Some(written_by) = written_by else {
                continue;
            };
            page.tombstones += 1;
            if may_go(&key, written_by) {
                let reaped = self.reap_written(&key, written_by, request.epoch, at);
                page.reaped += u64::from(reaped.map_err(Interrupted::into_failure)?);
            }
        }
        Ok(page)
    }
}
