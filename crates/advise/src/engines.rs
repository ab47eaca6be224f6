//! The engines and their costs, as declared in `engines.toml`.

use serde::{Deserialize, Serialize};

use crate::error::AdviseError;

/// Everything that is declared about engines.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineTable {
    /// The engines, in order of preference if nothing else decides.
    #[serde(rename = "engine")]
    pub engines: Vec<Engine>,
    /// Riak's figures, to set beside ours.
    pub riak: RiakFigures,
    /// Bytes that are stored with every object.
    pub object: ObjectFigures,
    /// A node's needs besides its data.
    pub node: NodeFigures,
}

/// One engine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Engine {
    /// Its name, as in `storage_backend`.
    pub name: String,
    /// True if this version has it.
    pub built_in: bool,
    /// A description in one line.
    pub summary: String,
    /// The cost of an object, if known.
    pub costs: Option<Costs>,
}

/// The cost of an object in an engine, in bytes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// Memory for each key.
    pub memory_per_key: Figure,
    /// Maximum of memory for each key on a node with few keys, if it is larger.
    pub memory_per_key_few: Option<Figure>,
    /// A node with fewer keys than this has few.
    pub few_keys: Option<Figure>,
    /// True if the whole entry is in memory as well.
    #[serde(default)]
    pub memory_has_entry: bool,
    /// Disk for each entry besides its bytes; none for an engine that writes nothing.
    pub disk_per_entry: Option<Figure>,
    /// Entries on disk are rounded up to a multiple of this size.
    pub disk_align: Option<Figure>,
    /// Ratio of bytes on disk to live bytes.
    pub space_factor: Option<Figure>,
    /// Disk for each key in files beside the entries.
    pub index_per_key: Option<Figure>,
    /// True if these files have the key as well.
    #[serde(default)]
    pub index_has_key: bool,
}

impl Costs {
    /// Memory for each key of a node that has this many, without the entry.
    pub(crate) fn memory_per_key_of(&self, keys: f64) -> &Figure {
        match (&self.memory_per_key_few, &self.few_keys) {
            (Some(of_few), Some(few)) if keys < few.value => of_few,
            _ => &self.memory_per_key,
        }
    }
}

/// The memory of Riak's bitcask for each key, in bytes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RiakFigures {
    /// As documented, without bucket and key.
    pub memory_per_key_documented: Figure,
    /// The least as measured, without the key.
    pub memory_per_key_measured_min: Figure,
    /// The most as measured, without the key.
    pub memory_per_key_measured_max: Figure,
}

/// Bytes that are stored with every object.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectFigures {
    /// Clock and metadata.
    pub head: Figure,
    /// Bytes that join type, bucket and key.
    pub key_framing: Figure,
}

/// A node's needs besides its data, in bytes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeFigures {
    /// Its memory when idle.
    pub memory: Figure,
}

/// A number and its source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// The number.
    pub value: f64,
    /// The source.
    pub source: String,
}

impl EngineTable {
    /// The table that is built in.
    ///
    /// # Errors
    /// [`AdviseError::Table`], which a test rules out.
    pub fn built_in() -> Result<Self, AdviseError> {
        toml::from_str(include_str!("engines.toml")).map_err(|error| AdviseError::Table {
            table: "engines.toml",
            reason: error.to_string(),
        })
    }

    /// The same table, with exactly the caller's engines marked as built in.
    #[must_use]
    pub fn with_built_in(mut self, names: &[&str]) -> Self {
        for engine in &mut self.engines {
            engine.built_in = names.contains(&&engine.name[..]);
        }
        self
    }

    /// The engine of a name.
    ///
    /// # Errors
    /// [`AdviseError::UnknownEngine`].
    pub fn engine(&self, name: &str) -> Result<&Engine, AdviseError> {
        let found = self.engines.iter().find(|engine| engine.name == name);
        found.ok_or_else(|| {
            let known: Vec<_> = self.engines.iter().map(|engine| &engine.name[..]).collect();
            AdviseError::UnknownEngine {
                name: name.to_owned(),
                known: known.join(", "),
            }
        })
    }
}
