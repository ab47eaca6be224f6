//! Everything that a read looks at.

use std::sync::Arc;

use kvorum_page_tree::Tree;

use crate::overlay::Overlay;

/// What there is at a moment. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Version {
    /// What is put goes here.
    pub(crate) overlay: Arc<Overlay>,
    /// What a rewrite merges into the tree.
    pub(crate) frozen: Option<Arc<Overlay>>,
    pub(crate) tree: Tree,
    /// Counts overlays that were frozen, and erasures.
    pub(crate) frozen_count: u64,
}

impl Version {
    /// What is in memory alone, newest first.
    pub(crate) fn overlays(&self) -> impl Iterator<Item = &Arc<Overlay>> {
        std::iter::once(&self.overlay).chain(&self.frozen)
    }

    /// What that takes, in bytes.
    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.overlays().map(|it| it.bytes()).sum()
    }

    /// True when nothing is in memory alone.
    pub(crate) fn is_clean(&self) -> bool {
        self.overlays().all(|it| it.is_empty())
    }
}
