//! Hides the entries of a store, removes them page by page, or shows them again.
//!
//! Hidden entries are absent for reads, for merges with what comes in, for scans and for trees.
//! Listings and index queries need no rule: a vnode that hides something is incomplete and answers
//! none.

use bytes::Bytes;
use kvorum_backend::{FoldDetail, ReadAt, Reading, Sequence, Visited};
use kvorum_encoding::{StorageKey, page_of_key};
use kvorum_object::DecodeError;
use kvorum_reaping::Extent;

use crate::page::PageFailure;
use crate::scanning::{ScanRequest, Scanned};
use crate::vnode::{Interrupted, Vnode};

struct HiddenKey(StorageKey);

impl Scanned for HiddenKey {
    const DETAIL: FoldDetail = FoldDetail::Keys;
    const SHOWS_PAGES: bool = true;

    fn of(visited: &Visited<'_>) -> Result<Self, DecodeError> {
        Ok(Self(visited.key.clone()))
    }
}

/// A page of hidden entries that were removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HiddenPage {
    /// The hidden entries of the page.
    pub entries: u64,
    /// The beginning of the next page; `None` when this was the last.
    pub next: Option<StorageKey>,
}

impl Vnode {
    /// Hides the entries of these batches; the vnode is incomplete from now on, and its trees are
    /// to be built anew. A store of several backends cannot hide: its batches have no order.
    /// Returns when no write under way has read one of them. Blocks.
    ///
    /// Observers are not informed that hidden entries are gone. The actor changes: a write over a hidden
    /// entry would claim to have seen it, and other replicas would drop theirs.
    pub fn hide(&self, extent: Extent) {
        self.mark_incomplete();
        self.hidden.set(extent);
        self.change_actor("hides entries");
        self.await_earlier_writes();
        self.drop_trees();
    }

    /// Removes hidden entries of a page. Removals are not synced. Blocks.
    ///
    /// # Errors
    /// When the store fails, or the lease ended before the first key. Earlier removals stay in
    /// effect.
    pub fn remove_hidden_page(&self, request: &ScanRequest) -> Result<HiddenPage, PageFailure> {
        let is_hidden = &mut |visited: &Visited<'_>| self.hides(visited.sequence);
        let page = self.scan_visited::<HiddenKey>(request, |_| {}, is_hidden)?;
        let at = ReadAt {
            reading: Reading::MayBlock,
            now: request.clock.now(),
        };
        for HiddenKey(key) in &page.entries {
            let removed = match page_of_key(key.as_bytes()) {
                None => self.remove_hidden(key, at),
                Some((object, number)) => {
                    let object = StorageKey::from_encoded(Bytes::copy_from_slice(object));
                    self.remove_hidden_page_of((&object, number), at)
                }
            };
            removed.map_err(Interrupted::into_failure)?;
        }
        Ok(HiddenPage {
            entries: page.entries.len() as u64,
            next: page.next,
        })
    }

    /// Shows hidden entries that were not removed; the trees are to be built again.
    pub fn show_hidden(&self) {
        self.hidden.clear();
        self.drop_trees();
    }

    pub(crate) fn hides(&self, written_by: Sequence) -> bool {
        self.hidden.has(self.backend.identity(), written_by)
    }
}
