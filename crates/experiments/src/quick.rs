//! `kvorum bench quick`: the speed of this machine with each backend, in two minutes and a few lines.
//!
//! The command needs no configuration and no running server, and leaves no files. It shows the
//! range to expect. The matrix makes comparisons for publication.

use std::io::{IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use kvorum_report::draw::{Unit, digits};
use kvorum_report::figures::{cpu_per_operation, throughput, totals};
use kvorum_report::page;
use kvorum_report::result::{Description, OperationTotals, RunResult};
use kvorum_report::write_atomically;
use kvorum_report::write_report;

use crate::interruption::{Interrupted, Interruption};
use crate::load::{self, Load};
use crate::program::Program;
use crate::server_process::{ServerPlan, ServerProcess};

/// Seconds of a backend's share that go into starting and stopping.
const OVERHEAD_SECONDS: f64 = 4.0;

/// Loads on each backend: puts alone, then gets and puts.
const LOADS: [(&str, &str); 2] = [("puts", "[{put, 1}]"), ("mix", "[{get, 3}, {put, 1}]")];

/// The configuration of a load, in which the operations are inserted.
const CONFIGURATION: &str = "\
{mode, max}.
{duration, 1}.
{report_interval, 1}.
{concurrent, 32}.
{driver, basho_bench_driver_riakc_pb}.
{key_generator, {int_to_str, {uniform_int, 100000}}}.
{value_generator, {fixed_bin, 1000}}.
";

/// Arguments of `kvorum bench quick`.
#[derive(Debug, clap::Args)]
pub struct QuickArguments {
    /// Length of the whole, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 120.0)]
    seconds: f64,
    /// Keep results and pages in this directory [default: nothing is kept]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// The results of a backend.
struct Outcome {
    backend: String,
    puts: RunResult,
    mix: RunResult,
}

/// Loads every backend and prints its results.
pub(crate) fn execute(
    arguments: &QuickArguments,
    program: &Program,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let share = arguments.seconds / as_float(program.engines.len());
    let seconds = (share - OVERHEAD_SECONDS) / as_float(LOADS.len());
    ensure!(
        seconds >= 1.0,
        "{} seconds are not enough for {} backends; give at least {}",
        arguments.seconds,
        program.engines.len(),
        as_float(program.engines.len()) * (OVERHEAD_SECONDS + as_float(LOADS.len()))
    );
    let kept = match &arguments.out {
        Some(directory) => Some(std::path::absolute(directory)?),
        None => None,
    };
    let scratch = tempfile::Builder::new()
        .prefix("kvorum-quick-")
        .tempdir()
        .context("cannot make a temporary directory")?;
    let root = kept.as_deref().unwrap_or(scratch.path());
    std::fs::create_dir_all(root).with_context(|| format!("cannot make {}", root.display()))?;
    let stop = Interruption::listen();
    let mut outcomes = Vec::new();
    for backend in &program.engines {
        say_progress(&format!(
            "{backend}: puts, then gets and puts, {seconds:.0} s each"
        ));
        match run_backend(backend, seconds, program, root, &stop) {
            Ok(outcome) => outcomes.push(outcome),
            Err(error) if error.is::<Interrupted>() => {
                writeln!(out, "interrupted")?;
                return Ok(ExitCode::from(130));
            }
            Err(error) => return Err(error.context(format!("with backend {backend}"))),
        }
    }
    print_outcomes(&outcomes, out)?;
    list_failures(&outcomes, out)?;
    if kept.is_some() {
        write_pages(&outcomes, root, out)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn run_backend(
    backend: &str,
    seconds: f64,
    program: &Program,
    root: &Path,
    stop: &Interruption,
) -> anyhow::Result<Outcome> {
    let settings = [("storage_backend".to_owned(), backend.to_owned())];
    let mut server = ServerProcess::start(
        &ServerPlan {
            binary: &program.binary,
            below: root,
            log: &root.join(format!("{backend}-server.log")),
            settings: &settings,
        },
        stop,
    )?;
    let mut runs = Vec::new();
    for (name, operations) in LOADS {
        let configuration = root.join(format!("{name}.config"));
        let text = format!("{CONFIGURATION}{{operations, {operations}}}.\n");
        std::fs::write(&configuration, text)
            .with_context(|| format!("cannot write {}", configuration.display()))?;
        let name = format!("{backend}-{name}");
        let log = root.join(format!("{name}.log"));
        let load = Load {
            binary: &program.binary,
            files: &[configuration],
            results: root,
            name: &name,
            log: &log,
            arguments: arguments(backend, seconds, &server),
            is_shown: true,
        };
        let status = load::run(&load, &mut server, stop)?;
        if !status.success() {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            let last = text.lines().last().unwrap_or_default();
            anyhow::bail!("the load ended with {status}: {last}");
        }
        runs.push(RunResult::read(&root.join(&name))?);
    }
    server.stop()?;
    let [puts, mix] = <[RunResult; 2]>::try_from(runs)
        .map_err(|runs| anyhow::anyhow!("{} loads were run", runs.len()))?;
    Ok(Outcome {
        backend: backend.to_owned(),
        puts,
        mix,
    })
}

fn arguments(backend: &str, seconds: f64, server: &ServerProcess) -> Vec<String> {
    let pairs = [
        ("--duration", format!("{seconds:.1}")),
        ("--backend", backend.to_owned()),
        ("--server-pid", server.id().to_string()),
        ("--server-http", server.http.to_string()),
        ("--server-data", server.data().display().to_string()),
    ];
    pairs
        .into_iter()
        .flat_map(|(name, value)| [name.to_owned(), value])
        .collect()
}

/// Prints the results.
fn print_outcomes(outcomes: &[Outcome], out: &mut dyn Write) -> anyhow::Result<()> {
    let description = outcomes
        .first()
        .and_then(|outcome| outcome.mix.description.as_ref());
    writeln!(
        out,
        "100,000 keys, values of 1,000 bytes, 32 connections; server and load share this machine"
    )?;
    if let Some(description) = description {
        writeln!(out, "{}", machine(description))?;
    }
    writeln!(
        out,
        "{:<10} | {:^27} | {:^27} | {:^22}",
        "", "puts", "3 gets to 1 put", "server"
    )?;
    writeln!(
        out,
        "{:<10} | {:>8} {:>8} {:>9} | {:>8} {:>8} {:>9} | {:>10} {:>11}",
        "backend",
        "per s",
        "median",
        "99th",
        "per s",
        "get 99th",
        "put 99th",
        "CPU per op",
        "memory"
    )?;
    for outcome in outcomes {
        writeln!(out, "{}", row(outcome))?;
    }
    writeln!(
        out,
        "An acknowledged put has been synced where the backend keeps data and durability is at its \
         default.\nRepeat before you believe; compare with: kvorum bench matrix \
         bench/configs/published-short.toml"
    )?;
    Ok(())
}

/// Prints a line for each step if there is no terminal to renew a line on.
fn say_progress(step: &str) {
    if !std::io::stderr().is_terminal() {
        // Progress that cannot be shown is no reason to stop.
        let _ = writeln!(std::io::stderr(), "{step}");
    }
}

/// A line for each run in which operations failed, with the most frequent cause.
fn list_failures(outcomes: &[Outcome], out: &mut dyn Write) -> anyhow::Result<()> {
    for outcome in outcomes {
        for (load, run) in [("puts", &outcome.puts), ("mix", &outcome.mix)] {
            if let Some(sentence) = page::failure(run) {
                writeln!(out, "FAILED  {}, {load}: {sentence}", outcome.backend)?;
            }
        }
    }
    Ok(())
}

fn machine(description: &Description) -> String {
    let machine = &description.machine;
    let parts = [
        machine.cpu_model.clone(),
        machine.cores.map(|cores| format!("{cores} cores")),
        machine.memory_bytes.map(plain(Unit::Bytes)),
        machine.filesystem.clone(),
        machine.device.clone(),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    parts.join(", ")
}

fn row(outcome: &Outcome) -> String {
    let per_second = |run: &RunResult| Unit::Number.text(throughput(run).round());
    let latency = |run: &RunResult, label: &str, statistic: Statistic| {
        let operation = run.operations.iter().find(|found| found.label == label);
        let value = operation.and_then(|operation| statistic(&totals(operation)));
        value.map_or_else(|| "?".to_owned(), plain(Unit::Microseconds))
    };
    let memory = outcome
        .mix
        .server
        .as_ref()
        .and_then(|server| server.largest("resident_bytes"));
    let cpu = cpu_per_operation(&outcome.mix);
    format!(
        "{:<10} | {:>8} {:>8} {:>9} | {:>8} {:>8} {:>9} | {:>10} {:>11}",
        outcome.backend,
        per_second(&outcome.puts),
        latency(&outcome.puts, "put", |totals| totals.p50_us),
        latency(&outcome.puts, "put", |totals| totals.p99_us),
        per_second(&outcome.mix),
        latency(&outcome.mix, "get", |totals| totals.p99_us),
        latency(&outcome.mix, "put", |totals| totals.p99_us),
        cpu.map_or_else(|| "?".to_owned(), |value| format!("{} us", digits(value))),
        memory.map_or_else(|| "?".to_owned(), plain(Unit::Bytes)),
    )
}

type Statistic = fn(&OperationTotals) -> Option<f64>;

/// A terminal's text: plain blanks, and no letter that a terminal may lack.
fn plain(unit: Unit) -> impl Fn(f64) -> String {
    move |value| {
        unit.text(value)
            .replace('\u{a0}', " ")
            .replace('\u{b5}', "u")
    }
}

fn write_pages(outcomes: &[Outcome], root: &Path, out: &mut dyn Write) -> anyhow::Result<()> {
    for outcome in outcomes {
        write_report(&outcome.puts.directory)?;
        write_report(&outcome.mix.directory)?;
    }
    let runs: Vec<RunResult> = outcomes
        .iter()
        .flat_map(|outcome| [outcome.puts.clone(), outcome.mix.clone()])
        .collect();
    let mut entries = page::entries(&runs);
    for entry in &mut entries {
        entry.report = Some(format!("{}/report.html", entry.run.name));
    }
    let path = root.join("index.html");
    write_atomically(
        &path,
        &page::comparison("A quick look", None, &entries, 0, &[]),
    )?;
    writeln!(out, "pages  {}", path.display())?;
    Ok(())
}

fn as_float(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}
