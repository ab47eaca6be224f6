//! Faults as data.

use std::fmt;
use std::time::Duration;

use strum::{IntoStaticStr, VariantArray};

/// The kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum FaultKind {
    /// The network falls into two halves.
    PartitionHalves,
    /// One node receives nothing, and nothing of it arrives.
    IsolateOne,
    /// Nothing of one node arrives, or it receives nothing.
    OneWay,
    /// Two halves that only one node still connects.
    Bridge,
    /// Some nodes' links are clogged one by one, and freed one by one in another order.
    Clog,
    /// Everything takes longer.
    Delay,
    /// Messages between some nodes take very different times, so that connections overtake each other.
    Jitter,
    /// Every connection between two nodes breaks once.
    ResetConnections,
    /// The connections of one node break again and again, with the messages on their way: the form of
    /// loss on streams.
    LossyLink,
    /// Single requests between nodes, or their answers, are lost: the caller waits until its deadline.
    LostMessages,
    /// Single requests between nodes come a second time, later. Both are answered, and the first answer
    /// counts. A put that the receiver is to coordinate is never doubled: no caller sends such a one
    /// again unless it was certainly not carried out.
    DoubledMessages,
    /// Single requests between nodes are held back, and overtaken by later ones on the same connection.
    OvertakenMessages,
    /// A machine's clock jumps forward.
    ClockForward,
    /// A machine's clock jumps back.
    ClockBack,
    /// A machine loses power, and its unsynced bytes.
    Crash,
    /// All machines do, at once.
    CrashAll,
    /// A node is stopped as an operator does it, and started again.
    Restart,
    /// Reads of a disk fail.
    ReadError,
    /// Writes of a disk fail, the first of them torn.
    WriteError,
    /// Syncs of a disk fail, and lose the bytes that they were to sync.
    SyncError,
    /// A disk is full for a while.
    DiskFull,
    /// A disk takes long to sync.
    SlowDisk,
    /// All that a node sends and receives is slow, and so is its disk.
    SlowNode,
    /// A node comes back with empty disks.
    Wipe,
    /// A node comes back with an older copy of its disks.
    Rollback,
    /// A node is stopped in order, and comes back with an older copy of its disks beside the hash trees of
    /// the stop.
    RestoredStores,
    /// A node loses each hint that it keeps, for a while.
    LostHints,
    /// A node joins, and partitions move to it.
    Join,
    /// A node's partitions move away.
    Leave,
    /// A new node takes all partitions of another.
    Replace,
    /// A node learns nothing of the agreed state, and goes on with its old one. With members, the
    /// messages of the agreed log to it are lost.
    LateNews,
}

impl FaultKind {
    /// All kinds.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// True for faults after which a machine lacks data that it confirmed.
    pub fn is_amnesia(self) -> bool {
        matches!(
            self,
            Self::Wipe | Self::Rollback | Self::RestoredStores | Self::LostHints
        )
    }

    /// True for faults that make partitions move.
    pub fn moves_partitions(self) -> bool {
        matches!(self, Self::Join | Self::Leave | Self::Replace)
    }

    /// True for faults that need a disk.
    pub fn needs_disk(self) -> bool {
        matches!(
            self,
            Self::Crash
                | Self::CrashAll
                | Self::Restart
                | Self::ReadError
                | Self::WriteError
                | Self::SyncError
                | Self::DiskFull
                | Self::SlowDisk
                | Self::Wipe
                | Self::Rollback
                | Self::RestoredStores
        )
    }
}

/// One fault of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kind.
    pub kind: FaultKind,
    /// Its beginning, after the clients have.
    pub begin: Duration,
    /// Its length; faults that are over at once ignore it.
    pub length: Duration,
    /// Decides the targets and the details; the rest of a plan that shrinks stays as it was.
    pub seed: u64,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, begin) = (self.kind.name(), self.begin.as_millis());
        write!(f, "{name} at {begin} ms for {} ms", self.length.as_millis())
    }
}
