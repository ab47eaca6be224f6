//! The store of hints: a vnode beside the ring's, with leases of its own.

use std::path::Path;
use std::sync::Arc;

use kvorum_backend::Backend;
use kvorum_coordinator::VnodeHints;
use kvorum_disk::{Disk, create_directory_durably};
use kvorum_ring::{Epoch, Partition};
use kvorum_runtime::Runtime;
use kvorum_vnode::{LeaseTable, Vnode, VnodeSettings};

use crate::error::OpenError;

/// Reads a table of leases, and logs a failure to read it.
pub(crate) fn open_leases(
    disk: &Arc<dyn Disk>,
    directory: &Path,
    runtime: &Runtime,
) -> Result<Arc<LeaseTable>, OpenError> {
    create_directory_durably(&**disk, directory)?;
    let opened = LeaseTable::open(disk.clone(), directory, runtime.randomness())?;
    let (leases, unreadable) = opened;
    if let Some(unreadable) = unreadable {
        tracing::warn!(
            event = "dot_leases_unreadable",
            kept_as = %unreadable.kept_as.display(),
            reason = %unreadable.reason,
            "every vnode gets a fresh actor",
        );
    }
    Ok(Arc::new(leases))
}

/// The hints on their store. Their vnode's partition names nothing: no other vnode is in their table of
/// leases.
pub(crate) fn open_hints(
    store: Arc<dyn Backend>,
    leases: &Arc<LeaseTable>,
    settings: VnodeSettings,
) -> Result<Arc<VnodeHints>, OpenError> {
    let partition = Partition::FIRST;
    let vnode = Vnode::new(partition, Epoch::FIRST, store, leases.clone(), settings);
    leases.renew()?;
    Ok(Arc::new(VnodeHints::new(vnode)))
}
