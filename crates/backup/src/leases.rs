//! The vnodes' dot leases, which no copy of a node may continue.

use std::path::Path;

use kvorum_disk::Disk;
use kvorum_vnode::LEASES_NAME;

/// Removes all leases, for good: vnodes take fresh actors then.
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
    Ok(())
}
