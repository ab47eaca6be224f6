//! Errors of bytes that are in none of this crate's forms.

use kvorum_encoding::Truncated;

/// The bytes do not decode.
///
/// A bad context is the client's error. A bad stored value means that the copy is damaged and another
/// replica has to serve, except for [`DecodeError::Version`], which asks for a newer program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The form is newer than this program.
    #[error("data type has version {got}, this program reads version {expected}")]
    Version {
        /// The version found.
        got: u8,
        /// The version that can be read.
        expected: u8,
    },
    /// The bytes do not follow the layout.
    #[error("malformed data type at byte {offset}")]
    Malformed {
        /// The offset at which reading stopped, in bytes.
        offset: usize,
    },
    /// The bytes changed after they were written.
    #[error("context has checksum {got:08x}, expected {expected:08x}")]
    Checksum {
        /// The checksum behind the bytes.
        got: u32,
        /// The checksum of the bytes.
        expected: u32,
    },
}

impl From<Truncated> for DecodeError {
    fn from(truncated: Truncated) -> Self {
        Self::Malformed {
            offset: truncated.offset,
        }
    }
}
