//! Vnodes over empty stores in memory, with leases of their own.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use kvorum_backend::Backend;
use kvorum_backend_memory::{MemoryBackend, Settings};
use kvorum_disk::{Disk, DiskError};
use kvorum_object::Limits;
use kvorum_ring::{Epoch, Partition};
use kvorum_runtime::Randomness;
use kvorum_vnode::{LeaseTable, Vnode, VnodeSettings};

/// An error in the setup of a test.
pub type Failure = Box<dyn Error + Send + Sync>;

/// Stores for a node's new vnodes.
pub struct MemoryVnodes {
    leases: Arc<LeaseTable>,
    draw: Arc<dyn Fn() -> u64 + Send + Sync>,
    settings: VnodeSettings,
}

impl MemoryVnodes {
    /// Vnodes whose leases are kept in `directory`. `draw` gives stores their identities.
    pub fn new(
        disk: Arc<dyn Disk>,
        directory: &Path,
        randomness: Arc<dyn Randomness>,
        draw: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Result<Self, DiskError> {
        let (leases, _) = LeaseTable::open(disk, directory, randomness)?;
        Ok(Self {
            leases: Arc::new(leases),
            draw: Arc::new(draw),
            settings: VnodeSettings {
                limits: Limits::default(),
            },
        })
    }

    /// The same stores with other limits on objects.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.settings.limits = limits;
        self
    }

    /// A vnode over a new, empty store.
    pub fn open(&self, partition: Partition, epoch: Epoch) -> Result<Vnode, DiskError> {
        let draw = self.draw.clone();
        let backend = MemoryBackend::new(Settings::default(), move || draw());
        self.open_over(partition, epoch, Arc::new(backend))
    }

    /// A vnode over a store.
    pub fn open_over(
        &self,
        partition: Partition,
        epoch: Epoch,
        store: Arc<dyn Backend>,
    ) -> Result<Vnode, DiskError> {
        let leases = self.leases.clone();
        let vnode = Vnode::new(partition, epoch, store, leases, self.settings);
        self.leases.renew()?;
        Ok(vnode)
    }
}
