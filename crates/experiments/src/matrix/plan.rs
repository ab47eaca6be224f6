//! The cells of a matrix file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use serde::{Deserialize, Serialize};

/// A matrix, ready to be run.
#[derive(Debug)]
pub(super) struct Plan {
    /// Its title.
    pub(super) title: String,
    /// Notes on the whole for readers, in sentences.
    pub(super) notes: Vec<String>,
    /// All cells, tests first, in the order of the file.
    pub(super) cells: Vec<Cell>,
}

/// One test on one backend with one durability.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Cell {
    /// The test's name: letters, digits and dashes.
    pub(super) test: String,
    /// The test's title.
    #[serde(skip)]
    pub(super) test_title: String,
    /// A note on the test for readers.
    #[serde(skip)]
    pub(super) test_note: Option<String>,
    /// The storage engine.
    pub(super) backend: String,
    /// The promise of an acknowledged write; the server's default if not given.
    pub(super) durability: Option<String>,
    /// True if the test has several durabilities; names then include them.
    #[serde(skip)]
    pub(super) has_several_durabilities: bool,
    /// Configuration files of the load.
    pub(super) files: Vec<PathBuf>,
    /// Configuration files of a load that fills the server first.
    pub(super) preload: Vec<PathBuf>,
    /// Seconds of measured load.
    pub(super) duration: f64,
    /// Seconds of load before.
    pub(super) warm_up: f64,
    /// Factor of the key space.
    pub(super) scale: f64,
    /// Keys of the load's configuration, over those of its files.
    pub(super) set: BTreeMap<String, String>,
    /// Settings of the server.
    pub(super) server: BTreeMap<String, String>,
}

/// The file's form.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MatrixFile {
    title: String,
    /// Sentences for the reader of the pages.
    #[serde(default)]
    notes: Vec<String>,
    backends: Vec<String>,
    /// Values of the server's setting `durability`; without any, its default.
    #[serde(default)]
    durabilities: Vec<String>,
    duration: Length,
    warm_up: Option<Length>,
    scale: Option<f64>,
    /// Keys of every load's configuration, as Erlang terms.
    #[serde(default)]
    set: BTreeMap<String, Scalar>,
    /// Settings of every server.
    #[serde(default)]
    server: BTreeMap<String, Scalar>,
    /// Settings of servers with one engine.
    #[serde(default)]
    server_of: BTreeMap<String, BTreeMap<String, Scalar>>,
    tests: Vec<TestFile>,
}

/// A test in the file; absent fields have the matrix's values.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TestFile {
    name: String,
    title: Option<String>,
    /// A sentence or two for the reader of the pages.
    note: Option<String>,
    /// Configuration files, relative to the matrix file.
    files: Vec<PathBuf>,
    #[serde(default)]
    preload: Vec<PathBuf>,
    /// The backends that can run the test; all unless given.
    backends: Option<Vec<String>>,
    durabilities: Option<Vec<String>>,
    duration: Option<Length>,
    warm_up: Option<Length>,
    scale: Option<f64>,
    /// Keys of the configuration, as Erlang terms.
    #[serde(default)]
    set: BTreeMap<String, Scalar>,
    #[serde(default)]
    server: BTreeMap<String, Scalar>,
}

/// A value that becomes plain text.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Scalar {
    Text(String),
    Integer(i64),
    Float(f64),
    Switch(bool),
}

/// A length of time: seconds, or a text such as `90s`, `3m`, `2h`.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(try_from = "Scalar")]
struct Length(f64);

