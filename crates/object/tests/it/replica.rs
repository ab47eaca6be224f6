//! A replica of one key, driven through the public interface as a vnode drives it.

use bytes::Bytes;
use kvorum_object::{
    ActorId, Clock, Content, Dot, Encoded, Head, Merged, Object, Resolution, Stored, Timestamp,
    UpdateError, Write, merge_into_stored, merge_needs_body, update, update_needs_body,
};

/// One vnode's copy of the key, kept as bytes.
pub(crate) struct Replica {
    actor: ActorId,
    counter: u64,
    stored: Option<Encoded>,
}

impl Replica {
    pub(crate) fn new(actor: u64) -> Self {
        Self {
            actor: ActorId(actor),
            counter: 0,
            stored: None,
        }
    }

    /// Writes another key of the vnode, which takes a dot.
    pub(crate) fn write_elsewhere(&mut self) {
        self.counter += 1;
    }

    /// Loses all data, and gets an actor that was never used.
    pub(crate) fn lose_data(&mut self, actor: u64) {
        *self = Self::new(actor);
    }

    pub(crate) fn read(&self) -> Option<Object> {
        self.stored.as_ref().map(decoded)
    }

    /// Coordinates a write, from the head if it suffices.
    pub(crate) fn write(
        &mut self,
        context: &Clock,
        content: Content,
        now: u64,
        resolution: Resolution,
    ) -> Object {
        self.counter += 1;
        let dot = Dot {
            actor: self.actor,
            counter: self.counter,
        };
        let now = Timestamp::from_micros(now);
        let write = Write {
            context,
            content,
            dot,
            now,
            resolution,
        };
        let written = match &self.stored {
            None => update(Stored::Absent, write).unwrap(),
            Some(encoded) => {
                let head = Head::decode(&encoded.head).unwrap();
                let whole = update(Stored::Object(decoded(encoded)), write.clone()).unwrap();
                match update(Stored::Head(&head), write) {
                    Ok(from_head) => assert_eq!(from_head, whole),
                    Err(error) => {
                        assert_eq!(error, UpdateError::BodyNeeded);
                        assert!(update_needs_body(&head, context, resolution));
                    }
                }
                whole
            }
        };
        self.stored = Some(written.encode());
        written
    }

    /// Merges another replica's object, from the head if it suffices.
    pub(crate) fn take_in(&mut self, incoming: Object, resolution: Resolution) {
        let merged = match &self.stored {
            None => merge_into_stored(Stored::Absent, incoming, resolution).unwrap(),
            Some(encoded) => {
                let head = Head::decode(&encoded.head).unwrap();
                let stored = Stored::Object(decoded(encoded));
                let whole = merge_into_stored(stored, incoming.clone(), resolution).unwrap();
                match merge_into_stored(Stored::Head(&head), incoming.clone(), resolution) {
                    Ok(from_head) => assert_eq!(from_head, whole),
                    Err(error) => {
                        assert_eq!(error, UpdateError::BodyNeeded);
                        assert!(merge_needs_body(&head, &incoming, resolution));
                    }
                }
                whole
            }
        };
        if let Merged::Changed(object) = merged {
            self.stored = Some(object.encode());
        }
    }
}

pub(crate) fn decoded(encoded: &Encoded) -> Object {
    Object::from_parts(Head::decode(&encoded.head).unwrap(), &encoded.body).unwrap()
}

pub(crate) fn content(value: impl Into<Bytes>) -> Content {
    Content {
        value: value.into(),
        ..Content::default()
    }
}
