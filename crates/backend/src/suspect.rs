//! The mark that a sync of a store failed, so that the next opening writes again what the page cache may
//! show and the device never got.
//!
//! It has to be seen by this machine's page cache only: what a crash forgets, it forgets together with
//! the pages that the mark warns of. So it is not synced itself.

use std::path::Path;

use kvorum_disk::{Disk, OpenMode};

/// The file, in the store's directory.
pub const SUSPECT_NAME: &str = "suspect";

/// Leaves the mark, if the disk lets it.
pub fn mark_suspect(disk: &dyn Disk, directory: &Path) {
    if let Ok(mark) = disk.open(&directory.join(SUSPECT_NAME), OpenMode::Create) {
        let _marked_or_failing_disk = mark.write_at(b"sync failed\n", 0);
    }
}
