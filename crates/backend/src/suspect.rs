//! The mark of a failed sync in a store, so that the next opening rewrites the pages that the cache
//! may show and the device may lack.
//!
//! The mark is not synced itself: a crash loses it together with the pages in this machine's page
//! cache that it is about.

use std::path::Path;

use kvorum_disk::{Disk, OpenMode};

/// The file, in the store's directory.
pub const SUSPECT_NAME: &str = "suspect";

/// Leaves the mark, if the disk permits it.
pub fn mark_suspect(disk: &dyn Disk, directory: &Path) {
    if let Ok(mark) = disk.open(&directory.join(SUSPECT_NAME), OpenMode::Create) {
        let _marked_or_failing_disk = mark.write_at(b"sync failed\n", 0);
    }
}
