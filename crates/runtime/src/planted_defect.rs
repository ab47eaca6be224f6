//! Defects that parts of a node can be told to have, so that those who look for defects are tested too.
//!
//! A simulation runs one cluster at a time, so one defect for the whole process is enough. Without the
//! feature `planted-defects` none can be planted and every question is answered "no" at compile time.
//! It is here because this crate is below all that have some.

/// One promise that is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PlantedDefect {
    /// A read that finds a replica behind leaves it so.
    ReadRepairDropped = 1,
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
    /// What the commit log holds is not given to stores that lack it.
    ReplaySkipped,
    /// Concurrent versions are merged by keeping one.
    SiblingsDropped,
    /// A write that is tried again at another replica is taken for a new one.
    RetryTakenForNewWrite,
}

impl PlantedDefect {
    /// All of them.
    pub const ALL: [Self; 16] = [
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
        Self::RetryTakenForNewWrite,
    ];
}

#[cfg(feature = "planted-defects")]
static PLANTED: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);

/// Plants a defect, or takes it away.
#[cfg(feature = "planted-defects")]
pub fn plant(defect: Option<PlantedDefect>) {
    let number = defect.map_or(0, |defect| defect as u8);
    PLANTED.store(number, std::sync::atomic::Ordering::Relaxed);
}

/// True when this defect was planted.
#[cfg(feature = "planted-defects")]
pub fn is_planted(defect: PlantedDefect) -> bool {
    PLANTED.load(std::sync::atomic::Ordering::Relaxed) == defect as u8
}

/// True when this defect was planted: never, without the feature.
#[cfg(not(feature = "planted-defects"))]
#[inline]
pub const fn is_planted(_defect: PlantedDefect) -> bool {
    false
}
