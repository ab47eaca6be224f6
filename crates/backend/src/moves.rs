//! Moves of buckets between the parts of a store, as seen from outside.

use bytes::Bytes;

use crate::{Result, Timestamp};

/// A move that is in progress, waits, or has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveStatus {
    /// The name of the store that has the entries.
    pub source: String,
    /// The name of the store that will have them.
    pub target: String,
    /// The common prefix of all storage keys that move: of a type, of a bucket, or empty for all of
    /// a pinned store.
    pub scope: Bytes,
    /// Its progress, one of the words in [`MoveStatus::PHASES`].
    pub phase: &'static str,
    /// True after its cancellation: entries in the target move back.
    pub is_taken_back: bool,
    /// Bytes to copy when it began, by estimate; 0 before that is known.
    pub bytes_estimate: u64,
    /// Bytes that were copied.
    pub bytes_copied: u64,
    /// Entries that were copied.
    pub keys_copied: u64,
    /// Entries that were found equal in both.
    pub keys_verified: u64,
    /// Entries that were removed from the source.
    pub keys_removed: u64,
    /// The part of the work that is done, by estimate, in thousandths.
    pub done_permille: u16,
    /// The time to its end at the rate of this run, in seconds; `None` if unknown.
    pub seconds_left: Option<u64>,
}

impl MoveStatus {
    /// The words for the progress of a move, in their order; the last four are ends.
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

    /// True when its work has ended.
    pub fn has_ended(&self) -> bool {
        Self::PHASES[5..].contains(&self.phase)
    }

    /// True when it has ended differently than requested.
    pub fn has_failed(&self) -> bool {
        Self::PHASES[7..].contains(&self.phase)
    }
}

/// The size of a move, and the room for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoveEstimate {
    /// Entries.
    pub keys: u64,
    /// Their keys, heads and bodies, by a sample, in bytes.
    pub bytes: u64,
    /// The free space that the move needs, in bytes.
    pub needed_bytes: u64,
    /// The free space for the target, in bytes; the maximum for one in memory.
    pub available_bytes: u64,
}

/// The child that receives all data of a store of several engines, despite the routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedTo {
    /// Its name.
    pub name: String,
    /// False while there is no store of this name: until then the routes count.
    pub is_there: bool,
}

/// Moves of buckets between the parts of a store. They follow the routes automatically, as upkeep.
pub trait Moves: Send + Sync {
    /// The moves in progress or waiting, and the last one that ended.
    fn moves(&self) -> Vec<MoveStatus>;

    /// True when the required moves are not known yet: the routes have changed, or the store was
    /// opened.
    fn is_looking(&self) -> bool;

    /// The estimate of a move of all buckets whose keys start with `scope` to the store of this
    /// name. Reads all of their keys, and blocks.
    ///
    /// # Errors
    /// Those of reading; [`crate::ErrorKind::Misuse`] for an unknown name.
    fn estimate(&self, scope: &[u8], target: &str, now: Timestamp) -> Result<MoveEstimate>;

    /// Keeps all data in the store of this name, despite the routes. `None` ends that: then entries
    /// with routes elsewhere move back. The pin outlives restarts, and ends with the store.
    ///
    /// # Errors
    /// Those of writing it down; [`crate::ErrorKind::Misuse`] for an unknown name.
    fn pin(&self, target: Option<&str>) -> Result<()>;

    /// Continues with the pin that the same data had in another store. A pin to a missing store is
    /// kept, and counts once the store exists. `None` removes a pin, as [`Moves::pin`] does.
    ///
    /// # Errors
    /// Those of writing it down.
    fn take_over_pin(&self, target: Option<&str>) -> Result<()>;

    /// The store that receives all data.
    fn pinned(&self) -> Option<PinnedTo>;
}
