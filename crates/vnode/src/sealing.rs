//! The end of a run: the leases of vnodes that were closed in order.

use kvorum_disk::DiskError;

use crate::lease_table::LeaseTable;
use crate::vnode::Vnode;

impl LeaseTable {
    /// Lets these vnodes continue under their actors in the next run. Must be called last: their stores are
    /// closed without an error, all data is durable, and none is written to again. Blocks for a sync.
    pub fn seal<'a>(&self, vnodes: impl IntoIterator<Item = &'a Vnode>) -> Result<(), DiskError> {
        let sealed = vnodes.into_iter().map(|vnode| {
            let sequence = vnode.backend.durable();
            (vnode.partition(), sequence, &*vnode.dots)
        });
        self.seal_sources(sealed)
    }
}
