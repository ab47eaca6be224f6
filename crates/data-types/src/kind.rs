//! The data types that a key can have.

use std::fmt;

/// The beginning of the content types of all data types.
const CONTENT_TYPE_START: &[u8] = b"application/riak_";

/// A data type, as the bucket property `datatype` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A number that is counted up and down.
    Counter,
    /// A set of byte strings.
    Set,
    /// A set of byte strings from which nothing is removed.
    GrowSet,
    /// Named fields, each a counter, a register, a flag, a set or a map.
    Map,
    /// An estimate of the number of distinct values.
    HyperLogLog,
}

impl Kind {
    /// All data types.
    pub const ALL: [Self; 5] = [
        Self::Counter,
        Self::Set,
        Self::GrowSet,
        Self::Map,
        Self::HyperLogLog,
    ];

    /// The name in the bucket property and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Set => "set",
            Self::GrowSet => "gset",
            Self::Map => "map",
            Self::HyperLogLog => "hll",
        }
    }

    /// The type of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The content type of an object that holds a value of this type.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Counter => "application/riak_counter",
            Self::Set => "application/riak_set",
            Self::GrowSet => "application/riak_gset",
            Self::Map => "application/riak_map",
            Self::HyperLogLog => "application/riak_hll",
        }
    }

    /// The type of objects with this content type.
    pub fn from_content_type(content_type: &[u8]) -> Option<Self> {
        if !content_type.starts_with(CONTENT_TYPE_START) {
            return None;
        }
        let mut all = Self::ALL.into_iter();
        all.find(|kind| kind.content_type().as_bytes() == content_type)
    }

    /// True for the types whose removes need a context.
    pub fn has_context(self) -> bool {
        matches!(self, Self::Set | Self::Map)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
