//! Names of a map's fields: a name and a kind. Fields of one name and two kinds are two fields.

use bytes::Bytes;

/// The kind of a field's value, in the order in which Riak lists fields of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FieldKind {
    /// A counter.
    Counter,
    /// A register.
    Register,
    /// A map.
    Map,
    /// A flag.
    Flag,
    /// A set.
    Set,
}

/// The name of a field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldName {
    /// The bytes that the client chose.
    pub name: Bytes,
    /// The kind of the value.
    pub kind: FieldKind,
}

impl FieldKind {
    /// All kinds of fields.
    pub const ALL: [Self; 5] = [
        Self::Counter,
        Self::Register,
        Self::Map,
        Self::Flag,
        Self::Set,
    ];

    /// The name that JSON fields end with.
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Register => "register",
            Self::Map => "map",
            Self::Flag => "flag",
            Self::Set => "set",
        }
    }
}

impl FieldName {
    /// The field of this name and kind.
    pub fn new(name: impl Into<Bytes>, kind: FieldKind) -> Self {
        Self {
            name: name.into(),
            kind,
        }
    }
}
