//! `cargo xtask test`: the stages, with server stages beside the others, and the counts at the end.

use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;

use crate::command::{cargo, succeeds};
use crate::run::Run;
use crate::second_lane::SecondLane;
use crate::server::Binary;
use crate::stage::Stage;
use crate::tally::Tally;
use crate::workspace::Workspace;
use crate::{
    browser, cargo_stages, cluster, conformance, console, hostile, prerequisite, printed, process,
    schemathesis, seed, simulation, suites, tidy, transcripts,
};

/// The stages and variants to run.
#[derive(Clone, Debug, Args)]
pub(crate) struct TestOptions {
    /// Run the large variants: more rounds, a release build, every client's suite.
    #[arg(long)]
    pub(crate) long: bool,
    /// Run this stage alone; may be given several times.
    #[arg(long, value_enum)]
    pub(crate) only: Vec<Stage>,
    /// Leave the power cut out, for machines that do not permit mounting a file system.
    #[arg(long)]
    pub(crate) without_power_cut: bool,
    /// Leave the clusters under faults out, for machines that do not permit namespaces.
    #[arg(long)]
    pub(crate) without_cluster: bool,
    /// Run a release build of the server also without `--long`.
    #[arg(long)]
    pub(crate) release: bool,
}

struct Outcome {
    name: String,
    tally: Tally,
    took: Duration,
}

impl Outcome {
    fn of(name: &str, tally: Tally, start: Instant) -> Self {
        Self {
            name: name.to_owned(),
            tally,
            took: start.elapsed(),
        }
    }
}

/// Runs the stages of the options; true if all of them passed.
pub(crate) fn run(workspace: &Workspace, options: &TestOptions) -> anyhow::Result<bool> {
    let stages = chosen(options);
    let needed = stages.iter().flat_map(|stage| stage.prerequisites());
    prerequisite::provide(&needed.copied().collect::<Vec<_>>())?;
    let is_release = options.long || options.release;
    let run = Run {
        workspace,
        long: options.long,
        seed: seed::choose()?,
        binary: Binary::in_target(workspace.target(), is_release),
    };
    console::line(&format!(
        "seed {seed}; to replay: {variable}={seed} cargo xtask test",
        seed = run.seed,
        variable = seed::SEED_VARIABLE
    ));
    let Lanes { first, beside } = Lanes::of(stages);
    let mut outcomes = Vec::new();
    let mut second = None;
    // Built once: cargo would wait for another lane's build and then have nothing to do.
    let mut is_built = false;
    for stage in first {
        if stage.is_long() && !beside.is_empty() && second.is_none() {
            second = Some(begin(&run, &beside, is_release)?);
        }
        outcomes.push(outcome(stage, &run, || {
            if !is_built {
                build(&run, is_release)?;
            }
            is_built = true;
            Ok(())
        }));
    }
    if let Some(Begun { lane, at }) = second {
        let tally = counted(BESIDE, lane.end());
        outcomes.push(Outcome::of(BESIDE, tally, at));
    }
    Ok(summarise(&outcomes))
}

/// The common name of the second lane's stages.
const BESIDE: &str = "beside";

/// The stages that run one after the other, and the stages in a parallel process.
struct Lanes {
    first: Vec<Stage>,
    beside: Vec<Stage>,
}

impl Lanes {
    /// The second lane begins with the first long stage without a server.
    fn of(stages: Vec<Stage>) -> Self {
        if !stages.iter().any(|stage| stage.is_long()) {
            let beside = Vec::new();
            return Self {
                first: stages,
                beside,
            };
        }
        let (beside, first) = stages.into_iter().partition(|stage| stage.needs_server());
        Self { first, beside }
    }
}

struct Begun {
    lane: SecondLane,
    at: Instant,
}

fn begin(run: &Run<'_>, stages: &[Stage], is_release: bool) -> anyhow::Result<Begun> {
    let at = Instant::now();
    let lane = SecondLane::start(run, stages, is_release)?;
    Ok(Begun { lane, at })
}

/// Runs a stage after `built`, the stage that builds the server for those that need it.
fn outcome(stage: Stage, run: &Run<'_>, built: impl FnOnce() -> anyhow::Result<()>) -> Outcome {
    let name = stage.name();
    console::headline(&name);
    let start = Instant::now();
    let built = match stage.needs_server() {
        true => built(),
        false => Ok(()),
    };
    let tally = counted(&name, built.and_then(|()| run_stage(stage, run)));
    Outcome::of(&name, tally, start)
}

/// The counts of a stage; a stage without counts has failed.
fn counted(name: &str, result: anyhow::Result<Tally>) -> Tally {
    result.unwrap_or_else(|error| {
        console::line(&format!("FAILED  {name}: {error:#}"));
        Tally::one(false)
    })
}

