//! The source of the configuration: a file, overrides, or only defaults.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use kvorum_settings::{Anchors, Configuration, LogOutput, Origin, TermsFile};

use crate::data_directory::FORMAT_NAME;

/// The file that is read when none is named.
const DEFAULT_FILE: &str = "kvorum.conf";

/// The name of Riak's own file.
const RIAK_FILE: &str = "riak.conf";

/// Names the file if the command line does not, since links called `riak` are used from any
/// directory.
const FILE_VARIABLE: &str = "KVORUM_CONFIG";

/// The source of the configuration, from the command line.
pub(crate) struct Source {
    pub(crate) file: Option<PathBuf>,
    pub(crate) overrides: Vec<String>,
}

/// A configuration, and the absolute path of its file, if there was one.
pub(crate) struct Loaded {
    pub(crate) configuration: Configuration,
    pub(crate) file: Option<PathBuf>,
}

impl Loaded {
    /// The configuration of a server in the background, without a terminal: the log goes to the file unless
    /// another output is set.
    pub(crate) fn in_background(mut self) -> Self {
        let is_chosen = self.configuration.effective.iter().any(|entry| {
            entry.name == "logger.output" && matches!(entry.origin, Origin::Set { .. })
        });
        if !is_chosen {
            self.configuration.settings.log.output = LogOutput::File;
        }
        self
    }
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
    let terms = match &file {
        Some(file) => read_terms(file)?,
        None => Vec::new(),
    };
    let working = std::env::current_dir().context("find the working directory")?;
    let file = file.map(|file| working.join(file));
    let beside_file = file.as_deref().and_then(Path::parent);
    let anchors = Anchors {
        file: beside_file.and_then(Path::to_str).map(str::to_owned),
        working: working.to_str().map(str::to_owned),
    };
    let mut configuration = Configuration::load_at(&text, &terms, &source.overrides, &anchors)
        .map_err(|problems| anyhow::anyhow!("{place} cannot be used:\n{problems}"))?;
    if let Some(arguments) = file.as_deref().and_then(virtual_machine_file) {
        configuration.warnings.push(format!(
            "{} is not read: Kvorum does not run on the Erlang virtual machine, and `nodename` is \
             its name",
            arguments.display()
        ));
    }
    if let Some(directory) = beside_file {
        refuse_the_place_of_before(&configuration, directory, &working)?;
    }
    Ok(Loaded {
        configuration,
        file,
    })
}

/// Reads the files that Riak would read beside this one: `advanced.config`, and beside a `riak.conf` also
/// `app.config`, a name that other programs use elsewhere.
fn read_terms(file: &Path) -> anyhow::Result<Vec<(TermsFile, Vec<u8>)>> {
    let is_riaks = file.file_name().is_some_and(|name| name == RIAK_FILE);
    let names: &[TermsFile] = match is_riaks {
        true => &[TermsFile::App, TermsFile::Advanced],
        false => &[TermsFile::Advanced],
    };
    let mut terms = Vec::new();
    for name in names {
        let beside = file.with_file_name(name.name());
        match std::fs::read(&beside) {
            Ok(bytes) => terms.push((*name, bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                let read = format!("read {}, which is beside it", beside.display());
                return Err(error).context(read);
            }
        }
    }
    Ok(terms)
}

/// `vm.args` beside a `riak.conf`, which in Riak can name the node.
fn virtual_machine_file(file: &Path) -> Option<PathBuf> {
    let is_riaks = file.file_name().is_some_and(|name| name == RIAK_FILE);
    let beside = file.with_file_name("vm.args");
    (is_riaks && beside.exists()).then_some(beside)
}

fn read(file: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(file)
        .with_context(|| format!("read the configuration file {}", file.display()))
}

/// Earlier versions resolved a relative `platform_data_dir` of a file against the working
/// directory. If data is there, no new data directory is begun beside the file.
fn refuse_the_place_of_before(
    configuration: &Configuration,
    beside_file: &Path,
    working: &Path,
) -> anyhow::Result<()> {
    let data = &configuration.settings.node.data_dir;
    let Ok(relative) = data.strip_prefix(beside_file) else {
        return Ok(());
    };
    let before = working.join(relative);
    if before == *data || data.join(FORMAT_NAME).exists() || !before.join(FORMAT_NAME).exists() {
        return Ok(());
    }
    bail!(
        "platform_data_dir is relative to its file and means {}, where there is no data, while \
         there is data in {}, as an earlier version understood it: write the right absolute path \
         into the file",
        data.display(),
        before.display()
    )
}
