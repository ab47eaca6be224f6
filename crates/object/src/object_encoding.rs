//! The byte form of objects: a head, and the siblings' values as its body.

use std::sync::Arc;

use bytes::Bytes;

use crate::{DecodeError, Head, Object, ObjectSize, Sibling, head_encoding};

/// The two byte strings of a stored object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// Everything but the values; enough to answer HEAD requests and to compare replicas.
    pub head: Bytes,
    /// The siblings' values back to back; of a single sibling, its value itself.
    pub body: Bytes,
}

impl Object {
    /// The size that [`crate::Limits`] apply to.
    pub fn size(&self) -> ObjectSize {
        let values: usize = self
            .siblings
            .iter()
            .map(|sibling| sibling.value.len())
            .sum();
        let bytes = (head_encoding::head_len(self) + values) as u64;
        ObjectSize {
            bytes,
            siblings: self.siblings.len(),
        }
    }

    /// The byte strings to store. The value of a single sibling is shared, not copied.
    pub fn encode(&self) -> Encoded {
        let body = match &self.siblings[..] {
            [only] => only.value.clone(),
            several => concatenated(several),
        };
        Encoded {
            head: head_encoding::encode_head(self, &body),
            body,
        }
    }

    /// Joins a head and the body that was stored with it; values share the body's buffer.
    ///
    /// Both are checked: for bytes that came from another machine, or from a file that has not been
    /// checked yet.
    pub fn from_parts(head: Head, body: &Bytes) -> Result<Self, DecodeError> {
        head.check_body(body)?;
        let mut rest = body.clone();
        let (clock, heads) = head.into_parts();
        let siblings = heads.into_iter().map(|sibling| Sibling {
            dot: sibling.dot,
            metadata: sibling.metadata,
            value: rest.split_to(sibling.value_len),
        });
        let siblings = siblings.collect();
        Ok(Self::new(clock, siblings))
    }

    /// Reads the bytes that a storage engine of this node returned; names and values share the two
    /// buffers.
    ///
    /// An engine verifies every byte that it returns, by a checksum over head and body that is
    /// bound to their place. So neither the head's checksum nor the body's hash is computed again;
    /// both are for bytes on their way to another machine ([`Head::decode`],
    /// [`Object::from_parts`]). The layout is still checked.
    ///
    /// Concurrent readers share the object, so it is made where it can be shared.
    pub fn from_engine(head: &Bytes, body: Bytes) -> Result<Arc<Self>, DecodeError> {
        head_encoding::read_object(head, body)
    }
}

fn concatenated(siblings: &[Sibling]) -> Bytes {
    let mut body = Vec::with_capacity(siblings.iter().map(|sibling| sibling.value.len()).sum());
    for sibling in siblings {
        body.extend_from_slice(&sibling.value);
    }
    body.into()
}
