//! `run.json`: the description of a run and its machine, and its figures as a whole.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::read_error::ReadError;

/// The format that this version reads.
const FORMAT: u32 = 1;

/// The description of a run.
#[derive(Debug, Clone, Deserialize)]
pub struct Description {
    format: u32,
    /// The run's name.
    #[serde(default)]
    pub name: String,
    /// The file that configured it.
    pub configuration_file: Option<String>,
    /// Its configuration: each key with its value as an Erlang term.
    #[serde(default)]
    pub configuration: serde_json::Map<String, serde_json::Value>,
    /// Its start, in seconds since 1970.
    pub started_unix_seconds: Option<f64>,
    /// Length of the run, in seconds.
    pub duration_seconds: Option<f64>,
    /// Length of the warm-up before it was measured, in seconds.
    pub warm_up_seconds: Option<f64>,
    /// `closed`: each worker waits for an answer before its next request; `open`: requests are sent
    /// at a fixed rate.
    pub mode: Option<String>,
    /// Requests per second, if limited.
    pub rate: Option<f64>,
    /// Number of workers.
    pub workers: Option<u64>,
    /// Factor of duration and key space.
    pub scale: Option<f64>,
    /// The driver of the workers.
    pub driver: Option<String>,
    /// The server's storage engine.
    pub backend: Option<String>,
    /// The promise of an acknowledged write.
    pub durability: Option<String>,
    /// The server, if it described itself.
    pub server: Option<Server>,
    /// The machine that ran the load.
    #[serde(default)]
    pub machine: Machine,
    #[serde(default)]
    totals: BTreeMap<String, OperationTotals>,
    /// True if every value read was checked against the writes.
    #[serde(default)]
    pub verified: bool,
    /// The lateness of operations, in an open loop.
    pub lateness: Option<OperationTotals>,
    /// Times at which the server did not answer.
    #[serde(default)]
    pub stalls: Vec<Stall>,
    /// The possible hits of gets, if known.
    pub hits: Option<Hits>,
}

/// The possible hits of gets, and their hits.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct Hits {
    /// Number of different keys that can be drawn; `None` without a bound, or if gets only read
    /// written keys.
    pub distinct_keys: Option<f64>,
    /// Successful writes of such keys.
    pub writes: f64,
    /// Successful gets, found or not.
    pub gets: f64,
    /// Gets that found something.
    pub found: f64,
    /// The share of gets that can find something on a store that was empty and keeps everything.
    pub possible_share: f64,
}

impl Hits {
    /// The share of gets that found something.
    pub fn found_share(&self) -> f64 {
        self.found / self.gets.max(1.0)
    }
}

/// The server's description of itself.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Server {
    /// Its version.
    pub version: Option<String>,
    /// Its settings.
    #[serde(default)]
    pub settings: serde_json::Map<String, serde_json::Value>,
}

/// A machine.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub cpu_model: Option<String>,
    /// Logical cores.
    pub cores: Option<u64>,
    /// Main memory in bytes.
    pub memory_bytes: Option<f64>,
    /// The kernel's version.
    pub kernel: Option<String>,
    /// The file system below the data.
    pub filesystem: Option<String>,
    /// The device below the data.
    pub device: Option<String>,
}

/// One operation over the whole run; latencies in microseconds.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct OperationTotals {
    /// Successful operations.
    #[serde(default)]
    pub count: f64,
    /// Failed operations.
    #[serde(default)]
    pub errors: f64,
    /// Successful operations that found nothing.
    pub misses: Option<f64>,
    /// The mean.
    pub mean_us: Option<f64>,
    /// The median.
    pub p50_us: Option<f64>,
    /// 95th percentile.
    pub p95_us: Option<f64>,
    /// 99th percentile.
    pub p99_us: Option<f64>,
    /// 99.9th percentile.
    pub p999_us: Option<f64>,
    /// 99.99th percentile; none in results of earlier versions.
    pub p9999_us: Option<f64>,
    /// The longest.
    pub max_us: Option<f64>,
}

/// A time without any answer.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct Stall {
    /// Its beginning, in seconds since the run's start.
    pub at_seconds: f64,
    /// Its length, in seconds.
    pub seconds: f64,
}

