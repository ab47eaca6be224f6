//! Room for rewrites on a disk with little free space.
//!
//! A rewrite of scattered changes writes most of its tree again. The old pages take space until
//! their files are emptied, which needs room for copies first. Rewrites of several stores could
//! take the last free bytes together, and after that no file could be emptied. So memory stays where
//! it is, with the log behind it, until there is room to move it and to empty a file, or until
//! emptying has failed again and again for want of room.

use std::sync::atomic::Ordering;

use kvorum_backend::{BackendError, ErrorKind, Result};

use crate::store::Store;

/// The most pages written for a change: a leaf, its neighbour, and two copies of the branch above
/// them. Changes share further branches.
const PAGES_OF_A_CHANGE: u64 = 4;
/// The branches above moved leaves take at most the tree's bytes divided by this.
const BRANCHES_PART: u64 = 16;

/// The most bytes that moving memory to pages writes.
pub(crate) fn bytes_to_move(store: &Store) -> u64 {
    let version = store.version.load();
    let entries: u64 = version.overlays().map(|it| it.entries()).sum();
    let page_bytes = u64::try_from(store.settings.page_bytes).unwrap_or(u64::MAX);
    let pages = entries.saturating_mul(PAGES_OF_A_CHANGE.saturating_mul(page_bytes));
    pages.min(store.tree_bytes.load(Ordering::Relaxed)) + version.dirty_bytes()
}

/// The most bytes that emptying files with this many live bytes writes.
pub(crate) fn bytes_to_leave(store: &Store, live_bytes: u64) -> u64 {
    live_bytes + store.tree_bytes.load(Ordering::Relaxed) / BRANCHES_PART
}

/// Refuses to begin to move memory if there is not enough space for the move, other
/// rewrites, and emptying files, which needs `leaving_bytes`.
///
/// # Errors
/// [`ErrorKind::Full`].
pub(crate) fn check(store: &Store, leaving_bytes: Option<u64>) -> Result<()> {
    let headroom = store.intake.headroom();
    let others = store.shared.claims.bytes() + leaving_bytes.unwrap_or(0);
    // Without other work, no space is freed before this move, and the need is an upper estimate.
    if others == 0 {
        return Ok(());
    }
    let wanted = bytes_to_move(store) + others;
    if headroom.available >= wanted {
        return Ok(());
    }
    let detail = format!(
        "{} needs {wanted} bytes to move its memory to pages while files are emptied, and {} are free",
        store.directory.display(),
        headroom.available
    );
    Err(BackendError::new(ErrorKind::Full, detail))
}
