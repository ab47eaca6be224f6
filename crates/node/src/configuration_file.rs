//! Where the configuration comes from: a file, overrides, or nothing but defaults.

use std::path::{Path, PathBuf};

use anyhow::Context;
use kvorum_settings::Configuration;

/// The file that is read when none is named.
const DEFAULT_FILE: &str = "kvorum.conf";

/// Names the file where the command line does not: links called `riak` are called from anywhere.
const FILE_VARIABLE: &str = "KVORUM_CONFIG";

/// What the command line says about the configuration.
pub(crate) struct Source {
    pub(crate) file: Option<PathBuf>,
    pub(crate) overrides: Vec<String>,
}

/// A configuration and the file that it came from, if there was one.
pub(crate) struct Loaded {
    pub(crate) configuration: Configuration,
    pub(crate) file: Option<PathBuf>,
}

/// Reads and checks a configuration. All problems are reported at once.
pub(crate) fn load(source: &Source) -> anyhow::Result<Loaded> {
    let named = std::env::var_os(FILE_VARIABLE).filter(|file| !file.is_empty());
    let file = match source.file.clone().or(named.map(PathBuf::from)) {
        Some(file) => Some(file),
        None => Some(PathBuf::from(DEFAULT_FILE)).filter(|file| file.exists()),
    };
    let text = match &file {
        Some(file) => read(file)?,
        None => String::new(),
    };
    let place = file
        .as_deref()
        .map_or_else(|| "the command line".into(), |f| f.display().to_string());
    let configuration = Configuration::load(&text, &source.overrides)
        .map_err(|problems| anyhow::anyhow!("{place} cannot be used:\n{problems}"))?;
    Ok(Loaded {
        configuration,
        file,
    })
}

fn read(file: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(file)
        .with_context(|| format!("read the configuration file {}", file.display()))
}
