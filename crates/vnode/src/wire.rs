//! Replica requests and answers as bytes, for replicas on other machines.
//!
//! A message has a head and a body. The body is an object's values and nothing else, so that it goes
//! from the store to the socket and back without being copied; everything that says what to do with it
//! is in the head. Objects carry their own checksums through the wire: the head its own, and a hash of
//! the body, which are compared before anything is stored. The rest is covered by the checksum of the
//! transport's frames.
//!
//! A message of an unknown version is refused, and so is one with bytes left over: what is not
//! understood is not half done.

mod index;
mod reply;
mod request;

use bytes::Bytes;
use kvorum_encoding::{ByteReader, Truncated};
use kvorum_object::{Clock, DecodeError, Head, Object};

pub use reply::{decode_reply, encode_reply};
pub use request::{PeerRequest, decode_request, encode_request};

const VERSION: u8 = 1;
/// The longest storage key: a key, a bucket and a type of at most 64 KiB each, escaped.
const KEY_BYTES_MAX: usize = 512 << 10;
/// The longest explanation that is sent or taken.
const TEXT_BYTES_MAX: usize = 1024;

/// A message: what is wanted or answered, and values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WireMessage {
    /// Everything but values.
    pub head: Bytes,
    /// Values; shared with the object that they belong to.
    pub body: Bytes,
}

/// Why bytes of another machine are no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The sender speaks another version.
    #[error("message of version {got} where {VERSION} is understood")]
    Version {
        /// What it says.
        got: u8,
    },
    /// The bytes end early, or say what cannot be.
    #[error("malformed message at byte {offset} of its head")]
    Malformed {
        /// Where.
        offset: usize,
    },
    /// The object or clock in it is damaged.
    #[error("in the message: {0}")]
    Object(#[from] DecodeError),
}

impl From<Truncated> for WireError {
    fn from(truncated: Truncated) -> Self {
        Self::Malformed {
            offset: truncated.offset,
        }
    }
}

/// Reads the head of a message; what is taken from it shares its buffer.
struct Reader<'a> {
    whole: &'a Bytes,
    bytes: ByteReader<'a>,
}

impl<'a> Reader<'a> {
    fn new(whole: &'a Bytes) -> Result<Self, WireError> {
        let mut reader = Self {
            whole,
            bytes: ByteReader::new(whole),
        };
        match reader.bytes.u8()? {
            VERSION => Ok(reader),
            got => Err(WireError::Version { got }),
        }
    }

    fn malformed(&self) -> WireError {
        WireError::Malformed {
            offset: self.bytes.offset(),
        }
    }

    fn prefixed(&mut self, bytes_max: usize) -> Result<Bytes, WireError> {
        let taken = self.bytes.take_prefixed()?;
        if taken.len() > bytes_max {
            return Err(self.malformed());
        }
        Ok(self.whole.slice_ref(taken))
    }

    fn rest(&mut self) -> Bytes {
        self.whole.slice_ref(self.bytes.take_rest())
    }

    fn clock(&mut self) -> Result<Clock, WireError> {
        Ok(Clock::decode(self.bytes.take_prefixed()?)?)
    }

    /// The object whose head is all that is left.
    fn object(&mut self, body: &Bytes) -> Result<Object, WireError> {
        let head = Head::decode(&self.rest())?;
        Ok(Object::from_parts(head, body)?)
    }

    fn end(&self, body: &Bytes) -> Result<(), WireError> {
        if self.bytes.is_empty() && body.is_empty() {
            Ok(())
        } else {
            Err(self.malformed())
        }
    }
}

fn put_prefixed(out: &mut Vec<u8>, bytes: &[u8]) {
    kvorum_encoding::put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_clock(out: &mut Vec<u8>, clock: &Clock) {
    kvorum_encoding::put_varint(out, clock.encoded_len() as u64);
    clock.put_encoded(out);
}

/// The beginning of a text, cut where a character ends.
fn put_text(out: &mut Vec<u8>, text: &str) {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    put_prefixed(out, &text.as_bytes()[..end]);
}

#[cfg(test)]
#[path = "wire_test.rs"]
mod tests;
