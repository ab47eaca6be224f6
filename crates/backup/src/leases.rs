//! The vnodes' dot leases and kept trees, which no copy of a node may continue.

use std::path::Path;

use kvorum_disk::Disk;
use kvorum_vnode::{LEASES_NAME, remove_kept_trees};

/// Removes all leases and kept trees, durably: vnodes then take fresh actors and rebuild their
/// trees.
pub(crate) fn remove_leases(
    disk: &dyn Disk,
    data: &Path,
    ring_directory: &Path,
) -> anyhow::Result<()> {
    for directory in [data, &ring_directory.join("hints")] {
        if kvorum_disk::remove_if_there(disk, &directory.join(LEASES_NAME))? {
            disk.sync_directory(directory)?;
        }
    }
    remove_kept_trees(disk, data)?;
    Ok(())
}
