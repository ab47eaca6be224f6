//! Known failures of such databases, each as a plan that would show it again.
//!
//! Each has the project's name for it, the failure, and the property that must hold instead. All are judged
//! like any other run; only the faults that meet in them are special.

use std::time::Duration;

use crate::fault::{Fault, FaultKind};
use crate::plan::{Control, Engine, RunPlan};

/// A named failure.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its number.
    pub id: &'static str,
    /// Its name.
    pub name: &'static str,
    /// The rule that excludes it.
    pub rule: &'static str,
    /// The faults; the first of them has to happen, or nothing was shown.
    pub kinds: &'static [FaultKind],
    adapt: fn(&mut RunPlan),
}

impl Scenario {
    /// All of them.
    pub const ALL: [Self; 20] = SCENARIOS;

    /// The one with this number.
    pub fn of_id(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.id == id)
    }

    /// Its plan for a seed.
    pub fn plan(&self, seed: u64) -> RunPlan {
        let mut plan = RunPlan::focused(seed, self.kinds);
        (self.adapt)(&mut plan);
        plan.give_writers_keys();
        plan
    }
}

use FaultKind::{
    ClockBack, ClockForward, Crash, CrashAll, Delay, DiskFull, DoubledMessages, IsolateOne, Join,
    LateNews, Leave, LostHints, LostMessages, OneWay, OvertakenMessages, PartitionHalves, Replace,
    ResetConnections, Restart, RestoredStores, Rollback, SyncError, Wipe, WriteError,
};

