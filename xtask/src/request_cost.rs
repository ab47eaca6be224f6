//! `cargo xtask request-cost`: the server's CPU time for a cached get over HTTP and over protocol
//! buffers, and for a counter's increment and a put.
//!
//! One server answers the loads one after the other. Its CPU time between the beginning and the end
//! of a load is divided by the operations. Compared loads alternate several times, and the medians
//! count, so that other work on the machine affects them equally.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, ensure};
use clap::Args;
use serde_json::Value;

use crate::command;
use crate::console;
use crate::server::{Binary, Server, Site};
use crate::workspace::Workspace;

/// The most additional cost of HTTP over protocol buffers, in microseconds.
const HTTP_US_MAX: f64 = 8.0;

/// The most cost of an increment, in puts.
const INCREMENT_PUTS_MAX: f64 = 2.0;

/// Options of `cargo xtask request-cost`.
#[derive(Debug, Args)]
pub(crate) struct RequestCostOptions {
    /// The engine.
    #[arg(long, default_value = "bitcask")]
    backend: String,
    /// Seconds that each load runs.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Times that each load runs.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// A finished build of the server, in place of a release build.
    #[arg(long)]
    binary: Option<PathBuf>,
}

/// A server and the directory of its loads.
struct Measured<'a> {
    options: &'a RequestCostOptions,
    binary: Binary,
    configs: PathBuf,
    site: Site,
    server: Server,
}

/// Runs all loads and prints their costs. The aims are only printed beside the figures, since
/// figures of a busy machine mean little.
pub(crate) fn run(workspace: &Workspace, options: &RequestCostOptions) -> anyhow::Result<bool> {
    let binary = Binary::at_or_released(options.binary.as_deref(), workspace)?;
    let directory = workspace.clean_scratch("request-cost")?;
    let settings = [
        ("storage_backend", &*options.backend),
        ("durability", "none"),
    ];
    let site = Site::new(&binary, &directory, &settings)?;
    let measured = Measured {
        options,
        binary,
        configs: workspace.root().join("bench/configs"),
        server: site.start()?,
        site,
    };
    console::headline(&format!("CPU of the server, on {}", options.backend));
    measured.prepare()?;
    let [pb, http] = measured.compare(["cached-get", "cached-get-http"])?;
    let more = http - pb;
    console::line(&format!(
        "cached get of 1,000 bytes: {pb:.1} us over protocol buffers, {http:.1} us over HTTP, {more:.1} us more \
         (aim: at most {HTTP_US_MAX})"
    ));
    let [put, increment] = measured.compare(["small-put", "counter-increment"])?;
    let ratio = increment / put.max(f64::MIN_POSITIVE);
    console::line(&format!(
        "put of 10 bytes: {put:.1} us, increment of a counter: {increment:.1} us, {ratio:.2} puts (aim: at most \
         {INCREMENT_PUTS_MAX})"
    ));
    measured.server.stop()?;
    Ok(true)
}

impl Measured<'_> {
    fn prepare(&self) -> anyhow::Result<()> {
        let counters = r#"{"props":{"datatype":"counter"}}"#;
        self.site
            .run(&["admin", "bucket-type", "create", "counters", counters])?;
        self.site
            .run(&["admin", "bucket-type", "activate", "counters"])?;
        command::capture(&mut self.bench("cached-get-preload", "preload")).map(drop)
    }

    /// The medians of two loads that run in turn, in microseconds for each operation.
    fn compare(&self, loads: [&str; 2]) -> anyhow::Result<[f64; 2]> {
        let mut costs = [Vec::new(), Vec::new()];
        for round in 1..=self.options.rounds {
            for (load, costs) in loads.iter().zip(&mut costs) {
                costs.push(self.cost(load, round)?);
            }
        }
        Ok(costs.map(median))
    }

    /// CPU microseconds for each operation of a load.
    fn cost(&self, load: &str, round: u32) -> anyhow::Result<f64> {
        let name = format!("{load}-{round}");
        let mut command = self.bench(load, &name);
        command.args(["--duration", &self.options.seconds.to_string()]);
        let before = self.server.processor_time()?;
        command::capture(&mut command)?;
        let used = self.server.processor_time()?.saturating_sub(before);
        let path = self.results().join(&name).join("run.json");
        let text =
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let operations = operations_of(&text)?;
        Ok(used.as_secs_f64() * 1e6 / operations)
    }

    fn bench(&self, config: &str, name: &str) -> Command {
        let mut command = Command::new(self.binary.path());
        command
            .args(["bench", "run"])
            .arg(self.configs.join(format!("{config}.config")));
        let (key, port) = match config {
            "cached-get-http" => ("http_raw_port", self.site.http.port()),
            _ => ("riakc_pb_port", self.site.protobuf.port()),
        };
        command
            .args(["--set", &format!("{key}={port}")])
            .arg("--out")
            .arg(self.results())
            .args(["--name", name]);
        command
    }

    fn results(&self) -> PathBuf {
        self.site.directory().join("results")
    }
}

/// The operations of a result, which must all have succeeded.
fn operations_of(run: &str) -> anyhow::Result<f64> {
    let run: Value = serde_json::from_str(run).context("reading a result")?;
    let totals = run["totals"]
        .as_object()
        .context("a result without totals")?;
    let errors: u64 = totals.values().filter_map(|it| it["errors"].as_u64()).sum();
    ensure!(errors == 0, "{errors} operations failed");
    let operations = run["operations_total"].as_f64().unwrap_or(0.0);
    ensure!(operations > 0.0, "no operations were made");
    Ok(operations)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_with_errors_is_no_measure() {
        let result = |errors: u64, operations: u64| {
            let totals = serde_json::json!({"get": {"errors": errors}});
            let run = serde_json::json!({"totals": totals, "operations_total": operations});
            operations_of(&run.to_string())
        };
        assert_eq!(result(0, 7).unwrap(), 7.0);
        assert!(result(1, 7).is_err());
        assert!(result(0, 0).is_err());
    }
}
