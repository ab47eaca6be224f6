//! Makes a failing plan smaller: a part that can be left out is not the cause.

use std::time::Duration;

use crate::plan::RunPlan;

/// Leaves out faults, first many at a time, then one by one; then halves their times and removes
/// clients, for as long as the plan still fails. `attempts_max` bounds the runs.
pub fn shrink(
    plan: &RunPlan,
    attempts_max: usize,
    mut still_fails: impl FnMut(&RunPlan) -> bool,
) -> RunPlan {
    let mut best = plan.clone();
    let mut attempts = 0;
    let mut attempt = |candidate: RunPlan, best: &mut RunPlan| -> bool {
        if attempts >= attempts_max || candidate == *best {
            return false;
        }
        attempts += 1;
        let fails = still_fails(&candidate);
        if fails {
            *best = candidate;
        }
        fails
    };
    let mut count = best.faults.len().div_ceil(2);
    while count > 0 {
        let mut from = 0;
        while from < best.faults.len() {
            let mut candidate = best.clone();
            let to = (from + count).min(candidate.faults.len());
            candidate.faults.drain(from..to);
            if !attempt(candidate, &mut best) {
                from += count;
            }
        }
        count /= 2;
    }
    for at in 0..best.faults.len() {
        let mut candidate = best.clone();
        candidate.faults[at].length /= 2;
        attempt(candidate, &mut best);
    }
    let candidate = RunPlan {
        has_second_operator: false,
        ..best.clone()
    };
    attempt(candidate, &mut best);
    while best.clients > 1 {
        let mut candidate = best.clone();
        candidate.clients /= 2;
        if !attempt(candidate, &mut best) {
            break;
        }
    }
    while best.length > Duration::from_secs(2) {
        let mut candidate = best.clone();
        candidate.length /= 2;
        let length = candidate.length;
        candidate
            .faults
            .retain(|fault| fault.begin + fault.length <= length);
        if !attempt(candidate, &mut best) {
            break;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::FaultKind;

    #[test]
    fn what_has_no_part_in_a_failure_goes() {
        let mut plan = RunPlan::of_seed(1);
        plan.faults.truncate(9);
        plan.faults[3].kind = FaultKind::Crash;
        plan.faults[7].kind = FaultKind::Join;
        let needed = |plan: &RunPlan| {
            let has = |kind| plan.faults.iter().any(|fault| fault.kind == kind);
            has(FaultKind::Crash) && has(FaultKind::Join) && plan.clients > 1
        };
        let mut runs = 0;
        let small = shrink(&plan, 200, |plan| {
            runs += 1;
            needed(plan)
        });
        assert!(needed(&small) && runs <= 200);
        assert_eq!(small.faults.len(), 2);
        assert!(small.clients <= 3);
    }

    #[test]
    fn a_plan_is_left_as_it_is_when_no_attempt_is_allowed() {
        let plan = RunPlan::of_seed(2);
        assert_eq!(shrink(&plan, 0, |_| true), plan);
    }
}
