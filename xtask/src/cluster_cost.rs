//! `cargo xtask cluster-cost`: the cost of a cluster beside a single node, and the effect on
//! clients when one of its nodes is down.
//!
//! Five servers on this machine answer the same load as one alone. The CPU time of all servers
//! between the first operation and the last is added up. A closed loop gives the cost. Open loops
//! at half of its rate give the latencies, alternately with all nodes and with one killed; clients
//! use the nodes that stay. Upkeep of six processes on a few cores affects the p99 of one open
//! loop, so the median of several counts.
//!
//! Each of the five has its share of the machine's cores (`worker_threads`), as the documentation
//! advises for several nodes on one machine; the single server has all cores.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Args;
use serde_json::Value;

use crate::command;
use crate::console;
use crate::neighbours::Neighbours;
use crate::server::{Binary, Server, settings_of};
use crate::workspace::Workspace;

const NODES: usize = 5;

/// The time until the others have detected that a node is down, and hints are the only cost.
const NOTICED_WITHIN: Duration = Duration::from_secs(10);
/// The time limit for a node that is back to get its hints; the machine may be busy.
const CAUGHT_UP_WITHIN: Duration = Duration::from_secs(600);

/// Options of `cargo xtask cluster-cost`.
#[derive(Debug, Args)]
pub(crate) struct CostOptions {
    /// The engine.
    #[arg(long, default_value = "bitcask")]
    backend: String,
    /// Seconds that each load runs.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Connections that send requests at the same time, spread over the nodes.
    #[arg(long, default_value_t = 256)]
    connections: u32,
    /// Open loops with all nodes, and as many with one down, in turn.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// A finished build of the server, in place of a release build.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Another setting of the servers, as KEY=VALUE; may be repeated.
    #[arg(long = "set")]
    settings: Vec<String>,
}

/// Servers that answer one load.
struct Fleet<'a> {
    options: &'a CostOptions,
    binary: Binary,
    configs: PathBuf,
    /// The directory of the load's results.
    results: PathBuf,
    nodes: Neighbours,
}

/// The result of a load.
struct Outcome {
    operations: f64,
    rate: f64,
    errors: u64,
    /// The p99 of gets and puts, in milliseconds.
    p99_ms: [f64; 2],
    cpu_us_per_operation: f64,
}

/// Runs both clusters and prints the ratios.
pub(crate) fn run(workspace: &Workspace, options: &CostOptions) -> anyhow::Result<bool> {
    let binary = Binary::at_or_released(options.binary.as_deref(), workspace)?;
    let fleet = |name: &str, nodes| Fleet::start(workspace, options, &binary, name, nodes);
    console::headline("one node, n_val 1");
    let alone = fleet("alone", 1)?;
    alone.fill()?;
    let of_one = alone.load("cost", None)?;
    of_one.print("closed loop");
    alone.nodes.stop()?;
    console::headline(&format!("{NODES} nodes, n_val 3"));
    let mut cluster = fleet("cluster", NODES)?;
    cluster.nodes.join()?;
    cluster.fill()?;
    let of_all = cluster.load("cost", None)?;
    of_all.print("closed loop");
    let half = of_all.rate / 2.0;
    let (mut healthy, mut one_down) = (Latencies::default(), Latencies::default());
    for round in 1..=options.rounds {
        healthy.add(cluster.open_loop(&format!("healthy-{round}"), half)?);
        cluster.kill_last()?;
        one_down.add(cluster.open_loop(&format!("one-down-{round}"), half)?);
        cluster.start_last()?;
    }
    let (healthy, one_down) = (healthy.medians(), one_down.medians());
    cluster.nodes.stop()?;
    console::headline("ratios");
    let cost = of_all.cpu_us_per_operation / of_one.cpu_us_per_operation;
    console::line(&format!(
        "CPU for an operation, {NODES} nodes to one: {cost:.2}"
    ));
    for (name, down, up) in [
        ("get", one_down[0], healthy[0]),
        ("put", one_down[1], healthy[1]),
    ] {
        console::line(&format!(
            "p99 of a {name}, one node down to none: {:.2} (medians: {down:.1} and {up:.1} ms)",
            down / up
        ));
    }
    Ok(true)
}

