//! `kvorum-sim`: runs seeds and says what came of them; `cargo xtask sim` builds and calls it.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser;
use kvorum_runtime::{Moment, ProductionOptions, Runtime};
use kvorum_sim::{FaultKind, Operations, Outcome, RunPlan, run, shrink};
use parking_lot::Mutex;

/// Clusters on virtual time, under faults: one seed, one run.
#[derive(Debug, Parser)]
struct Arguments {
    /// The first seed; a fresh one where none is given.
    #[arg(long)]
    seed: Option<u64>,
    /// Seeds to run, one after the other.
    #[arg(long, default_value_t = 1)]
    runs: u64,
    /// Begin no further run after this many seconds.
    #[arg(long)]
    seconds: Option<u64>,
    /// Run every so many seeds twice and compare the traces.
    #[arg(long, default_value_t = 8)]
    twice_every: u64,
    /// Seeds that run side by side.
    #[arg(long, default_value_t = 1)]
    threads: u64,
    /// Print every event of the run.
    #[arg(long)]
    trace: bool,
    /// Runs that making a failing plan smaller may take.
    #[arg(long, default_value_t = 60)]
    shrink_runs: usize,
    /// Print the plan before it runs.
    #[arg(long)]
    plan: bool,
    /// Plant every defect in turn and see that some seed finds it.
    #[cfg(feature = "planted-defects")]
    #[arg(long)]
    planted: bool,
    /// Run with this defect, by name.
    #[cfg(feature = "planted-defects")]
    #[arg(long)]
    defect: Option<String>,
}

/// What all runs came to.
#[derive(Debug, Default)]
struct Sum {
    runs: u64,
    compared: u64,
    operations: Operations,
    faults: BTreeMap<FaultKind, u64>,
    virtual_time: Duration,
    failed_seeds: Vec<u64>,
}

fn main() -> ExitCode {
    match start() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            line(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn line(text: &str) {
    // Who closed the pipe does not want to read it.
    let _closed = writeln!(std::io::stdout().lock(), "{text}");
}

fn start() -> anyhow::Result<bool> {
    let arguments = Arguments::parse();
    let executor = Runtime::production(&ProductionOptions::default())?;
    #[cfg(feature = "planted-defects")]
    {
        if arguments.planted {
            return plant_all(&executor.runtime(), &arguments);
        }
        if let Some(name) = &arguments.defect {
            let all = kvorum_runtime::PlantedDefect::ALL;
            let defect = all.into_iter().find(|it| format!("{it:?}") == *name);
            kvorum_runtime::plant(Some(defect.with_context(|| format!("one of {all:?}"))?));
        }
    }
    campaign(&executor.runtime(), arguments)
}

/// On a thread of its own: what the standard library draws once a thread does not outlive a run.
fn one(runtime: &Runtime, plan: &RunPlan, keep_trace: bool) -> anyhow::Result<Outcome> {
    let plan = plan.clone();
    let thread = runtime.thread("run", move || run(&plan, keep_trace))?;
    thread.join().context("the run panicked")?
}

/// Runs that go on side by side.
struct Campaign {
    runtime: Runtime,
    arguments: Arguments,
    first: u64,
    begun: Moment,
    next: AtomicU64,
    sum: Mutex<Sum>,
}

fn campaign(runtime: &Runtime, arguments: Arguments) -> anyhow::Result<bool> {
    let first = arguments.seed.unwrap_or_else(|| runtime.random_u64() >> 16);
    let threads = arguments.threads.max(1);
    let campaign = Arc::new(Campaign {
        runtime: runtime.clone(),
        arguments,
        first,
        begun: runtime.now(),
        next: AtomicU64::new(0),
        sum: Mutex::default(),
    });
    let mut workers = Vec::new();
    for _ in 0..threads {
        let campaign = campaign.clone();
        workers.push(runtime.thread("seeds", move || campaign.work())?);
    }
    for worker in workers {
        worker.join()??;
    }
    let sum = campaign.sum.lock();
    sum.print(first, runtime.now().since(campaign.begun));
    Ok(sum.failed_seeds.is_empty())
}

impl Campaign {
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
        let plan = RunPlan::of_seed(seed);
        if self.arguments.plan {
            line(&plan.to_string());
        }
        let outcome = one(&self.runtime, &plan, self.arguments.trace)?;
        for event in &outcome.trace {
            line(event);
        }
        let mut violations = outcome.violations.clone();
        let twice_every = self.arguments.twice_every;
        let is_twice = twice_every > 0 && place.is_multiple_of(twice_every);
        if is_twice {
            let again = one(&self.runtime, &plan, false)?;
            if (again.trace_hash, again.events) != (outcome.trace_hash, outcome.events) {
                violations.push(format!(
                    "not deterministic: {:016x} after {} events, then {:016x} after {}",
                    outcome.trace_hash, outcome.events, again.trace_hash, again.events
                ));
            }
        }
        line(&format!(
            "seed {seed}: {outcome}{}",
            if is_twice { ", twice" } else { "" }
        ));
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
            report(&self.runtime, &plan, &violations, shrink_runs);
        }
        Ok(())
    }
}

