//! Arguments that several commands have in common: which configuration, and how to print.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use crate::configuration_file::Source;

#[derive(Args, Clone, Default)]
pub(crate) struct ConfigurationArguments {
    /// Configuration file in riak.conf's form [default: $KVORUM_CONFIG, or kvorum.conf if there is one]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Set a key, over the file's value; may be repeated
    #[arg(long = "set", global = true, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

#[derive(Args, Clone)]
pub(crate) struct AdminArguments {
    #[command(flatten)]
    pub(crate) configuration: ConfigurationArguments,
    /// Print JSON, for programs
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print the output of Riak's command
    #[arg(long, global = true, hide = true)]
    pub(crate) as_riak: bool,
}

impl ConfigurationArguments {
    /// The same arguments as words, for another process.
    pub(crate) fn words(&self) -> Vec<OsString> {
        let file = self.config.iter();
        let file = file.flat_map(|file| [OsString::from("--config"), file.into()]);
        let set = self.set.iter();
        let set = set.flat_map(|set| [OsString::from("--set"), set.into()]);
        file.chain(set).collect()
    }

    pub(crate) fn source(&self) -> Source {
        Source {
            file: self.config.clone(),
            overrides: self.set.clone(),
        }
    }
}
