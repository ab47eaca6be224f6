//! The facts of an engine that the suite needs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kvorum_backend::{Backend, Capabilities, Result, Status};
use kvorum_disk::{Disk, MemoryDisk};
#[cfg(feature = "planted-defects")]
use kvorum_disk::{Fault, FaultyDisk, Operation, Rule};
#[cfg(feature = "planted-defects")]
use kvorum_planted_defects::is_planted;

/// Draws a random number; engines use it for their [`kvorum_backend::StoreId`].
pub type DrawNumber = Arc<dyn Fn() -> u64 + Send + Sync>;

/// The arguments of an opening.
#[derive(Clone)]
pub struct Opening {
    pub(crate) disk: Arc<dyn Disk>,
    /// The store's directory; it and the directories above it may not exist yet.
    pub directory: PathBuf,
    /// The number of the settings, below [`EngineUnderTest::variations`].
    pub variation: u32,
    /// Random numbers, determined by the seed.
    pub draw: DrawNumber,
}

impl Opening {
    /// The disk to use, and the only one.
    pub fn disk(&self) -> Arc<dyn Disk> {
        let disk = self.disk.clone();
        #[cfg(feature = "planted-defects")]
        let disk = forgetful(disk);
        disk
    }

    /// The same on another disk.
    pub(crate) fn on(&self, disk: MemoryDisk) -> Self {
        Self {
            disk: Arc::new(disk),
            ..self.clone()
        }
    }
}

/// The disk with the planted defect: a directory that is not synced, or a rename before a sync. The
/// defect lies below every tested engine, so that the engine's own code is tested.
#[cfg(feature = "planted-defects")]
fn forgetful(disk: Arc<dyn Disk>) -> Arc<dyn Disk> {
    let forgotten = Rule::new(Fault::Forgotten);
    let rule = if is_planted!(DirectoryNotSynced) {
        forgotten.on(Operation::SyncDirectory)
    } else if is_planted!(RenameBeforeSync) {
        forgotten.on(Operation::Sync).path_ends_with(".tmp")
    } else {
        return disk;
    };
    let disk = FaultyDisk::new(disk);
    disk.add_rule(rule);
    Arc::new(disk)
}

/// An engine, as its tests present it to the suite.
pub trait EngineUnderTest: Sync {
    /// The engine's name, for reports.
    fn name(&self) -> &str;

    /// The declared powers of the engine. Crash, fault and damage groups are empty for one without
    /// persistence.
    fn capabilities(&self) -> Capabilities;

    /// Opens the store, creating it if it is missing. The previous instance was closed or dropped before.
    fn open(&self, opening: &Opening) -> Result<Box<dyn Backend>>;

    /// The directories of a store with this opening: all of their files are damaged in turn.
    fn directories(&self, opening: &Opening) -> Vec<PathBuf> {
        vec![opening.directory.clone()]
    }

    /// The number of settings worth testing. Choose small sizes, so that a script of some dozen
    /// writes of up to 4 KB each fills several files and merges do something.
    fn variations(&self) -> u32 {
        1
    }

    /// The most keys that one flipped byte of a closed store may make unreadable. A store that
    /// refuses to open counts as `usize::MAX`.
    fn keys_lost_per_flip_max(&self) -> usize {
        1
    }

    /// True when a closed store reports a cut file: by an error, or as a [`kvorum_backend::LostRange`].
    fn reports_truncation(&self) -> bool {
        true
    }

    /// True when files name the store that they belong to, so that another store's files are
    /// detected. Only spikes and test engines may return false.
    fn names_its_files(&self) -> bool {
        true
    }

    /// Files that are not damaged after the death of the process, as `*.EXTENSION` or `DIRECTORY/`:
    /// they may have a torn end, which looks like damage. The suite compares them with the list in
    /// `docs/scenarios.md`. After the store was closed all files are damaged.
    fn left_out_after_kill(&self) -> &'static [&'static str] {
        &[]
    }

    /// The directory of a log, with files in the order of their names. If the process was killed,
    /// the last file with records may end in a torn batch, and looks like a file that was cut.
    fn log_directory(&self) -> Option<&Path> {
        None
    }

    /// True when the store is known to lack writes, so that it answers no reads until it is
    /// repaired as a whole: then any key may lack its latest value.
    fn is_incomplete(&self, _status: &Status) -> bool {
        false
    }

    /// True if the engine cannot distinguish some keys until their records are read, so that it may
    /// mistake a removed key for the key of a damaged record.
    fn keys_collide(&self, _variation: u32) -> bool {
        false
    }

    /// True when a byte that the device returns wrongly in one read is detected in that read.
    /// Spikes may return false, shipped engines return true.
    fn checks_every_read(&self) -> bool {
        true
    }

    /// True for an engine that never ships: its long run is no longer than a quick one.
    fn is_spike(&self) -> bool {
        false
    }

    /// The factor by which opening, copying and crashing of a store is slower than for a store of a
    /// few small files. A quick run makes that many times fewer trials.
    fn slowness(&self) -> usize {
        1
    }

    /// True when the ticket of a put with the store's default durability means that it is durable.
    /// False when it only means that the put survives the end of the process, as in a store that
    /// queues puts and syncs at intervals or never.
    fn default_tickets_are_durable(&self, _variation: u32) -> bool {
        true
    }

    /// True when a full disk stops puts only: refused ones are not visible, reads still work, puts resume
    /// by themselves, and the store can be opened meanwhile. Shipped engines return true with files of
    /// their own. Over a value log it is false, since queued puts may be visible when the disk refuses
    /// them; the other requirements have tests of their own. Spikes may return false.
    fn works_on_a_full_disk(&self) -> bool {
        true
    }
}
