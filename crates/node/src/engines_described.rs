//! The engines of a node as text, for the report of a start and for statistics.

use kvorum_settings::{Durability, DurabilityMode, Settings, StorageBackend};

use crate::engine_names::{MEMORY, name_of};

/// An engine of the node: its only one, or one of several.
#[derive(Clone, Debug)]
pub(crate) struct DescribedEngine {
    /// The name of one of several backends.
    pub(crate) name: Option<String>,
    /// As in `storage_backend`.
    pub(crate) engine: &'static str,
    /// True if buckets that name no backend are in it.
    pub(crate) is_default: bool,
    /// The moment at which a write counts as done.
    pub(crate) durability: String,
}

/// `storage_backend` as it was set.
pub(crate) fn storage_backend(settings: &Settings) -> &'static str {
    match settings.node.storage_backend {
        StorageBackend::Multi if settings.multi.goes_by_prefix => "prefix_multi",
        engine => name_of(engine),
    }
}

/// Riak's name of the backend in `storage_backend`.
pub(crate) fn riak_module(settings: &Settings) -> String {
    match storage_backend(settings) {
        "prefix_multi" => "riak_kv_multi_prefix_backend".to_owned(),
        engine => format!("riak_kv_{engine}_backend"),
    }
}

/// All engines, in the order of the names of several backends.
pub(crate) fn engines(settings: &Settings) -> Vec<DescribedEngine> {
    if settings.node.storage_backend != StorageBackend::Multi {
        return vec![described(None, settings, true)];
    }
    let default = settings.multi.default_number();
    let backends = settings.multi.backends.iter().enumerate();
    backends
        .map(|(number, it)| described(Some(it.name.clone()), &it.settings, number == default))
        .collect()
}

/// Several backends in one line: `bc (bitcask, default), ldb (leveldb)`; `None` for a node with
/// one.
pub(crate) fn several(engines: &[DescribedEngine]) -> Option<String> {
    let words = engines.iter().map(|it| {
        let mark = if it.is_default { ", default" } else { "" };
        Some(format!("{} ({}{mark})", it.name.as_ref()?, it.engine))
    });
    let words: Option<Vec<_>> = words.collect();
    words.map(|it| it.join(", "))
}

/// The moment at which writes count as done: a line, or one for each backend if they differ.
pub(crate) fn durabilities(engines: &[DescribedEngine]) -> Vec<String> {
    let Some((first, rest)) = engines.split_first() else {
        return Vec::new();
    };
    if rest.iter().all(|it| it.durability == first.durability) {
        return vec![first.durability.clone()];
    }
    let line = |it: &DescribedEngine| match &it.name {
        Some(name) => format!("{name}: {}", it.durability),
        None => it.durability.clone(),
    };
    engines.iter().map(line).collect()
}

fn described(name: Option<String>, settings: &Settings, is_default: bool) -> DescribedEngine {
    let engine = name_of(settings.node.storage_backend);
    DescribedEngine {
        name,
        engine,
        is_default,
        durability: durability(engine, settings.backend_durability()),
    }
}

fn durability(engine: &str, durability: Durability) -> String {
    if engine == MEMORY {
        return "none: nothing survives a stop".to_owned();
    }
    match durability.mode {
        DurabilityMode::Grouped => {
            "grouped: a write is acknowledged when it is on stable storage".to_owned()
        }
        DurabilityMode::Interval => format!(
            "interval: a write is acknowledged when the operating system has it, and synced every {} s",
            durability.interval.as_secs_f64()
        ),
        DurabilityMode::None => {
            "none: a write is acknowledged when the operating system has it".to_owned()
        }
    }
}
