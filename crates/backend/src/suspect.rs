//! The mark of a failed sync in a store, so that the next opening rewrites the pages that the cache
//! may show and the device may lack.
//!
//! Only this machine's page cache has to show it: a crash loses it together with the pages that it
//! is about. So it is not synced itself.

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
