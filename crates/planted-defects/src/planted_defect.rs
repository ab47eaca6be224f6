//! The list, and the defect planted on this thread.

use std::cell::Cell;
use std::marker::PhantomData;

macro_rules! list_defects {
    ($($(#[$meta:meta])* $defect:ident,)+) => {
        /// One promise that is not kept.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum PlantedDefect {
            $($(#[$meta])* $defect,)+
        }

        impl PlantedDefect {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$defect),+];
        }
    };
}

list_defects! {
    /// A read that finds a replica behind leaves it so.
    ReadRepairDropped,
    /// A write is confirmed before it is synced.
    AcknowledgedBeforeSync,
    /// A transfer begins before its source has learned of the move.
    EpochRuleSkippedOnSender,
    /// A vnode takes requests of an epoch that has passed.
    EpochRuleSkippedOnReceiver,
    /// Vnodes go on with the actor and the counter that they began with.
    CounterLeaseIgnored,
    /// A hint is dropped before its arrival is confirmed.
    HintDeletedBeforeConfirmation,
    /// Stand-ins count as primaries for pw.
    SloppyQuorumCountedForPw,
    /// A transfer leaves keys out and is taken to be complete.
    TransferCompletedWithoutDigest,
    /// A tombstone is removed though a replica has not confirmed it.
    TombstoneReapedEarly,
    /// A vnode answers listings of coordinators with an old ring.
    StaleRingUsedForCoverage,
    /// A stand-in that has nothing counts as a replica that has nothing.
    FallbackNotFoundCounted,
    /// Reads go to a replica that is still being filled.
    FillingCountedAsComplete,
    /// A log whose sync failed goes on.
    FailedSyncForgotten,
    /// The log's batches are not replayed to stores that lack them.
    ReplaySkipped,
    /// Concurrent versions are merged by keeping one.
    SiblingsDropped,
    /// The last delivered version wins over the newest one.
    DeliveryOrderDecides,
    /// A write that is tried again at another replica is mistaken for a new one.
    RetryTakenForNewWrite,
    /// A record of the agreed log counts as kept before it is synced.
    AgreedBeforeSync,
    /// A node's vote is lost when the node starts.
    VoteForgotten,
    /// A commit carries out any staged plan, even if it names another one.
    PlanNotCompared,
    /// A node reports too early that it has all of a partition.
    MoveClosedEarly,
    /// A move is settled before its source has learned that it closes.
    MoveSettledEarly,
    /// After the number of replicas has grown, reads ask new replicas as soon as one of them has its data.
    GrowthClosedEarly,
    /// The sender counts a transfer that ended in a large object as under way.
    SentTransferKeepsTurn,
    /// A new file's directory entry is not synced before the file is relied on.
    DirectoryNotSynced,
    /// A file is renamed into place before its content is synced.
    RenameBeforeSync,
    /// An engine acknowledges a grouped put before its sync.
    GroupNotAwaited,
    /// A hint or checkpoint that does not match its data file is used.
    StaleHintTrusted,
    /// A removal is dropped while an older entry of the key is still on disk.
    TombstoneDroppedTooEarly,
    /// A ledger drops a removal while the journal has an older record of the key.
    RemovalLeftToJournal,
    /// A collection of the journal leaves out some needed records.
    LiveRecordNotCollected,
    /// A rebuilt ledger takes the oldest record of a key for its newest.
    OlderRecordRebuilt,
    /// A fold in the order of the journal shows older records of a key beside its newest.
    OlderRecordFolded,
    /// Expiry is not looked at when reading.
    ExpiredEntryReturned,
    /// A snapshot shows writes that came after it.
    SnapshotSeesLaterWrites,
    /// A source sends before it has learned of the move, and its pages show that.
    SentBeforeLearned,
    /// The sent and the stored objects are not compared.
    DigestNotCompared,
    /// The progress of a transfer is noted before that is durable.
    CursorBeforeDurable,
    /// A change that meets a page of the fold that builds a tree is taken in twice.
    ChangeDuringPageTakenTwice,
    /// A tree is not changed when an entry is overwritten.
    TreeUnchangedByOverwrite,
    /// A tree is not changed when a read brings its vnode up to date.
    TreeUnchangedByRepair,
    /// A read that brings a replica up to date replaces a write that has reached the replica meanwhile.
    RepairOverwritesSibling,
    /// Trees that were kept over a stop are taken although their store was rolled back since.
    TreeKeptAcrossRollback,
    /// An exchange compares a tree that is being built.
    TreeTrustedWhileBuilt,
    /// A range hint ends where the last exchange found its last difference.
    RangeHintSkipsNewest,
    /// An entry that expired at one replica is brought back from another.
    ExpiredEntryRepaired,
    /// An exchange takes writes that are under way for differences.
    InFlightTakenForDifference,
    /// An exchange that left out a replica counts as complete.
    ExchangeShortOfReplicaComplete,
    /// A tombstone goes while a hint is on its way.
    TombstoneReapedBesideHint,
    /// A restored replica supplies objects that the others have dropped.
    RestoredReplicaTakenForSource,
    /// A round does not wait for requests that may carry deleted objects.
    OldRequestsNotAwaited,
    /// Replicas remove tombstones before all have learned the watermark.
    ReapedBeforeConfirmed,
    /// A tombstone goes and leaves an index entry of its key.
    ReapLeavesIndexEntry,
    /// A transfer whose source is not ready waits in its turn, and repairs come last.
    WaitingTransferKeepsTurn,
    /// An update of a large set is taken by a replica that lacks an earlier one.
    UpdateTakenUnchecked,
}

thread_local! {
    static PLANTED: Cell<Option<PlantedDefect>> = const { Cell::new(None) };
}

/// A planted defect, until this is dropped on its thread.
#[derive(Debug)]
#[must_use = "the defect is gone when this is dropped"]
pub struct Planted(PhantomData<*const ()>);

impl Drop for Planted {
    fn drop(&mut self) {
        PLANTED.set(None);
    }
}

/// Plants a defect for all code on this thread, in place of the former defect.
pub fn plant(defect: PlantedDefect) -> Planted {
    PLANTED.set(Some(defect));
    Planted(PhantomData)
}

/// The defect that is planted on this thread.
pub fn planted() -> Option<PlantedDefect> {
    PLANTED.get()
}
