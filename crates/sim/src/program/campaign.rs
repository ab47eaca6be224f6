//! Many seeds, side by side. The plan of a failing seed is made smaller and printed with its
//! command.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kvorum_runtime::{Moment, Runtime};
use kvorum_sim::{RunPlan, Scenario, shrink};
use parking_lot::Mutex;

use crate::arguments::Arguments;
use crate::console::line;
use crate::section::section;
use crate::single::{Manner, PlantedDefect, one};
use crate::sum::Sum;

/// Runs side by side.
pub(crate) struct Campaign {
    runtime: Runtime,
    arguments: Arguments,
    manner: Manner,
    scenario: Option<Scenario>,
    first: u64,
    begun: Moment,
    next: AtomicU64,
    sum: Mutex<Sum>,
}

/// Runs the campaign of the arguments; true if nothing was found.
pub(crate) fn campaign(
    runtime: &Runtime,
    arguments: Arguments,
    defect: Option<PlantedDefect>,
) -> anyhow::Result<bool> {
    let campaign = Campaign::new(runtime, arguments, defect, None);
    let sum = campaign.carry_out()?;
    let took = runtime.now().since(campaign.begun);
    let has_passed = sum.print(campaign.first, took);
    if let Some(version) = &campaign.arguments.section {
        line(&section(version, campaign.first, &sum));
    }
    Ok(has_passed)
}

impl Campaign {
    /// A campaign that has not begun.
    pub(crate) fn new(
        runtime: &Runtime,
        arguments: Arguments,
        defect: Option<PlantedDefect>,
        scenario: Option<Scenario>,
    ) -> Arc<Self> {
        Arc::new(Self {
            runtime: runtime.clone(),
            manner: Manner {
                defect,
                keep_trace: arguments.trace,
            },
            scenario,
            first: arguments.first_seed(runtime),
            begun: runtime.now(),
            next: AtomicU64::new(0),
            sum: Mutex::default(),
            arguments,
        })
    }

    /// Runs the whole campaign.
    pub(crate) fn carry_out(self: &Arc<Self>) -> anyhow::Result<Sum> {
        let campaign = self.clone();
        let work = move || campaign.work();
        self.arguments.side_by_side(&self.runtime, "seeds", work)?;
        Ok(self.sum.lock().clone())
    }

    fn plan(&self, seed: u64) -> RunPlan {
        self.scenario
            .map_or_else(|| RunPlan::of_seed(seed), |scenario| scenario.plan(seed))
    }

    fn work(&self) -> anyhow::Result<()> {
        loop {
            let place = self.next.fetch_add(1, Ordering::Relaxed);
            let spent = self.runtime.now().since(self.begun).as_secs();
            let is_late = self.arguments.seconds.is_some_and(|most| spent >= most);
            if place >= self.arguments.runs || is_late {
                return Ok(());
            }
            self.run_seed(self.first.wrapping_add(place), place)?;
        }
    }

    fn run_seed(&self, seed: u64, place: u64) -> anyhow::Result<()> {
        let plan = self.plan(seed);
        if self.arguments.plan {
            line(&plan.to_string());
        }
        let outcome = one(&self.runtime, &plan, self.manner)?;
        for event in &outcome.trace {
            line(event);
        }
        let mut violations = outcome.violations.clone();
        let twice_every = self.arguments.twice_every;
        let is_twice = twice_every > 0 && place.is_multiple_of(twice_every);
        if is_twice {
            let again = one(&self.runtime, &plan, self.manner)?;
            if (again.trace_hash, again.events) != (outcome.trace_hash, outcome.events) {
                violations.push(format!(
                    "not deterministic: {:016x} after {} events, then {:016x} after {}",
                    outcome.trace_hash, outcome.events, again.trace_hash, again.events
                ));
            }
        }
        if self.arguments.verbose || self.arguments.runs == 1 {
            let twice = if is_twice { ", twice" } else { "" };
            line(&format!("seed {seed}: {outcome}{twice}"));
        }
        let mut sum = self.sum.lock();
        sum.add(&outcome);
        sum.compared += u64::from(is_twice);
        if !violations.is_empty() {
            sum.failed_seeds.push(seed);
            let is_first = sum.failed_seeds.len() == 1;
            drop(sum);
            let shrink_runs = if is_first {
                self.arguments.shrink_runs
            } else {
                0
            };
            self.report(&plan, &violations, shrink_runs);
        }
        Ok(())
    }

    fn report(&self, plan: &RunPlan, violations: &[String], shrink_runs: usize) {
        let first = violations.first().map_or("", String::as_str);
        line(&format!("FAILED  seed {}: {first}", plan.seed));
        for violation in violations.iter().take(8).skip(1) {
            line(&format!("  {violation}"));
        }
        let defect = self.manner.defect.map(|it| format!(" --defect {it:?}"));
        let scenario = self.scenario.map(|it| format!(" --scenario {}", it.id));
        line(&format!(
            "to replay: cargo xtask sim --seed {}{}{}",
            plan.seed,
            scenario.unwrap_or_default(),
            defect.unwrap_or_default()
        ));
        let fails = |plan: &RunPlan| {
            let outcome = one(&self.runtime, plan, self.manner);
            outcome.is_ok_and(|outcome| !outcome.violations.is_empty())
        };
        let small = shrink(plan, shrink_runs, fails);
        if small != *plan {
            line(&format!("it still fails as\n{small}"));
        }
    }
}
