//! `kvorum-sim`: runs seeds and says what came of them; `cargo xtask sim` builds and calls it.

mod campaign;
#[cfg(feature = "planted-defects")]
mod planted;
mod scenarios;
mod section;
mod single;
mod sum;

use std::fmt::Display;
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
use kvorum_runtime::{ProductionOptions, Runtime};
use tracing_subscriber::EnvFilter;

/// Clusters on virtual time, under faults: one seed, one run.
#[derive(Clone, Debug, Parser)]
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
    /// Print what the nodes log while they run, such as `info` or `kvorum_handoff=debug`, between the
    /// events of the run (`kvorum_sim=debug`).
    #[arg(long)]
    log: Option<String>,
    /// Runs that making a failing plan smaller may take.
    #[arg(long, default_value_t = 60)]
    shrink_runs: usize,
    /// Print at the end, in Markdown, what runs of this version came to.
    #[arg(long)]
    section: Option<String>,
    /// Print the plan before it runs.
    #[arg(long)]
    plan: bool,
    /// Print a line for every run, not only for those that fail.
    #[arg(long)]
    verbose: bool,
    /// Run a scenario by its number, or every one with `all`; `runs` seeds of each.
    #[arg(long)]
    scenario: Option<String>,
    /// Plant every defect in turn, or the one that --defect names, and see that some seed finds it.
    #[cfg(feature = "planted-defects")]
    #[arg(long)]
    planted: bool,
    /// Run with this defect, by name.
    #[cfg(feature = "planted-defects")]
    #[arg(long)]
    defect: Option<String>,
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

impl Arguments {
    fn first_seed(&self, runtime: &Runtime) -> u64 {
        self.seed.unwrap_or_else(|| runtime.random_u64() >> 16)
    }

    /// Does the work on as many threads as are asked for, and waits for all of them.
    fn side_by_side(
        &self,
        runtime: &Runtime,
        name: &str,
        work: impl Fn() -> anyhow::Result<()> + Clone + Send + 'static,
    ) -> anyhow::Result<()> {
        let mut workers = Vec::new();
        for _ in 0..self.threads.max(1) {
            workers.push(runtime.thread(name, work.clone())?);
        }
        for worker in workers {
            worker.join()??;
        }
        Ok(())
    }
}

/// Prints the counts that a reader of the output goes by; whether nothing failed.
fn conclude(passed: impl Display, failed: usize) -> bool {
    line(&format!("{passed} passed, {failed} failed"));
    failed == 0
}

fn line(text: &str) {
    // Who closed the pipe does not want to read it.
    let _closed = writeln!(std::io::stdout().lock(), "{text}");
}

/// Times would be those of the wall; the run's own stand in its events.
fn print_log(filter: &str) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(filter).with_context(|| format!("--log {filter}"))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .without_time()
        .with_ansi(false)
        .init();
    Ok(())
}

fn start() -> anyhow::Result<bool> {
    let arguments = Arguments::parse();
    if let Some(filter) = &arguments.log {
        print_log(filter)?;
    }
    let executor = Runtime::production(&ProductionOptions::default())?;
    let runtime = executor.runtime();
    #[cfg(feature = "planted-defects")]
    let defect = {
        let named = arguments.defect.as_deref().map(planted::named);
        let named = named.transpose()?;
        if arguments.planted {
            return planted::find_all(&runtime, named, &arguments);
        }
        named
    };
    #[cfg(not(feature = "planted-defects"))]
    let defect = None;
    let Some(wanted) = arguments.scenario.clone() else {
        return campaign::campaign(&runtime, arguments, defect);
    };
    scenarios::run(&runtime, &arguments, defect, &wanted)
}
