//! A run of `kvorum bench run`, from its arguments to its exit code.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use indexmap::IndexMap;

use crate::arguments::{Part, RunArguments};
use crate::configuration::Configuration;
use crate::driver::embedded::{Embedded, EmbeddedPlan, Engine, engine_of};
use crate::driver::http_raw::HttpRawPlan;
use crate::driver::nhs::NhsPlan;
use crate::driver::null::NullPlan;
use crate::driver::riakc_pb::RiakcPbPlan;
use crate::driver::two_i::TwoIPlan;
use crate::driver::{Draws, Plan};
use crate::hits::hits_of;
use crate::key_generator::KeySources;
use crate::machine::Machine;
use crate::output::{ResultFiles, Totals, file_labels, write_summary};
use crate::random::{Seed, WorkerRandom};
use crate::run_record::{self, LoopMode, RunRecord, StallRecord};
use crate::runner::RunOptions;
use crate::server_probe::{ProbeTargets, ServerDescription};
use crate::settings::{Mode, Settings};
use crate::value_generator::{BlockSettings, SourceBlocks, ValueGenerator};
use crate::verification::{Ledger, Verifier};

/// Default of `value_generator_source_size`.
const SOURCE_BYTES: usize = 96 << 20;

/// Runs a configuration and writes its results.
pub(crate) fn run(
    arguments: &RunArguments,
    engines: &[Engine],
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let configuration = Configuration::load(&arguments.files, &arguments.set)?;
    let mut settings = Settings::read(&configuration)?;
    if !(arguments.scale.is_finite() && arguments.scale > 0.0) {
        bail!("--scale has to be above 0, not {}", arguments.scale);
    }
    settings.scale(arguments.scale);
    if let Some(seconds) = arguments.duration {
        let duration = Duration::try_from_secs_f64(seconds);
        settings.duration = Some(duration.context("--duration is no number of seconds")?);
    }
    settings.report_often_enough();
    let operations = &settings.operations;
    let run = Run {
        configuration: &configuration,
        settings: &settings,
        arguments,
    };
    match settings.driver.as_str() {
        "null" => run.with(&NullPlan::read(&configuration, operations)?, None, out),
        "riakc_pb" => run.with(&RiakcPbPlan::read(&configuration, operations)?, None, out),
        "http_raw" => run.with(&HttpRawPlan::read(&configuration, operations)?, None, out),
        "2i" => run.with(&TwoIPlan::read(&configuration, operations)?, None, out),
        "nhs" => {
            let plan = NhsPlan::read(&configuration, operations, arguments.scale)?;
            run.with(&plan, None, out)
        }
        other => {
            let Some(engine) = engine_of(engines, other) else {
                let names: Vec<&str> = engines.iter().map(|engine| engine.name).collect();
                bail!(
                    "driver {other} is not offered; choose riakc_pb, http_raw, nhs, 2i, null or one \
                     of the engines that can be opened here: {}",
                    if names.is_empty() {
                        "none".to_owned()
                    } else {
                        names.join(", ")
                    }
                );
            };
            let (plan, embedded) = EmbeddedPlan::open(&configuration, operations, engine)?;
            run.with(&plan, Some(&embedded), out)
        }
    }
}

/// A run of a configuration that has been read.
struct Run<'run> {
    configuration: &'run Configuration,
    settings: &'run Settings,
    arguments: &'run RunArguments,
}

