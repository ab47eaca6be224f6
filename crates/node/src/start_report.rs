//! The report of a start: its configuration, its data, its listeners, its log.
//!
//! `kvorum server`, `kvorum start` and `kvorum chkconfig` print the same lines, so that a check
//! shows the effect of a start.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use kvorum_maintenance::counted;
use kvorum_settings::{LogOutput, LogSettings, Settings};
use serde_json::{Value, json};

use crate::configuration_file::Loaded;
use crate::data_directory::FORMAT_NAME;
use crate::engines_described::{self, DescribedEngine};

/// See the module's description.
#[derive(Clone, Debug)]
pub(crate) struct StartReport {
    node: String,
    configuration: String,
    file: Option<PathBuf>,
    data: PathBuf,
    is_new: bool,
    backend: &'static str,
    engines: Vec<DescribedEngine>,
    ring_size: u64,
    listeners: Vec<String>,
    log: String,
}

impl StartReport {
    /// The report of a start that has not touched anything yet.
    pub(crate) fn of(loaded: &Loaded) -> Self {
        let settings = &loaded.configuration.settings;
        let node = &settings.node;
        Self {
            node: node.nodename.clone(),
            configuration: configuration(loaded),
            file: loaded.file.clone(),
            data: node.data_dir.clone(),
            is_new: !node.data_dir.join(FORMAT_NAME).exists(),
            backend: engines_described::storage_backend(settings),
            engines: engines_described::engines(settings),
            ring_size: node.ring_size,
            listeners: listeners(settings),
            log: log(&settings.log),
        }
    }

    /// The report in lines, with its process if there is one.
    pub(crate) fn text(&self, process: Option<u32>) -> String {
        let process = process.map_or_else(String::new, |process| format!(", process {process}"));
        let age = if self.is_new {
            "new: nothing is there yet"
        } else {
            "of an earlier start"
        };
        let ring = if self.is_new {
            format!(", {}", counted(self.ring_size, "partition"))
        } else {
            String::new()
        };
        let mut text = String::new();
        for (name, value) in [
            (
                "node",
                format!(
                    "{}, kvorum {}{process}",
                    self.node,
                    env!("CARGO_PKG_VERSION")
                ),
            ),
            ("configuration", self.configuration.clone()),
            ("data", format!("{} ({age})", self.data.display())),
            ("backend", format!("{}{ring}", self.backend())),
        ] {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{name:<14} {value}");
        }
        let durabilities = engines_described::durabilities(&self.engines);
        for (name, lines) in [
            ("durability", &durabilities),
            ("listeners", &self.listeners),
        ] {
            for (at, line) in lines.iter().enumerate() {
                let name = if at == 0 { name } else { "" };
                let _ = writeln!(text, "{name:<14} {line}");
            }
        }
        let _ = writeln!(text, "{:<14} {}", "log", self.log);
        text
    }

    /// The backend, with the names of several.
    fn backend(&self) -> String {
        match engines_described::several(&self.engines) {
            Some(several) => format!("{}: {several}", self.backend),
            None => self.backend.to_owned(),
        }
    }

    fn durability(&self) -> String {
        engines_described::durabilities(&self.engines).join("; ")
    }

    /// Several backends for programs; an empty list for a node of one.
    fn backends(&self) -> Value {
        let several = self.engines.iter().filter_map(|it| {
            Some(json!({
                "name": it.name.as_ref()?,
                "engine": it.engine,
                "default": it.is_default,
                "durability": it.durability,
            }))
        });
        several.collect()
    }

    /// The same for programs.
    pub(crate) fn json(&self, process: Option<u32>) -> Value {
        json!({
            "node": self.node,
            "version": env!("CARGO_PKG_VERSION"),
            "process": process,
            "configuration_file": self.file.as_deref().map(Path::to_string_lossy),
            "data_directory": self.data.to_string_lossy(),
            "data_directory_is_new": self.is_new,
            "backend": self.backend,
            "backends": self.backends(),
            "durability": self.durability(),
            "listeners": self.listeners,
            "log": self.log,
        })
    }

    /// Logs the same as an event.
    pub(crate) fn log_event(&self, process: u32) {
        tracing::info!(
            event = "starting",
            node = %self.node,
            version = env!("CARGO_PKG_VERSION"),
            process,
            configuration = %self.configuration,
            data_directory = %self.data.display(),
            is_new = self.is_new,
            backend = %self.backend(),
            durability = %self.durability(),
            listeners = %self.listeners.join(", "),
            log = %self.log,
        );
    }
}

fn configuration(loaded: &Loaded) -> String {
    match &loaded.file {
        Some(file) => format!("{} ({})", file.display(), loaded.configuration.summary()),
        None if loaded.configuration.lines.is_empty() => {
            "no file, defaults (there is no kvorum.conf in the working directory)".to_owned()
        }
        None => format!(
            "no file, defaults and the command line ({})",
            loaded.configuration.summary()
        ),
    }
}

fn listeners(settings: &Settings) -> Vec<String> {
    let own = &settings.listeners;
    let mut all = Vec::new();
    for (kind, addresses) in [
        ("protobuf", &own.protobuf),
        ("http", &own.http),
        ("peer", &own.peer),
    ] {
        if addresses.is_empty() {
            all.push(format!("{kind} off"));
        }
        for (name, address) in addresses {
            all.push(format!("{kind} {address} (listener.{kind}.{name})"));
        }
    }
    if let Some(address) = settings.listeners.peer_advertised {
        all.push(format!(
            "peer {address} is the address for other nodes (peer.advertised_address)"
        ));
    }
    all
}

fn log(settings: &LogSettings) -> String {
    let file = settings.file.display();
    match settings.output {
        LogOutput::Off => "off".to_owned(),
        LogOutput::Console => "standard error".to_owned(),
        LogOutput::File => file.to_string(),
        LogOutput::Both => format!("standard error and {file}"),
    }
}