impl Fleet<'_> {
    fn start<'a>(
        workspace: &Workspace,
        options: &'a CostOptions,
        binary: &Binary,
        name: &str,
        nodes: usize,
    ) -> anyhow::Result<Fleet<'a>> {
        let directory = workspace.clean_scratch(&format!("cluster-cost/{name}"))?;
        let mut settings = vec![("storage_backend", &*options.backend)];
        settings.extend(settings_of(&options.settings)?);
        Ok(Fleet {
            options,
            binary: binary.clone(),
            configs: workspace.root().join("bench/configs"),
            results: directory.join("results"),
            nodes: Neighbours::start(binary, &directory, nodes, &settings)?,
        })
    }

    fn fill(&self) -> anyhow::Result<()> {
        let mut load = self.bench("cached-get-preload", "fill");
        command::capture(&mut load).map(drop)
    }

    fn load(&self, name: &str, rate: Option<f64>) -> anyhow::Result<Outcome> {
        let mut load = self.bench("cluster-mix", name);
        load.args(["--duration", &self.options.seconds.to_string(), "--filled"]);
        load.args(["--set", &format!("concurrent={}", self.options.connections)]);
        if let Some(rate) = rate {
            load.args(["--rate", &rate.to_string()]);
        }
        let before = self.processor_time()?;
        command::capture(&mut load)?;
        let used = self.processor_time()?.saturating_sub(before);
        Outcome::read(&self.results.join(name).join("run.json"), used)
    }

    /// A load at a fixed rate: the p99 of gets and of puts, in milliseconds.
    fn open_loop(&self, name: &str, rate: f64) -> anyhow::Result<[f64; 2]> {
        let outcome = self.load(name, Some(rate))?;
        outcome.print(&format!("open loop, half of that rate, {name}"));
        Ok(outcome.p99_ms)
    }

    /// Kills the last node, and waits until the others have detected that.
    fn kill_last(&mut self) -> anyhow::Result<()> {
        let server = self.nodes.servers.pop();
        server.context("no node to kill")?.kill();
        thread::sleep(NOTICED_WITHIN);
        Ok(())
    }

    /// Starts the last node again, and waits until it has its hints.
    fn start_last(&mut self) -> anyhow::Result<()> {
        let site = self.nodes.sites.last().context("no node to start")?;
        self.nodes.servers.push(site.start()?);
        self.nodes.await_settled()?;
        let start = Instant::now();
        while self.hints_kept()? > 0 {
            ensure!(
                start.elapsed() < CAUGHT_UP_WITHIN,
                "hints are still kept after {CAUGHT_UP_WITHIN:?}"
            );
            thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }

    fn hints_kept(&self) -> anyhow::Result<u64> {
        let each = self.nodes.sites.iter().map(|site| {
            let text = site.run(&["admin", "transfers", "--json"])?;
            let transfers: Value = serde_json::from_str(&text).context("reading transfers")?;
            let hinted = transfers["hinted"].as_array();
            let hinted = hinted.with_context(|| format!("no hints are reported: {text}"))?;
            Ok(hinted
                .iter()
                .filter_map(|it| it["objects"].as_u64())
                .sum::<u64>())
        });
        each.sum()
    }

    /// The command for a load on all nodes that are up.
    fn bench(&self, config: &str, name: &str) -> Command {
        let up = self.nodes.servers.len();
        let sites = self.nodes.sites.iter().take(up);
        let targets: Vec<String> = sites
            .map(|site| format!("{{\"127.0.0.1\", {}}}", site.protobuf.port()))
            .collect();
        let mut command = Command::new(self.binary.path());
        command
            .args(["bench", "run"])
            .arg(self.configs.join(format!("{config}.config")))
            .arg("--set")
            .arg(format!("riakc_pb_ips=[{}]", targets.join(", ")))
            .arg("--out")
            .arg(&self.results)
            .args(["--name", name]);
        command
    }

    /// CPU time of all servers since their starts.
    fn processor_time(&self) -> anyhow::Result<Duration> {
        let servers = self.nodes.servers.iter();
        servers.map(Server::processor_time).sum()
    }
}

/// The p99 of gets and of puts in several loads, in milliseconds.
#[derive(Default)]
struct Latencies([Vec<f64>; 2]);

impl Latencies {
    fn add(&mut self, p99_ms: [f64; 2]) {
        for (all, one) in self.0.iter_mut().zip(p99_ms) {
            all.push(one);
        }
    }

    fn medians(self) -> [f64; 2] {
        self.0.map(median)
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

impl Outcome {
    fn read(path: &Path, used: Duration) -> anyhow::Result<Self> {
        let text =
            fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        let run: Value = serde_json::from_str(&text).context("reading a result")?;
        let number = |value: &Value, what: &str| {
            value
                .as_f64()
                .with_context(|| format!("{} says nothing of {what}", path.display()))
        };
        let p99 = |label: &str| number(&run["totals"][label]["p99_us"], label);
        let errors = ["get", "put"]
            .iter()
            .map(|label| &run["totals"][label]["errors"]);
        let operations = number(&run["operations_total"], "operations")?;
        Ok(Self {
            operations,
            rate: number(&run["operations_per_second"], "the rate")?,
            errors: errors.filter_map(Value::as_u64).sum(),
            p99_ms: [p99("get")? / 1e3, p99("put")? / 1e3],
            cpu_us_per_operation: used.as_secs_f64() * 1e6 / operations.max(1.0),
        })
    }

    fn print(&self, what: &str) {
        let [get, put] = self.p99_ms;
        console::line(&format!(
            "{what}: {:.0} operations, {} errors, {:.0} a second, p99 {get:.1} ms (get) {put:.1} ms \
             (put), {:.1} us of CPU for each",
            self.operations, self.errors, self.rate, self.cpu_us_per_operation
        ));
    }
}
