//! The stores that a node's record knows of, for tools that look at a node that does not run.

use std::collections::BTreeMap;
use std::path::Path;

use kvorum_backend::StoreId;
use kvorum_disk::{Disk, DiskError};
use kvorum_ring::{NodeId, Partition, RingSize};

use crate::card;
use crate::held;

/// What the record of a node says of its stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedStores {
    /// The ring that they are of.
    pub size: RingSize,
    /// The identities by which they are known.
    pub stores: BTreeMap<Partition, StoreId>,
    /// The record says which node it is of: this version has run here.
    pub names_node: bool,
}

/// The stores that the record in a directory knows of, without those that were never opened. For tools
/// that look at a node that does not run: nothing is mended.
///
/// # Errors
/// Those of the disk.
pub fn known_stores(
    disk: &dyn Disk,
    directory: &Path,
) -> Result<Option<RecordedStores>, DiskError> {
    let cards = card::nodes_of_cards(disk, directory)?;
    let is_own = |node: NodeId| cards.is_empty() || cards.contains(&node);
    let record = held::newest_record(disk, directory, is_own)?;
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
