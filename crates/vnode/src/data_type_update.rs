//! Operations on data types as functions of objects: the part of an object that is of a type, and the
//! object after an operation.
//!
//! Concurrent operations leave their values as siblings, each under its own dot. Replicas keep these
//! siblings when they merge objects. The next operation merges them into one value, as a read does. So the
//! object's clock alone shows whether a replica lacks something, as with plain objects.

use bytes::Bytes;
use kvorum_data_types::{Actor, DataType, Kind, Operation, OperationError, Update};
use kvorum_object::{
    Content, Dot, Metadata, Object, ObjectTag, Sibling, Succession, Timestamp, UpdateError,
};

use crate::value_facts::ValueFacts;

/// A client's operation on a data type, ready for the replica that coordinates it.
#[derive(Clone, Debug)]
pub struct DataTypeUpdate {
    /// The operation.
    pub operation: Operation,
    /// The client's context of the value, for its removes.
    pub context: Option<kvorum_data_types::Clock>,
    /// The precision of the bucket's sketches, in bits.
    pub precision: u8,
    /// The kind of the bucket's objects.
    pub tag: ObjectTag,
}

/// The merged value of an object's siblings of a type; the type's empty value if there are none.
pub fn value_of_type(object: &Object, kind: Kind, precision: u8) -> DataType {
    let value = Held::of(object, kind).value;
    value.unwrap_or_else(|| DataType::new(kind, precision))
}

/// The parts of an object that are of a type.
#[derive(Default)]
struct Held {
    /// The siblings of the type, merged.
    value: Option<DataType>,
    /// The metadata of the newest of these siblings; clients may have set it.
    metadata: Metadata,
    /// The dots that the next value replaces: those of siblings of the type, and of tombstones.
    dots: Vec<Dot>,
}

impl Held {
    fn of(object: &Object, kind: Kind) -> Self {
        let mut held = Self::default();
        object.siblings().iter().for_each(|it| held.add(it, kind));
        held
    }

    fn add(&mut self, sibling: &Sibling, kind: Kind) {
        let metadata = &sibling.metadata;
        if metadata.deleted {
            self.dots.push(sibling.dot);
            return;
        }
        let value = DataType::in_content(&metadata.content_type, &sibling.value);
        let Some(value) = value.filter(|value| value.kind() == kind) else {
            return;
        };
        self.dots.push(sibling.dot);
        if metadata.last_modified >= self.metadata.last_modified {
            self.metadata = metadata.clone();
        }
        match &mut self.value {
            None => self.value = Some(value),
            // Values of one type merge.
            Some(merged) => {
                let _same_type = merged.merge(value);
            }
        }
    }
}

impl DataTypeUpdate {
    /// The object after the operation, and facts about its value. The value replaces tombstones;
    /// siblings of other types stay.
    pub(crate) fn apply(
        &self,
        stored: Option<Object>,
        dot: Dot,
        now: Timestamp,
    ) -> Result<(Object, ValueFacts), NotApplied> {
        let kind = self.operation.kind();
        let held = stored.as_ref().map(|object| Held::of(object, kind));
        let mut held = held.unwrap_or_default();
        let mut value = match held.value.take() {
            None => DataType::new(kind, self.precision),
            Some(value) => value,
        };
        value.reduce(self.precision);
        let update = Update {
            dot: kvorum_data_types::Dot::new(Actor(dot.actor.0), dot.counter),
            micros: now.as_micros(),
            context: self.context.as_ref(),
        };
        value.update(&self.operation, update)?;
        let metadata = Metadata {
            content_type: Bytes::from_static(kind.content_type().as_bytes()),
            last_modified: Timestamp::ZERO,
            ..held.metadata
        };
        let encoded = value.encode();
        let facts = ValueFacts::of(&value, encoded.len());
        let succession = Succession {
            content: Content {
                metadata,
                value: encoded,
            },
            dot,
            now,
        };
        let is_taken_up = |sibling: &Sibling| held.dots.contains(&sibling.dot);
        let object = kvorum_object::succeed(stored, is_taken_up, succession)?;
        Ok((object, facts))
    }
}

/// The reason why an operation was not carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotApplied {
    #[error(transparent)]
    Operation(#[from] OperationError),
    #[error(transparent)]
    Object(#[from] UpdateError),
}
