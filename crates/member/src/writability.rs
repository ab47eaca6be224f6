//! The ability of this node's stores to take writes.
//!
//! A log or a store that failed for good stays so until the node is restarted. A full disk shows in the
//! writes that it refuses: vnodes count those. The node takes writes again when some were committed since
//! the last refusal, or when the disk has more room than it had then. The room is needed as well: behind a
//! load balancer, a node that counts as full gets no writes and would never come back.

use std::sync::Arc;

use kvorum_vnode::Vnode;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// Room gained since the last refusal that shows that the disk is no longer full. Bytes.
const ROOM_GAINED_MIN: u64 = 1 << 20;

/// Reason for which stores take no writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// There is no room.
    DiskFull,
    /// The node's log failed for good, and with it every store.
    LogFailed,
    /// The stores themselves failed for good.
    StoreFailed,
}

impl Refusal {
    /// One word for programs.
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
            Self::LogFailed => "a write to the node's log failed for good, see this node's log",
            Self::StoreFailed => "their writes failed for good, see this node's log",
        }
    }
}

/// The counts at one look.
pub(crate) struct Look {
    /// The node's log failed for good.
    pub(crate) has_log_failed: bool,
    /// Vnodes that serve.
    pub(crate) open: usize,
    /// Serving vnodes whose stores failed for good.
    pub(crate) failed: usize,
    /// Writes that a full disk has refused, and the number of vnodes that refused some.
    pub(crate) refused: u64,
    pub(crate) refusing: usize,
    /// Writes that were committed.
    pub(crate) committed: u64,
    /// All stores share one log: a refusal of one is one of all.
    pub(crate) is_log_shared: bool,
}

/// The state from earlier looks.
#[derive(Default)]
pub(crate) struct Writability {
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    refused: u64,
    full: Option<Full>,
}

/// The disk at the last refusal.
#[derive(Clone, Copy)]
struct Full {
    committed: u64,
    room: Option<u64>,
    /// Vnodes that refused.
    vnodes: usize,
}

impl Writability {
    /// The number of vnodes that take no writes, and the reason. `room` returns the free bytes of the disk,
    /// and is called only when they decide.
    pub(crate) fn judge(
        &self,
        look: &Look,
        room: impl Fn() -> Option<u64>,
    ) -> (usize, Option<Refusal>) {
        if look.has_log_failed {
            return (look.open, Some(Refusal::LogFailed));
        }
        if look.failed > 0 {
            return (look.failed, Some(Refusal::StoreFailed));
        }
        let mut seen = self.seen.lock();
        if look.refused > seen.refused {
            let vnodes = if look.is_log_shared {
                look.open
            } else {
                look.refusing
            };
            seen.full = Some(Full {
                committed: look.committed,
                room: room(),
                vnodes,
            });
        } else if seen
            .full
            .is_some_and(|full| has_room_again(&full, look, room))
        {
            seen.full = None;
        }
        // Vnodes that are handed over take their counts with them.
        seen.refused = look.refused;
        match seen.full {
            Some(full) => (full.vnodes.min(look.open), Some(Refusal::DiskFull)),
            None => (0, None),
        }
    }
}

fn has_room_again(full: &Full, look: &Look, room: impl Fn() -> Option<u64>) -> bool {
    if look.committed > full.committed {
        return true;
    }
    match (room(), full.room) {
        (Some(now), Some(then)) => now.saturating_sub(then) >= ROOM_GAINED_MIN,
        _ => false,
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

    fn look(refused: u64, committed: u64) -> Look {
        Look {
            has_log_failed: false,
            open: 8,
            failed: 0,
            refused,
            refusing: usize::from(refused > 0),
            committed,
            is_log_shared: true,
        }
    }

    const FULL: (usize, Option<Refusal>) = (8, Some(Refusal::DiskFull));

    #[test]
    fn a_refusal_counts_until_a_write_is_committed_again() {
        let node = Writability::default();
        assert_eq!(node.judge(&look(0, 10), || Some(0)), (0, None));
        assert_eq!(node.judge(&look(1, 10), || Some(0)), FULL);
        assert_eq!(
            node.judge(&look(1, 10), || Some(0)),
            FULL,
            "it stays so without writes"
        );
        assert_eq!(node.judge(&look(1, 11), || Some(0)), (0, None));
        assert_eq!(
            node.judge(&look(2, 12), || Some(0)),
            FULL,
            "and is full again"
        );
    }

    #[test]
    fn refusals_among_committed_writes_still_count() {
        let node = Writability::default();
        assert_eq!(node.judge(&look(1, 10), || Some(0)), FULL);
        assert_eq!(node.judge(&look(2, 15), || Some(0)), FULL);
    }

    #[test]
    fn a_node_without_writes_comes_back_when_there_is_room() {
        let node = Writability::default();
        assert_eq!(node.judge(&look(5, 10), || Some(4_096)), FULL);
        assert_eq!(
            node.judge(&look(5, 10), || Some(8_192)),
            FULL,
            "a little is not enough"
        );
        assert_eq!(
            node.judge(&look(5, 10), || Some(4_096 + ROOM_GAINED_MIN)),
            (0, None)
        );
    }

    #[test]
    fn without_a_log_of_all_only_the_stores_that_refused_count() {
        let node = Writability::default();
        let own = Look {
            is_log_shared: false,
            ..look(3, 1)
        };
        assert_eq!(node.judge(&own, || None), (1, Some(Refusal::DiskFull)));
    }

    #[test]
    fn a_failed_log_stands_above_everything() {
        let node = Writability::default();
        let failed = Look {
            has_log_failed: true,
            ..look(3, 1)
        };
        assert_eq!(node.judge(&failed, || None), (8, Some(Refusal::LogFailed)));
    }
}