impl Plan {
    /// Reads a matrix file.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Self::parse(&text, folder).with_context(|| format!("in {}", path.display()))
    }

    /// Parses a matrix file in `folder`.
    pub(super) fn parse(text: &str, folder: &Path) -> anyhow::Result<Self> {
        let file: MatrixFile = toml::from_str(text)?;
        let folder = std::path::absolute(folder)
            .or_else(|_| std::env::current_dir())
            .context("cannot find the current directory")?;
        ensure!(!file.backends.is_empty(), "backends is empty");
        ensure!(!file.tests.is_empty(), "there are no tests");
        let mut cells = Vec::new();
        for test in &file.tests {
            check_name("name", &test.name)?;
            let is_twice = cells.iter().any(|cell: &Cell| cell.test == test.name);
            ensure!(
                !is_twice,
                "there are two tests with the name {:?}",
                test.name
            );
            ensure!(!test.files.is_empty(), "test {:?} has no files", test.name);
            for backend in test.backends.iter().flatten() {
                ensure!(
                    file.backends.contains(backend),
                    "test {:?} is for the backend {backend:?}, which is not in the matrix",
                    test.name
                );
            }
            let is_able = |backend: &&String| {
                let able = test.backends.as_ref();
                able.is_none_or(|able| able.contains(backend))
            };
            for backend in file.backends.iter().filter(is_able) {
                check_name("backend", backend)?;
                cells.extend(cells_of(&file, test, backend, &folder)?);
            }
        }
        Ok(Self {
            title: file.title,
            notes: file.notes,
            cells,
        })
    }

    /// Keeps only the named tests and backends; no names keep all.
    pub(super) fn narrow(&mut self, tests: &[String], backends: &[String]) -> anyhow::Result<()> {
        for test in tests {
            let is_known = self.cells.iter().any(|cell| cell.test == *test);
            ensure!(is_known, "there is no test {test:?}");
        }
        for backend in backends {
            let is_known = self.cells.iter().any(|cell| cell.backend == *backend);
            ensure!(is_known, "backend {backend:?} is not in the matrix");
        }
        self.cells.retain(|cell| {
            (tests.is_empty() || tests.contains(&cell.test))
                && (backends.is_empty() || backends.contains(&cell.backend))
        });
        Ok(())
    }

    /// Sets the duration of every cell.
    pub(super) fn set_duration(&mut self, seconds: f64) -> anyhow::Result<()> {
        ensure!(
            seconds > 0.0,
            "a duration of {seconds} seconds measures nothing"
        );
        for cell in &mut self.cells {
            cell.duration = seconds;
        }
        Ok(())
    }
}

fn cells_of(
    file: &MatrixFile,
    test: &TestFile,
    backend: &str,
    folder: &Path,
) -> anyhow::Result<Vec<Cell>> {
    let durabilities = test.durabilities.as_ref().unwrap_or(&file.durabilities);
    let mut server = texts(&file.server);
    if let Some(settings) = file.server_of.get(backend) {
        server.append(&mut texts(settings));
    }
    server.append(&mut texts(&test.server));
    for reserved in ["storage_backend", "durability"] {
        if server.contains_key(reserved) {
            bail!("{reserved} is not a setting of a server here: it is what the matrix compares");
        }
    }
    let mut set = texts(&file.set);
    set.append(&mut texts(&test.set));
    let scale = test.scale.or(file.scale).unwrap_or(1.0);
    ensure!(
        scale > 0.0 && scale.is_finite(),
        "a scale of {scale} leaves no keys"
    );
    let duration = test.duration.unwrap_or(file.duration).0;
    ensure!(duration > 0.0, "a duration of zero measures nothing");
    let cell = |durability: Option<&String>| Cell {
        test: test.name.clone(),
        test_title: test.title.clone().unwrap_or_else(|| test.name.clone()),
        test_note: test.note.clone(),
        backend: backend.to_owned(),
        durability: durability.cloned(),
        has_several_durabilities: durabilities.len() > 1,
        files: test.files.iter().map(|path| folder.join(path)).collect(),
        preload: test.preload.iter().map(|path| folder.join(path)).collect(),
        duration,
        warm_up: test.warm_up.or(file.warm_up).map_or(0.0, |length| length.0),
        scale,
        set: set.clone(),
        server: server.clone(),
    };
    for durability in durabilities {
        check_name("durability", durability)?;
    }
    Ok(if durabilities.is_empty() {
        vec![cell(None)]
    } else {
        durabilities.iter().map(|name| cell(Some(name))).collect()
    })
}

impl Cell {
    /// Its name as a directory.
    pub(super) fn name(&self) -> String {
        match &self.durability {
            Some(durability) => format!("{}--{}--{durability}", self.test, self.backend),
            None => format!("{}--{}", self.test, self.backend),
        }
    }

    /// Its title.
    pub(super) fn title(&self) -> String {
        match &self.durability {
            Some(durability) => {
                format!(
                    "{} on {}, durability {durability}",
                    self.test_title, self.backend
                )
            }
            None => format!("{} on {}", self.test_title, self.backend),
        }
    }

    /// Seconds of load, except for a preload, whose length is unknown.
    pub(super) fn expected_seconds(&self) -> f64 {
        self.duration + self.warm_up
    }
}

/// Checks a name, which becomes the name of a file.
fn check_name(what: &str, name: &str) -> anyhow::Result<()> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    ensure!(
        !name.is_empty() && !name.starts_with('.') && name.chars().all(is_plain),
        "{what} {name:?} is a name of files; use letters, digits, dashes, dots and underscores"
    );
    Ok(())
}

fn texts(settings: &BTreeMap<String, Scalar>) -> BTreeMap<String, String> {
    let text = |(key, value): (&String, &Scalar)| (key.clone(), value.text());
    settings.iter().map(text).collect()
}

impl Scalar {
    fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Integer(number) => number.to_string(),
            Self::Float(number) => format!("{number:?}"),
            Self::Switch(true) => "on".to_owned(),
            Self::Switch(false) => "off".to_owned(),
        }
    }
}

