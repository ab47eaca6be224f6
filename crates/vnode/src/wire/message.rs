//! Messages, and the pieces that requests and answers share.

use std::sync::Arc;

use bytes::{BufMut as _, Bytes};
use kvorum_data_types::SetDelta;
use kvorum_encoding::{ByteReader, StorageKey, Truncated};
use kvorum_object::{Clock, DecodeError, Head, Object};
use kvorum_ring::Partition;

use crate::paged_object::PagedUpdate;

pub(super) const VERSION: u8 = 1;
/// The longest storage key: a key, a bucket and a type of at most 64 KiB each, escaped.
pub(super) const KEY_BYTES_MAX: usize = 512 << 10;
/// The longest explanation that is sent or accepted.
pub(super) const TEXT_BYTES_MAX: usize = 1024;

/// A message: the request or the answer, and values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WireMessage {
    /// Everything but values.
    pub head: Bytes,
    /// Values; shared with the object that they belong to.
    pub body: Bytes,
}

/// The reason why bytes of another machine are not a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The sender uses another version.
    #[error("message of version {got} where {VERSION} is supported")]
    Version {
        /// The version found.
        got: u8,
    },
    /// The bytes end early, or are in no valid form.
    #[error("malformed message at byte {offset} of its head")]
    Malformed {
        /// The offset of the error, in bytes.
        offset: usize,
    },
    /// The object or clock in it is damaged.
    #[error("in the message: {0}")]
    Object(#[from] DecodeError),
    /// The operation or the context of a data type in it is damaged.
    #[error("in the message: {0}")]
    DataType(#[from] kvorum_data_types::DecodeError),
}

impl From<Truncated> for WireError {
    fn from(truncated: Truncated) -> Self {
        Self::Malformed {
            offset: truncated.offset,
        }
    }
}

/// Reads the head of a message; the parts taken from it share its buffer.
pub(super) struct Reader<'a> {
    whole: &'a Bytes,
    pub(super) bytes: ByteReader<'a>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(whole: &'a Bytes) -> Result<Self, WireError> {
        let mut reader = Self {
            whole,
            bytes: ByteReader::new(whole),
        };
        match reader.bytes.u8()? {
            VERSION => Ok(reader),
            got => Err(WireError::Version { got }),
        }
    }

    pub(super) fn malformed(&self) -> WireError {
        WireError::Malformed {
            offset: self.bytes.offset(),
        }
    }

    pub(super) fn prefixed(&mut self, bytes_max: usize) -> Result<Bytes, WireError> {
        let taken = self.bytes.take_prefixed()?;
        if taken.len() > bytes_max {
            return Err(self.malformed());
        }
        Ok(self.whole.slice_ref(taken))
    }

    pub(super) fn listed_key(&mut self) -> Result<StorageKey, WireError> {
        let key = self.prefixed(KEY_BYTES_MAX)?;
        Ok(StorageKey::from_encoded(key))
    }

    /// The key at which a fold or listing continues, if there is one.
    pub(super) fn place(&mut self) -> Result<Option<StorageKey>, WireError> {
        match self.bytes.u8()? {
            0 => Ok(None),
            1 => self.listed_key().map(Some),
            _ => Err(self.malformed()),
        }
    }

    pub(super) fn rest(&mut self) -> Bytes {
        self.whole.slice_ref(self.bytes.take_rest())
    }

    pub(super) fn clock(&mut self) -> Result<Clock, WireError> {
        Ok(Clock::decode(self.bytes.take_prefixed()?)?)
    }

    /// The object whose head is the rest of the message.
    pub(super) fn object(&mut self, body: &Bytes) -> Result<Object, WireError> {
        let head = Head::decode(&self.rest())?;
        Ok(Object::from_parts(head, body)?)
    }

    /// The update whose delta comes next; the head of its object is the rest of the message.
    pub(super) fn paged_update(&mut self, body: &Bytes) -> Result<PagedUpdate, WireError> {
        let delta = SetDelta::decode(self.bytes.take_prefixed()?)?;
        let object = Arc::new(self.object(body)?);
        Ok(PagedUpdate { object, delta })
    }

    pub(super) fn end(&self, body: &Bytes) -> Result<(), WireError> {
        if self.bytes.is_empty() && body.is_empty() {
            Ok(())
        } else {
            Err(self.malformed())
        }
    }
}

pub(super) fn put_prefixed(out: &mut Vec<u8>, bytes: &[u8]) {
    kvorum_encoding::put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Writes a byte that is 1 if there is a key, and the key.
pub(super) fn put_place(out: &mut Vec<u8>, place: Option<&StorageKey>) {
    out.put_u8(u8::from(place.is_some()));
    if let Some(place) = place {
        put_prefixed(out, place.as_bytes());
    }
}

pub(super) fn put_clock(out: &mut Vec<u8>, clock: &Clock) {
    kvorum_encoding::put_varint(out, clock.encoded_len() as u64);
    clock.put_encoded(out);
}

/// The beginning of a text, cut where a character ends.
pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    put_prefixed(out, &text.as_bytes()[..end]);
}

pub(super) fn put_owners(out: &mut Vec<u8>, owners: Option<&[Partition]>) {
    out.put_u8(u8::from(owners.is_some()));
    if let Some(owners) = owners {
        kvorum_encoding::put_varint(out, owners.len() as u64);
        for owner in owners {
            out.put_u16_le(owner.number());
        }
    }
}

pub(super) fn put_bound(out: &mut Vec<u8>, bound: &std::ops::Bound<Bytes>) {
    use std::ops::Bound;
    let (code, bytes) = match bound {
        Bound::Unbounded => return out.put_u8(0),
        Bound::Included(bytes) => (1, bytes),
        Bound::Excluded(bytes) => (2, bytes),
    };
    out.put_u8(code);
    put_prefixed(out, bytes);
}
