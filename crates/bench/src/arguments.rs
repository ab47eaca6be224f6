//! The command line of `kvorum bench`, and a run from its arguments to its exit code.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};

use crate::calendar::civil_date;
use crate::configuration::{Configuration, Settings};
use crate::driver::nhs::NhsPlan;
use crate::driver::null::NullPlan;
use crate::driver::riakc_pb::RiakcPbPlan;
use crate::driver::{Draws, Plan};
use crate::key_generator::KeySources;
use crate::output::{ResultFiles, Totals, write_summary};
use crate::random::{Seed, WorkerRandom};
use crate::runner::{RunOptions, run};
use crate::value_generator::{BlockSettings, SourceBlocks, ValueGenerator};
use crate::verification::Verifier;

/// Default of `value_generator_source_size`.
const SOURCE_BYTES: usize = 96 << 20;

/// Load a server and measure it.
#[derive(Debug, clap::Args)]
pub struct BenchArguments {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Debug, clap::Subcommand)]
enum BenchCommand {
    /// Run a basho_bench configuration.
    Run(RunArguments),
}

/// Arguments of `kvorum bench run`.
#[derive(Debug, clap::Args)]
struct RunArguments {
    /// Configuration files in Erlang terms; later ones win over earlier ones.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Directory that gets a directory per run, and `current`, a link to the newest.
    #[arg(long, short = 'd', value_name = "DIR", default_value = "tests")]
    out: PathBuf,
    /// Name of the run's directory; the time in UTC if not given.
    #[arg(long, short = 'n')]
    name: Option<String>,
    /// Run for this many seconds instead of the configured minutes.
    #[arg(long, value_name = "SECONDS")]
    duration: Option<u64>,
    /// Set a key to an Erlang term, over what files say; may be repeated.
    #[arg(long, value_name = "KEY=TERM")]
    set: Vec<String>,
    /// Threads that share the workers; half of the cores if not given.
    #[arg(long)]
    threads: Option<usize>,
    /// Process id of a server on this machine, to report its CPU time, memory and disk bytes.
    #[arg(long, value_name = "PID")]
    server_pid: Option<u32>,
    /// Mark every value written, and check every value read.
    #[arg(long)]
    verify: bool,
}

/// Runs the command and says whether it succeeded.
///
/// Blocks; it starts its own threads and runtimes and may be called from anywhere.
/// The exit code is 1 if `shutdown_on_error` ended the run, if a value failed verification, or if
/// nothing but errors came back.
///
/// # Errors
/// A configuration that cannot be used, a server that cannot be reached, results that cannot be
/// written; each tells what to change.
pub fn main(arguments: &BenchArguments) -> anyhow::Result<ExitCode> {
    execute(arguments, &mut io::stdout())
}

/// Like [`main`], with the summary written to `out`.
///
/// # Errors
/// As [`main`].
pub fn execute(arguments: &BenchArguments, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let BenchCommand::Run(arguments) = &arguments.command;
    let configuration = Configuration::load(&arguments.files, &arguments.set)?;
    let mut settings = Settings::read(&configuration)?;
    if let Some(seconds) = arguments.duration {
        settings.duration = Some(Duration::from_secs(seconds));
    }
    let operations = &settings.operations;
    match settings.driver.as_str() {
        "null" => {
            let plan = NullPlan::read(&configuration, operations)?;
            run_with(&plan, &configuration, &settings, arguments, out)
        }
        "riakc_pb" => {
            let plan = RiakcPbPlan::read(&configuration, operations)?;
            run_with(&plan, &configuration, &settings, arguments, out)
        }
        "nhs" => {
            let plan = NhsPlan::read(&configuration, operations)?;
            run_with(&plan, &configuration, &settings, arguments, out)
        }
        other => bail!("driver {other} is not offered; choose riakc_pb, nhs or null"),
    }
}

