//! Moves of buckets between the stores that make up a store, as others see them.

use bytes::Bytes;

use crate::{Result, Timestamp};

/// A move that is under way, waits, or has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveStatus {
    /// The store that has it, by name.
    pub source: String,
    /// The store that is to have it, by name.
    pub target: String,
    /// The bytes that all storage keys of what moves start with: of a type, of a bucket, or none for all of a
    /// pinned store.
    pub scope: Bytes,
    /// How far it is, in a word of [`MoveStatus::PHASES`].
    pub phase: &'static str,
    /// True when it was cancelled: what was in the target comes back.
    pub is_taken_back: bool,
    /// What there was to copy when it began, by estimate, in bytes; 0 before that is known.
    pub bytes_estimate: u64,
    /// Bytes that were copied.
    pub bytes_copied: u64,
    /// Entries that were copied.
    pub keys_copied: u64,
    /// Entries that were found the same in both.
    pub keys_verified: u64,
    /// Entries that were taken out of the source.
    pub keys_removed: u64,
    /// The part of the work that is done, by estimate, in thousandths.
    pub done_permille: u16,
    /// The time to its end at the rate of this run, in seconds; `None` where nothing is known of that.
    pub seconds_left: Option<u64>,
}

impl MoveStatus {
    /// The words for how far a move is, in their order; the last four are ends.
    pub const PHASES: [&'static str; 9] = [
        "waiting",
        "room",
        "copy",
        "verify",
        "remove",
        "moved",
        "taken_back",
        "no_room",
        "differs",
    ];

    /// True when nothing more is done for it.
    pub fn has_ended(&self) -> bool {
        Self::PHASES[5..].contains(&self.phase)
    }

    /// True when it has ended, and not as it was asked for.
    pub fn has_failed(&self) -> bool {
        Self::PHASES[7..].contains(&self.phase)
    }
}

/// What a move would copy, and the room for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoveEstimate {
    /// Entries.
    pub keys: u64,
    /// Their keys, heads and bodies, by a sample, in bytes.
    pub bytes: u64,
    /// The free space that the move asks for, in bytes.
    pub needed_bytes: u64,
    /// The free space that there is for the target, in bytes; the most that there is for one in memory.
    pub available_bytes: u64,
}

/// Moves of buckets between the stores that make up a store. They follow the routes by themselves, as upkeep.
pub trait Moves: Send + Sync {
    /// Those that are under way or wait, and the last one that ended.
    fn moves(&self) -> Vec<MoveStatus>;

    /// True when it is not known yet what has to move: the routes have changed, or the store was opened.
    fn is_looking(&self) -> bool;

    /// What would move if all buckets whose keys start with `scope` went to the store of this name. Reads the
    /// keys of them all, and blocks.
    ///
    /// # Errors
    /// Those of reading; [`crate::ErrorKind::Misuse`] for a name that there is not.
    fn estimate(&self, scope: &[u8], target: &str, now: Timestamp) -> Result<MoveEstimate>;

    /// Has everything in the store of this name, whatever the routes say, until it is taken back by `None`: then
    /// what the routes have elsewhere moves back. It lasts over restarts, and ends with the store.
    ///
    /// # Errors
    /// Those of writing it down; [`crate::ErrorKind::Misuse`] for a name that there is not.
    fn pin(&self, target: Option<&str>) -> Result<()>;

    /// The store that has everything.
    fn pinned(&self) -> Option<String>;
}
