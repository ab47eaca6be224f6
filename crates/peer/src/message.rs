//! A message: a head with the request or the answer, and a body that is never copied.

use bytes::Bytes;

/// A request or an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// The request or the answer, encoded by its service.
    pub head: Bytes,
    /// A value; may be empty.
    pub body: Bytes,
}

impl Message {
    /// A message without a body.
    pub fn of_head(head: impl Into<Bytes>) -> Self {
        Self {
            head: head.into(),
            body: Bytes::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.head.len() + self.body.len()
    }
}
