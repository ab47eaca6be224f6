//! A few seeds, each with its trace compared.

use kvorum_sim::{FaultKind, RunPlan, run};

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
