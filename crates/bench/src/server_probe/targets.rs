//! Sources of the server's figures.

use std::path::PathBuf;
use std::sync::Arc;

use kvorum_backend::Backend;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::http_text;

/// Sources of the server's figures. The figures of several sources are added up.
#[derive(Clone, Default)]
pub struct ProbeTargets {
    /// Processes of the server on this machine, sampled from /proc.
    pub processes: Vec<u32>,
    /// `host:port` of the server's HTTP, for `/metrics` and `/stats`.
    pub http: Vec<String>,
    /// Directories of the server on this machine, for the bytes of their files.
    pub directories: Vec<PathBuf>,
    /// Stores in this process.
    pub stores: Vec<Arc<dyn Backend>>,
}

/// The server's description for `run.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerDescription {
    /// Its version; empty if it has none.
    pub version: String,
    /// Its known settings.
    pub settings: Map<String, Value>,
}

impl std::fmt::Debug for ProbeTargets {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("ProbeTargets")
            .field("processes", &self.processes)
            .field("http", &self.http)
            .field("directories", &self.directories)
            .finish_non_exhaustive()
    }
}

impl ProbeTargets {
    /// True if there is no source.
    pub fn is_empty(&self) -> bool {
        self.processes.is_empty() && self.http.is_empty() && self.directories.is_empty()
    }

    /// The description of the first server in its `/stats`, if there is one.
    pub fn describe(&self) -> Option<(ServerDescription, Option<String>)> {
        let text = http_text::get(self.http.first()?, "/stats").ok()?;
        let stats: Map<String, Value> = serde_json::from_str(&text).ok()?;
        let text_of = |name: &str| stats.get(name).and_then(Value::as_str);
        let version = match text_of("kvorum_version") {
            Some(version) => format!("kvorum {version}"),
            None => format!("riak_kv {}", text_of("riak_kv_version").unwrap_or_default()),
        };
        let backend = text_of("storage_backend").map(|name| {
            let name = name.strip_prefix("riak_kv_").unwrap_or(name);
            name.strip_suffix("_backend").unwrap_or(name).to_owned()
        });
        let wanted = ["ring_creation_size", "nodename", "storage_backend"];
        let settings = wanted
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), stats.get(*name)?.clone())))
            .collect();
        Some((ServerDescription { version, settings }, backend))
    }
}
