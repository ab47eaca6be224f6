//! Plants each defect in turn: some seed has to find it, and nothing without it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use kvorum_planted_defects::PlantedDefect;
use kvorum_runtime::Runtime;
use kvorum_sim::{Control, Engine, FaultKind, RunPlan};

use crate::arguments::Arguments;
use crate::console::{conclude, line};
use crate::single::{Manner, one};

/// Seeds within which a defect has to be found: as many as a run of the tests has time for.
const SEEDS_FOR_A_DEFECT: u64 = 100;

/// The defects that show in a cluster. The others are planted in tests of their crates.
fn all() -> impl Iterator<Item = PlantedDefect> {
    let all = PlantedDefect::ALL.iter().copied();
    all.filter(|defect| !occasion(*defect).is_empty())
}

/// The defect of a name.
pub(crate) fn named(name: &str) -> anyhow::Result<PlantedDefect> {
    let defect = all().find(|it| format!("{it:?}") == name);
    defect.with_context(|| format!("{name} is none of {:?}", all().collect::<Vec<_>>()))
}

/// The faults that a defect needs to show in a cluster; none, if it does not.
fn occasion(defect: PlantedDefect) -> &'static [FaultKind] {
    use FaultKind::{
        Bridge, ClockBack, Crash, CrashAll, Delay, DiskFull, DoubledMessages, IsolateOne, Join,
        LateNews, Leave, LostMessages, OvertakenMessages, PartitionHalves, Replace, Restart,
        RestoredStores, Rollback, SlowNode, SyncError, Wipe, WriteError,
    };
    use PlantedDefect as Defect;
    match defect {
        Defect::AcknowledgedBeforeSync | Defect::ReplaySkipped => &[CrashAll],
        Defect::LiveRecordNotCollected => &[Restart],
        Defect::FailedSyncForgotten => &[SyncError, SyncError, SyncError, CrashAll],
        Defect::CounterLeaseIgnored => &[Wipe, IsolateOne, SlowNode],
        Defect::EpochRuleSkippedOnReceiver => &[
            Join, Replace, Leave, LateNews, LateNews, IsolateOne, SlowNode,
        ],
        // A quorum misses a write that only some replicas got, if another has not learned of the move.
        Defect::EpochRuleSkippedOnSender => &[
            Join,
            Replace,
            Leave,
            Join,
            Replace,
            LateNews,
            LateNews,
            LateNews,
            LostMessages,
            LostMessages,
            OvertakenMessages,
        ],
        Defect::TransferCompletedWithoutDigest
        | Defect::StaleRingUsedForCoverage
        | Defect::FillingCountedAsComplete
        | Defect::RetryTakenForNewWrite
        | Defect::PlanNotCompared
        | Defect::MoveClosedEarly => &[Join, Replace, Leave],
        Defect::MoveSettledEarly => &[Join, Replace, Leave, PartitionHalves, IsolateOne],
        Defect::AgreedBeforeSync => &[CrashAll, Crash, Join, Leave],
        Defect::VoteForgotten => &[PartitionHalves, Bridge, Restart, Crash, Join, Replace],
        Defect::GrowthClosedEarly | Defect::SentTransferKeepsTurn => &[Delay],
        Defect::ReadRepairDropped => &[DiskFull, WriteError],
        Defect::HintDeletedBeforeConfirmation => &[PartitionHalves],
        Defect::SloppyQuorumCountedForPw | Defect::FallbackNotFoundCounted => {
            &[PartitionHalves, IsolateOne]
        }
        Defect::DeliveryOrderDecides => &[DoubledMessages, OvertakenMessages, Join, ClockBack],
        Defect::TombstoneReapedEarly | Defect::SiblingsDropped => &[IsolateOne, Crash],
        Defect::TreeUnchangedByRepair => &[Rollback, IsolateOne, LostMessages],
        Defect::TreeKeptAcrossRollback => &[RestoredStores, Delay],
        Defect::TreeTrustedWhileBuilt => &[Rollback, Delay],
        Defect::RangeHintSkipsNewest => &[Wipe, Delay],
        Defect::ExpiredEntryRepaired => &[ClockBack],
        Defect::RepairOverwritesSibling => &[Delay, IsolateOne, LostMessages, OvertakenMessages],
        Defect::RestoredReplicaTakenForSource => &[RestoredStores, Restart],
        Defect::DirectoryNotSynced
        | Defect::RenameBeforeSync
        | Defect::GroupNotAwaited
        | Defect::StaleHintTrusted
        | Defect::TombstoneDroppedTooEarly
        | Defect::RemovalLeftToJournal
        | Defect::OlderRecordRebuilt
        | Defect::OlderRecordFolded
        | Defect::ExpiredEntryReturned
        | Defect::SnapshotSeesLaterWrites
        | Defect::SentBeforeLearned
        | Defect::DigestNotCompared
        | Defect::CursorBeforeDurable
        | Defect::WaitingTransferKeepsTurn
        | Defect::TreeUnchangedByOverwrite
        | Defect::ExchangeShortOfReplicaComplete
        | Defect::ChangeDuringPageTakenTwice
        | Defect::InFlightTakenForDifference
        | Defect::TombstoneReapedBesideHint
        | Defect::OldRequestsNotAwaited
        | Defect::ReapedBeforeConfirmed
        | Defect::ReapLeavesIndexEntry
        | Defect::UpdateTakenUnchecked => &[],
    }
}

