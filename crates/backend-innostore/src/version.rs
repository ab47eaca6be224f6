//! The state that a read uses.

use std::sync::Arc;

use kvorum_page_tree::Tree;

use crate::overlay::Overlay;

/// The state at one moment. It is cheap to clone.
#[derive(Clone)]
pub(crate) struct Version {
    /// The overlay for puts.
    pub(crate) overlay: Arc<Overlay>,
    /// The overlay that a rewrite merges into the tree.
    pub(crate) frozen: Option<Arc<Overlay>>,
    pub(crate) tree: Tree,
    /// Counts frozen overlays and erasures.
    pub(crate) frozen_count: u64,
}

impl Version {
    /// The overlays in memory, newest first.
    pub(crate) fn overlays(&self) -> impl Iterator<Item = &Arc<Overlay>> {
        std::iter::once(&self.overlay).chain(&self.frozen)
    }

    /// The memory of the overlays, in bytes.
    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.overlays().map(|it| it.bytes()).sum()
    }

    /// True when no batch is in memory alone.
    pub(crate) fn is_clean(&self) -> bool {
        self.overlays().all(|it| it.is_empty())
    }
}
