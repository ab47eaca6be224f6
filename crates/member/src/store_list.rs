//! The record of this node's stores: the partitions, the epoch at which each was opened first, and the
//! identity of its store.
//!
//! A store is dropped when its partition has settled elsewhere, but a crash may prevent that. The
//! remaining store must not pass for the store of a later move back: it may have keys whose
//! tombstones are gone on all other replicas. This record distinguishes the two.
//!
//! A partition may also be opened with another store than before: its directory is gone, the
//! backend has changed, or the store is kept in memory. A key that such a store lacks must not pass
//! for a key that was never written. So the record has the identity of the store that lacks
//! nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use kvorum_backend::StoreId;
use kvorum_disk::{Disk, DiskError};
use kvorum_ring::{Epoch, NodeId, Partition, RingSize};
use parking_lot::Mutex;

use crate::checked_file::{CheckedFile, Found, OWNER_WORD};
use crate::generation;

/// The stores of one ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoreList {
    pub(crate) size: RingSize,
    pub(crate) since: BTreeMap<Partition, Epoch>,
    /// The recorded stores; a record of an earlier version has none.
    pub(crate) stores: BTreeMap<Partition, Known>,
}

/// The recorded store of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) store: StoreId,
    /// The store has everything that this replica has acknowledged.
    pub(crate) is_complete: bool,
}

impl Known {
    /// No store is expected: any store that is found lacks something.
    pub(crate) const NOTHING: Self = Self {
        store: StoreId(0),
        is_complete: false,
    };

    /// The same for a store that a transfer will fill: there was none before.
    pub(crate) const NEW: Self = Self {
        store: StoreId(1),
        is_complete: false,
    };

    /// True when this is the identity of a real store.
    pub(crate) fn is_real(self) -> bool {
        ![Self::NOTHING.store, Self::NEW.store].contains(&self.store)
    }

    /// The entry of a partition whose first store is not open yet.
    pub(crate) const fn nothing(is_new: bool) -> Self {
        if is_new { Self::NEW } else { Self::NOTHING }
    }
}

impl StoreList {
    /// No stores yet.
    pub(crate) fn none(size: RingSize) -> Self {
        Self {
            size,
            since: BTreeMap::new(),
            stores: BTreeMap::new(),
        }
    }

    /// The recorded identity of a partition's store, if there was one.
    pub(crate) fn identity(&self, partition: Partition) -> Option<StoreId> {
        let known = self.stores.get(&partition).filter(|known| known.is_real());
        known.map(|known| known.store)
    }

    /// The recorded identities of stores.
    pub(crate) fn identities(&self) -> BTreeSet<StoreId> {
        let known = self.stores.values().filter(|known| known.is_real());
        known.map(|known| known.store).collect()
    }

    /// Expects none of the recorded stores any more: any store that is found will lack something.
    pub(crate) fn expect_none(&mut self) {
        let real = self.stores.values_mut().filter(|known| known.is_real());
        real.for_each(|known| *known = Known::NOTHING);
    }

    pub(crate) fn remove(&mut self, partition: Partition) {
        self.since.remove(&partition);
        self.stores.remove(&partition);
    }

    /// True when a recorded store still lacks something.
    pub(crate) fn lacks_something(&self) -> bool {
        self.stores.values().any(|known| !known.is_complete)
    }
}

/// The file that keeps the record of a node.
pub(crate) fn file(directory: &Path, node: NodeId) -> CheckedFile {
    file_in(directory).of(node)
}

/// The record on disk.
pub(crate) struct HeldFile {
    disk: Arc<dyn Disk>,
    file: CheckedFile,
    sequence: Mutex<u64>,
}

impl HeldFile {
    /// The record of a node.
    pub(crate) fn new(disk: Arc<dyn Disk>, directory: &Path, node: NodeId) -> Self {
        Self {
            disk,
            file: file(directory, node),
            sequence: Mutex::new(0),
        }
    }

    /// The record; `None` if it is missing or all its files are damaged: every store is then
    /// accepted as it is. Another node's record counts as damaged. An unreadable record is an
    /// error, since the next save would replace it.
    pub(crate) fn load(&self) -> Result<Option<StoreList>, DiskError> {
        match self.file.load(&*self.disk)? {
            Found::Nothing => {
                // The generation is written after the record, so it shows that the record was there.
                let later = self.file.path().with_file_name(generation::NAME);
                if self.disk.info(&later)?.is_some() {
                    tracing::warn!(event = "record_of_stores_missing", file = %self.file.path().display());
                }
                Ok(None)
            }
            Found::Content {
                sequence,
                body,
                stale,
            } => {
                if let Some(stale) = stale {
                    tracing::warn!(event = "record_of_stores_mended", file = %stale.display());
                }
                *self.sequence.lock() = sequence;
                Ok(parse(&body))
            }
            Found::Damaged => {
                tracing::warn!(event = "record_of_stores_unreadable", file = %self.file.path().display());
                Ok(None)
            }
        }
    }

