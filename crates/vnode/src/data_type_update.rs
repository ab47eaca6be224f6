//! Operations on data types as functions of objects: the part of an object that is of a type, and the
//! object after an operation.
//!
//! Values of concurrent operations lie side by side as siblings, each under its own dot, and stay so at
//! the replicas that merge objects. The next operation takes all of them up into one value, and a read
//! merges them. So the object's clock alone shows if a replica lacks something, for values as for plain
//! objects.

use bytes::Bytes;
use kvorum_data_types::{Actor, DataType, Kind, Operation, OperationError, Update};
use kvorum_object::{
    Content, Dot, Metadata, Object, ObjectTag, Sibling, Succession, Timestamp, UpdateError,
};

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

/// The value of a type that an object holds: that of all its siblings of the type, merged. The type's empty
/// value where none is of it.
pub fn value_of_type(object: &Object, kind: Kind, precision: u8) -> DataType {
    let value = Held::of(object, kind).value;
    value.unwrap_or_else(|| DataType::new(kind, precision))
}

/// The parts of an object that are of a type.
#[derive(Default)]
struct Held {
    /// The siblings of the type, merged.
    value: Option<DataType>,
    /// The metadata of the newest of them, which clients may have given it.
    metadata: Metadata,
    /// The dots that give way to the next value: siblings of the type, and tombstones.
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
    /// The object after the operation. Tombstones give way, siblings of other types stay beside it.
    pub(crate) fn apply(
        &self,
        stored: Option<Object>,
        dot: Dot,
        now: Timestamp,
    ) -> Result<Object, NotApplied> {
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
        let succession = Succession {
            content: Content {
                metadata,
                value: value.encode(),
            },
            dot,
            now,
        };
        let is_taken_up = |sibling: &Sibling| held.dots.contains(&sibling.dot);
        Ok(kvorum_object::succeed(stored, is_taken_up, succession)?)
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
