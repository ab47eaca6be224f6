//! The generation of this run of the node: higher than that of every run before.
//!
//! Other nodes accept only the statements of a node's highest generation. The wall clock would
//! suffice if it were never set back. A restarted node with a lower generation would count as down
//! for as long as the others keep the higher one. So the last generation is stored. If the disk is
//! full, the node starts with a generation that is not stored: serving reads is worth more.

use std::path::Path;
use std::sync::Arc;

use kvorum_disk::{Disk, DiskError, ErrorKind};
use kvorum_ring::NodeId;
use kvorum_runtime::WallTime;

use crate::checked_file::{CheckedFile, Found};

/// A run raises its own generation by at most this much, which it reaches after five false reports that it
/// is down. A generation that was raised further is overtaken within a few exchanges.
const RENEWALS_MAX: u64 = 1_000_000;

/// The file's name in the directory of the agreed state.
pub(crate) const NAME: &str = "generation";

/// The file that keeps the generation of a node.
pub(crate) fn file(directory: &Path, node: NodeId) -> CheckedFile {
    let title = "kvorum generation of this node";
    CheckedFile::new(directory, NAME, title).of(node)
}

/// The generation of this run. If there is room, it is stored before any other node receives it. An
/// unreadable generation counts as older than the clock.
pub(crate) fn begin(
    disk: &Arc<dyn Disk>,
    directory: &Path,
    node: NodeId,
    now: WallTime,
) -> Result<u64, DiskError> {
    let file = file(directory, node);
    let unreadable = |why: &dyn std::fmt::Display| {
        tracing::warn!(event = "generation_unreadable", file = %file.path().display(), why = %why);
        (0, None)
    };
    let (sequence, last) = match file.load(&**disk) {
        Ok(Found::Nothing) => (0, None),
        Ok(Found::Content { sequence, body, .. }) => (sequence, body.trim().parse::<u64>().ok()),
        Ok(Found::Damaged) => unreadable(&"damaged"),
        Err(error) if error.kind() == ErrorKind::Device => unreadable(&error),
        Err(error) => return Err(error),
    };
    let behind_last = last.map_or(0, |last| last.saturating_add(RENEWALS_MAX));
    let generation = now.micros().max(behind_last);
    match file.store(&**disk, sequence + 1, &format!("{generation}\n")) {
        Err(error) if error.kind() == ErrorKind::NoSpace => {
            tracing::warn!(event = "generation_not_kept", error = %error);
        }
        stored => stored?,
    }
    Ok(generation)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use kvorum_disk::{
        CrashOptions, Fault, FaultyDisk, MemoryDisk, Operation, Rule, create_directory_durably,
    };

    use super::*;

    const NODE: NodeId = NodeId::from_bytes([1; 16]);

    fn at(disk: &MemoryDisk, micros: u64) -> u64 {
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        let now = WallTime::from_micros(micros);
        begin(&disk, Path::new("/ring"), NODE, now).unwrap()
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_set_back_the_generation() {
        let disk = MemoryDisk::new();
        create_directory_durably(&disk, &PathBuf::from("/ring")).unwrap();
        assert_eq!(at(&disk, 1_000), 1_000);
        assert_eq!(at(&disk, 400), 1_001_000);
        disk.crash(CrashOptions::nothing_unsynced());
        assert_eq!(at(&disk, 500), 2_001_000);
        assert_eq!(at(&disk, 3_000_000), 3_001_000);
        assert_eq!(at(&disk, 9_000_000), 9_000_000);
    }

    /// Regression: a node did not start on a full disk.
    #[test]
    fn without_room_a_run_begins_by_what_was_kept_and_the_clock_and_other_failures_end_it() {
        let memory = MemoryDisk::new();
        create_directory_durably(&memory, &PathBuf::from("/ring")).unwrap();
        assert_eq!(at(&memory, 5_000), 5_000);
        let faulty = FaultyDisk::over_memory(&memory);
        let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
        let begun = |micros| {
            begin(
                &disk,
                Path::new("/ring"),
                NODE,
                WallTime::from_micros(micros),
            )
        };
        faulty.add_rule(Rule::new(Fault::Error(ErrorKind::NoSpace)).on(Operation::Write));
        assert_eq!(begun(9_000_000).unwrap(), 9_000_000);
        assert_eq!(begun(400).unwrap(), 1_005_000);
        faulty.heal();
        faulty.add_rule(Rule::new(Fault::Error(ErrorKind::Device)).on(Operation::Write));
        assert!(begun(9_000_000).is_err());
    }
}