fn report(runtime: &Runtime, plan: &RunPlan, violations: &[String], shrink_runs: usize) {
    line(&format!("FAILED  seed {}:", plan.seed));
    for violation in violations.iter().take(8) {
        line(&format!("  {violation}"));
    }
    line(&format!("to replay: cargo xtask sim --seed {}", plan.seed));
    let fails = |plan: &RunPlan| {
        let outcome = one(runtime, plan, false);
        outcome.is_ok_and(|outcome| !outcome.violations.is_empty())
    };
    let small = shrink(plan, shrink_runs, fails);
    if small != *plan {
        line(&format!("it still fails as\n{small}"));
    }
}

/// Seeds that a defect may take to be found: what a CI run has time for.
#[cfg(feature = "planted-defects")]
const SEEDS_FOR_A_DEFECT: u64 = 30;

/// The faults that a defect needs to show; none when any do.
#[cfg(feature = "planted-defects")]
fn occasion(defect: kvorum_runtime::PlantedDefect) -> &'static [FaultKind] {
    use FaultKind::{
        Crash, CrashAll, DiskFull, IsolateOne, Join, Leave, PartitionHalves, Replace, SyncError,
        WriteError,
    };
    use kvorum_runtime::PlantedDefect as Defect;
    match defect {
        Defect::AcknowledgedBeforeSync | Defect::ReplaySkipped => &[CrashAll],
        Defect::FailedSyncForgotten => &[SyncError, CrashAll],
        Defect::CounterLeaseIgnored => &[Crash, CrashAll, WriteError],
        Defect::EpochRuleSkippedOnSender
        | Defect::EpochRuleSkippedOnReceiver
        | Defect::TransferCompletedWithoutDigest
        | Defect::StaleRingUsedForCoverage
        | Defect::FillingCountedAsComplete
        | Defect::RetryTakenForNewWrite => &[Join, Replace, Leave],
        Defect::ReadRepairDropped => &[DiskFull, WriteError],
        Defect::HintDeletedBeforeConfirmation
        | Defect::SloppyQuorumCountedForPw
        | Defect::FallbackNotFoundCounted => &[PartitionHalves, IsolateOne],
        Defect::TombstoneReapedEarly | Defect::SiblingsDropped => &[IsolateOne, Crash],
    }
}

#[cfg(feature = "planted-defects")]
fn plant_all(runtime: &Runtime, arguments: &Arguments) -> anyhow::Result<bool> {
    let first = arguments.seed.unwrap_or(1);
    let mut all_found = true;
    for defect in kvorum_runtime::PlantedDefect::ALL {
        kvorum_runtime::plant(Some(defect));
        let mut found = None;
        for seed in first..first + SEEDS_FOR_A_DEFECT {
            let plan = RunPlan::focused(seed, occasion(defect));
            let outcome = one(runtime, &plan, false)?;
            if let Some(violation) = outcome.violations.first() {
                found = Some((seed - first + 1, violation.clone()));
                break;
            }
        }
        match found {
            Some((count, how)) => {
                let short: String = how.chars().take(160).collect();
                line(&format!("{defect:?}: found by seed {count}: {short}"));
            }
            None => {
                all_found = false;
                line(&format!(
                    "{defect:?}: NOT FOUND in {SEEDS_FOR_A_DEFECT} seeds"
                ));
            }
        }
    }
    kvorum_runtime::plant(None);
    Ok(all_found)
}

impl Sum {
    fn add(&mut self, outcome: &Outcome) {
        self.runs += 1;
        self.virtual_time += outcome.took;
        let (sum, one) = (&mut self.operations, &outcome.operations);
        sum.reads += one.reads;
        sum.checked_reads += one.checked_reads;
        sum.writes += one.writes;
        sum.deletes += one.deletes;
        sum.listings += one.listings;
        sum.failed += one.failed;
        for (kind, count) in &outcome.faults {
            *self.faults.entry(*kind).or_default() += count;
        }
    }

    fn print(&self, first: u64, took: Duration) {
        let faults: u64 = self.faults.values().sum();
        for kind in FaultKind::ALL {
            let count = self.faults.get(&kind).copied().unwrap_or(0);
            line(&format!("{count:>8}  {}", kind.name()));
        }
        let operations = &self.operations;
        line(&format!(
            "{} seeds from {first} in {} s ({:.1} hours of virtual time), {} run twice: {} acknowledged \
             ({} reads, of which {} were checked against all strict writes, {} writes, {} deletes, {} \
             listings), {} failed, {faults} faults of {} kinds; {} seeds found something: {:?}",
            self.runs,
            took.as_secs(),
            self.virtual_time.as_secs_f64() / 3_600.0,
            self.compared,
            operations.acknowledged(),
            operations.reads,
            operations.checked_reads,
            operations.writes,
            operations.deletes,
            operations.listings,
            operations.failed,
            self.faults.len(),
            self.failed_seeds.len(),
            self.failed_seeds,
        ));
    }
}
