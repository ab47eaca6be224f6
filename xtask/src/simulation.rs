//! `cargo xtask sim`: whole clusters on virtual time, seed by seed.
//!
//! The simulator is a program of its own, built under its own profile: optimised, with assertions.

use std::path::PathBuf;
use std::process::Command;
use std::thread;

use anyhow::ensure;
use clap::Args;

use crate::command::{cargo, succeeds};
use crate::workspace::Workspace;

/// What to run.
#[derive(Clone, Debug, Args)]
pub(crate) struct SimOptions {
    /// The first seed; a fresh one where none is given.
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
    /// Plant every defect in turn and see that some seed finds it.
    #[arg(long)]
    planted: bool,
}

/// Runs what the options say; whether all went well.
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
        ("--planted", options.planted),
    ];
    command.args(
        flags
            .iter()
            .filter(|(_, is_set)| *is_set)
            .map(|(name, _)| name),
    );
    // Events of one run at a time can be read.
    if !options.trace {
        command.args(["--threads", &cores()]);
    }
    succeeds(&mut command)
}

fn cores() -> String {
    thread::available_parallelism()
        .map_or(1, usize::from)
        .to_string()
}

/// The simulator, built.
fn simulator(workspace: &Workspace) -> anyhow::Result<Command> {
    let mut build = cargo(workspace.root());
    build.args([
        "build",
        "--quiet",
        "--profile",
        "simulation",
        "--package",
        "kvorum-sim",
    ]);
    build.args(["--features", "kvorum-sim/planted-defects"]);
    ensure!(succeeds(&mut build)?, "the simulator does not build");
    let program: PathBuf = workspace.target().join("simulation").join("kvorum-sim");
    let mut command = Command::new(program);
    command.current_dir(workspace.root());
    Ok(command)
}
