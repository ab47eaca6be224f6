//! Heads: the facts about a stored object that need no read of its values.

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_64;

use crate::versions::{Siblings, answers_of_siblings};
use crate::{Clock, DecodeError, Object, ObjectSize, Sibling, SiblingHead};

/// A decoded head. Siblings are as in [`Object`]: sorted by dot, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    pub(crate) clock: Clock,
    pub(crate) siblings: Siblings<SiblingHead>,
    pub(crate) body_hash: u64,
    /// Length of the bytes that it was decoded from.
    pub(crate) encoded_len: usize,
    /// Bytes of the value that are in entries of their own.
    pub(crate) beside_bytes: u64,
}

answers_of_siblings!(Head, SiblingHead);

impl Head {
    /// XXH3-64 of the body.
    pub fn body_hash(&self) -> u64 {
        self.body_hash
    }

    /// The length of the body, in bytes.
    pub fn body_len(&self) -> u64 {
        self.siblings.iter().fold(0, |len, sibling| {
            len.saturating_add(sibling.value_len as u64)
        })
    }

    /// The size that [`crate::Limits`] apply to.
    pub fn size(&self) -> ObjectSize {
        let bytes = (self.encoded_len as u64).saturating_add(self.body_len());
        ObjectSize {
            bytes: bytes.saturating_add(self.beside_bytes),
            siblings: self.siblings.len(),
        }
    }

    /// The head of an object that has this many bytes of its value in entries of their own: they count in
    /// its size.
    #[must_use]
    pub fn with_bytes_beside(self, beside_bytes: u64) -> Self {
        Self {
            beside_bytes,
            ..self
        }
    }

    /// The object with every value empty, as HEAD requests show it. It must never be stored.
    pub fn into_object_without_values(self) -> Object {
        let siblings = self
            .siblings
            .into_iter()
            .map(SiblingHead::into_sibling_without_value);
        Object::new(self.clock, siblings.collect())
    }

    pub(crate) fn into_parts(self) -> (Clock, Siblings<SiblingHead>) {
        (self.clock, self.siblings)
    }

    /// Checks that `body` is the one that the head was written with.
    pub fn check_body(&self, body: &Bytes) -> Result<(), DecodeError> {
        let (got, expected) = (body.len() as u64, self.body_len());
        if got != expected {
            return Err(DecodeError::BodyLength { got, expected });
        }
        let (got, expected) = (xxh3_64(body), self.body_hash);
        if got != expected {
            return Err(DecodeError::BodyHash { got, expected });
        }
        Ok(())
    }
}

impl SiblingHead {
    pub(crate) fn into_sibling_without_value(self) -> Sibling {
        Sibling {
            dot: self.dot,
            metadata: self.metadata,
            value: Bytes::new(),
        }
    }
}