impl Run<'_> {
    /// Runs the configuration with a driver; an embedded engine is its own server.
    fn with<P: Plan>(
        &self,
        plan: &P,
        embedded: Option<&Embedded>,
        out: &mut dyn Write,
    ) -> anyhow::Result<ExitCode> {
        let (settings, arguments) = (self.settings, self.arguments);
        let part = arguments.part.unwrap_or(Part { index: 1, count: 1 });
        let draws = draws(self.configuration, settings, arguments, part)?;
        report_not_honoured::<P>(self.configuration, settings)?;
        let name = run_name(arguments)?;
        let labels = file_labels(&settings.operations);
        let mut files = ResultFiles::create(&arguments.out, &name, &arguments.files, &labels)
            .with_context(|| format!("cannot write results in {}", arguments.out.display()))?;
        let options = run_options(arguments, settings, part, embedded)?;
        let mut record = self.record(&name, &options, embedded);
        let totals = crate::runner::run(plan, settings, draws, &options, &mut files)?;
        files.write_errors(&settings.operations, &totals.records.operations)?;
        record.started_unix_seconds = unix_seconds(totals.started);
        record.stalls = totals.stalls.iter().map(StallRecord::of).collect();
        record.fill(&labels, &totals.records, totals.elapsed);
        // The keys that other processes write are only known when results are merged.
        if part.count == 1 && !arguments.filled {
            record.hits = hits_of(&record, &written_before(&labels, &totals));
        }
        record.write(files.directory())?;
        write_summary(out, &settings.operations, &totals)?;
        writeln!(out, "results  {}", files.directory().display())?;
        let report = kvorum_report::write_report(files.directory())?;
        writeln!(out, "report  {}", report.display())?;
        Ok(exit_code(&totals, settings))
    }

    /// The record of a run before it begins.
    fn record(&self, name: &str, options: &RunOptions, embedded: Option<&Embedded>) -> RunRecord {
        let (configuration, settings, arguments) =
            (self.configuration, self.settings, self.arguments);
        let server = &arguments.server;
        let (description, described_backend) = options.probe.describe().unzip();
        let mut description = description.unwrap_or_default();
        for setting in &server.server_setting {
            let (key, value) = setting.split_once('=').unwrap_or((setting, ""));
            description.settings.insert(key.to_owned(), value.into());
        }
        if let Some(version) = &server.server_version {
            description.version.clone_from(version);
        }
        let setting = |key: &str| Some(description.settings.get(key)?.as_str()?.to_owned());
        let embedded_data = embedded.map(|embedded| &embedded.directory);
        let data = server.server_data.first().or(embedded_data);
        let data = data.unwrap_or(&arguments.out);
        let files: Vec<String> = arguments
            .files
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        RunRecord {
            format: run_record::FORMAT,
            name: name.to_owned(),
            configuration_file: files.join(", "),
            configuration: configuration.printed(),
            started_unix_seconds: 0.0,
            duration_seconds: 0.0,
            warm_up_seconds: options.warm_up.as_secs_f64(),
            mode: if options.open_rate.is_some() {
                LoopMode::Open
            } else {
                LoopMode::Closed
            },
            rate: options.open_rate.or(match settings.mode {
                Mode::Max => None,
                Mode::Rate(each) => Some(each * f64::from(settings.concurrent)),
            }),
            workers: settings.concurrent,
            scale: arguments.scale,
            driver: settings.driver.clone(),
            backend: server
                .backend
                .clone()
                .or(embedded.map(|it| it.engine.to_owned()))
                .or(described_backend.flatten())
                .or_else(|| setting("storage_backend")),
            durability: server
                .durability
                .clone()
                .or(embedded.map(|it| it.durability.to_owned()))
                .or_else(|| setting("durability")),
            machine: Machine::with_data_in(data),
            server: Some(description).filter(|server| *server != ServerDescription::default()),
            totals: IndexMap::new(),
            operations_total: 0,
            operations_per_second: 0.0,
            stalls: Vec::new(),
            verified: arguments.verify,
            was_filled: arguments.filled,
            hits: None,
            lateness: None,
            report_interval_seconds: settings.report_interval.as_secs_f64(),
        }
    }
}

/// Successful operations of the warm-up, by label.
fn written_before(labels: &[String], totals: &Totals) -> IndexMap<String, u64> {
    let records = totals
        .warm_up
        .iter()
        .flat_map(|warm_up| &warm_up.operations);
    let counts = records.map(|record| record.units);
    labels.iter().cloned().zip(counts).collect()
}

fn run_name(arguments: &RunArguments) -> anyhow::Result<String> {
    match arguments.name.as_deref() {
        Some("current") => bail!("a run cannot be named current, which is the link to the newest"),
        Some(name) if name.is_empty() || name.contains('/') => bail!("{name:?} names no directory"),
        Some(name) => Ok(name.to_owned()),
        None => Ok(utc_name()),
    }
}

