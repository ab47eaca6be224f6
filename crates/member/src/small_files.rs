//! The member's own small files, looked at while the node does not run: is one missing, or of another node?

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use kvorum_backend::StoreId;
use kvorum_disk::{Disk, DiskError};
use kvorum_ring::{NodeId, Partition, RingSize};

use crate::card;
use crate::held;

/// Each is kept twice.
const KEPT_TWICE: [&str; 3] = ["card", "stores", "generation"];

/// What is wrong with one of them: its name, and what it is, in words.
pub type SmallFileFinding = (String, String);

/// Looks which of the member's small files in a directory are missing or of another node. Their checksums
/// are looked at elsewhere. Nothing is written.
///
/// # Errors
/// Those of the disk.
pub fn check_small_files(
    disk: &dyn Disk,
    directory: &Path,
) -> Result<Vec<SmallFileFinding>, DiskError> {
    let mut findings = Vec::new();
    for name in KEPT_TWICE {
        let copy = format!("{name}.copy");
        let is_there = |name: &str| Ok(disk.info(&directory.join(name))?.is_some());
        let there: [bool; 2] = [is_there(name)?, is_there(&copy)?];
        let missing = [name, &copy].into_iter().zip(there).filter(|it| !it.1);
        let what = match there {
            [false, false] => "the file and its copy are missing",
            _ => "the file is missing, and its copy is there",
        };
        // Of one that is missing altogether, one finding is enough.
        let count = usize::from(there != [true, true]);
        findings.extend(
            missing
                .take(count)
                .map(|it| (it.0.to_owned(), what.to_owned())),
        );
    }
    let cards = card::nodes_of_cards(disk, directory)?;
    let records = held::nodes_of_records(disk, directory)?;
    for (name, nodes) in [("card", &cards), ("stores", &records)] {
        if nodes.len() > 1 {
            let what = format!("the file and its copy are of two nodes: {}", listed(nodes));
            findings.push((name.to_owned(), what));
        }
    }
    if !cards.is_empty() && !records.is_empty() && cards.is_disjoint(&records) {
        let what = format!(
            "it is of {}, and the card of {}",
            listed(&records),
            listed(&cards)
        );
        findings.push(("stores".to_owned(), what));
    }
    Ok(findings)
}

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

fn listed(nodes: &BTreeSet<NodeId>) -> String {
    let names: Vec<String> = nodes.iter().map(NodeId::to_string).collect();
    names.join(" and ")
}
