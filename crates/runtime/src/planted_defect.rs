//! Defects that parts of a node can be told to have, so that those who look for defects are tested too.
//!
//! A simulated cluster has one thread, and the defect belongs to that: clusters with different ones run
//! side by side. Without the feature `planted-defects` none can be planted and every question is
//! answered "no" at compile time. It is here because this crate is below all that have some.

/// One promise that is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedDefect {
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
    /// A hint is forgotten before it is known to have arrived.
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
    /// What the log holds is not given to stores that lack it.
    ReplaySkipped,
    /// Concurrent versions are merged by keeping one.
    SiblingsDropped,
    /// Where the newest version is to stay, a replica keeps the one that came last.
    DeliveryOrderDecides,
    /// A write that is tried again at another replica is taken for a new one.
    RetryTakenForNewWrite,
    /// A record of the agreed log counts as kept before it is synced.
    AgreedBeforeSync,
    /// Whom a node has voted for is forgotten when it starts.
    VoteForgotten,
    /// A commit carries out whatever is staged, whichever plan it names.
    PlanNotCompared,
    /// A node says that it has all of a partition before it has.
    MoveClosedEarly,
    /// A move is settled before its source knows that it closes.
    MoveSettledEarly,
    /// Reads ask new replicas of a larger number as soon as one of them has what it needs.
    GrowthClosedEarly,
    /// The sender counts a transfer that ended in a large object as under way.
    SentTransferKeepsTurn,
}

impl PlantedDefect {
    /// All of them.
    pub const ALL: [Self; 24] = [
        Self::ReadRepairDropped,
        Self::AcknowledgedBeforeSync,
        Self::EpochRuleSkippedOnSender,
        Self::EpochRuleSkippedOnReceiver,
        Self::CounterLeaseIgnored,
        Self::HintDeletedBeforeConfirmation,
        Self::SloppyQuorumCountedForPw,
        Self::TransferCompletedWithoutDigest,
        Self::TombstoneReapedEarly,
        Self::StaleRingUsedForCoverage,
        Self::FallbackNotFoundCounted,
        Self::FillingCountedAsComplete,
        Self::FailedSyncForgotten,
        Self::ReplaySkipped,
        Self::SiblingsDropped,
        Self::DeliveryOrderDecides,
        Self::RetryTakenForNewWrite,
        Self::AgreedBeforeSync,
        Self::VoteForgotten,
        Self::PlanNotCompared,
        Self::MoveClosedEarly,
        Self::MoveSettledEarly,
        Self::GrowthClosedEarly,
        Self::SentTransferKeepsTurn,
    ];
}

#[cfg(feature = "planted-defects")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<PlantedDefect>> = const { std::cell::Cell::new(None) };
}

/// Plants a defect in all that runs on this thread, or takes it away.
#[cfg(feature = "planted-defects")]
pub fn plant(defect: Option<PlantedDefect>) {
    PLANTED.set(defect);
}

/// True when this defect was planted.
#[cfg(feature = "planted-defects")]
pub fn is_planted(defect: PlantedDefect) -> bool {
    PLANTED.get() == Some(defect)
}

/// True when this defect was planted: never, without the feature.
#[cfg(not(feature = "planted-defects"))]
#[inline]
pub const fn is_planted(_defect: PlantedDefect) -> bool {
    false
}
