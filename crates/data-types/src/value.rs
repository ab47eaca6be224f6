//! Values of data types for clients: plain ones.

use bytes::Bytes;

use crate::causal::{Map, Set};
use crate::dot_store::DotStore as _;
use crate::field::{Content, Fields, Members};
use crate::field_name::FieldName;

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A counter's.
    Counter(i128),
    /// A set's members, ascending.
    Set(Vec<Bytes>),
    /// The members of a set that only grows, ascending.
    GrowSet(Vec<Bytes>),
    /// A map's fields, by name and kind.
    Map(Vec<(FieldName, FieldValue)>),
    /// An estimate.
    HyperLogLog(u64),
}

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldValue {
    /// A counter's.
    Counter(i128),
    /// A register's.
    Register(Bytes),
    /// Enabled or not.
    Flag(bool),
    /// A set's members, ascending.
    Set(Vec<Bytes>),
    /// A map's fields, by name and kind.
    Map(Vec<(FieldName, FieldValue)>),
}

impl Set {
    /// The members, ascending.
    pub fn value(&self) -> Vec<Bytes> {
        members_of(&self.parts)
    }
}

impl Map {
    /// The fields, by name and kind.
    pub fn value(&self) -> Vec<(FieldName, FieldValue)> {
        fields_of(&self.parts)
    }
}

fn members_of(members: &Members) -> Vec<Bytes> {
    members.keys().cloned().collect()
}

fn fields_of(fields: &Fields) -> Vec<(FieldName, FieldValue)> {
    let value = |(name, field): (&FieldName, &crate::field::Field)| {
        (name.clone(), content_value(&field.content))
    };
    fields.iter().map(value).collect()
}

fn content_value(content: &Content) -> FieldValue {
    match content {
        Content::Counter(counter) => FieldValue::Counter(counter.value()),
        Content::Register(register) => FieldValue::Register(register.value().0),
        Content::Flag(dots) => FieldValue::Flag(!dots.is_empty()),
        Content::Set(members) => FieldValue::Set(members_of(members)),
        Content::Map(fields) => FieldValue::Map(fields_of(fields)),
    }
}
