//! Result files in basho_bench's format, so that existing tools plot them.

mod interval_log;
mod summary_table;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::activity::Records;
use crate::recorder::{Latencies, Record};
use crate::seconds::seconds;
use crate::settings::Operation;
use kvorum_erlang_terms::Term;

use interval_log::IntervalLog;
pub(crate) use interval_log::{COUNTS, COUNTS_HEADER, HISTOGRAMS, LATENESS};
pub(crate) use summary_table::per_second;
pub use summary_table::{Totals, write_summary};

/// The least number of samples for which basho_bench writes a row with data.
const SAMPLES_MIN: u64 = 5;
/// The usual interval. In shorter intervals, every sample counts: otherwise slow operations of a
/// short run would have no row at all.
const USUAL_WINDOW: Duration = Duration::from_secs(10);

const LATENCY_HEADER: &str =
    "elapsed, window, n, min, mean, median, 95th, 99th, 99_9th, max, errors";

/// Header of `volume.csv`; both counts grow with the run.
const VOLUME_HEADER: &str = "elapsed, operations, payload_bytes";

/// The files of one run.
#[derive(Debug)]
pub struct ResultFiles {
    directory: PathBuf,
    summary: File,
    volume: File,
    latencies: Vec<File>,
    histograms: IntervalLog,
    /// Operations and payload bytes so far.
    volume_so_far: (u64, u64),
}

impl ResultFiles {
    /// Creates the run directory `results/name`, copies the configuration into it, and links
    /// `results/current` to it. `labels` has one label for each operation, see [`file_labels`].
    pub fn create(
        results: &Path,
        name: &str,
        configurations: &[PathBuf],
        labels: &[String],
    ) -> io::Result<Self> {
        let directory = results.join(name);
        std::fs::create_dir_all(&directory)?;
        for path in configurations {
            if let Some(file_name) = path.file_name() {
                std::fs::copy(path, directory.join(file_name))?;
            }
        }
        point_current_at(results, name)?;
        Self::in_directory(directory, labels)
    }

    /// The files of a run in an existing directory.
    pub fn in_directory(directory: PathBuf, labels: &[String]) -> io::Result<Self> {
        let create = |file_name: &str, header: &str| {
            let mut file = File::create(directory.join(file_name))?;
            writeln!(file, "{header}")?;
            io::Result::Ok(file)
        };
        let latencies = labels
            .iter()
            .map(|label| create(&format!("{label}_latencies.csv"), LATENCY_HEADER))
            .collect::<io::Result<_>>()?;
        let summary = create("summary.csv", "elapsed, window, total, successful, failed")?;
        let volume = create("volume.csv", VOLUME_HEADER)?;
        create("errors.csv", "\"error\",\"count\"")?;
        Ok(Self {
            histograms: IntervalLog::create(&directory, labels)?,
            directory,
            summary,
            volume,
            latencies,
            volume_so_far: (0, 0),
        })
    }

    /// The directory of the files.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Writes the first row of the volume, and the time in the histogram log.
    pub fn begin(&mut self, started: SystemTime) -> io::Result<()> {
        writeln!(self.volume, "0.0, 0, 0")?;
        self.histograms.begin(started)
    }

    /// Writes the rows of one interval: `elapsed` since the run's start, `window` since the
    /// previous rows.
    pub fn write_rows(
        &mut self,
        elapsed: Duration,
        window: Duration,
        records: &Records,
    ) -> io::Result<()> {
        let times = format!("{}, {}", seconds(elapsed), seconds(window));
        let (successful, failed) = records.counts();
        let total = successful + failed;
        writeln!(self.summary, "{times}, {total}, {successful}, {failed}")?;
        for (file, record) in self.latencies.iter_mut().zip(&records.operations) {
            writeln!(file, "{times}, {}", latency_columns(record, window))?;
        }
        let payload: u64 = records.operations.iter().map(|it| it.payload_bytes).sum();
        let (operations, bytes) = &mut self.volume_so_far;
        *operations += total;
        *bytes += payload;
        writeln!(self.volume, "{}, {operations}, {bytes}", seconds(elapsed))?;
        self.histograms.write(elapsed, window, records)
    }

