//! The keys of every run, with any driver: their values, bounds and defaults.

use std::time::Duration;

use crate::configuration::{Configuration, ConfigurationError, scale};
use crate::random::Seed;
use kvorum_erlang_terms::Term;

/// A run is longer than configured by this much.
const EXTRA_SECOND: Duration = Duration::from_secs(1);

/// The pace of a worker's operations.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Mode {
    /// The next operation begins when the last one has ended.
    Max,
    /// Before each operation the worker sleeps for an exponentially distributed time, so that
    /// without latency it would run this many operations per second.
    Rate(f64),
}

/// One kind of operation, and its weight in draws.
#[derive(Debug, Clone, PartialEq)]
pub struct Operation {
    /// Name of the operation in result files; by default the operation itself.
    pub label: Term,
    /// The term that the driver reads.
    pub operation: Term,
    /// Drawn with probability weight / sum of weights.
    pub weight: u32,
}

/// The settings of a run that do not belong to a driver or generator.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// `mode`, default `{rate, 5}`.
    pub mode: Mode,
    /// `duration` in minutes, default 5; `None` is `infinity`. One second longer than configured,
    /// as in basho_bench, so that the last interval is reported as a full one.
    pub duration: Option<Duration>,
    /// `concurrent`, number of workers, default 3.
    pub concurrent: u32,
    /// `report_interval` in seconds, default 10.
    pub report_interval: Duration,
    /// `driver`, without the prefix `basho_bench_driver_`.
    pub driver: String,
    /// `operations`, default `[{get,4},{put,4},{delete,1}]`.
    pub operations: Vec<Operation>,
    /// `key_generator`, default `{uniform_int, 100000}`.
    pub key_generator: Term,
    /// `value_generator`, default `{fixed_bin, 100}`.
    pub value_generator: Term,
    /// `rng_seed`, default `{42, 23, 12}`; `None` is `now`.
    pub seed: Option<Seed>,
    /// `shutdown_on_error`, default false.
    pub shutdown_on_error: bool,
}

/// Keys of basho_bench that have no effect here, with the reasons.
const WITHOUT_EFFECT: [(&str, &str); 16] = [
    ("code_paths", "there is no Erlang code to load"),
    ("source_dir", "there is no Erlang code to compile"),
    (
        "log_level",
        "there is no log file; problems are printed to standard error",
    ),
    ("pre_hook", "it names an Erlang function"),
    ("post_hook", "it names an Erlang function"),
    ("test_dir", "the results directory comes from --out"),
    ("stats", "results are always written as CSV"),
    ("measurement_driver", "it names an Erlang module"),
    (
        "measurements",
        "they are gauges of an Erlang node; see --server-pid",
    ),
    ("distribute_work", "load is made by this process alone"),
    ("remote_nodes", "load is made by this process alone"),
    ("app_run_mode", "it concerns Erlang applications"),
    ("nodes", "it concerns Erlang distribution"),
    ("cookie", "it concerns Erlang distribution"),
    ("mynode", "it concerns Erlang distribution"),
    (
        "disable_sequential_int_progress_report",
        "generators report no progress",
    ),
];

impl Settings {
    /// Reads the settings, with defaults for those that are not set.
    pub fn read(configuration: &Configuration) -> Result<Self, ConfigurationError> {
        let minutes = configuration.convert("duration", duration)?;
        let default_seed = Some(Seed([42, 23, 12]));
        Ok(Self {
            mode: configuration
                .convert("mode", mode)?
                .unwrap_or(Mode::Rate(5.0)),
            duration: minutes
                .unwrap_or(Some(5))
                .map(|minutes| Duration::from_secs(minutes * 60) + EXTRA_SECOND),
            concurrent: configuration.integer("concurrent", 1..=100_000, 3)?,
            report_interval: Duration::from_secs(configuration.integer(
                "report_interval",
                1..=86_400,
                10_u64,
            )?),
            driver: configuration
                .convert("driver", driver)?
                .unwrap_or_else(|| "http_raw".to_owned()),
            operations: configuration
                .convert("operations", operations)?
                .unwrap_or_else(default_operations),
            key_generator: configuration
                .get("key_generator")
                .cloned()
                .unwrap_or_else(|| tagged("uniform_int", 100_000)),
            value_generator: configuration
                .get("value_generator")
                .cloned()
                .unwrap_or_else(|| tagged("fixed_bin", 100)),
            seed: configuration
                .convert("rng_seed", seed)?
                .unwrap_or(default_seed),
            shutdown_on_error: configuration
                .convert("shutdown_on_error", boolean)?
                .unwrap_or(false),
        })
    }

    /// Shortens the time between reports, so that a run of any length has enough reports for its
    /// charts.
    pub fn report_often_enough(&mut self) {
        const REPORTS_MIN: u32 = 20;
        const MILLISECONDS: [u64; 12] = [
            10, 20, 50, 100, 200, 500, 1000, 2000, 3000, 5000, 10_000, 30_000,
        ];
        let Some(duration) = self.duration else {
            return;
        };
        let longest = duration / REPORTS_MIN;
        if self.report_interval > longest {
            let round = MILLISECONDS.map(Duration::from_millis);
            let fitting = round.iter().rev().find(|it| **it <= longest);
            self.report_interval = fitting.copied().unwrap_or(round[0]);
        }
    }