const SCENARIOS: [Scenario; 20] = [
    Scenario {
        id: "R-01",
        name: "lww-partition",
        rule: "with one writer a key and no siblings, the last acknowledged write of a key wins",
        kinds: &[PartitionHalves, IsolateOne, OneWay, ClockForward, ClockBack],
        adapt: |plan| {
            plan.nodes = 5;
            plan.allow_mult = false;
        },
    },
    Scenario {
        id: "R-02",
        name: "stomp-nondeterminism",
        rule: "the remaining versions depend on the set of versions, and not on the order in which they arrive",
        kinds: &[
            Join,
            LateNews,
            DoubledMessages,
            OvertakenMessages,
            LostMessages,
            Replace,
            Leave,
            ClockForward,
            ClockBack,
        ],
        // All write the same few keys, most without having read them.
        adapt: |plan| {
            (plan.allow_mult, plan.has_rivals) = (false, true);
            plan.last_write_wins = !plan.seed.is_multiple_of(4);
            (plan.keys, plan.blind_percent) = (10, 60);
        },
    },
    Scenario {
        id: "R-05",
        name: "coordinator-amnesia",
        rule: "a vnode that lost its data issues no dot twice, and no new write counts as an old one",
        kinds: &[Wipe, Rollback, IsolateOne, Crash],
        adapt: |plan| plan.blind_percent = 60,
    },
    Scenario {
        id: "R-06",
        name: "doomstone",
        rule: "a write after a delete survives the tombstones that stand-ins hand over",
        kinds: &[IsolateOne, PartitionHalves, Crash, Restart],
        adapt: |plan| {
            plan.delete_percent = 25;
            plan.blind_percent = 50;
            plan.strict_percent = 20;
        },
    },
    Scenario {
        id: "R-07",
        name: "double-coordination",
        rule: "one put is one dot, however often it is forwarded",
        kinds: &[
            Replace,
            Join,
            Leave,
            LateNews,
            ResetConnections,
            DiskFull,
            DiskFull,
        ],
        // All show a write that the log has yet to write, and may find no room for.
        adapt: |plan| {
            plan.engine = match plan.seed % 5 {
                0 => Engine::Bitcask,
                1 => Engine::Leveldb,
                2 => Engine::Hanoidb,
                3 => Engine::Innostore,
                _ => Engine::Leveled,
            }
        },
    },
    Scenario {
        id: "R-08",
        name: "lost-in-handoff",
        rule: "no acknowledged write is lost or missing while nodes join and leave",
        kinds: &[Join, Leave],
        adapt: |plan| {
            (plan.nodes, plan.ring_size, plan.n_val) = (5, 32, 3);
            (plan.keys, plan.clients, plan.allow_mult) = (10, 40, true);
            plan.pause_max = Duration::from_millis(300);
            plan.strict_percent = 100;
            plan.length = Duration::from_secs(30);
            let seed = plan.seed;
            let fault = |(number, kind): (u64, FaultKind)| Fault {
                kind,
                begin: Duration::from_secs(2 + 6 * number),
                length: Duration::from_millis(100),
                seed: seed ^ number,
            };
            let kinds = [Join, Join, Leave, Leave];
            plan.faults = (0..).zip(kinds).map(fault).collect();
        },
    },
    Scenario {
        id: "R-11",
        name: "reap-resurrect",
        rule: "an object that is deleted while a replica is away stays deleted",
        kinds: &[
            Crash,
            IsolateOne,
            PartitionHalves,
            Restart,
            WriteError,
            Rollback,
            RestoredStores,
            LostHints,
        ],
        adapt: |plan| {
            plan.delete_percent = 25;
            if plan.seed.is_multiple_of(2) {
                have_tombstones_go(plan);
            }
        },
    },
    Scenario {
        id: "R-12",
        name: "delete-during-handoff",
        rule: "in the end all replicas agree on objects and tombstones",
        kinds: &[Join, Leave, Replace, Restart],
        adapt: |plan| plan.delete_percent = 25,
    },
    Scenario {
        id: "R-15",
        name: "expiry-and-anti-entropy",
        rule: "trees converge while objects expire by different clocks, and no expired object is repaired",
        kinds: &[
            ClockBack,
            ClockForward,
            Restart,
            Crash,
            IsolateOne,
            Rollback,
        ],
        adapt: |plan| {
            (plan.has_exchanges, plan.has_expiry) = (true, true);
            alternate_engines(plan);
        },
    },
    Scenario {
        id: "R-16",
        name: "handoff-never",
        rule: "every hint reaches its replica when the replica is back, also after restarts",
        kinds: &[Restart, Crash, IsolateOne],
        adapt: |plan| plan.strict_percent = 0,
    },
    Scenario {
        id: "R-20",
        name: "partial-transfer",
        rule: "a transfer that ended early does not count as complete",
        kinds: &[Join, Replace, Leave, IsolateOne, Crash, WriteError],
        adapt: |_| {},
    },
    Scenario {
        id: "R-26",
        name: "torn-manifest",
        rule: "a power cut at any point of a flush or compaction leaves a store that opens",
        kinds: &[CrashAll, Crash, SyncError],
        adapt: |plan| {
            alternate_trees(plan);
            plan.value_bytes_max = 3_000;
        },
    },
    Scenario {
        id: "R-28",
        name: "disk-full",
        rule: "a full disk loses nothing, and writes resume when there is space again",
        kinds: &[DiskFull, Restart, Crash],
        adapt: |plan| {
            plan.value_bytes_max = 3_000;
            alternate_engines(plan);
        },
    },
    Scenario {
        id: "R-29",
        name: "failed-sync",
        rule: "writes that a failed sync may have lost are not acknowledged",
        kinds: &[SyncError, WriteError, CrashAll],
        adapt: alternate_engines,
    },
    Scenario {
        id: "R-31",
        name: "damaged-trees",
        rule: "trees are rebuilt by themselves, and exchanges repair all differences without reads",
        kinds: &[
            Restart,
            Crash,
            CrashAll,
            Rollback,
            Wipe,
            RestoredStores,
            LostHints,
            IsolateOne,
            LostMessages,
            DiskFull,
            WriteError,
        ],
        adapt: |plan| {
            (plan.has_exchanges, plan.strict_percent) = (true, 20);
            plan.drops_trees = plan.seed.is_multiple_of(2);
            alternate_engines(plan);
        },
    },
    Scenario {
        id: "R-32",
        name: "wiped-node",
        rule: "a node that lost all its data has every key again without reads",
        kinds: &[Wipe],
        adapt: |plan| {
            (plan.has_exchanges, plan.nodes, plan.keys) = (true, 5, 40);
            plan.faults.retain(|fault| fault.kind == Wipe);
            for fault in &mut plan.faults {
                fault.begin = plan.length * 4 / 5;
            }
            alternate_engines(plan);
        },
    },
    Scenario {
        id: "R-34",
        name: "clock-skew",
        rule: "clocks that jump by up to a day lose nothing and bring nothing back",
        kinds: &[ClockForward, ClockBack, Delay, PartitionHalves],
        adapt: |plan| plan.delete_percent = 20,
    },
    Scenario {
        id: "R-35",
        name: "counted-twice",
        rule: "a counter has all acknowledged increments and some of the unanswered ones, and a set likewise",
        kinds: &[
            LostMessages,
            ResetConnections,
            PartitionHalves,
            IsolateOne,
            Crash,
            Restart,
            Rollback,
            Wipe,
        ],
        adapt: |plan| (plan.has_data_types, plan.clients) = (true, 4),
    },
    Scenario {
        id: "R-37",
        name: "lone-survivor",
        rule: "the last remaining node has every key and answers quorum reads within ten seconds",
        kinds: &[Restart, Crash, IsolateOne, Delay],
        adapt: |plan| {
            (plan.control, plan.loses_majority) = (Control::Members, true);
            (plan.nodes, plan.n_val, plan.allow_mult) = (3, 3, true);
            plan.ring_size = [16, 32, 64][usize::from(plan.clients % 3)];
            (plan.transfer_bytes_per_second, plan.has_second_operator) = (None, false);
            plan.length = Duration::from_secs(10);
            plan.faults
                .retain(|fault| fault.begin < Duration::from_secs(5));
            plan.faults.truncate(6);
            for fault in &mut plan.faults {
                fault.length = fault.length.min(Duration::from_secs(3));
            }
        },
    },
    Scenario {
        id: "R-38",
        name: "moves-between-backends",
        rule: "nothing is lost, and no older value comes back, while buckets move between backends and back",
        kinds: &[
            Crash, CrashAll, Restart, DiskFull, WriteError, SyncError, Join, Leave, IsolateOne,
        ],
        adapt: |plan| plan.engine = Engine::Multi,
    },
];

