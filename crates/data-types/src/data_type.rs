//! The value of a key of any data type.

use crate::causal::{Map, Set};
use crate::clock::Clock;
use crate::counter::Counter;
use crate::grow_set::GrowSet;
use crate::hyper_log_log::HyperLogLog;
use crate::kind::Kind;
use crate::operation::{Operation, OperationError, Update};
use crate::value::Value;

/// A value that replicas change independently and merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataType {
    /// A counter.
    Counter(Counter),
    /// A set.
    Set(Set),
    /// A set that only grows.
    GrowSet(GrowSet),
    /// A map.
    Map(Map),
    /// A sketch of a number of values.
    HyperLogLog(HyperLogLog),
}

/// Values of two types cannot be merged; the key has siblings of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a {ours} cannot be merged with a {theirs}")]
pub struct KindMismatch {
    /// The type of the value to merge into.
    pub ours: Kind,
    /// The type of the value to merge.
    pub theirs: Kind,
}

impl DataType {
    /// The value of a key that was never updated. A sketch has `precision`.
    pub fn new(kind: Kind, precision: u8) -> Self {
        match kind {
            Kind::Counter => Self::Counter(Counter::default()),
            Kind::Set => Self::Set(Set::default()),
            Kind::GrowSet => Self::GrowSet(GrowSet::default()),
            Kind::Map => Self::Map(Map::default()),
            Kind::HyperLogLog => Self::HyperLogLog(HyperLogLog::new(precision)),
        }
    }

    /// The value in an object's sibling, if its content type is that of a data type and its bytes are a
    /// value of it; `None` for a plain sibling.
    pub fn in_content(content_type: &[u8], bytes: &[u8]) -> Option<Self> {
        let kind = Kind::from_content_type(content_type)?;
        let value = Self::decode(bytes).ok()?;
        (value.kind() == kind).then_some(value)
    }

    /// Reduces a sketch to the precision of its bucket; other types stay as they are.
    pub fn reduce(&mut self, precision: u8) {
        if let Self::HyperLogLog(sketch) = self {
            sketch.reduce(precision);
        }
    }

    /// The type.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Counter(_) => Kind::Counter,
            Self::Set(_) => Kind::Set,
            Self::GrowSet(_) => Kind::GrowSet,
            Self::Map(_) => Kind::Map,
            Self::HyperLogLog(_) => Kind::HyperLogLog,
        }
    }

    /// Carries an operation out, whole or not at all.
    ///
    /// # Errors
    /// [`OperationError`]; nothing is changed.
    pub fn update(
        &mut self,
        operation: &Operation,
        update: Update<'_>,
    ) -> Result<(), OperationError> {
        match (self, operation) {
            (Self::Counter(counter), Operation::Counter(by)) => counter.count(*by, update.dot),
            (Self::Set(set), Operation::Set(changes)) => set.update(changes, update).map(drop),
            (Self::GrowSet(set), Operation::GrowSet(members)) => {
                set.add(members.iter().cloned());
                Ok(())
            }
            (Self::Map(map), Operation::Map(changes)) => map.update(changes, update).map(drop),
            (Self::HyperLogLog(sketch), Operation::HyperLogLog(values)) => {
                values.iter().for_each(|value| sketch.add(value));
                Ok(())
            }
            (value, operation) => Err(OperationError::Kind {
                operation: operation.kind(),
                value: value.kind(),
            }),
        }
    }

    /// Merges another replica's value. Commutative, associative and idempotent.
    ///
    /// # Errors
    /// [`KindMismatch`] when the types differ; nothing is changed.
    pub fn merge(&mut self, other: Self) -> Result<(), KindMismatch> {
        match (self, other) {
            (Self::Counter(our), Self::Counter(their)) => our.merge_alone(their),
            (Self::Set(our), Self::Set(their)) => our.merge(their),
            (Self::GrowSet(our), Self::GrowSet(their)) => our.merge(their),
            (Self::Map(our), Self::Map(their)) => our.merge(their),
            (Self::HyperLogLog(our), Self::HyperLogLog(their)) => our.merge(&their),
            (our, their) => {
                return Err(KindMismatch {
                    ours: our.kind(),
                    theirs: their.kind(),
                });
            }
        }
        Ok(())
    }

    /// The value for clients.
    pub fn value(&self) -> Value {
        match self {
            Self::Counter(counter) => Value::Counter(counter.value()),
            Self::Set(set) => Value::Set(set.value()),
            Self::GrowSet(set) => Value::GrowSet(set.members().cloned().collect()),
            Self::Map(map) => Value::Map(map.value()),
            Self::HyperLogLog(sketch) => Value::HyperLogLog(sketch.estimate()),
        }
    }

    /// The number of actors that have changed the value; zero for types that do not record them.
    pub fn actor_count(&self) -> usize {
        match self {
            Self::Counter(counter) => counter.tallies().len(),
            Self::Set(set) => set.clock().len(),
            Self::Map(map) => map.clock().len(),
            Self::GrowSet(_) | Self::HyperLogLog(_) => 0,
        }
    }

    /// The context for clients' removes; `None` for types without removes.
    pub fn context(&self) -> Option<Clock> {
        match self {
            Self::Set(set) => Some(set.context()),
            Self::Map(map) => Some(map.context()),
            Self::Counter(_) | Self::GrowSet(_) | Self::HyperLogLog(_) => None,
        }
    }
}
