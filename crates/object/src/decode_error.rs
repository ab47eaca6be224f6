//! The reasons why bytes are not in the form that they claim.

use std::fmt;

use kvorum_encoding::Truncated;

/// The byte form that was being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The opaque clock that clients hand back.
    Clock,
    /// The head of a stored object.
    Head,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Clock => "clock",
            Self::Head => "object head",
        })
    }
}

/// The bytes are not a clock, a head, or the body that belongs to a head.
///
/// For a clock: the client sent another one than it was given, the request is at fault. For a head or a
/// body: the stored copy is damaged (another replica has to serve), except for [`DecodeError::Version`]
/// and [`DecodeError::Tag`], which ask for a newer program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The form is newer than this program.
    #[error("{part} has version {got}, this program reads up to {expected}")]
    Version {
        /// The form.
        part: Part,
        /// The version byte found.
        got: u8,
        /// The newest version that can be read.
        expected: u8,
    },
    /// The bytes changed after they were written.
    #[error("{part} has checksum {got:08x}, expected {expected:08x}")]
    Checksum {
        /// The form.
        part: Part,
        /// The checksum stored behind the bytes.
        got: u32,
        /// The checksum of the bytes.
        expected: u32,
    },
    /// The bytes were stored as a kind of objects that this program does not have.
    #[error("object of the kind {number}, which this program does not know; a newer one wrote it")]
    Tag {
        /// The kind's number.
        number: u8,
    },
    /// The bytes do not follow the layout.
    #[error("malformed {part} at byte {offset}")]
    Malformed {
        /// The form.
        part: Part,
        /// The offset at which reading stopped, in bytes.
        offset: usize,
    },
    /// The body is not of the length in its head.
    #[error("object body of {got} bytes, its head expects {expected}")]
    BodyLength {
        /// The length of the body, in bytes.
        got: u64,
        /// The sum of the siblings' value lengths, in bytes.
        expected: u64,
    },
    /// The body changed after its head was written, or belongs to another head.
    #[error("object body has hash {got:016x}, its head expects {expected:016x}")]
    BodyHash {
        /// XXH3-64 of the body.
        got: u64,
        /// The hash in the head.
        expected: u64,
    },
}

impl DecodeError {
    /// Places a cut-off read in the form that was being read.
    pub(crate) fn cut(part: Part) -> impl Fn(Truncated) -> Self {
        move |truncated| Self::Malformed {
            part,
            offset: truncated.offset,
        }
    }
}
