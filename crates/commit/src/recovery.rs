//! Recovery: what an earlier run of the node logged goes into the stores that lack it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use kvorum_backend::{Backend, BackendError, Durability, ErrorKind, Result, Sequence, StoreId};
use kvorum_disk::{Disk, EntryKind};
use kvorum_segment::{
    ScanOptions, Scanned, SegmentError, SegmentId, SegmentReader, Tail, file_name, list_segments,
};

use crate::error::{from_disk, from_segment};
use crate::log_record::LogRecord;

/// What recovery found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Batches read from the log.
    pub batches_read: u64,
    /// Batches that a store lacked and was given.
    pub batches_replayed: u64,
    /// Batches of stores that are not open: their partitions left the node, or were erased.
    pub batches_of_unknown_stores: u64,
    /// Bytes at the end of the log that a crash cut short; they were never acknowledged.
    pub torn_bytes: u64,
    /// Places in the log that were durable and are damaged, in words. What they held may be lost.
    pub damage: Vec<String>,
}

/// Reads every log that earlier runs left in `directory`, gives each store what lies above its
/// [`Backend::durable`] sequence, syncs the stores, and removes the logs.
///
/// A store is any backend before new writes reach it. It is safe to be interrupted and run again.
pub fn recover(disk: &dyn Disk, directory: &Path, stores: &[Arc<dyn Backend>]) -> Result<Recovery> {
    kvorum_disk::create_directory_durably(disk, directory).map_err(|error| from_disk(&error))?;
    let mut replay = Replay {
        stores: stores
            .iter()
            .map(|store| (store.identity(), (store.clone(), store.durable())))
            .collect(),
        report: Recovery::default(),
    };
    let generations = generations(disk, directory)?;
    for (name, log_id) in &generations {
        replay.read_generation(disk, &directory.join(name), *log_id)?;
    }
    for (store, _) in replay.stores.values() {
        store.sync()?;
    }
    for (name, _) in &generations {
        disk.remove_directory(&directory.join(name))
            .map_err(|error| from_disk(&error))?;
    }
    disk.sync_directory(directory)
        .map_err(|error| from_disk(&error))?;
    Ok(replay.report)
}

/// The logs of earlier runs: directory name and log id. There is more than one only when a run was
/// interrupted while it recovered; what it then logged itself is nothing, so their order is moot.
fn generations(disk: &dyn Disk, directory: &Path) -> Result<Vec<(String, u64)>> {
    let entries = disk.list(directory).map_err(|error| from_disk(&error))?;
    Ok(entries
        .into_iter()
        .filter(|entry| entry.kind == EntryKind::Directory)
        .filter_map(|entry| {
            let log_id = u64::from_str_radix(&entry.name, 16).ok()?;
            Some((entry.name, log_id))
        })
        .collect())
}

struct Replay {
    stores: BTreeMap<StoreId, (Arc<dyn Backend>, Sequence)>,
    report: Recovery,
}

impl Replay {
    fn read_generation(&mut self, disk: &dyn Disk, directory: &Path, log_id: u64) -> Result<()> {
        let numbers = list_segments(disk, directory).map_err(|error| from_segment(&error))?;
        for number in numbers {
            let path = directory.join(file_name(number));
            let id = SegmentId {
                log_id,
                number,
                kind: 0,
            };
            match self.read_segment(disk, &path, id) {
                Ok(()) => {}
                // A crash while the segment was made leaves a file without a header, and nothing
                // was acknowledged from it.
                Err(SegmentError::Damaged { offset: 0, .. }) => {
                    self.report
                        .damage
                        .push(format!("{} has no header", path.display()));
                }
                Err(error) => return Err(from_segment(&error)),
            }
        }
        Ok(())
    }

    fn read_segment(
        &mut self,
        disk: &dyn Disk,
        path: &Path,
        id: SegmentId,
    ) -> std::result::Result<(), SegmentError> {
        let reader = SegmentReader::open(disk, path, id)?;
        reader.check_header()?;
        let mut scan = reader.scan(ScanOptions::default())?;
        for scanned in &mut scan {
            match scanned? {
                Scanned::Record(record) => {
                    let back = reader.restore(&record)?;
                    if let Err(error) = self.replay_record(&record.head.front, &back) {
                        self.report
                            .damage
                            .push(format!("{}: {error}", path.display()));
                    }
                }
                Scanned::Damage(damage) => self.report.damage.push(format!(
                    "{}: {} bytes at {}: {}",
                    path.display(),
                    damage.len,
                    damage.offset,
                    damage.found
                )),
            }
        }
        if let Some(Tail::Torn { len }) = scan.end().map(|end| end.tail) {
            self.report.torn_bytes += len;
        }
        Ok(())
    }

    fn replay_record(&mut self, front: &bytes::Bytes, back: &bytes::Bytes) -> Result<()> {
        let (store, sequence, batch) = LogRecord::decode(front, back)
            .map_err(|error| BackendError::new(ErrorKind::Corrupt, error.to_string()))?;
        self.report.batches_read += 1;
        let Some((engine, durable)) = self.stores.get(&store) else {
            self.report.batches_of_unknown_stores += 1;
            return Ok(());
        };
        if sequence <= *durable {
            return Ok(());
        }
        let _sequence = engine.put(&batch, Durability::Buffered)?.sequence;
        self.report.batches_replayed += 1;
        Ok(())
    }
}
