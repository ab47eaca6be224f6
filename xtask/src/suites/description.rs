//! Descriptions of suites: the contents of `suite.toml`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Context;
use serde::Deserialize;

/// A suite.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Description {
    /// The number of tests that it reports beside the harness's own, so that an early end is
    /// detected.
    pub(crate) tests: usize,
    /// Its time limit.
    pub(crate) seconds: u32,
    /// Its results: the format for `judge.py`, a colon, and a pattern of files.
    pub(crate) results: Vec<String>,
    /// Settings of its server.
    #[serde(default)]
    pub(crate) settings: BTreeMap<String, String>,
    /// Its bucket types, with their properties.
    #[serde(default)]
    pub(crate) bucket_types: BTreeMap<String, String>,
    /// Its sources.
    pub(crate) sources: Vec<Source>,
}

/// A repository at a commit.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Source {
    /// The directory in which `prepare.sh` expects it.
    pub(crate) folder: String,
    /// The name of its archive, if it differs from the repository's.
    archive: Option<String>,
    /// Its owner and name on GitHub.
    pub(crate) repository: String,
    pub(crate) commit: String,
}

impl Description {
    /// Reads the description in a suite's folder.
    pub(crate) fn read(folder: &Path) -> anyhow::Result<Description> {
        let path = folder.join("suite.toml");
        let text =
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("reading {}", path.display()))
    }
}

impl Source {
    /// The name of its archive, without the commit.
    pub(crate) fn archive(&self) -> &str {
        let name = self.repository.rsplit('/').next();
        self.archive.as_deref().or(name).unwrap_or(&self.repository)
    }
}
