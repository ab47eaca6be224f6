//! A few seeds, each run twice with equal traces.

use kvorum_sim::{Control, Engine, FaultKind, RunPlan, Scenario, run};

#[test]
fn a_seed_runs_the_same_way_twice_and_finds_nothing() {
    let plan = RunPlan::of_seed(101);
    let (first, second) = (run(&plan, false).unwrap(), run(&plan, false).unwrap());
    assert_eq!(first.violations, Vec::<String>::new());
    assert_eq!(first, second);
    assert!(first.operations.acknowledged() > 500, "{first}");
    let other = run(&RunPlan::of_seed(104), false).unwrap();
    assert_eq!(other.violations, Vec::<String>::new());
    assert_ne!(first.trace_hash, other.trace_hash);
}

#[test]
fn what_was_acknowledged_outlives_power_cuts_of_all_machines() {
    let plan = RunPlan::focused(1, &[FaultKind::CrashAll]);
    let outcome = run(&plan, false).unwrap();
    assert_eq!(outcome.violations, Vec::<String>::new());
    assert!(outcome.faults[&FaultKind::CrashAll] >= 5);
}

/// Regression: a replica's store had applied a put when the log in front of it met a full disk.
/// Another replica answered that the ring had changed, so the put was coordinated again: one put
/// made two siblings.
#[test]
fn a_put_of_which_the_sync_failed_is_not_coordinated_again() {
    let scenario = Scenario::of_id("R-07").unwrap();
    for seed in [1, 2, 4] {
        let outcome = run(&scenario.plan(seed), false).unwrap();
        assert_eq!(outcome.violations, Vec::<String>::new(), "seed {seed}");
        assert!(outcome.faults.contains_key(&FaultKind::DiskFull));
    }
}

/// Members as the server opens them: they elect, agree on plans, and fetch moving partitions.
#[test]
fn members_run_the_same_way_twice_and_find_nothing() {
    let plan = RunPlan {
        control: Control::Members,
        ..RunPlan::of_seed(3)
    };
    let (first, second) = (run(&plan, true).unwrap(), run(&plan, true).unwrap());
    assert_eq!(first.violations, Vec::<String>::new());
    assert_eq!(first, second);
    assert!(first.operations.acknowledged() > 500, "{first}");
}

/// Regression: seeds ran without a value log, so none collected a segment or admitted a store.
#[test]
fn bitcask_runs_over_the_value_log_whose_segments_are_collected() {
    for (seed, control) in [(7001, Control::StandIn), (7007, Control::Members)] {
        let plan = RunPlan {
            control,
            engine: Engine::Bitcask,
            ..RunPlan::of_seed(seed)
        };
        let (first, second) = (run(&plan, false).unwrap(), run(&plan, false).unwrap());
        assert_eq!(first.violations, Vec::<String>::new());
        assert_eq!(first, second);
        let upkeep = first.upkeep;
        assert!(upkeep.collections > 10 && upkeep.merges > 0, "{first}");
    }
}

/// Every acknowledged operation on a counter or a set counts once, every other at most once.
#[test]
fn r35_counters_and_sets_are_exact_under_faults() {
    let scenario = Scenario::of_id("R-35").unwrap();
    for (seed, control) in [(1, Control::StandIn), (2, Control::Members)] {
        let plan = RunPlan {
            control,
            ..scenario.plan(seed)
        };
        let outcome = run(&plan, false).unwrap();
        assert_eq!(outcome.violations, Vec::<String>::new(), "seed {seed}");
        assert!(outcome.operations.updates > 50, "{outcome:?}");
    }
}