/// The clusters in which a defect is looked for.
fn controls(defect: PlantedDefect) -> &'static [Control] {
    use PlantedDefect as Defect;
    match defect {
        // Defects in parts that only members have.
        Defect::AgreedBeforeSync
        | Defect::VoteForgotten
        | Defect::PlanNotCompared
        | Defect::MoveClosedEarly
        | Defect::MoveSettledEarly
        | Defect::GrowthClosedEarly
        | Defect::SentTransferKeepsTurn
        | Defect::RestoredReplicaTakenForSource => &[Control::Members],
        // A member's vnode that is still being filled refuses reads by itself; one that lost its stores is
        // repaired by transfers, which leaves too little to exchanges; and few seeds of members show a
        // tree that a repair has not changed.
        Defect::FillingCountedAsComplete
        | Defect::RangeHintSkipsNewest
        | Defect::TreeUnchangedByRepair => &[Control::StandIn],
        _ => &[Control::StandIn, Control::Members],
    }
}

/// The engines with which it is looked for: defects of a log under each engine with one.
fn engines(defect: PlantedDefect) -> &'static [Engine] {
    use PlantedDefect as Defect;
    match defect {
        Defect::AcknowledgedBeforeSync | Defect::FailedSyncForgotten | Defect::ReplaySkipped => &[
            Engine::Bitcask,
            Engine::Leveldb,
            Engine::Leveled,
            Engine::Hanoidb,
            Engine::Innostore,
        ],
        Defect::LiveRecordNotCollected => &[Engine::Leveled],
        _ => &[Engine::Bitcask],
    }
}

/// The search for a defect with one kind of cluster and one engine.
#[derive(Clone, Copy)]
struct Place {
    defect: PlantedDefect,
    control: Control,
    engine: Engine,
}

impl Place {
    fn all_of(defect: PlantedDefect) -> impl Iterator<Item = Self> {
        let of_control = move |control: &Control| {
            let control = *control;
            engines(defect).iter().map(move |engine| Self {
                defect,
                control,
                engine: *engine,
            })
        };
        controls(defect).iter().flat_map(of_control)
    }
}

