//! An entry in one piece of memory: the key followed by its encoded value.
//!
//! Walks and searches wait mostly for memory. So a node is small and points to one piece without a
//! reference count: readers copy. Pieces are cut from chunks in the order of writing, so the pieces
//! of keys written in order are neighbours. A value that is too large to copy for each reader is
//! kept apart, unchanged.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use kvorum_value_log::LogPlace;

use crate::entry::{Head, encode};
use crate::{Entry, Older, Value};

/// The most bytes of a value that is kept in a piece.
const PACKED_BYTES_MAX: usize = 1024;
/// The bytes of a memtable's first chunk, and of its largest: many stores never have more than a
/// few entries.
const CHUNK_BYTES_MIN: usize = 2 << 10;
const CHUNK_BYTES_MAX: usize = 64 << 10;
/// A longer piece gets memory of its own, so that no chunk has a large unused rest.
const CUT_BYTES_MAX: usize = CHUNK_BYTES_MAX / 4;
/// The overhead in bytes of an entry that is kept apart.
const APART_BYTES: u64 = size_of::<Entry>() as u64 + 48;

/// The chunks that pieces are cut from.
#[derive(Default)]
pub(super) struct Pieces {
    left: BytesMut,
    chunk_bytes: usize,
    piece: Vec<u8>,
}

/// A key and a batch's write to it.
#[derive(Clone)]
pub(super) struct Written {
    /// The key, and the entry unless it is kept apart.
    piece: Bytes,
    apart: Option<Arc<Entry>>,
    sequence: u64,
    key_len: u32,
}

impl Pieces {
    /// `removed_at` is the logged place of a removal, in a store that keeps it.
    pub(super) fn cut(
        &mut self,
        key: &[u8],
        sequence: u64,
        value: Option<&Value>,
        removed_at: Option<LogPlace>,
    ) -> Written {
        self.piece.clear();
        self.piece.extend_from_slice(key);
        let payload_bytes = value.map_or(0, Value::payload_bytes);
        let apart = (payload_bytes > PACKED_BYTES_MAX)
            .then(|| Arc::new(Entry::of(sequence, value.cloned())));
        if apart.is_none() {
            let head = Head {
                sequence,
                removed_at,
                older: &Older::default(),
            };
            encode(&mut self.piece, &head, value);
        }
        Written {
            piece: self.cut_piece(),
            apart,
            sequence,
            key_len: len_of(key),
        }
    }

    fn cut_piece(&mut self) -> Bytes {
        if self.piece.len() > CUT_BYTES_MAX {
            return std::mem::take(&mut self.piece).into_boxed_slice().into();
        }
        if self.left.capacity() < self.piece.len() {
            let chunk_bytes = (self.chunk_bytes * 2).clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX);
            self.chunk_bytes = chunk_bytes;
            self.left = BytesMut::with_capacity(chunk_bytes.max(self.piece.len()));
        }
        self.left.extend_from_slice(&self.piece);
        self.left.split().freeze()
    }
}

impl Written {
    /// A key with a sequence, for searches; it has no entry.
    pub(super) fn asked(key: &Bytes, sequence: u64) -> Self {
        Self {
            piece: key.clone(),
            apart: None,
            sequence,
            key_len: len_of(key),
        }
    }

    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The key followed by the encoded entry, unless that is kept apart.
    pub(super) fn piece(&self) -> &[u8] {
        &self.piece
    }

    pub(super) fn key(&self) -> &[u8] {
        let key = self.piece.get(..self.key_len as usize);
        key.unwrap_or(&self.piece)
    }

    /// The encoded entry; empty if it is kept apart.
    pub(super) fn packed(&self) -> &[u8] {
        self.piece.get(self.key_len as usize..).unwrap_or(&[])
    }

    pub(super) fn apart(&self) -> Option<&Arc<Entry>> {
        self.apart.as_ref()
    }

    /// The entry, with copies of its parts.
    pub(super) fn entry(&self) -> Option<Entry> {
        match &self.apart {
            // Only this module writes pieces, so they decode.
            None => Entry::copied(self.packed()).ok(),
            Some(entry) => Some(Entry::clone(entry)),
        }
    }

    /// The segment of the value log that the entry names, if any.
    pub(super) fn segment(&self) -> Option<u32> {
        let logged_at = match &self.apart {
            None => Entry::copied(self.packed()).ok()?.logged_at(),
            Some(entry) => entry.logged_at(),
        };
        logged_at.map(|it| it.segment)
    }

    /// Its memory in bytes, without the structures around it.
    pub(super) fn payload_bytes(&self) -> u64 {
        let apart_bytes = self.apart.as_ref().map_or(0, |entry| {
            let payload_bytes = entry.value.as_ref().map_or(0, Value::payload_bytes);
            payload_bytes as u64 + APART_BYTES
        });
        self.piece.len() as u64 + apart_bytes
    }
}

/// Keys of four gigabytes are refused earlier.
fn len_of(key: &[u8]) -> u32 {
    u32::try_from(key.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use kvorum_backend::Fields;

    use super::*;
    use crate::Body;

    fn value(body_bytes: usize) -> Value {
        Value {
            fields: Fields::default(),
            extra: Bytes::new(),
            head: Bytes::from_static(b"head"),
            body: Body::Inline(vec![7; body_bytes].into()),
        }
    }

    #[test]
    fn what_went_in_comes_out_packed_or_apart() {
        let mut pieces = Pieces::default();
        for body_bytes in [
            0,
            1,
            PACKED_BYTES_MAX - 4,
            PACKED_BYTES_MAX - 3,
            CHUNK_BYTES_MAX + 1,
        ] {
            let value = value(body_bytes);
            let written = pieces.cut(b"key", 9, Some(&value), None);
            assert_eq!((written.key(), written.sequence()), (&b"key"[..], 9));
            let is_packed = written.apart().is_none();
            assert_eq!(is_packed, body_bytes <= PACKED_BYTES_MAX - 4);
            assert_eq!(is_packed, !written.packed().is_empty());
            assert_eq!(written.entry(), Some(Entry::of(9, Some(value))));
            assert!(written.payload_bytes() > body_bytes as u64);
        }
        let removal = pieces.cut(b"key", 9, None, None);
        assert_eq!(removal.entry(), Some(Entry::removal(9)));
    }

    #[test]
    fn pieces_of_one_chunk_lie_one_behind_the_other() {
        let mut pieces = Pieces::default();
        let first = pieces.cut(b"one", 1, None, None);
        let second = pieces.cut(b"another", 2, None, None);
        assert_eq!(first.piece.as_ptr_range().end, second.piece.as_ptr());
        let long = vec![b'k'; CHUNK_BYTES_MAX + 7];
        assert_eq!(pieces.cut(&long, 3, None, None).key(), long);
        assert_eq!((first.key(), second.key()), (&b"one"[..], &b"another"[..]));
    }
}
