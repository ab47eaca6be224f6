//! The stores in a node's record, for tools that inspect a stopped node.

use std::collections::BTreeMap;
use std::path::Path;

use kvorum_backend::StoreId;
use kvorum_disk::{Disk, DiskError};
use kvorum_ring::{NodeId, Partition, RingSize};

use crate::card;
use crate::store_list;

/// The stores in the record of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedStores {
    /// The size of their ring.
    pub size: RingSize,
    /// Their identities.
    pub stores: BTreeMap<Partition, StoreId>,
    /// The record names its node, as earlier versions did not.
    pub names_node: bool,
}

/// The stores in the record of a directory, without stores that were never opened. For tools that
/// inspect a stopped node; changes nothing.
///
/// # Errors
/// Errors of the disk.
pub fn known_stores(
    disk: &dyn Disk,
    directory: &Path,
) -> Result<Option<RecordedStores>, DiskError> {
    let cards = card::nodes_of_cards(disk, directory)?;
    let is_own = |node: NodeId| cards.is_empty() || cards.contains(&node);
    let record = store_list::newest_record(disk, directory, is_own)?;
    Ok(record.map(|(held, names_node)| {
        let stores = held.stores.into_iter().filter(|(_, it)| it.is_real());
        RecordedStores {
            size: held.size,
            stores: stores
                .map(|(partition, it)| (partition, it.store))
                .collect(),
            names_node,
        }
    }))
}