impl TryFrom<Scalar> for Length {
    type Error = String;

    fn try_from(scalar: Scalar) -> Result<Self, String> {
        let text = scalar.text();
        let (number, factor) = match text.chars().last() {
            Some('s') => (text.trim_end_matches('s'), 1.0),
            Some('m') => (text.trim_end_matches('m'), 60.0),
            Some('h') => (text.trim_end_matches('h'), 3600.0),
            _ => (text.as_str(), 1.0),
        };
        match number.parse::<f64>() {
            Ok(number) if number >= 0.0 && number.is_finite() => Ok(Self(number * factor)),
            _ => Err(format!(
                "{text:?} is no length of time, such as 90s, 3m or 2h"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        title = "Two tests"
        backends = ["bitcask", "memory"]
        durabilities = ["none"]
        duration = "3m"
        scale = 0.01
        set = { report_interval = 1, concurrent = 10 }

        [server]
        ring_size = 16

        [server_of.memory]
        "memory_backend.max_memory" = "2GB"

        [[tests]]
        name = "one"
        files = ["one.config"]

        [[tests]]
        name = "two"
        title = "The second"
        files = ["two.config"]
        preload = ["fill.config"]
        durabilities = ["none", "grouped"]
        duration = 90
        set = { concurrent = 50, mode = "{rate, 10}" }
    "#;

    fn parse(text: &str) -> anyhow::Result<Plan> {
        Plan::parse(text, Path::new("/configs"))
    }

    #[test]
    fn a_file_becomes_tests_times_backends_times_durabilities() {
        let plan = parse(TEXT).unwrap();
        let names: Vec<String> = plan.cells.iter().map(Cell::name).collect();
        assert_eq!(
            names,
            [
                "one--bitcask--none",
                "one--memory--none",
                "two--bitcask--none",
                "two--bitcask--grouped",
                "two--memory--none",
                "two--memory--grouped",
            ]
        );
        let [first, memory, second, ..] = &plan.cells[..] else {
            panic!("too few cells");
        };
        assert_eq!(first.duration, 180.0);
        assert_eq!(first.server["ring_size"], "16");
        assert_eq!(memory.server["memory_backend.max_memory"], "2GB");
        assert_eq!(second.duration, 90.0);
        assert_eq!(second.scale, 0.01);
        assert_eq!(second.files, [Path::new("/configs/two.config")]);
        assert_eq!(first.set["concurrent"], "10");
        assert_eq!(second.set["concurrent"], "50");
        assert_eq!(second.set["report_interval"], "1");
        assert_eq!(second.set["mode"], "{rate, 10}");
        assert_eq!(second.title(), "The second on bitcask, durability none");
    }

    #[test]
    fn a_test_may_be_for_some_backends_only() {
        let only = |backend: &str| {
            let line = format!("files = [\"two.config\"]\nbackends = [\"{backend}\"]");
            parse(&TEXT.replacen("files = [\"two.config\"]", &line, 1))
        };
        let plan = only("memory").unwrap();
        let names: Vec<String> = plan.cells.iter().map(Cell::name).collect();
        assert_eq!(
            names[2..],
            ["two--memory--none", "two--memory--grouped"],
            "{names:?}"
        );
        let error = only("leveled").unwrap_err().to_string();
        assert!(error.contains("not in the matrix"), "{error}");
    }

    #[test]
    fn a_matrix_can_be_narrowed_to_what_is_in_it() {
        let mut plan = parse(TEXT).unwrap();
        plan.narrow(&["two".to_owned()], &["memory".to_owned()])
            .unwrap();
        assert_eq!(plan.cells.len(), 2);
        assert!(plan.narrow(&["three".to_owned()], &[]).is_err());
        assert!(plan.narrow(&[], &["leveled".to_owned()]).is_err());
    }

    #[test]
    fn mistakes_are_reported() {
        for (from, to, expected) in [
            (
                "name = \"two\"",
                "name = \"one\"",
                "two tests with the name",
            ),
            ("name = \"two\"", "name = \"../x\"", "is a name of files"),
            (
                "duration = 90",
                "duration = \"soon\"",
                "is no length of time",
            ),
            ("scale = 0.01", "scale = 0", "leaves no keys"),
            (
                "ring_size = 16",
                "durability = \"x\"",
                "what the matrix compares",
            ),
            ("preload", "preloads", "unknown field"),
            ("files = [\"one.config\"]", "files = []", "has no files"),
        ] {
            let error = parse(&TEXT.replacen(from, to, 1)).unwrap_err();
            let text = format!("{error:#}");
            assert!(text.contains(expected), "{text}");
        }
    }
}