    /// Shortens the duration and shrinks the key space in proportion; the additional second of
    /// every run stays.
    pub fn scale(&mut self, factor: f64) {
        if let Some(duration) = self.duration {
            let minutes = duration.saturating_sub(EXTRA_SECOND).as_secs_f64();
            let scaled = Duration::try_from_secs_f64(minutes * factor);
            self.duration = Some(scaled.unwrap_or(Duration::MAX / 2) + EXTRA_SECOND);
        }
        self.key_generator = scale::scaled_keys(&self.key_generator, factor);
    }

    /// Notes the keys of generators that are set but not used by the chosen generators.
    pub fn note_unused(&self, configuration: &Configuration) {
        let is_set = |key| configuration.get(key).is_some();
        let is_sequential = self.key_generator.to_string().contains("sequential_int");
        if !is_sequential && is_set("sequential_int_state_dir") {
            let reason = "the key generator does not count through its keys";
            configuration.without_effect("sequential_int_state_dir", "", reason);
        }
        const SOURCES: [&str; 2] = ["value_generator_blob_file", "value_generator_source_size"];
        let without_source = [
            "fixed_char",
            "constant_bin",
            "highly_compressible_bin",
            "uniform_int",
            "random_int",
        ];
        let is_without_source = without_source
            .iter()
            .any(|tag| self.value_generator.is_tagged(tag));
        for key in SOURCES.into_iter().filter(|key| is_set(key)) {
            if is_without_source {
                let reason = "the value generator does not take its bytes from a source";
                configuration.without_effect(key, "", reason);
            }
        }
        if !is_without_source && SOURCES.into_iter().all(is_set) {
            let reason = "the file of value_generator_blob_file is the source";
            configuration.without_effect("value_generator_source_size", "", reason);
        }
    }

    /// The reason why a key of basho_bench has no effect, if it has none.
    pub fn why_without_effect(key: &str) -> Option<&'static str> {
        WITHOUT_EFFECT
            .iter()
            .find(|(known, _)| *known == key)
            .map(|(_, reason)| *reason)
    }
}

fn tagged(tag: &str, value: i128) -> Term {
    Term::Tuple(vec![Term::atom(tag), Term::Integer(value)])
}

fn default_operations() -> Vec<Operation> {
    [("get", 4), ("put", 4), ("delete", 1)]
        .map(|(name, weight)| Operation {
            label: Term::atom(name),
            operation: Term::atom(name),
            weight,
        })
        .to_vec()
}

fn mode(term: &Term) -> Result<Mode, String> {
    let rate = match term.as_tuple() {
        Some([tag, rate]) if tag.as_atom() == Some("rate") => Some(rate),
        _ => None,
    };
    if term.as_atom() == Some("max") || rate.and_then(Term::as_atom) == Some("max") {
        return Ok(Mode::Max);
    }
    rate.and_then(Term::as_number)
        .filter(|rate| *rate > 0.0)
        .map(Mode::Rate)
        .ok_or_else(|| {
            "expected max, {rate, max} or {rate, N} with N operations per second and worker above 0"
                .to_owned()
        })
}

fn duration(term: &Term) -> Result<Option<u64>, String> {
    const MINUTES_MAX: u64 = 60 * 24 * 366 * 10;
    if term.as_atom() == Some("infinity") {
        return Ok(None);
    }
    term.as_integer()
        .and_then(|minutes| u64::try_from(minutes).ok())
        .filter(|minutes| *minutes <= MINUTES_MAX)
        .map(Some)
        .ok_or_else(|| {
            "expected a whole number of minutes or infinity (--duration gives seconds)".to_owned()
        })
}

fn driver(term: &Term) -> Result<String, String> {
    let name = term.as_atom().ok_or("expected a driver's name, an atom")?;
    Ok(name
        .strip_prefix("basho_bench_driver_")
        .unwrap_or(name)
        .to_owned())
}

fn operations(term: &Term) -> Result<Vec<Operation>, String> {
    const EXPECTED: &str =
        "expected a list of {Operation, Weight} or {Label, Operation, Weight} with whole weights";
    let list = term.as_list().ok_or(EXPECTED)?;
    let operations: Vec<Operation> = list
        .iter()
        .map(|element| operation(element).ok_or_else(|| format!("{EXPECTED}, not {element}")))
        .collect::<Result<_, _>>()?;
    let total: u64 = operations
        .iter()
        .map(|operation| u64::from(operation.weight))
        .sum();
    if total == 0 {
        return Err("expected at least one operation with a weight above 0".to_owned());
    }
    Ok(operations)
}

fn operation(term: &Term) -> Option<Operation> {
    let (label, operation, weight) = match term.as_tuple()? {
        [operation, weight] => (operation, operation, weight),
        [label, operation, weight] => (label, operation, weight),
        _ => return None,
    };
    Some(Operation {
        label: label.clone(),
        operation: operation.clone(),
        weight: u32::try_from(weight.as_integer()?).ok()?,
    })
}

fn seed(term: &Term) -> Result<Option<Seed>, String> {
    if term.as_atom() == Some("now") {
        return Ok(None);
    }
    let part = |term: &Term| {
        term.as_integer()
            .and_then(|value| i64::try_from(value).ok())
    };
    match term.as_tuple() {
        Some([a, b, c]) => part(a)
            .zip(part(b))
            .zip(part(c))
            .map(|((a, b), c)| Some(Seed([a, b, c]))),
        _ => None,
    }
    .ok_or_else(|| "expected three integers {A, B, C} or now".to_owned())
}

fn boolean(term: &Term) -> Result<bool, String> {
    match term.as_atom() {
        Some("true") => Ok(true),
        Some("false") => Ok(false),
        _ => Err("expected true or false".to_owned()),
    }
}
