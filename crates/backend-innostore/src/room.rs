//! Room for rewrites on a disk with little free space.
//!
//! A rewrite of scattered changes writes most of its tree again. The former pages take space until
//! their files are emptied, which needs room for copies first. Rewrites of several stores could
//! take the last free bytes together, and after that no file could be emptied. So memory stays where
//! it is, with the log behind it, until there is room to move it and to empty a file, or until
//! emptying has failed again and again for want of room.

use std::sync::atomic::Ordering;

use kvorum_backend::{BackendError, ErrorKind, Result};

use crate::store::Store;

/// Pages that a change may cause to be written at most: a leaf, its neighbour, and two copies of
/// the branch above them. Further branches are shared.
const PAGES_OF_A_CHANGE: u64 = 4;
/// The part of a tree that is enough for the branches above moved leaves.
const BRANCHES_PART: u64 = 16;

/// The most that moving memory to pages writes, in bytes.
pub(crate) fn bytes_to_move(store: &Store) -> u64 {
    let version = store.version.load();
    let entries: u64 = version.overlays().map(|it| it.entries()).sum();
    let page_bytes = u64::try_from(store.settings.page_bytes).unwrap_or(u64::MAX);
    let pages = entries.saturating_mul(PAGES_OF_A_CHANGE.saturating_mul(page_bytes));
    pages.min(store.tree_bytes.load(Ordering::Relaxed)) + version.dirty_bytes()
}

/// The most that emptying files writes, in bytes, if this much in them is live.
pub(crate) fn bytes_to_leave(store: &Store, live_bytes: u64) -> u64 {
    live_bytes + store.tree_bytes.load(Ordering::Relaxed) / BRANCHES_PART
}

/// Refuses to begin to move memory if space is scarce and there is no room for it beside other
/// rewrites and the emptying of files, which needs `leaving_bytes`.
///
/// # Errors
/// [`ErrorKind::Full`].
pub(crate) fn check(store: &Store, leaving_bytes: Option<u64>) -> Result<()> {
    let headroom = store.intake.headroom();
    let others = store.shared.claims.bytes() + leaving_bytes.unwrap_or(0);
    // Without others nothing makes room before this does, and the need is estimated from above.
    if !headroom.is_scarce() || others == 0 {
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