/// A plan in which the defect has much to spoil.
fn plan(place: Place, seed: u64) -> RunPlan {
    use PlantedDefect as Defect;
    let Place {
        defect,
        control,
        engine,
    } = place;
    let mut plan = RunPlan::focused(seed, occasion(defect));
    (plan.control, plan.engine) = (control, engine);
    plan.is_early = defect == Defect::GrowthClosedEarly;
    plan.has_second_operator = defect == Defect::PlanNotCompared;
    plan.transfer_bytes_per_second = Some(16_000);
    (plan.clients, plan.keys, plan.n_val) = (10, 10, 3);
    plan.pause_max = Duration::from_millis(25);
    plan.allow_mult = true;
    (plan.delete_percent, plan.blind_percent) = (10, 20);
    match defect {
        Defect::HintDeletedBeforeConfirmation => {
            (plan.nodes, plan.ring_size, plan.strict_percent) = (6, 32, 0);
        }
        Defect::FailedSyncForgotten | Defect::VoteForgotten => plan.nodes = 3,
        Defect::SentTransferKeepsTurn => {
            (plan.nodes, plan.ring_size, plan.loses_majority) = (3, 64, true);
            (plan.strict_percent, plan.transfer_bytes_per_second) = (60, None);
        }
        Defect::CounterLeaseIgnored => plan.blind_percent = 60,
        Defect::TreeUnchangedByRepair
        | Defect::TreeKeptAcrossRollback
        | Defect::TreeTrustedWhileBuilt
        | Defect::RangeHintSkipsNewest
        | Defect::ExpiredEntryRepaired => plan_exchanges(defect, &mut plan),
        Defect::RestoredReplicaTakenForSource => plan_reaping(&mut plan),
        Defect::RepairOverwritesSibling => {
            (plan.keys, plan.blind_percent, plan.strict_percent) = (4, 60, 90);
        }
        Defect::DeliveryOrderDecides => {
            (plan.allow_mult, plan.has_rivals, plan.last_write_wins) = (false, true, true);
            (plan.strict_percent, plan.blind_percent) = (90, 60);
        }
        Defect::EpochRuleSkippedOnReceiver
        | Defect::EpochRuleSkippedOnSender
        | Defect::FillingCountedAsComplete
        | Defect::MoveClosedEarly
        | Defect::MoveSettledEarly
        | Defect::GrowthClosedEarly
        | Defect::SloppyQuorumCountedForPw => plan.strict_percent = 90,
        _ => plan.strict_percent = 60,
    }
    plan
}

/// Adapts a plan to a defect that differences at the end show, which no client reads.
fn plan_exchanges(defect: PlantedDefect, plan: &mut RunPlan) {
    use PlantedDefect as Defect;
    (plan.nodes, plan.ring_size, plan.keys) = (3, 8, 60);
    (plan.has_exchanges, plan.strict_percent) = (true, 20);
    plan.length = Duration::from_secs(12);
    if defect == Defect::TreeUnchangedByRepair {
        // Many keys are last written by a put that reached one replica, and read once afterwards.
        (plan.keys, plan.blind_percent) = (300, 60);
    }
    plan.drops_trees = defect == Defect::TreeTrustedWhileBuilt;
    plan.has_expiry = defect == Defect::ExpiredEntryRepaired;
    plan.has_rare_exchanges = !plan.drops_trees && !plan.has_expiry;
    let end = plan.length;
    for fault in &mut plan.faults {
        let length_max = match fault.kind {
            // A long fault loses only writes that no client reads again.
            FaultKind::Rollback | FaultKind::RestoredStores => Duration::from_secs(4),
            FaultKind::Wipe => Duration::ZERO,
            _ => continue,
        };
        fault.length = length_max;
        fault.begin = end - length_max;
    }
    plan.faults.retain(|fault| fault.begin <= end);
    plan.faults.sort_by_key(|fault| fault.begin);
}

/// Adapts a plan to a replica that is put back to what it had before tombstones went: deletes, and much
/// calm, in which rounds come to their end.
fn plan_reaping(plan: &mut RunPlan) {
    (plan.nodes, plan.ring_size, plan.keys) = (3, 8, 40);
    (plan.has_exchanges, plan.has_reaping) = (true, true);
    (plan.strict_percent, plan.delete_percent, plan.blind_percent) = (90, 40, 0);
    (plan.clients, plan.pause_max) = (3, Duration::from_millis(300));
    plan.length = Duration::from_secs(80);
    plan.faults.retain(|fault| fault.kind.is_amnesia());
    for fault in &mut plan.faults {
        (fault.begin, fault.length) = (Duration::from_secs(10), Duration::from_secs(60));
    }
}

