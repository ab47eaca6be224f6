//! Which stores this node has: the partitions, and the epoch at which each was opened first.
//!
//! A store is dropped when its partition has settled elsewhere; a crash may come before. What is left
//! then must not be taken for the store of a later move back: it knows deleted keys that everybody
//! else has forgotten. This record tells them apart.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use kvorum_disk::{Disk, DiskError};
use kvorum_ring::{Epoch, Partition, RingSize};
use parking_lot::Mutex;

use crate::checked_file::{CheckedFile, Found};

/// The stores of one ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) size: RingSize,
    pub(crate) since: BTreeMap<Partition, Epoch>,
}

/// The record on disk.
pub(crate) struct HeldFile {
    disk: Arc<dyn Disk>,
    file: CheckedFile,
    sequence: Mutex<u64>,
}

impl HeldFile {
    pub(crate) fn new(disk: Arc<dyn Disk>, directory: &Path) -> Self {
        Self {
            disk,
            file: CheckedFile::new(directory, "stores", "kvorum stores of this node"),
            sequence: Mutex::new(0),
        }
    }

    /// The record; `None` where there is none, or none that can be read: then every store is taken as
    /// it is.
    pub(crate) fn load(&self) -> Result<Option<Held>, DiskError> {
        match self.file.load(&*self.disk)? {
            Found::Nothing => Ok(None),
            Found::Content { sequence, body, .. } => {
                *self.sequence.lock() = sequence;
                Ok(parse(&body))
            }
            Found::Damaged => {
                tracing::warn!(event = "record_of_stores_unreadable", file = %self.file.path().display());
                Ok(None)
            }
        }
    }

    pub(crate) fn store(&self, held: &Held) -> Result<(), DiskError> {
        let mut sequence = self.sequence.lock();
        *sequence += 1;
        self.file.store(&*self.disk, *sequence, &text(held))
    }
}

fn text(held: &Held) -> String {
    let mut text = format!("ring {}\n", held.size.get());
    for (partition, epoch) in &held.since {
        let _infallible = writeln!(text, "{} {epoch}", partition.number());
    }
    text
}

fn parse(text: &str) -> Option<Held> {
    let mut lines = text.lines();
    let size = lines.next()?.strip_prefix("ring ")?.parse().ok()?;
    let size = RingSize::new(size).ok()?;
    let mut since = BTreeMap::new();
    for line in lines {
        let (number, epoch) = line.split_once(' ')?;
        let partition = size.partition(number.parse().ok()?)?;
        since.insert(partition, Epoch::new(epoch.parse().ok()?));
    }
    Some(Held { size, since })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_back() {
        let size = RingSize::new(16).unwrap();
        let since = [(3, 1), (15, 8)]
            .map(|(number, epoch)| (size.partition(number).unwrap(), Epoch::new(epoch)));
        let held = Held {
            size,
            since: since.into(),
        };
        assert_eq!(parse(&text(&held)), Some(held));
        assert_eq!(parse("ring 16\n16 1\n"), None);
        assert_eq!(parse("ring 5\n"), None);
    }
}
