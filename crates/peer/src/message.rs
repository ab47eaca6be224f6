//! What travels: a head that says what is wanted, and a body that is never copied on the way.

use bytes::Bytes;

/// A request or an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// What is wanted or answered, encoded by whoever knows its meaning.
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
