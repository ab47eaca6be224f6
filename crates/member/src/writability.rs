//! The ability of this node's stores to take writes.
//!
//! A log or a store that failed for good stays so until the node is restarted. A disk is full when
//! it has no room for a small put beside the room held back for merges. Each look measures this
//! room. So a node reports a full disk before a put is refused, also at a start on a full disk or
//! when another program fills the disk.
//!
//! A put can be refused although a small one would find room. After such a refusal the node counts
//! as full until a put is committed; deletions do not count, since they may use the room held back.
//! The node also counts as writable when the disk has gained room for puts: behind a load balancer,
//! a full node gets no puts, and would otherwise count as full for ever.

use std::sync::Arc;

use kvorum_vnode::Vnode;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// Growth of the room for puts, in bytes, after which a refusal no longer counts.
const ROOM_GAINED_MIN: u64 = 1 << 20;

/// The room that a small put needs, with its entry in the log, in bytes.
const ROOM_MIN: u64 = 16 << 10;

/// The reason why stores take no writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The disk has no room.
    DiskFull,
    /// The value log failed for good, and every store with it.
    LogFailed,
    /// The stores themselves failed for good.
    StoreFailed,
}

impl Refusal {
    /// A code for programs, in one word.
    pub fn code(self) -> &'static str {
        match self {
            Self::DiskFull => "disk_full",
            Self::LogFailed => "log_failed",
            Self::StoreFailed => "store_failed",
        }
    }

    /// A text for people, without any path.
    pub fn text(self) -> &'static str {
        match self {
            Self::DiskFull => "the disk is full",
            Self::LogFailed => "a write to the value log failed for good, see this node's log",
            Self::StoreFailed => "their writes failed for good, see this node's log",
        }
    }
}

/// The counts at one look.
pub(crate) struct Look {
    /// The value log failed for good.
    pub(crate) has_log_failed: bool,
    /// Vnodes that serve.
    pub(crate) open: usize,
    /// Serving vnodes whose stores failed for good.
    pub(crate) failed: usize,
    /// Writes that a full disk has refused, and the number of vnodes that refused some.
    pub(crate) refused: u64,
    pub(crate) refusing: usize,
    /// Puts that took room, without deletions.
    pub(crate) stored: u64,
    /// All stores share one log: if one refuses a put, all do.
    pub(crate) is_log_shared: bool,
    /// Bytes that puts can still take, if known.
    pub(crate) room: Option<u64>,
}

/// The state from earlier looks.
#[derive(Default)]
pub(crate) struct Writability {
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    refused: u64,
    stored: u64,
    full: Option<Full>,
}

/// The state of the disk at the last refusal.
#[derive(Clone, Copy)]
struct Full {
    room: Option<u64>,
    /// Vnodes that refused.
    vnodes: usize,
}

impl Full {
    fn has_more_room(&self, look: &Look) -> bool {
        match (look.room, self.room) {
            (Some(now), Some(then)) => now.saturating_sub(then) >= ROOM_GAINED_MIN,
            _ => false,
        }
    }
}

impl Writability {
    /// The number of vnodes that take no writes, and why.
    pub(crate) fn judge(&self, look: &Look) -> (usize, Option<Refusal>) {
        if look.has_log_failed {
            return (look.open, Some(Refusal::LogFailed));
        }
        if look.failed > 0 {
            return (look.failed, Some(Refusal::StoreFailed));
        }
        let full = self.seen.lock().look(look);
        if look.room.is_some_and(|room| room < ROOM_MIN) {
            return (look.open, Some(Refusal::DiskFull));
        }
        match full {
            Some(full) => (full.vnodes.min(look.open), Some(Refusal::DiskFull)),
            None => (0, None),
        }
    }
}

impl Seen {
    /// Updates the state with the results of puts since the last look.
    fn look(&mut self, look: &Look) -> Option<Full> {
        let is_any_stored = look.stored > self.stored;
        if look.refused > self.refused {
            let vnodes = if look.is_log_shared {
                look.open
            } else {
                look.refusing
            };
            let room = look.room;
            self.full = Some(Full { room, vnodes });
        } else if is_any_stored || self.full.is_some_and(|full| full.has_more_room(look)) {
            self.full = None;
        }
        // Counts may fall: a vnode that is handed over takes its counts with it.
        self.refused = look.refused;
        self.stored = look.stored;
        self.full
    }
}