/// The first seed of the search: a defect that shows in one seed of many is known to show in this one.
fn first_place(defect: PlantedDefect, control: Control) -> u64 {
    use PlantedDefect as Defect;
    match (defect, control) {
        (Defect::EpochRuleSkippedOnReceiver, Control::StandIn) => 112,
        (Defect::EpochRuleSkippedOnReceiver, Control::Members) => 392,
        (Defect::EpochRuleSkippedOnSender, Control::Members) => 188,
        (Defect::ReadRepairDropped, Control::StandIn) => 25,
        (Defect::ReadRepairDropped, Control::Members) => 14,
        (Defect::FillingCountedAsComplete, Control::StandIn) => 9,
        (Defect::FailedSyncForgotten, Control::Members) => 42,
        (Defect::VoteForgotten, _) => 5,
        (Defect::TreeUnchangedByRepair, _) => 65,
        (Defect::MoveSettledEarly, _) => 189,
        (Defect::SentTransferKeepsTurn, _) => 40,
        _ => 0,
    }
}

/// The result of the search for one defect.
struct Finding {
    /// Number of seeds that it took, and the finding of the last.
    found: Option<(u64, String)>,
    /// Findings of that seed without the defect: none, or the seed proves nothing.
    without: Vec<String>,
}

/// The search, on several threads.
struct Search {
    runtime: Runtime,
    /// Each defect with each kind of clusters that may have it.
    places: Vec<Place>,
    next: AtomicUsize,
    first_seed: u64,
    failed: AtomicUsize,
    /// Keeps all events for a run that fails also without a defect.
    keep_trace: bool,
}

/// Plants one defect or all, each alone; true if each was found, and only because it is there.
pub(crate) fn find_all(
    runtime: &Runtime,
    only: Option<PlantedDefect>,
    arguments: &Arguments,
) -> anyhow::Result<bool> {
    let wanted = all().filter(|it| only.is_none_or(|only| only == *it));
    let places = wanted.flat_map(Place::all_of);
    let places = match arguments.third {
        None => places.collect(),
        Some(third) => places.skip(usize::from(third)).step_by(3).collect(),
    };
    let search = Arc::new(Search {
        runtime: runtime.clone(),
        places,
        next: AtomicUsize::new(0),
        first_seed: arguments.seed.unwrap_or(1),
        failed: AtomicUsize::new(0),
        keep_trace: arguments.trace,
    });
    let searching = search.clone();
    arguments.side_by_side(runtime, "search", move || searching.work())?;
    let failed = search.failed.load(Ordering::Relaxed);
    Ok(conclude(search.places.len() - failed, failed))
}

impl Search {
    fn work(&self) -> anyhow::Result<()> {
        loop {
            let place = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(place) = self.places.get(place).copied() else {
                return Ok(());
            };
            let finding = self.find(place)?;
            let Place {
                defect,
                control,
                engine,
            } = place;
            line(&format!("{defect:?}, {control:?}, {engine:?}: {finding}"));
            self.failed
                .fetch_add(usize::from(!finding.is_good()), Ordering::Relaxed);
        }
    }

    fn find(&self, wanted: Place) -> anyhow::Result<Finding> {
        let defective = Manner {
            defect: Some(wanted.defect),
            ..Manner::default()
        };
        for place in 0..SEEDS_FOR_A_DEFECT {
            let known = first_place(wanted.defect, wanted.control);
            let first = self.first_seed.wrapping_add(known);
            let plan = plan(wanted, first.wrapping_add(place));
            let outcome = one(&self.runtime, &plan, defective)?;
            if let Some(violation) = outcome.violations.into_iter().next() {
                let sound = Manner {
                    keep_trace: self.keep_trace,
                    ..Manner::default()
                };
                let without = one(&self.runtime, &plan, sound)?;
                if !without.violations.is_empty() {
                    without.trace.iter().for_each(|event| line(event));
                }
                return Ok(Finding {
                    found: Some((place + 1, violation)),
                    without: without.violations,
                });
            }
        }
        Ok(Finding {
            found: None,
            without: Vec::new(),
        })
    }
}

impl Finding {
    fn is_good(&self) -> bool {
        self.found.is_some() && self.without.is_empty()
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((seeds, how)) = &self.found else {
            return write!(f, "FAILED  not found in {SEEDS_FOR_A_DEFECT} seeds");
        };
        let short: String = how.chars().take(150).collect();
        match self.without.first() {
            None => write!(f, "found by seed {seeds}, which passes without it: {short}"),
            Some(other) => write!(f, "FAILED  seed {seeds} fails also without it: {other}"),
        }
    }
}
