//! The identity of a node: a UUID that stays when its name and addresses change.
//!
//! Riak identifies a node by its Erlang name, so a renamed node is no member of its own ring. An
//! identity without meaning cannot go out of date.

use std::fmt;
use std::str::FromStr;

/// A node's identity, 128 bits; it never changes, under any name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId([u8; 16]);

/// The reason why a text is not a node identity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("node identity {text:?} is not of the form 01234567-89ab-4def-8123-456789abcdef")]
pub struct NodeIdError {
    /// The text as it was given.
    pub text: String,
}

/// Positions of the hyphens in the text form.
const HYPHENS: [usize; 4] = [8, 13, 18, 23];
const TEXT_LEN: usize = 36;

impl NodeId {
    /// The identity made of these bytes as they are.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// A version 4 (random) UUID from 16 random bytes, which the caller draws.
    pub fn from_random(mut bytes: [u8; 16]) -> Self {
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        Self(bytes)
    }

    /// The 16 bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeId({self})")
    }
}

impl FromStr for NodeId {
    type Err = NodeIdError;

    fn from_str(text: &str) -> Result<Self, NodeIdError> {
        let refused = || NodeIdError {
            text: text.to_owned(),
        };
        if text.len() != TEXT_LEN {
            return Err(refused());
        }
        let mut bytes = [0; 16];
        let mut digits = 0;
        for (at, character) in text.bytes().enumerate() {
            if HYPHENS.contains(&at) {
                if character != b'-' {
                    return Err(refused());
                }
                continue;
            }
            let digit = match character {
                b'0'..=b'9' => character - b'0',
                b'a'..=b'f' => character - b'a' + 10,
                b'A'..=b'F' => character - b'A' + 10,
                _ => return Err(refused()),
            };
            bytes[digits / 2] = (bytes[digits / 2] << 4) | digit;
            digits += 1;
        }
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_form_reads_back() {
        let id = NodeId::from_random([0xff; 16]);
        assert_eq!(id.to_string(), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(id.to_string().to_uppercase().parse(), Ok(id));
    }

    #[test]
    fn what_is_not_a_uuid_is_refused() {
        for text in [
            "",
            "riak@127.0.0.1",
            "ffffffffffff-4fff-bfff-ffffffffffff",
            "ffffffff-ffff-4fff-bfff-fffffffffffg",
            "ffffffff-ffff-4fff-bfff-ffffffffffff0",
            "ffffffff0ffff-4fff-bfff-ffffffffffff",
            "fffffff\u{e9}-ffff-4fff-bfff-ffffffffffff",
        ] {
            assert!(text.parse::<NodeId>().is_err(), "{text}");
        }
    }
}
