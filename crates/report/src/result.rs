//! A result directory of `kvorum bench run`, read into memory.
//!
//! Only `summary.csv` is required, so that a directory of basho_bench itself makes a report too.
//! The page names missing files.

mod causes;
mod csv;
mod description;
mod load;
mod read_error;
pub mod series;

use std::path::{Path, PathBuf};

pub use causes::Cause;
pub use csv::Table;
pub use description::{Description, Hits, Machine, OperationTotals, Server, Stall};
pub use read_error::ReadError;

/// The data of one run.
#[derive(Debug, Clone)]
pub struct RunResult {
    /// Its directory.
    pub directory: PathBuf,
    /// The name of the test: the given name, or the name of its configuration or directory.
    pub name: String,
    /// `run.json`, if there is one.
    pub description: Option<Description>,
    /// `summary.csv`: elapsed, window, total, successful, failed.
    pub summary: Table,
    /// One table per operation, in the order of their names.
    pub operations: Vec<Operation>,
    /// `server.csv`, if the server was sampled.
    pub server: Option<Table>,
    /// `volume.csv`, if volume was counted.
    pub volume: Option<Table>,
    /// `errors.csv`: the causes of failed operations, the most frequent first.
    pub causes: Vec<Cause>,
}

/// The data of one operation.
#[derive(Debug, Clone)]
pub struct Operation {
    /// The label in the name of its file.
    pub label: String,
    /// Its latencies in microseconds: elapsed, window, n, min, mean, median, 95th, 99th, 99_9th,
    /// max, errors.
    pub latencies: Table,
    /// Figures of the whole run, if `run.json` has them.
    pub totals: Option<OperationTotals>,
}

impl RunResult {
    /// Reads a result directory.
    ///
    /// # Errors
    /// `summary.csv` is missing, or a file cannot be parsed.
    pub fn read(directory: &Path) -> Result<Self, ReadError> {
        let description = read_optional(&directory.join("run.json"), Description::parse)?;
        let summary_path = directory.join("summary.csv");
        let summary = Table::parse(&read_text(&summary_path)?, &summary_path)?;
        summary.require(
            &["elapsed", "window", "successful", "failed"],
            &summary_path,
        )?;
        let operations = read_operations(directory, description.as_ref())?;
        let name = match &description {
            Some(description) if !description.name.is_empty() => description.test_name(),
            _ => directory_name(directory),
        };
        Ok(Self {
            name,
            summary,
            operations,
            server: read_optional(&directory.join("server.csv"), Table::parse)?,
            volume: read_optional(&directory.join("volume.csv"), Table::parse)?,
            causes: read_optional(&directory.join("errors.csv"), |text, _| {
                Ok(causes::parse(text))
            })?
            .unwrap_or_default(),
            description,
            directory: directory.to_owned(),
        })
    }

    /// The possible hits of gets, if known.
    pub fn hits(&self) -> Option<Hits> {
        self.description.as_ref()?.hits
    }

    /// Stalls of the server that the run recorded.
    pub fn stalls(&self) -> &[Stall] {
        self.description
            .as_ref()
            .map_or(&[], |description| &description.stalls)
    }
}

const LATENCIES: &str = "_latencies.csv";

fn read_operations(
    directory: &Path,
    description: Option<&Description>,
) -> Result<Vec<Operation>, ReadError> {
    let unreadable = |source| ReadError::File {
        path: directory.to_owned(),
        source,
    };
    let mut labels = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(unreadable)? {
        let name = entry.map_err(unreadable)?.file_name();
        if let Some(label) = name.to_string_lossy().strip_suffix(LATENCIES) {
            labels.push(label.to_owned());
        }
    }
    labels.sort();
    labels
        .into_iter()
        .map(|label| {
            let path = directory.join(format!("{label}{LATENCIES}"));
            let latencies = Table::parse(&read_text(&path)?, &path)?;
            latencies.require(&["elapsed", "n", "mean", "95th", "99th", "max"], &path)?;
            let totals = description.and_then(|description| description.totals_of(&label));
            Ok(Operation {
                label,
                latencies,
                totals,
            })
        })
        .collect()
}

fn read_text(path: &Path) -> Result<String, ReadError> {
    std::fs::read_to_string(path).map_err(|source| ReadError::File {
        path: path.to_owned(),
        source,
    })
}

/// A file that may be missing.
fn read_optional<T>(
    path: &Path,
    parse: impl Fn(&str, &Path) -> Result<T, ReadError>,
) -> Result<Option<T>, ReadError> {
    match read_text(path) {
        Ok(text) => parse(&text, path).map(Some),
        Err(ReadError::File { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The last part of a path, with `.` and links resolved.
fn directory_name(directory: &Path) -> String {
    let real = directory
        .canonicalize()
        .unwrap_or_else(|_| directory.to_owned());
    real.file_name().map_or_else(
        || directory.display().to_string(),
        |name| name.to_string_lossy().into_owned(),
    )
}