/// Few faults and much calm between them, in which rounds come to their end while clients go on.
fn have_tombstones_go(plan: &mut RunPlan) {
    (plan.control, plan.is_early) = (Control::Members, false);
    (plan.has_exchanges, plan.has_reaping) = (true, true);
    (plan.nodes, plan.ring_size, plan.n_val) = (3 + plan.nodes % 3, 8, 3);
    (plan.strict_percent, plan.length) = (30, Duration::from_secs(90));
    alternate_engines(plan);
    let every = plan.faults.len().div_ceil(8).max(1);
    let mut number = 0_usize;
    plan.faults.retain(|fault| {
        number += 1;
        fault.kind.is_amnesia() || number.is_multiple_of(every)
    });
    for fault in &mut plan.faults {
        fault.begin *= 3;
    }
}

/// Gives every other seed a tree, for parts that each engine has in its own way.
fn alternate_engines(plan: &mut RunPlan) {
    if plan.seed.is_multiple_of(2) {
        alternate_trees(plan);
    }
}

/// Spreads seeds with trees over four engines: leveldb, leveled, hanoidb and innostore.
fn alternate_trees(plan: &mut RunPlan) {
    plan.engine = match plan.seed / 2 % 4 {
        0 => Engine::Leveldb,
        2 => Engine::Hanoidb,
        3 => Engine::Innostore,
        _ => Engine::Leveled,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_run_members_and_stand_ins() {
        // Only members can lose their majority.
        let has_both = |it: &Scenario| !it.plan(0).loses_majority;
        for scenario in Scenario::ALL.into_iter().filter(has_both) {
            let plans = (0..300).map(|seed| scenario.plan(seed));
            let members = plans
                .filter(|plan| plan.control == Control::Members)
                .count();
            // Every other seed of R-11 has rounds, which members lead.
            let members_max = if scenario.id == "R-11" { 240 } else { 140 };
            assert!(
                (60..members_max).contains(&members),
                "{}: {members}",
                scenario.id
            );
        }
    }

    #[test]
    fn what_disks_do_meets_every_engine_that_has_files() {
        for id in ["R-28", "R-29"] {
            let scenario = Scenario::of_id(id).unwrap();
            let engines: Vec<Engine> = (0..40).map(|seed| scenario.plan(seed).engine).collect();
            for engine in [
                Engine::Bitcask,
                Engine::Leveldb,
                Engine::Leveled,
                Engine::Hanoidb,
                Engine::Innostore,
            ] {
                assert!(engines.contains(&engine), "{id}: {engine:?}");
            }
        }
    }

    #[test]
    fn scenarios_are_found_by_their_numbers_and_plan_what_they_are_named_for() {
        for scenario in Scenario::ALL {
            assert_eq!(Scenario::of_id(scenario.id).unwrap().name, scenario.name);
            let plan = scenario.plan(3);
            assert!(
                plan.faults
                    .iter()
                    .all(|it| scenario.kinds.contains(&it.kind))
            );
            assert!(plan.faults.is_sorted_by_key(|fault| fault.begin));
        }
        assert!(Scenario::of_id("R-99").is_none());
    }

    #[test]
    fn without_siblings_every_writer_has_a_key() {
        for scenario in Scenario::ALL {
            let plans: Vec<_> = (0..200).map(|seed| scenario.plan(seed)).collect();
            let has_keys = |plan: &RunPlan| plan.allow_mult || plan.keys >= u16::from(plan.clients);
            assert!(plans.iter().all(has_keys), "{}", scenario.id);
        }
    }
}
