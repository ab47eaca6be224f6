//! The scope of a move between backends, as the command line names it.

use serde_json::{Value, json};

/// The scope of a move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MoveScope {
    /// All buckets of a type that have no backend of their own; `default` for buckets without a type.
    Type(String),
    /// One bucket, as TYPE/BUCKET.
    Bucket(String),
    /// All that this node has of a partition, by its number or its index.
    Partition(String),
    /// Everything.
    All,
}

impl MoveScope {
    /// The word for its kind, and its name.
    pub(crate) fn words(&self) -> (&'static str, &str) {
        match self {
            Self::Type(name) => ("type", name),
            Self::Bucket(name) => ("bucket", name),
            Self::Partition(name) => ("partition", name),
            Self::All => ("all", ""),
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        let (kind, name) = self.words();
        json!({"kind": kind, "name": name})
    }

    pub(crate) fn from_json(value: &Value) -> Option<Self> {
        let name = value["name"].as_str()?.to_owned();
        match value["kind"].as_str()? {
            "type" => Some(Self::Type(name)),
            "bucket" => Some(Self::Bucket(name)),
            "partition" => Some(Self::Partition(name)),
            "all" => Some(Self::All),
            _ => None,
        }
    }
}