    pub(crate) fn store(&self, held: &StoreList) -> Result<(), DiskError> {
        let mut sequence = self.sequence.lock();
        *sequence += 1;
        self.file.store(&*self.disk, *sequence, &text(held))
    }
}

fn file_in(directory: &Path) -> CheckedFile {
    CheckedFile::new(directory, "stores", "kvorum stores of this node")
}

/// The nodes that the record's copies in a directory belong to.
pub(crate) fn nodes_of_records(
    disk: &dyn Disk,
    directory: &Path,
) -> Result<BTreeSet<NodeId>, DiskError> {
    let bodies = file_in(directory).bodies(disk)?;
    Ok(bodies.iter().filter_map(|body| node_of(body)).collect())
}

/// The newest record in a directory whose node satisfies `is_own`, and true when the record names its
/// node. Repairs nothing.
pub(crate) fn newest_record(
    disk: &dyn Disk,
    directory: &Path,
    is_own: impl Fn(NodeId) -> bool,
) -> Result<Option<(StoreList, bool)>, DiskError> {
    let is_own_body = |body: &str| node_of(body).is_none_or(&is_own);
    let body = file_in(directory).newest_own(disk, is_own_body)?;
    Ok(body.and_then(|body| Some((parse(&body)?, node_of(&body).is_some()))))
}

/// The node of a record; an earlier version did not write it.
fn node_of(body: &str) -> Option<NodeId> {
    let line = body.lines().next()?;
    line.strip_prefix(OWNER_WORD)?.parse().ok()
}

/// The record as text: the size of the ring, then a line for each partition: its number, its epoch, the
/// identity of its store in decimal, and its completeness. The file names the record's node.
fn text(held: &StoreList) -> String {
    let mut text = format!("ring {}\n", held.size.get());
    for (partition, epoch) in &held.since {
        let number = partition.number();
        let _infallible = match held.stores.get(partition) {
            Some(Known { store, is_complete }) => {
                let word = if *is_complete {
                    "complete"
                } else {
                    "incomplete"
                };
                writeln!(text, "{number} {epoch} {} {word}", store.0)
            }
            None => writeln!(text, "{number} {epoch}"),
        };
    }
    text
}

fn parse(text: &str) -> Option<StoreList> {
    let mut lines = text.lines().peekable();
    let _node = lines.next_if(|line| line.starts_with(OWNER_WORD));
    let size = lines.next()?.strip_prefix("ring ")?.parse().ok()?;
    let size = RingSize::new(size).ok()?;
    let mut held = StoreList::none(size);
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let (number, epoch, known) = match words[..] {
            [number, epoch] => (number, epoch, None),
            [number, epoch, store, word] => {
                let store = StoreId(store.parse().ok()?);
                let is_complete = match word {
                    "complete" => true,
                    "incomplete" => false,
                    _ => return None,
                };
                (number, epoch, Some(Known { store, is_complete }))
            }
            _ => return None,
        };
        let partition = size.partition(number.parse().ok()?)?;
        let epoch = Epoch::new(epoch.parse().ok()?);
        held.since.insert(partition, epoch);
        held.stores.extend(known.map(|known| (partition, known)));
    }
    Some(held)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_back() {
        let size = RingSize::new(16).unwrap();
        let partition = |number| size.partition(number).unwrap();
        let since =
            [(3, 1), (7, 2), (15, 8)].map(|(number, epoch)| (partition(number), Epoch::new(epoch)));
        let stores = [(3, true), (15, false)].map(|(number, is_complete)| {
            let store = StoreId(u64::MAX - u64::from(number));
            (partition(number), Known { store, is_complete })
        });
        let held = StoreList {
            size,
            since: since.into(),
            stores: stores.into(),
        };
        let node = NodeId::from_bytes([7; 16]);
        let earlier = text(&held);
        let owned = format!("{OWNER_WORD}{node}\n{earlier}");
        assert_eq!(
            (parse(&owned), node_of(&owned)),
            (Some(held.clone()), Some(node))
        );
        assert_eq!((parse(&earlier), node_of(&earlier)), (Some(held), None));
        assert_eq!(parse("ring 16\n16 1\n"), None);
        assert_eq!(parse("ring 16\n1 1 7 perhaps\n"), None);
        assert_eq!(parse("ring 5\n"), None);
    }
}
