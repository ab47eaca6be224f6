//! `cargo xtask sim`: whole clusters on virtual time, seed by seed.
//!
//! The simulator is a separate program, with assertions and little optimisation: a higher level
//! makes runs an eighth shorter, but takes a minute longer to build.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;

use anyhow::{Context, ensure};
use clap::Args;

use crate::command::{capture, cargo, read_lines, succeeds};
use crate::run::Run;
use crate::tally::Tally;
use crate::workspace::Workspace;

/// The runs of the simulation.
#[derive(Clone, Debug, Args)]
pub(crate) struct SimOptions {
    /// The first seed; a fresh one if none is given.
    #[arg(long)]
    seed: Option<u64>,
    /// Seeds to run, one after the other.
    #[arg(long, default_value_t = 1)]
    runs: u64,
    /// Begin no further run after this many seconds.
    #[arg(long)]
    seconds: Option<u64>,
    /// Print the plan before it runs.
    #[arg(long)]
    plan: bool,
    /// Print every event.
    #[arg(long)]
    trace: bool,
    /// Print a line for every run, not only for those that fail.
    #[arg(long)]
    verbose: bool,
    /// Run a scenario by its number, or every one with `all`.
    #[arg(long)]
    scenario: Option<String>,
    /// Add the results of the campaign to docs/lab/simulation-runs.md.
    #[arg(long)]
    log: bool,
    /// Plant every defect in turn, or the one that --defect names, and see that some seed finds it.
    #[arg(long)]
    planted: bool,
    /// Run with this defect.
    #[arg(long)]
    defect: Option<String>,
}

/// Runs the simulations of the options; true if all passed.
pub(crate) fn run(workspace: &Workspace, options: &SimOptions) -> anyhow::Result<bool> {
    let mut command = simulator(workspace)?;
    command.args(["--runs", &options.runs.to_string()]);
    let numbers = [("--seed", options.seed), ("--seconds", options.seconds)];
    for (name, number) in numbers {
        if let Some(number) = number {
            command.args([name, &number.to_string()]);
        }
    }
    let flags = [
        ("--plan", options.plan),
        ("--trace", options.trace),
        ("--verbose", options.verbose),
        ("--planted", options.planted),
    ];
    command.args(
        flags
            .iter()
            .filter(|(_, is_set)| *is_set)
            .map(|(name, _)| name),
    );
    if let Some(defect) = &options.defect {
        command.args(["--defect", defect]);
    }
    if let Some(scenario) = &options.scenario {
        command.args(["--scenario", scenario]);
    }
    // Only the events of one run at a time are readable.
    if !options.trace {
        command.args(["--threads", &cores()]);
    }
    if options.log {
        return run_logged(workspace, &mut command);
    }
    succeeds(&mut command)
}

/// The page with the campaigns.
const PAGE: &str = "docs/lab/simulation-runs.md";

/// Runs a campaign and adds its section to the page.
fn run_logged(workspace: &Workspace, command: &mut Command) -> anyhow::Result<bool> {
    let mut describe = Command::new("git");
    describe.args(["describe", "--always", "--dirty=, with changes"]);
    describe.current_dir(workspace.root());
    let commit = capture(&mut describe)?;
    let version = format!("{}, commit {}", env!("CARGO_PKG_VERSION"), commit.trim());
    command.args(["--section", &version]);
    let mut section = String::new();
    let has_passed = read_lines(command, |line| {
        if line.starts_with("## ") || !section.is_empty() {
            section.push_str(line);
            section.push('\n');
        }
    })?;
    let path = workspace.root().join(PAGE);
    let mut page = fs::read_to_string(&path).with_context(|| format!("reading {PAGE}"))?;
    page.push('\n');
    page.push_str(section.trim_end());
    page.push('\n');
    fs::write(&path, page).with_context(|| format!("writing {PAGE}"))?;
    Ok(has_passed)
}

/// Seconds for which a run of the tests begins new seeds.
const FRESH_SECONDS: u64 = 40;
const FRESH_SECONDS_LONG: u64 = 900;

/// The stage of the tests: runs new seeds, and checks that planted defects are found, every third
/// in a short run.
pub(crate) fn stage(run: &Run<'_>) -> anyhow::Result<Tally> {
    let mut fresh = simulator(run.workspace)?;
    let seconds = match run.long {
        true => FRESH_SECONDS_LONG,
        false => FRESH_SECONDS,
    };
    // Consecutive seeds belong to one run; seeds of two runs of the tests are far apart.
    let first = run.seed >> 16;
    fresh.args([
        "--seed",
        &first.to_string(),
        "--runs",
        &u64::MAX.to_string(),
    ]);
    fresh.args(["--seconds", &seconds.to_string(), "--threads", &cores()]);
    let mut scenarios = simulator(run.workspace)?;
    let runs = if run.long { "50" } else { "2" };
    scenarios.args(["--scenario", "all", "--runs", runs]);
    scenarios.args(["--seed", &first.to_string(), "--threads", &cores()]);
    let mut planted = simulator(run.workspace)?;
    planted.args(["--planted", "--threads", &cores()]);
    if !run.long {
        // Long runs plant all defects: a seed that has found a defect finds it again.
        planted.args(["--third", &(first % 3).to_string()]);
    }
    let mut tally = Tally::default();
    for mut command in [fresh, scenarios, planted] {
        tally += counted(&mut command)?;
    }
    Ok(tally)
}

/// The counts that the simulator ends with.
fn counted(command: &mut Command) -> anyhow::Result<Tally> {
    let mut tally = Tally::default();
    let has_passed = read_lines(command, |line| {
        tally = Tally::parse(line).unwrap_or(tally);
    })?;
    if !has_passed && tally.failed == 0 {
        tally.failed += 1; // it died
    }
    Ok(tally)
}

fn cores() -> String {
    thread::available_parallelism()
        .map_or(1, usize::from)
        .to_string()
}

/// The simulator, built with the other stages' libraries: for the whole workspace, and without a
/// profile of its own.
fn simulator(workspace: &Workspace) -> anyhow::Result<Command> {
    let mut build = cargo(workspace.root());
    build.args(["build", "--quiet", "--workspace", "--bin", "kvorum-sim"]);
    build.args(["--features", "kvorum-sim/planted-defects"]);
    for setting in ["opt-level=1", "debug=false"] {
        build.args(["--config", &format!("profile.dev.{setting}")]);
    }
    ensure!(succeeds(&mut build)?, "the simulator does not build");
    let program: PathBuf = workspace.target().join("debug").join("kvorum-sim");
    let mut command = Command::new(program);
    command.current_dir(workspace.root());
    Ok(command)
}