fn run_options(
    arguments: &RunArguments,
    settings: &Settings,
    part: Part,
    embedded: Option<&Embedded>,
) -> anyhow::Result<RunOptions> {
    let server = &arguments.server;
    let mut probe = ProbeTargets {
        processes: server.server_pid.clone(),
        http: server.server_http.clone(),
        directories: server.server_data.clone(),
        stores: Vec::new(),
    };
    if let Some(embedded) = embedded {
        probe.processes = vec![std::process::id()];
        probe.directories = vec![embedded.directory.clone()];
        probe.stores.clone_from(&embedded.stores);
    }
    Ok(RunOptions {
        threads: arguments.threads.unwrap_or_else(default_threads),
        probe,
        warm_up: Duration::try_from_secs_f64(arguments.warm_up)
            .context("--warm-up is no number of seconds")?,
        open_rate: arguments
            .rate
            .map(|rate| {
                if rate.is_finite() && rate >= 0.001 {
                    Ok(rate / f64::from(part.count))
                } else {
                    bail!("--rate has to be 0.001 operations per second or more, not {rate}")
                }
            })
            .transpose()?,
        first_worker: (part.index - 1) * settings.concurrent + 1,
        start_at: arguments
            .start_at
            .map(|seconds| {
                let since_1970 = Duration::try_from_secs_f64(seconds)
                    .context("--start-at is no number of seconds since 1970")?;
                Ok::<_, anyhow::Error>(UNIX_EPOCH + since_1970)
            })
            .transpose()?,
    })
}

fn unix_seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or(Duration::ZERO)
        .as_secs_f64()
}

/// The generators of each worker.
fn draws(
    configuration: &Configuration,
    settings: &Settings,
    arguments: &RunArguments,
    part: Part,
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
    let state = configuration.convert("sequential_int_state_dir", state_directory)?;
    let mut keys =
        KeySources::new(&blocks, settings.concurrent * part.count).with_state_in(state.flatten());
    let is_alone = part.count == 1;
    let ledger = arguments
        .verify
        .then(|| Arc::new(Ledger::new(run_number(), is_alone)));
    let first = (part.index - 1) * settings.concurrent + 1;
    (first..first + settings.concurrent)
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
                verifier: ledger
                    .as_ref()
                    .map(|ledger| Verifier::new(worker, Arc::clone(ledger))),
                payload_bytes: 0,
            })
        })
        .collect()
}

/// The directory of `sequential_int_state_dir`; the empty string means none.
fn state_directory(term: &kvorum_erlang_terms::Term) -> Result<Option<PathBuf>, String> {
    let path = term.as_text().map(PathBuf::from);
    let path = path.filter(|path| path.as_os_str().is_empty() || path.is_dir());
    let path = path.ok_or("expected the path of a directory that exists")?;
    Ok(Some(path).filter(|path| !path.as_os_str().is_empty()))
}

/// Reports keys without effect, and parts of their values, with the reason if it is known.
fn report_not_honoured<P: Plan>(
    configuration: &Configuration,
    settings: &Settings,
) -> io::Result<()> {
    let mut out = io::stderr().lock();
    settings.note_unused(configuration);
    for note in configuration.not_honoured() {
        writeln!(out, "{note}")?;
    }
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
    let verification_failed = totals.all_records().any(|record| {
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

/// A number that distinguishes the values of this run from values of earlier runs: the low 32 bits
/// of the time in milliseconds, mixed with the process id.
fn run_number() -> u32 {
    let milliseconds = since_1970().as_millis() & u128::from(u32::MAX);
    let process = std::process::id().rotate_left(16);
    u32::try_from(milliseconds).unwrap_or(0) ^ process
}

/// A new seed from the time. The run reports it, so that it can be repeated.
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
    let now = time::OffsetDateTime::now_utc();
    let day = now.date().to_string().replace('-', "");
    let (hour, minute, second) = now.to_hms();
    format!("{day}_{hour:02}{minute:02}{second:02}")
}
