//! Where stores come from: whoever builds a member knows engines and commit logs, a member does not.

use std::error::Error;
use std::sync::Arc;

use kvorum_backend::Backend;
use kvorum_ring::{Partition, RingSize};

/// What went wrong with a store, in the words of whoever opens it.
pub type StoreError = Box<dyn Error + Send + Sync>;

/// Opens and removes the stores of a node. All methods block.
pub trait Stores: Send + Sync {
    /// Opens the stores that the node has when it starts, and that of its hints, and makes good what
    /// an earlier run logged for them. Called once, before everything else but
    /// [`Stores::remove`].
    fn open_first(
        &self,
        size: RingSize,
        partitions: &[Partition],
    ) -> Result<FirstStores, StoreError>;

    /// Opens the store of a partition that the node takes over, creating it.
    fn open(&self, size: RingSize, partition: Partition) -> Result<Arc<dyn Backend>, StoreError>;

    /// Removes what there is of a partition's store: `open`, or only files of an earlier run.
    fn remove(
        &self,
        size: RingSize,
        partition: Partition,
        open: Option<Arc<dyn Backend>>,
    ) -> Result<(), StoreError>;
}

/// What [`Stores::open_first`] opens.
pub struct FirstStores {
    /// The stores of the partitions.
    pub partitions: Vec<(Partition, Arc<dyn Backend>)>,
    /// The store of the hints.
    pub hints: Arc<dyn Backend>,
}