fn chosen(options: &TestOptions) -> Vec<Stage> {
    let mut stages = Stage::all().to_vec();
    if !options.only.is_empty() {
        stages.retain(|stage| options.only.contains(stage));
    } else if !options.long {
        stages.retain(|stage| !stage.is_for_long_runs());
    }
    if options.without_power_cut {
        stages.retain(|stage| *stage != Stage::PowerCut);
    }
    if options.without_cluster {
        stages.retain(|stage| *stage != Stage::Cluster);
    }
    stages
}

fn run_stage(stage: Stage, run: &Run<'_>) -> anyhow::Result<Tally> {
    match stage {
        Stage::Fmt => cargo_stages::fmt(run),
        Stage::Tidy => tidy::run(run.workspace),
        Stage::Clippy => cargo_stages::clippy(run),
        Stage::Crates => cargo_stages::crates(run),
        Stage::Doc => cargo_stages::doc(run),
        Stage::Simulation => simulation::stage(run),
        Stage::Process => process::lifecycle(run),
        Stage::Printed => printed::stage(run),
        Stage::Kill => process::kill(run),
        Stage::Hostile => hostile::stage(run),
        Stage::PowerCut => process::power_cut(run),
        Stage::Cluster => cluster::stage(run),
        Stage::Transcripts => transcripts::stage(run),
        Stage::Python => conformance::python(run),
        Stage::Node => suites::node(run),
        Stage::Go | Stage::Java | Stage::Ycsb | Stage::Erlang | Stage::Ruby | Stage::Php => {
            suites::stage(run, stage)
        }
        Stage::Schemathesis => schemathesis::stage(run),
        Stage::Browser => browser::run(run),
    }
}

fn build(run: &Run<'_>, is_release: bool) -> anyhow::Result<()> {
    let mut command = cargo(run.workspace.root());
    command.args(["build", "--quiet"]);
    match is_release {
        true => command.args(["--release", "--package", "kvorum-node"]),
        // The server is part of the tests' build, so that libraries are not built again with fewer
        // features; no defect is planted in it.
        false => command.args([
            "--workspace",
            "--bin",
            "kvorum",
            "--features",
            "kvorum-sim/planted-defects",
        ]),
    };
    succeeds(&mut command)?
        .then_some(())
        .context("the server does not build")
}

fn summarise(outcomes: &[Outcome]) -> bool {
    console::headline("summary");
    let mut total = Tally::default();
    for outcome in outcomes {
        console::line(&format!(
            "{:<10} {:>7.1} s   {}",
            outcome.name,
            outcome.took.as_secs_f64(),
            outcome.tally
        ));
        total += outcome.tally;
    }
    console::line("");
    console::failures().iter().for_each(|it| console::line(it));
    console::line(&total.to_string());
    total.failed == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> TestOptions {
        TestOptions {
            long: false,
            only: Vec::new(),
            without_power_cut: false,
            without_cluster: false,
            release: false,
        }
    }

    fn long() -> TestOptions {
        TestOptions {
            long: true,
            ..options()
        }
    }

    #[test]
    fn every_stage_of_a_run_is_in_it_unless_some_are_named() {
        assert_eq!(chosen(&long()), Stage::all());
        assert!(!chosen(&options()).contains(&Stage::Php));
        let mut only = options();
        only.only = vec![Stage::Php, Stage::Fmt];
        assert_eq!(chosen(&only), [Stage::Fmt, Stage::Php]);
    }

    #[test]
    fn the_power_cut_is_left_out_on_request_alone() {
        let mut without = long();
        without.without_power_cut = true;
        let chosen = chosen(&without);
        assert!(!chosen.contains(&Stage::PowerCut));
        assert_eq!(chosen.len() + 1, Stage::all().len());
        without.without_cluster = true;
        assert_eq!(super::chosen(&without).len() + 2, Stage::all().len());
    }

    #[test]
    fn servers_are_tested_beside_what_is_long_without_them() {
        let Lanes { first, beside } = Lanes::of(Stage::all().to_vec());
        assert!(beside.iter().all(|stage| stage.needs_server()));
        assert!(!first.iter().any(|stage| stage.needs_server()));
        assert_eq!(first.len() + beside.len(), Stage::all().len());
        let without = vec![Stage::Fmt, Stage::Kill];
        assert_eq!(Lanes::of(without.clone()).first, without);
    }

    #[test]
    fn one_failure_fails_the_run() {
        let outcome = |failed| Outcome {
            name: String::new(),
            tally: Tally {
                passed: 3,
                failed,
                not_run: 0,
            },
            took: Duration::ZERO,
        };
        assert!(summarise(&[outcome(0), outcome(0)]));
        assert!(!summarise(&[outcome(0), outcome(1)]));
    }
}