fn run_with<P: Plan>(
    plan: &P,
    configuration: &Configuration,
    settings: &Settings,
    arguments: &RunArguments,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let draws = draws(configuration, settings, arguments.verify)?;
    tell_unread::<P>(configuration)?;
    let name = match arguments.name.as_deref() {
        Some("current") => bail!("a run cannot be named current, which is the link to the newest"),
        Some(name) if name.is_empty() || name.contains('/') => bail!("{name:?} names no directory"),
        Some(name) => name.to_owned(),
        None => utc_name(),
    };
    let mut files = ResultFiles::create(
        &arguments.out,
        &name,
        &arguments.files,
        &settings.operations,
    )
    .with_context(|| format!("cannot write results in {}", arguments.out.display()))?;
    let options = RunOptions {
        threads: arguments.threads.unwrap_or_else(default_threads),
        server_pid: arguments.server_pid,
    };
    let totals = run(plan, settings, draws, options, &mut files)?;
    files.write_errors(&settings.operations, &totals.records)?;
    write_summary(out, &settings.operations, &totals)?;
    writeln!(out, "results  {}", files.directory().display())?;
    Ok(exit_code(&totals, settings))
}

/// What each worker draws from.
fn draws(
    configuration: &Configuration,
    settings: &Settings,
    verify: bool,
) -> anyhow::Result<Vec<Draws>> {
    let seed = match settings.seed {
        Some(seed) => seed,
        None => seed_of_now()?,
    };
    let blocks = SourceBlocks::new(BlockSettings {
        random_bytes: configuration.integer(
            "value_generator_source_size",
            1..=1 << 36,
            SOURCE_BYTES,
        )?,
        blob_file: configuration.convert("value_generator_blob_file", |term| {
            term.as_text()
                .map(PathBuf::from)
                .ok_or_else(|| "expected a path".to_owned())
        })?,
        seed,
    });
    let mut keys = KeySources::new(&blocks, settings.concurrent);
    (1..=settings.concurrent)
        .map(|worker| {
            Ok(Draws {
                random: WorkerRandom::new(seed.of_worker(worker)),
                keys: keys
                    .build(&settings.key_generator, worker)
                    .map_err(|reason| {
                        configuration.refusal("key_generator", &settings.key_generator, reason)
                    })?,
                values: ValueGenerator::build(&settings.value_generator, &blocks).map_err(
                    |reason| {
                        let value = &settings.value_generator;
                        configuration.refusal("value_generator", value, reason)
                    },
                )?,
                verifier: verify.then(|| Verifier::new(worker)),
            })
        })
        .collect()
}

/// Says which keys have no effect, and why as far as that is known.
fn tell_unread<P: Plan>(configuration: &Configuration) -> io::Result<()> {
    let mut out = io::stderr().lock();
    for (key, origin) in configuration.unread() {
        let reason = P::why_without_effect(key)
            .or_else(|| Settings::why_without_effect(key))
            .unwrap_or("nothing reads this key with this driver");
        writeln!(out, "{origin}: {key} has no effect: {reason}")?;
    }
    Ok(())
}

fn exit_code(totals: &Totals, settings: &Settings) -> ExitCode {
    let errors = totals.errors();
    let verification_failed = totals.records.iter().any(|record| {
        record
            .reasons
            .keys()
            .any(|reason| reason.starts_with("{verification,"))
    });
    let nothing_but_errors = errors > 0 && errors == totals.operations();
    if verification_failed || nothing_but_errors || (settings.shutdown_on_error && errors > 0) {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// Half of the cores: the other half is for a server on the same machine.
fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| (cores.get() / 2).max(1))
}

fn since_1970() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or(Duration::ZERO)
}

/// A seed that no other run has; it is told, so that this run can be repeated.
fn seed_of_now() -> io::Result<Seed> {
    let now = since_1970();
    let seconds = i64::try_from(now.as_secs()).unwrap_or(0);
    let parts = [
        seconds / 1_000_000,
        seconds % 1_000_000,
        i64::from(now.subsec_micros()),
    ];
    let [a, b, c] = parts;
    writeln!(
        io::stderr(),
        "to repeat this run: --set 'rng_seed={{{a},{b},{c}}}'"
    )?;
    Ok(Seed(parts))
}

/// The present time as `YYYYMMDD_HHMMSS`, in UTC.
fn utc_name() -> String {
    let seconds = since_1970().as_secs();
    let days = i64::try_from(seconds / 86_400).unwrap_or(0);
    let (year, month, day) = civil_date(days);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}{month:02}{day:02}_{hour:02}{minute:02}{second:02}")
}
