//! The project's own commands: `cargo xtask test`, `sim`, `tidy`, `lines`, `cycles`, `fix`,
//! `profile-get`, `request-cost`, `cluster-cost` and `tombstones`.
//!
//! `test` is the command for CI and for newcomers: it installs its dependencies under the target
//! directory, writes nowhere else, and ends with a line of counts. `tidy` checks the project's
//! rules that no other tool checks; `lines` and `cycles` count lines and cycles. `fix` is the only
//! command that changes a file of the repository. Four commands measure figures of
//! `docs/performance.md`: `profile-get` for a cached get, `request-cost` for compared requests,
//! `cluster-cost` for several nodes, and `tombstones` for a cluster with deletes. `sim` replays
//! seeds of the simulation and runs campaigns.

mod browser;
mod cargo_stages;
mod cluster;
mod cluster_cost;
mod command;
mod conformance;
mod console;
mod cycles;
mod fix;
mod hostile;
mod lines;
mod modules;
mod neighbours;
mod prerequisite;
mod printed;
mod process;
mod profile_get;
mod request_cost;
mod run;
mod schemathesis;
mod second_lane;
mod seed;
mod server;
mod simulation;
mod stage;
mod suites;
mod tally;
mod test_run;
mod tidy;
mod tombstones;
mod transcripts;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::cluster_cost::CostOptions;
use crate::cycles::CyclesOptions;
use crate::profile_get::ProfileOptions;
use crate::request_cost::RequestCostOptions;
use crate::test_run::TestOptions;
use crate::tombstones::TombstoneOptions;
use crate::workspace::Workspace;

/// The project's own commands.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run every check and test, or one stage of them.
    Test(TestOptions),
    /// Run clusters on virtual time under faults: one seed, one run.
    Sim(simulation::SimOptions),
    /// Run tests in the namespaces of the stage `cluster`.
    #[command(hide = true)]
    Enclosed(cluster::Enclosed),
    /// Check the rules of the house: floors, cycles, seams, file openings, links.
    Tidy,
    /// Count the lines of code of each crate, without tests, comments and blank lines.
    Lines,
    /// Show which modules of a crate reach each other, and the paths by which they do.
    Cycles(CyclesOptions),
    /// Format, and apply what clippy can mend. The only command that writes into the tree.
    Fix,
    /// Show where the server's time goes while it answers gets of cached objects.
    ProfileGet(ProfileOptions),
    /// Show what a get costs over HTTP beside protocol buffers, and a counter's increment beside a put.
    RequestCost(RequestCostOptions),
    /// Show what a cluster costs beside a single node, and what a node that is down does to clients.
    ClusterCost(CostOptions),
    /// Show the memory and the disk of a cluster whose keys are written and deleted, over time.
    Tombstones(TombstoneOptions),
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            console::line(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Runs a command; true if everything passed.
fn run(arguments: &Arguments) -> anyhow::Result<bool> {
    let workspace = Workspace::find()?;
    match &arguments.verb {
        Verb::Test(options) => test_run::run(&workspace, options),
        Verb::Sim(options) => simulation::run(&workspace, options),
        Verb::Enclosed(options) => cluster::enclosed(&workspace, options),
        Verb::Tidy => tidy::run(&workspace).map(|tally| {
            console::line(&tally.to_string());
            tally.failed == 0
        }),
        Verb::Lines => lines::run(&workspace),
        Verb::Cycles(options) => cycles::run(&workspace, options),
        Verb::Fix => fix::run(&workspace),
        Verb::ProfileGet(options) => profile_get::run(&workspace, options),
        Verb::RequestCost(options) => request_cost::run(&workspace, options),
        Verb::ClusterCost(options) => cluster_cost::run(&workspace, options),
        Verb::Tombstones(options) => tombstones::run(&workspace, options),
    }
}