    /// Writes the number of failures of each operation for each reason.
    pub fn write_errors(&self, operations: &[Operation], totals: &[Record]) -> io::Result<()> {
        let mut rows = BTreeMap::new();
        for (operation, record) in operations.iter().zip(totals) {
            let pair = Term::Tuple(vec![operation.label.clone(), operation.operation.clone()]);
            for (reason, count) in &record.reasons {
                let key = format!("{{{},{reason}}}", pair.to_plain_text());
                *rows.entry(key).or_insert(0) += count;
            }
        }
        self.write_error_rows(&rows)
    }

    /// Writes the number of errors by reason.
    pub fn write_error_rows(&self, rows: &BTreeMap<String, u64>) -> io::Result<()> {
        let mut file = File::create(self.directory.join("errors.csv"))?;
        writeln!(file, "\"error\",\"count\"")?;
        for (key, count) in rows {
            writeln!(file, "\"{key}\",\"{count}\"")?;
        }
        Ok(())
    }
}

/// Replaces the link `current`; anything else with that name stays and is an error.
fn point_current_at(results: &Path, name: &str) -> io::Result<()> {
    let link = results.join("current");
    match std::fs::symlink_metadata(&link) {
        Ok(found) if found.file_type().is_symlink() => std::fs::remove_file(&link)?,
        Ok(_) => {
            let text = format!("{} exists and is not a link", link.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    std::os::unix::fs::symlink(name, &link)
}

fn latency_columns(record: &Record, window: Duration) -> String {
    let Latencies {
        samples,
        min,
        mean,
        median,
        p95,
        p99,
        p999,
        max,
        ..
    } = record.latencies();
    let errors = record.errors;
    let samples_min = match window < USUAL_WINDOW {
        true => 1,
        false => SAMPLES_MIN,
    };
    if samples < samples_min {
        return format!("0, 0, 0, 0, 0, 0, 0, 0, {errors}");
    }
    let units = record.units;
    format!("{units}, {min}, {mean:.1}, {median}, {p95}, {p99}, {p999}, {max}, {errors}")
}

/// The label of each operation in file names; a repeated label gets a number.
pub fn file_labels(operations: &[Operation]) -> Vec<String> {
    let mut labels: Vec<String> = Vec::new();
    for operation in operations {
        let plain = file_label(&operation.label);
        let numbered = (2..).map(|number: u32| format!("{plain}-{number}"));
        let free = std::iter::once(plain.clone())
            .chain(numbered)
            .find(|label| !labels.contains(label));
        labels.push(free.unwrap_or(plain));
    }
    labels
}

/// A label as part of a file name: letters and digits are kept, all other characters become dashes.
pub fn file_label(label: &Term) -> String {
    if let Term::Tuple(parts) = label {
        let parts: Vec<String> = parts.iter().map(file_label).collect();
        return parts.join("-");
    }
    let text = match label {
        Term::Atom(name) => name.clone(),
        other => match other.as_bytes() {
            Some(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            None => other.to_string(),
        },
    };
    let keep = |letter: char| {
        if letter.is_ascii_alphanumeric() {
            letter
        } else {
            '-'
        }
    };
    text.chars().map(keep).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Outcome;
    use kvorum_erlang_terms::parse_term;

    fn operation(text: &str) -> Operation {
        let term = parse_term(text).unwrap();
        Operation {
            label: term.clone(),
            operation: term,
            weight: 1,
        }
    }

    fn record(samples: u64, errors: &[&str]) -> Record {
        let mut record = Record::new().unwrap();
        for sample in 1..=samples {
            record.add(&Outcome::Done, Duration::from_micros(sample));
        }
        for error in errors {
            record.add(&Outcome::failed(error), Duration::ZERO);
        }
        record
    }

    #[test]
    fn labels_become_the_file_names_of_basho_bench() {
        for (label, expected) in [
            ("get_unique", "get-unique"),
            ("{counter,increment}", "counter-increment"),
            ("{put_pb, 5}", "put-pb-5"),
            ("\"first put\"", "first-put"),
            ("<<\"a/b\">>", "a-b"),
        ] {
            assert_eq!(file_label(&parse_term(label).unwrap()), expected);
        }
    }

    #[test]
    fn an_operation_listed_twice_gets_files_of_its_own() {
        let twice = [operation("get"), operation("get"), operation("get_2")];
        assert_eq!(file_labels(&twice), ["get", "get-2", "get-2-2"]);
    }

    #[test]
    fn files_are_byte_for_byte_in_the_format() {
        let results = tempfile::tempdir().unwrap();
        let configuration = results.path().join("my.config");
        std::fs::write(&configuration, "{mode, max}.").unwrap();
        let operations = [operation("get_unique"), operation("{put_pb, 5}")];
        let labels = file_labels(&operations);
        let mut files =
            ResultFiles::create(results.path(), "run", &[configuration], &labels).unwrap();
        let window = Duration::from_micros(10_000_123);
        let mut records = Records::new(2).unwrap();
        records.operations = vec![
            record(100, &["timeout"]),
            record(4, &["timeout", "timeout"]),
        ];
        records.operations[1].payload_bytes = 4000;
        files.begin(SystemTime::UNIX_EPOCH).unwrap();
        files.write_rows(window, window, &records).unwrap();
        let nothing = Records::new(2).unwrap();
        files
            .write_rows(Duration::from_secs(20), window, &nothing)
            .unwrap();
        files
            .write_errors(&operations, &records.operations)
            .unwrap();
        let short = Duration::from_secs(1);
        let after = Duration::from_secs(21);
        files.write_rows(after, short, &records).unwrap();

        let read = |name: &str| {
            std::fs::read_to_string(results.path().join("current").join(name)).unwrap()
        };
        assert_eq!(read("my.config"), "{mode, max}.");
        assert_eq!(
            read("summary.csv"),
            "elapsed, window, total, successful, failed\n\
             10.000123, 10.000123, 107, 104, 3\n20.0, 10.000123, 0, 0, 0\n\
             21.0, 1.0, 107, 104, 3\n"
        );
        assert_eq!(
            read("get-unique_latencies.csv"),
            "elapsed, window, n, min, mean, median, 95th, 99th, 99_9th, max, errors\n\
             10.000123, 10.000123, 100, 1, 50.5, 50, 95, 99, 100, 100, 1\n\
             20.0, 10.000123, 0, 0, 0, 0, 0, 0, 0, 0, 0\n\
             21.0, 1.0, 100, 1, 50.5, 50, 95, 99, 100, 100, 1\n"
        );
        assert_eq!(
            read("put-pb-5_latencies.csv").lines().nth(1),
            Some("10.000123, 10.000123, 0, 0, 0, 0, 0, 0, 0, 0, 2")
        );
        assert_eq!(
            read("put-pb-5_latencies.csv").lines().nth(3),
            Some("21.0, 1.0, 4, 1, 2.5, 2, 4, 4, 4, 4, 2")
        );
        assert_eq!(
            read("volume.csv"),
            "elapsed, operations, payload_bytes\n0.0, 0, 0\n10.000123, 107, 4000\n\
             20.0, 107, 4000\n21.0, 214, 8000\n"
        );
        assert_eq!(
            read("errors.csv"),
            "\"error\",\"count\"\n\"{{get_unique,get_unique},timeout}\",\"1\"\n\
             \"{{{put_pb,5},{put_pb,5}},timeout}\",\"2\"\n"
        );
    }

    #[test]
    fn the_current_link_moves_to_the_newest_run() {
        let results = tempfile::tempdir().unwrap();
        for name in ["one", "two"] {
            ResultFiles::create(results.path(), name, &[], &[]).unwrap();
        }
        let link = std::fs::read_link(results.path().join("current")).unwrap();
        assert_eq!(link, Path::new("two"));
        std::fs::remove_file(results.path().join("current")).unwrap();
        std::fs::write(results.path().join("current"), "mine").unwrap();
        let error = ResultFiles::create(results.path(), "three", &[], &[]).unwrap_err();
        assert!(error.to_string().contains("not a link"));
    }
}
