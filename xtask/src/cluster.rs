//! Clusters of real servers, each with its own network namespace and disk, under faults that only
//! the kernel can cause: lost packets, power failures, stopped processes.
//!
//! The simulation runs thousands of times more faults. These tests show that real sockets, a real
//! file system and a real clock behave as the simulation assumes.

mod bystanders;
mod census;
mod enclosure;
mod fault;
mod fleet;
mod growth;
mod leaving;
mod machine;
mod migration;
mod network;
mod recovery;
mod rolling;
mod survey;
mod under_faults;
mod writers;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context;
use clap::Args;
use tokio::runtime::Handle;

use self::fault::Step;
use self::fleet::{ENCRYPTED, Fleet, REPLICAS};
use self::machine::Workshop;
use self::writers::Knowledge;
use crate::console;
use crate::prerequisite;
use crate::process::backend::{BACKENDS, Backend, Setting};
use crate::run::Run;
use crate::seed::SEED_VARIABLE;
use crate::server::Binary;
use crate::stage::Stage;
use crate::tally::Tally;
use crate::workspace::Workspace;

/// The number of rounds in the large variant, each with its own seed.
const ROUNDS_LONG: u64 = 20;

/// Settings with few partitions, which move quickly, but enough for five nodes.
const SETTINGS: &[Setting] = &[
    ("ring_size", "16"),
    ("leveldb.maximum_memory", "64MB"),
    ("leveled.maximum_memory", "64MB"),
    ("hanoidb.maximum_memory", "64MB"),
    ("innostore.buffer_pool_size", "64MB"),
];

/// The options of a run in the enclosure.
#[derive(Clone, Debug, Args)]
pub(crate) struct Enclosed {
    #[arg(long)]
    seed: u64,
    #[arg(long)]
    binary: PathBuf,
    #[arg(long)]
    long: bool,
}

/// The stage: runs all tests in an enclosure.
pub(crate) fn stage(run: &Run<'_>) -> anyhow::Result<Tally> {
    prerequisite::require(Stage::Cluster.prerequisites())?;
    let tally = enclosure::run(run)?;
    if tally.failed > 0 {
        console::line(&format!(
            "        again: {SEED_VARIABLE}={} cargo xtask test --only cluster",
            run.seed
        ));
    }
    Ok(tally)
}

/// Runs in the enclosure; its last printed line has the counts.
pub(crate) fn enclosed(workspace: &Workspace, options: &Enclosed) -> anyhow::Result<bool> {
    enclosure::end_with_input();
    network::lay_bridge()?;
    for node in 0..5 {
        network::lay_node(node)?;
    }
    let directory = workspace.clean_scratch("cluster")?;
    let source = workspace.root().join("tests/cluster/faults_shim.c");
    let workshop = Workshop {
        binary: Binary::at(&options.binary)?,
        shim: machine::compile_shim(&source, &directory)?,
        directory: directory.join("machines"),
        cutter: workspace.root().join("tests/process/cut_power.py"),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("starting the writers' runtime")?;
    let rounds = if options.long { ROUNDS_LONG } else { 1 };
    let mut tally = Tally::default();
    for round in 0..rounds {
        let seed = options.seed.wrapping_add(round);
        for nodes in [3, 5] {
            // Engines alternate.
            let [bitcask, trees @ ..] = BACKENDS;
            let is_even = seed.wrapping_add(nodes as u64 / 4) % 2 == 0;
            let tree = trees[usize::try_from(seed / 4 % trees.len() as u64).unwrap_or(0)];
            // One of the two clusters is encrypted, independently of the engine.
            let is_encrypted = (nodes > 3) == ((seed / 2) % 2 == 0);
            let trial = Trial {
                seed,
                nodes,
                is_encrypted,
                backend: if is_even { bitcask } else { tree },
                plan: fault::plan(seed, nodes),
            };
            tally += trial.run(&workshop, runtime.handle());
        }
        if tally.failed > 0 {
            break;
        }
    }
    console::line(&tally.to_string());
    Ok(tally.failed == 0)
}

/// The events for one cluster.
struct Trial {
    seed: u64,
    nodes: usize,
    is_encrypted: bool,
    backend: Backend,
    plan: Vec<Step>,
}

impl Trial {
    /// Grows a cluster from one node, then makes planned changes, then the plan's faults.
    fn run(&self, workshop: &Workshop, runtime: &Handle) -> Tally {
        let mut report = Report::of(self);
        let mut settings = self.backend.with(SETTINGS);
        settings.extend(self.is_encrypted.then_some(ENCRYPTED));
        let fleet = match Fleet::start(workshop, self.nodes, &settings) {
            Ok(fleet) => fleet,
            Err(error) => {
                report.check("the servers start", &Err(error));
                return report.tally;
            }
        };
        let mut cluster = Cluster {
            fleet,
            runtime,
            known: Knowledge::default(),
            seed: self.seed,
        };
        if cluster.grows(&mut report) {
            cluster.changes(self, &mut report);
            cluster.suffers(self, &mut report);
        }
        if report.tally.failed > 0 {
            list_logs(&cluster.fleet);
        }
        report.tally
    }

    /// True for the cluster with bitcask, of the two in a round: it is migrated, and the other is
    /// restarted.
    fn is_migrated(&self) -> bool {
        let [bitcask, ..] = BACKENDS;
        self.backend.name == bitcask.name
    }
}

/// A cluster, and the records of its clients.
struct Cluster<'a> {
    fleet: Fleet,
    runtime: &'a Handle,
    known: Knowledge,
    seed: u64,
}

