//! What the suite has to know of an engine to test it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kvorum_backend::{Backend, Capabilities, Result, Status};
use kvorum_disk::{Disk, MemoryDisk};
#[cfg(feature = "planted-defects")]
use kvorum_disk::{Fault, FaultyDisk, Operation, Rule};
#[cfg(feature = "planted-defects")]
use kvorum_planted_defects::is_planted;

/// Draws a random number; where engines get their [`kvorum_backend::StoreId`] from.
pub type DrawNumber = Arc<dyn Fn() -> u64 + Send + Sync>;

/// What a store is opened with.
#[derive(Clone)]
pub struct Opening {
    pub(crate) disk: Arc<dyn Disk>,
    /// The store's directory; it may not exist yet, nor those above it.
    pub directory: PathBuf,
    /// Which settings to use, below [`EngineUnderTest::variations`].
    pub variation: u32,
    /// Random numbers, the same ones for the same seed.
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

/// The disk with the defect that is planted: a directory that is not synced, or a rename before a
/// sync. It stands below whichever engine is tested, so that the engine's own code is what is tested.
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

/// An engine, as its tests show it to the suite.
pub trait EngineUnderTest: Sync {
    /// The engine's name, for reports.
    fn name(&self) -> &str;

    /// What the engine claims to be able to do. Crash, fault and damage groups are empty for one
    /// that does not persist.
    fn capabilities(&self) -> Capabilities;

    /// Opens the store, creating it if it is missing. The previous one is closed or dropped by then.
    fn open(&self, opening: &Opening) -> Result<Box<dyn Backend>>;

    /// Where a store that was opened like this has its files: all of them are damaged in turn.
    fn directories(&self, opening: &Opening) -> Vec<PathBuf> {
        vec![opening.directory.clone()]
    }

    /// How many settings are worth testing. Choose small sizes, so that a script of some dozen
    /// writes of up to 4 KB each fills several files and merges do something.
    fn variations(&self) -> u32 {
        1
    }

    /// How many keys one flipped byte of a closed store may make unreadable at most. A store that
    /// refuses to open counts as `usize::MAX`.
    fn keys_lost_per_flip_max(&self) -> usize {
        1
    }

    /// True when a closed store that lost the end of a file says so: by an error, or as a
    /// [`kvorum_backend::LostRange`].
    fn reports_truncation(&self) -> bool {
        true
    }

    /// True when files name the store that they belong to, so that another store's files are detected. Only
    /// spikes and engines of tests may return false.
    fn names_its_files(&self) -> bool {
        true
    }

    /// Files that are not damaged after the death of the process, as `*.EXTENSION` or `DIRECTORY/`: their
    /// end may be torn then, and damage cannot be distinguished from that yet. The suite compares them with
    /// the list in `docs/scenarios.md`. All files are damaged after the store was closed.
    fn left_out_after_kill(&self) -> &'static [&'static str] {
        &[]
    }

    /// The directory of a log, its files in the order of their names, of which the last with records may end in
    /// a torn batch after the death of the process: one that is shorter than it was looks like that.
    fn log_directory(&self) -> Option<&Path> {
        None
    }

    /// True when the store is known to lack writes, so that it answers no reads until it is repaired as a
    /// whole: any key may show less than the latest then.
    fn is_incomplete(&self, _status: &Status) -> bool {
        false
    }

    /// True where different keys look alike to the engine until their records are read, so that a removed
    /// key cannot be distinguished from the key of a damaged record.
    fn keys_collide(&self, _variation: u32) -> bool {
        false
    }

    /// True when a byte that the device gets wrong in one read is noticed in that read. Spikes may say
    /// no, what ships says yes.
    fn checks_every_read(&self) -> bool {
        true
    }

    /// True for what never ships: a long run is no longer for it than a quick one.
    fn is_spike(&self) -> bool {
        false
    }

    /// How many times as long a store takes to open, copy and crash as one of a few small files. A
    /// quick run tries that many times less.
    fn slowness(&self) -> usize {
        1
    }

    /// True when a ticket of a put that asked for the store's default says that it is durable. False
    /// when it says that the death of the process cannot lose it: a store that syncs by itself now and
    /// then, or never, and queues what is put to it.
    fn default_tickets_are_durable(&self, _variation: u32) -> bool {
        true
    }

    /// True when a full disk stops puts only: what is refused is not seen, reads go on, puts resume by
    /// themselves, and the store can be opened meanwhile. What ships says yes with files of its own.
    /// Over a value log it says no: what is queued there can be seen by the time the disk refuses it;
    /// the rest has tests of its own. Spikes may say no.
    fn works_on_a_full_disk(&self) -> bool {
        true
    }
}