/// Refusals of vnodes, and the number of vnodes that refused.
pub(crate) fn refusals(vnodes: &[Arc<Vnode>]) -> (u64, usize) {
    let counts = vnodes.iter().map(|vnode| vnode.disk_full_refusals());
    let counts: Vec<u64> = counts.filter(|count| *count > 0).collect();
    (counts.iter().sum(), counts.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(refused: u64, stored: u64, room: Option<u64>) -> Look {
        Look {
            has_log_failed: false,
            open: 8,
            failed: 0,
            refused,
            refusing: usize::from(refused > 0),
            stored,
            is_log_shared: true,
            room,
        }
    }

    const FULL: (usize, Option<Refusal>) = (8, Some(Refusal::DiskFull));
    const TAKEN: (usize, Option<Refusal>) = (0, None);
    const LITTLE: Option<u64> = Some(ROOM_MIN);

    #[test]
    fn a_refusal_counts_until_a_put_is_committed_again() {
        let node = Writability::default();
        assert_eq!(node.judge(&look(0, 10, LITTLE)), TAKEN);
        assert_eq!(node.judge(&look(1, 10, LITTLE)), FULL);
        let again = node.judge(&look(1, 10, LITTLE));
        assert_eq!(again, FULL, "it stays so without puts");
        assert_eq!(node.judge(&look(1, 11, LITTLE)), TAKEN);
        assert_eq!(node.judge(&look(2, 12, LITTLE)), FULL, "and is full again");
    }

    #[test]
    fn refusals_among_committed_puts_still_count() {
        let node = Writability::default();
        assert_eq!(node.judge(&look(1, 10, LITTLE)), FULL);
        assert_eq!(node.judge(&look(2, 15, LITTLE)), FULL);
    }

    #[test]
    fn a_node_without_puts_comes_back_when_there_is_room_for_them() {
        let node = Writability::default();
        let room = |more| Some(ROOM_MIN + more);
        assert_eq!(node.judge(&look(5, 10, room(0))), FULL);
        let little_more = node.judge(&look(5, 10, room(8_192)));
        assert_eq!(little_more, FULL, "a little is not enough");
        assert_eq!(node.judge(&look(5, 10, room(ROOM_GAINED_MIN))), TAKEN);
    }

    /// Regression: a node that had started on a full disk was ready until it had refused the first
    /// put.
    #[test]
    fn a_disk_without_room_for_a_put_is_full_before_a_put_is_refused() {
        let node = Writability::default();
        assert_eq!(node.judge(&look(0, 0, Some(ROOM_MIN - 1))), FULL);
        assert_eq!(node.judge(&look(0, 0, LITTLE)), TAKEN, "measured anew");
        // Another program fills the disk, so earlier successful puts prove nothing.
        assert_eq!(node.judge(&look(0, 7, Some(0))), FULL);
        assert_eq!(node.judge(&look(0, 7, None)), TAKEN);
    }

    #[test]
    fn counts_that_fall_with_a_vnode_that_is_handed_over_do_not_hide_later_puts() {
        let node = Writability::default();
        assert_eq!(node.judge(&look(3, 100, LITTLE)), FULL);
        assert_eq!(node.judge(&look(2, 40, LITTLE)), FULL);
        assert_eq!(node.judge(&look(2, 41, LITTLE)), TAKEN);
    }

    #[test]
    fn without_a_log_of_all_only_the_stores_that_refused_count() {
        let node = Writability::default();
        let own = Look {
            is_log_shared: false,
            ..look(3, 1, None)
        };
        assert_eq!(node.judge(&own), (1, Some(Refusal::DiskFull)));
    }

    #[test]
    fn a_failed_log_stands_above_everything() {
        let node = Writability::default();
        let failed = Look {
            has_log_failed: true,
            ..look(3, 1, Some(0))
        };
        assert_eq!(node.judge(&failed), (8, Some(Refusal::LogFailed)));
    }
}