impl Cluster<'_> {
    fn grows(&mut self, report: &mut Report) -> bool {
        let result = growth::growth(&mut self.fleet, self.runtime, &mut self.known, self.seed);
        report.check("one node grows under load", &result)
    }

    /// Makes planned changes, and loses one node.
    fn changes(&mut self, trial: &Trial, report: &mut Report) {
        let (fleet, runtime, known) = (&mut self.fleet, self.runtime, &mut self.known);
        let result = under_faults::one_node_down(fleet, runtime, known, self.seed);
        report.check("one node down is no error for clients", &result);
        if !trial.is_migrated() {
            let result = rolling::restart(fleet, runtime, known, self.seed);
            report.check("nodes restart one after the other", &result);
        }
        // With three nodes, no other node could hold a third replica.
        if trial.nodes > REPLICAS {
            let result = leaving::leave_and_return(fleet, runtime, known, self.seed);
            report.check("a node leaves, and comes back empty", &result);
        }
    }

    /// Causes faults, and checks the data after them.
    fn suffers(&mut self, trial: &Trial, report: &mut Report) {
        let (fleet, runtime, known) = (&mut self.fleet, self.runtime, &mut self.known);
        let count = 2 * trial.plan.len();
        let result = under_faults::steps(fleet, runtime, known, &trial.plan, self.seed);
        if !report.check(&format!("{count} faults under load"), &result) {
            return;
        }
        if trial.is_migrated() {
            let result = migration::migration(fleet, runtime, known, self.seed);
            report.check("nodes change to leveldb one after the other", &result);
        }
        let result = under_faults::convergence(fleet, runtime, known, REPLICAS);
        let is_sound = report.check("nothing acknowledged is lost, nothing comes back", &result);
        // With three nodes, too few would be left for the replicas.
        if is_sound && trial.nodes > REPLICAS {
            let result = recovery::recovery(fleet, runtime, known, self.seed);
            report.check("a majority is lost for good", &result);
        }
    }
}

/// The results of a trial, printed as they arrive.
struct Report {
    title: String,
    since: Instant,
    tally: Tally,
}

impl Report {
    fn of(trial: &Trial) -> Report {
        let (seed, nodes, backend) = (trial.seed, trial.nodes, trial.backend.name);
        let tls = if trial.is_encrypted { ", tls" } else { "" };
        Report {
            title: format!("seed {seed}, {nodes} nodes, {backend}{tls}"),
            since: Instant::now(),
            tally: Tally::default(),
        }
    }

    fn check(&mut self, name: &str, result: &anyhow::Result<String>) -> bool {
        let took_s = self.since.elapsed().as_secs();
        self.since = Instant::now();
        let title = format!("{}: {name}, {took_s} s", self.title);
        self.tally.check(&title, result);
        result.is_ok()
    }
}

/// Prints the logs to read after a failure.
fn list_logs(fleet: &Fleet) {
    for machine in &fleet.machines {
        console::line(&format!("        log: {}", machine.log().display()));
    }
}
