//! Clients' operations on a data type, and the errors of refused ones.

use bytes::Bytes;

use crate::clock::Clock;
use crate::dot::Dot;
use crate::field_name::{FieldKind, FieldName};
use crate::kind::Kind;

/// One operation on one key; all of it is carried out, or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Adds to a counter, or takes from it.
    Counter(i128),
    /// Changes a set, in this order.
    Set(Vec<SetChange>),
    /// Adds members to a set that only grows.
    GrowSet(Vec<Bytes>),
    /// Changes a map, in this order.
    Map(Vec<FieldChange>),
    /// Counts these values.
    HyperLogLog(Vec<Bytes>),
}

/// One change of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetChange {
    /// Adds a member.
    Add(Bytes),
    /// Removes a member: the writes that the context has seen or, without a context, those of this
    /// replica.
    Remove(Bytes),
}

/// One change of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldChange {
    /// Removes a field with the part of its content that was seen.
    Remove(FieldName),
    /// Changes a field; creates a missing one.
    Update {
        /// The field's name; the operation has its kind.
        name: Bytes,
        /// The change.
        operation: FieldOperation,
    },
}

/// A change of the value in a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldOperation {
    /// Adds to a counter, or takes from it.
    Counter(i128),
    /// Assigns a register.
    Register(Bytes),
    /// Enables a flag, or disables it.
    Flag(bool),
    /// Changes a set, in this order.
    Set(Vec<SetChange>),
    /// Changes a map, in this order.
    Map(Vec<FieldChange>),
}

/// The circumstances in which an operation is carried out.
#[derive(Clone, Copy, Debug)]
pub struct Update<'a> {
    /// A dot that no update had before.
    pub dot: Dot,
    /// The wall-clock time, in microseconds since the Unix epoch.
    pub micros: u64,
    /// The client's clock of the key; without it, removes apply to the entries of this replica.
    pub context: Option<&'a Clock>,
}

/// The missing target of a remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// A member of a set.
    Member(Bytes),
    /// A field of a map.
    Field(FieldName),
}

/// The operation cannot be carried out; the value is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OperationError {
    /// A remove without a context has no element to remove. Fetch, and send the context.
    #[error("the element to remove is not present, and no context was given")]
    NotPresent(Missing),
    /// A counter would leave the range of 128 bits.
    #[error("a counter would need more than 128 bits")]
    CounterRange,
    /// Maps in maps beyond [`DEPTH_MAX`].
    #[error("maps are nested deeper than {DEPTH_MAX} levels")]
    TooDeep,
    /// The operation is for another type than the value has.
    #[error("operation is for a {operation}, the value is a {value}")]
    Kind {
        /// The type of the operation.
        operation: Kind,
        /// The type of the value.
        value: Kind,
    },
}

/// The most levels of maps within maps.
pub const DEPTH_MAX: usize = 64;

impl Operation {
    /// The type that the operation is for.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Counter(_) => Kind::Counter,
            Self::Set(_) => Kind::Set,
            Self::GrowSet(_) => Kind::GrowSet,
            Self::Map(_) => Kind::Map,
            Self::HyperLogLog(_) => Kind::HyperLogLog,
        }
    }
}

impl SetChange {
    /// The member that is added or removed.
    pub fn member(&self) -> &Bytes {
        match self {
            Self::Add(member) | Self::Remove(member) => member,
        }
    }
}

impl FieldChange {
    /// The field that is changed or removed.
    pub fn field(&self) -> FieldName {
        match self {
            Self::Remove(field) => field.clone(),
            Self::Update { name, operation } => FieldName::new(name.clone(), operation.kind()),
        }
    }
}

impl FieldOperation {
    /// The kind of field that the operation is for.
    pub fn kind(&self) -> FieldKind {
        match self {
            Self::Counter(_) => FieldKind::Counter,
            Self::Register(_) => FieldKind::Register,
            Self::Flag(_) => FieldKind::Flag,
            Self::Set(_) => FieldKind::Set,
            Self::Map(_) => FieldKind::Map,
        }
    }
}
