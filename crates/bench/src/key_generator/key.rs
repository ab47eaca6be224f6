//! Keys, and their kinds.

use bytes::Bytes;

/// A generated key, of one of the kinds that Erlang distinguishes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Key {
    /// A number.
    Integer(i64),
    /// A list of characters.
    String(Bytes),
    /// A binary.
    Binary(Bytes),
}

impl Key {
    /// The key as bytes on the wire: a number becomes decimal text.
    pub fn into_bytes(self) -> Bytes {
        match self {
            Self::Integer(value) => Bytes::from(value.to_string()),
            Self::String(bytes) | Self::Binary(bytes) => bytes,
        }
    }

    pub(super) fn integer(&self) -> i64 {
        match self {
            Self::Integer(value) => *value,
            Self::String(_) | Self::Binary(_) => 0,
        }
    }
}

/// The kind of a node's keys, which is known before the first key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Integer,
    String,
    Binary,
}

impl Kind {
    /// Converts bytes to a key of this kind. No node of kind integer makes bytes.
    pub(super) fn key(self, bytes: Bytes) -> Key {
        match self {
            Self::String => Key::String(bytes),
            Self::Binary | Self::Integer => Key::Binary(bytes),
        }
    }
}