impl Description {
    pub(super) fn parse(text: &str, path: &Path) -> Result<Self, ReadError> {
        let description: Self =
            serde_json::from_str(text).map_err(|source| ReadError::Description {
                path: path.to_owned(),
                source,
            })?;
        if description.format != FORMAT {
            return Err(ReadError::Format {
                path: path.to_owned(),
                got: description.format,
                expected: FORMAT,
            });
        }
        Ok(description)
    }

    /// The name of the test: the run's name, or the configuration's name if the run's is only its starting
    /// time.
    pub(super) fn test_name(&self) -> String {
        let files = self.configuration_file.as_deref().unwrap_or_default();
        let stem = |path: &str| {
            let file = path.rsplit('/').next().unwrap_or(path);
            file.strip_suffix(".config").unwrap_or(file).to_owned()
        };
        let stems: Vec<String> = files
            .split(", ")
            .filter(|path| !path.is_empty())
            .map(stem)
            .collect();
        match is_time(&self.name) && !stems.is_empty() {
            true => stems.join(" + "),
            false => self.name.clone(),
        }
    }

    /// The totals of an operation, given its label in file names.
    pub(super) fn totals_of(&self, file_label: &str) -> Option<OperationTotals> {
        let same = |(label, _): &(&String, &OperationTotals)| as_file_label(label) == file_label;
        self.totals
            .iter()
            .find(same)
            .map(|(_, totals)| totals.clone())
    }
}

/// True for `YYYYMMDD_HHMMSS`, the default name of a run.
fn is_time(name: &str) -> bool {
    let is_digits =
        |text: &str, len| text.len() == len && text.bytes().all(|it| it.is_ascii_digit());
    name.split_once('_')
        .is_some_and(|(day, time)| is_digits(day, 8) && is_digits(time, 6))
}

/// A label in the form of file names: parts of a tuple joined by dashes, and a dash for any
/// character other than a letter or digit.
fn as_file_label(label: &str) -> String {
    let inner = label
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'))
        .unwrap_or(label);
    let parts = inner.split(',').map(|part| {
        let part = part.trim().trim_matches(['"', '\'', '<', '>']);
        let dash = |letter: char| {
            if letter.is_ascii_alphanumeric() {
                letter
            } else {
                '-'
            }
        };
        part.chars().map(dash).collect::<String>()
    });
    parts.collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Description, ReadError> {
        Description::parse(text, Path::new("run.json"))
    }

    #[test]
    fn totals_are_found_by_the_label_of_the_file() {
        let text = r#"{"format":1,"totals":{"get_unique":{"count":3,"errors":0,"mean_us":1.5},
            "{put_pb, 5}":{"count":4,"errors":1}}}"#;
        let description = parse(text).unwrap();
        assert_eq!(
            description.totals_of("get-unique").unwrap().mean_us,
            Some(1.5)
        );
        assert_eq!(description.totals_of("put-pb-5").unwrap().errors, 1.0);
        assert_eq!(description.totals_of("delete"), None);
    }

    #[test]
    fn a_test_is_called_by_its_configuration_unless_it_was_named() {
        let name = |name: &str| {
            let text = format!(
                r#"{{"format":1,"name":"{name}","configuration_file":"/a/published-test4.config, b.config"}}"#
            );
            parse(&text).unwrap().test_name()
        };
        assert_eq!(name("20261126_032021"), "published-test4 + b");
        assert_eq!(name("my run"), "my run");
        assert_eq!(name("20261126_0320"), "20261126_0320");
    }

    #[test]
    fn fields_that_are_unknown_or_null_do_no_harm() {
        let text = r#"{"format":1,"rate":null,"server":null,"machine":{},"later":[1]}"#;
        assert!(parse(text).unwrap().rate.is_none());
    }

    #[test]
    fn another_format_is_refused() {
        let error = parse(r#"{"format":2}"#).unwrap_err();
        assert_eq!(
            error.to_string(),
            "run.json has format 2; this version reads format 1"
        );
        assert!(parse("{}").is_err());
    }
}
