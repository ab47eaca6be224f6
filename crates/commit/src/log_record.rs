//! A batch as a record of the log.

use bytes::Bytes;
use kvorum_backend::{
    BackendError, Batch, ErrorKind, Fields, IndexEntry, Result, Sequence, StoreId, Tag, Timestamp,
    Write,
};
use kvorum_encoding::{ByteReader, StorageKey, Truncated, put_varint};
use kvorum_segment::{BACK_BYTES_MAX, FRONT_BYTES_MAX};

/// The kind that the headers of the log's segments carry.
pub(crate) const SEGMENT_KIND: u8 = b'C';
/// The kind of a segment in a file that was used before: what stands behind its last record is older.
pub(crate) const REUSED_SEGMENT_KIND: u8 = b'R';

/// The record is a batch.
const KIND_BATCH: u8 = 0;
/// The record says that its store is being erased: what stands before it is needed by nobody.
const KIND_ERASURE: u8 = 1;

/// What a record takes beside its front and its back, roughly: for bounds on memory. Bytes.
const OVERHEAD_BYTES: usize = 128;
/// What the segment may add to a front. Bytes.
const FRONT_SLACK_BYTES: u64 = 64;
const STORE_BYTES: usize = 8;

const KIND_PUT: u8 = 1;
const KIND_REMOVE: u8 = 2;

/// A batch and the store that it belongs to, ready to be appended. The body of a batch of one write
/// is shared, not copied.
pub(crate) struct LogRecord {
    pub(crate) store: StoreId,
    pub(crate) sequence: Sequence,
    pub(crate) kind: u8,
    pub(crate) front: Vec<u8>,
    pub(crate) back: Bytes,
}

/// What a record of the log says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Logged {
    /// The batch that its store gave this sequence.
    Batch(Batch),
    /// The store is being erased.
    Erasure,
}

impl LogRecord {
    /// Encodes a batch, whose place is not known yet: see [`LogRecord::placed`].
    ///
    /// ```text
    /// header of the segment's record
    ///   sequence                  in the store's order
    ///   kind                      0 batch, 1 erasure; an erasure has a store identity only
    /// front
    ///   store identity   u64
    ///   writes           varint   how many; then for each
    ///     kind           u8       1 put, 2 remove
    ///     key            varint length, bytes
    ///     put only:
    ///       segment      u32
    ///       last modified u64     microseconds since the Unix epoch
    ///       expiry       u64      the same; 0 for never
    ///       tag          u8
    ///       head         varint length, bytes
    ///       body length  varint
    ///     index entries  varint   how many, none of a remove; then for each
    ///       field, term  varint length, bytes; twice
    /// back
    ///   the bodies of the puts, in order
    /// ```
    ///
    /// All numbers are little-endian. The segment's record adds checksums over header, front and back.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] when no segment can hold the batch.
    pub(crate) fn encode(batch: &Batch) -> Result<Self> {
        let mut front = Vec::with_capacity(STORE_BYTES + 64 + front_bytes(batch));
        front.extend_from_slice(&[0; STORE_BYTES]);
        put_varint(&mut front, batch.writes.len() as u64);
        for write in &batch.writes {
            put_write(&mut front, write);
        }
        let back = bodies(batch);
        let is_front_too_large = front.len() as u64 > FRONT_BYTES_MAX - FRONT_SLACK_BYTES;
        if is_front_too_large || back.len() as u64 > BACK_BYTES_MAX {
            let (front, back) = (front.len(), back.len());
            return Err(BackendError::new(
                ErrorKind::TooLarge,
                format!(
                    "a batch of {front} bytes of keys, heads and index entries and {back} bytes of \
                     bodies for the commit log, which takes {FRONT_BYTES_MAX} and {BACK_BYTES_MAX}"
                ),
            ));
        }
        Ok(Self {
            store: StoreId(0),
            sequence: Sequence(0),
            kind: KIND_BATCH,
            front,
            back,
        })
    }

    /// The record of a batch that got this place.
    pub(crate) fn placed(mut self, store: StoreId, sequence: Sequence) -> Self {
        self.front[..STORE_BYTES].copy_from_slice(&store.0.to_le_bytes());
        Self {
            store,
            sequence,
            ..self
        }
    }

    /// Says that a store is being erased.
    pub(crate) fn erasure(store: StoreId) -> Self {
        Self {
            store,
            sequence: Sequence(0),
            kind: KIND_ERASURE,
            front: store.0.to_le_bytes().to_vec(),
            back: Bytes::new(),
        }
    }

    /// True when it says that its store is being erased.
    pub(crate) fn is_erasure(&self) -> bool {
        self.kind == KIND_ERASURE
    }

    /// Bytes of memory, roughly.
    pub(crate) fn len(&self) -> u64 {
        (OVERHEAD_BYTES + self.front.len() + self.back.len()) as u64
    }
}

/// Decodes what [`LogRecord`] encodes.
pub(crate) fn decode(
    kind: u8,
    front: &Bytes,
    back: &Bytes,
) -> std::result::Result<(StoreId, Logged), Truncated> {
    let mut reader = ByteReader::new(front);
    let store = StoreId(reader.u64()?);
    let logged = match kind {
        KIND_BATCH => Logged::Batch(take_batch(front, &mut reader, back)?),
        KIND_ERASURE => Logged::Erasure,
        _ => return Err(Truncated { offset: 0 }),
    };
    Ok((store, logged))
}

fn take_batch(
    front: &Bytes,
    reader: &mut ByteReader<'_>,
    back: &Bytes,
) -> std::result::Result<Batch, Truncated> {
    let count = reader.varint_len()?;
    let mut bodies = Bodies { back, at: 0 };
    let mut writes = Vec::with_capacity(count);
    for _ in 0..count {
        writes.push(take_write(front, reader, &mut bodies)?);
    }
    Ok(Batch { writes })
}

/// Keys and heads: most of what a front takes.
fn front_bytes(batch: &Batch) -> usize {
    let of = |write: &Write| match write {
        Write::Put { key, head, .. } => key.as_bytes().len() + head.len(),
        Write::Remove { key, .. } => key.as_bytes().len(),
    };
    batch.writes.iter().map(of).sum()
}

fn put_write(front: &mut Vec<u8>, write: &Write) {
    front.push(match write {
        Write::Put { .. } => KIND_PUT,
        Write::Remove { .. } => KIND_REMOVE,
    });
    put_bytes(front, write.key().as_bytes());
    if let Write::Put {
        fields, head, body, ..
    } = write
    {
        front.extend_from_slice(&fields.segment.to_le_bytes());
        front.extend_from_slice(&fields.last_modified.0.to_le_bytes());
        let expiry = fields.expiry.unwrap_or_default().0;
        front.extend_from_slice(&expiry.to_le_bytes());
        front.push(fields.tag.0);
        put_bytes(front, head);
        put_varint(front, body.len() as u64);
    }
    put_varint(front, write.index_entries().len() as u64);
    for entry in write.index_entries() {
        put_bytes(front, &entry.field);
        put_bytes(front, &entry.term);
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn bodies(batch: &Batch) -> Bytes {
    if let [Write::Put { body, .. }] = &batch.writes[..] {
        return body.clone();
    }
    let mut out = Vec::new();
    for write in &batch.writes {
        if let Write::Put { body, .. } = write {
            out.extend_from_slice(body);
        }
    }
    out.into()
}

struct Bodies<'a> {
    back: &'a Bytes,
    at: usize,
}

impl Bodies<'_> {
    fn take(&mut self, len: u64) -> std::result::Result<Bytes, Truncated> {
        let offset = self.at;
        let end = usize::try_from(len)
            .ok()
            .and_then(|len| offset.checked_add(len));
        let end = end
            .filter(|end| *end <= self.back.len())
            .ok_or(Truncated { offset })?;
        self.at = end;
        Ok(self.back.slice(offset..end))
    }
}

fn take_write(
    front: &Bytes,
    reader: &mut ByteReader<'_>,
    bodies: &mut Bodies<'_>,
) -> std::result::Result<Write, Truncated> {
    let at = reader.offset();
    let kind = reader.u8()?;
    let key = StorageKey::from_encoded(take_bytes(front, reader)?);
    match kind {
        KIND_PUT => {
            let segment = reader.u32()?;
            let last_modified = Timestamp(reader.u64()?);
            let expiry = Some(Timestamp(reader.u64()?)).filter(|expiry| expiry.0 != 0);
            let tag = Tag(reader.u8()?);
            let fields = Fields {
                segment,
                last_modified,
                expiry,
                tag,
            };
            let head = take_bytes(front, reader)?;
            let body = bodies.take(reader.varint()?)?;
            let index_entries = take_index_entries(front, reader)?;
            Ok(Write::Put {
                key,
                fields,
                head,
                body,
                index_entries,
            })
        }
        KIND_REMOVE => {
            let _none = take_index_entries(front, reader)?;
            Ok(Write::Remove { key })
        }
        _ => Err(Truncated { offset: at }),
    }
}

fn take_index_entries(
    front: &Bytes,
    reader: &mut ByteReader<'_>,
) -> std::result::Result<Vec<IndexEntry>, Truncated> {
    let count = reader.varint_len()?;
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        let field = take_bytes(front, reader)?;
        let term = take_bytes(front, reader)?;
        entries.push(IndexEntry { field, term });
    }
    Ok(entries)
}

fn take_bytes(front: &Bytes, reader: &mut ByteReader<'_>) -> std::result::Result<Bytes, Truncated> {
    let taken = reader.take_prefixed()?;
    Ok(front.slice_ref(taken))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch() -> Batch {
        let key = |text: &'static str| StorageKey::from_encoded(text.as_bytes());
        let fields = Fields {
            segment: 7,
            last_modified: Timestamp(9),
            expiry: Some(Timestamp(11)),
            tag: Tag(1),
        };
        let entry = IndexEntry {
            field: "f_bin".into(),
            term: "t".into(),
        };
        Batch {
            writes: vec![
                Write::Put {
                    key: key("a"),
                    fields,
                    head: "head".into(),
                    body: "body".into(),
                    index_entries: vec![entry],
                },
                Write::remove(key("b")),
                Write::put(key("c"), Fields::default(), Bytes::new(), "x".into()),
            ],
        }
    }

    fn encoded(batch: &Batch) -> LogRecord {
        let record = LogRecord::encode(batch).unwrap();
        record.placed(StoreId(3), Sequence(5))
    }

    #[test]
    fn batches_round_trip() {
        for batch in [
            batch(),
            Batch::default(),
            Batch {
                writes: batch().writes[2..].to_vec(),
            },
        ] {
            let record = encoded(&batch);
            let front = Bytes::from(record.front);
            let decoded = decode(record.kind, &front, &record.back).unwrap();
            assert_eq!(decoded, (StoreId(3), Logged::Batch(batch)));
        }
    }

    #[test]
    fn erasures_round_trip() {
        let record = LogRecord::erasure(StoreId(3));
        let front = Bytes::from(record.front);
        let decoded = decode(record.kind, &front, &record.back).unwrap();
        assert_eq!(decoded, (StoreId(3), Logged::Erasure));
    }

    #[test]
    fn the_bytes_are_as_drawn() {
        let record = encoded(&Batch::of(batch().writes[0].clone()));
        let mut expected = vec![3, 0, 0, 0, 0, 0, 0, 0, 1, KIND_PUT, 1, b'a'];
        expected.extend([7, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend([11, 0, 0, 0, 0, 0, 0, 0, 1, 4]);
        expected.extend(b"head\x04\x01\x05f_bin\x01t");
        assert_eq!(record.front, expected);
        assert_eq!(&record.back[..], b"body");
    }

    #[test]
    fn a_cut_record_is_refused_at_every_length() {
        let record = encoded(&batch());
        for len in 0..record.front.len() {
            let front = Bytes::copy_from_slice(&record.front[..len]);
            assert!(decode(KIND_BATCH, &front, &record.back).is_err(), "{len}");
        }
        let front = Bytes::from(record.front);
        assert!(decode(KIND_BATCH, &front, &record.back.slice(..4)).is_err());
        assert!(decode(9, &front, &record.back).is_err());
    }

    #[test]
    fn flipped_bytes_are_decoded_or_refused() {
        let record = encoded(&batch());
        for at in 0..record.front.len() {
            for flip in [1, 0x80, 0xff] {
                let mut front = record.front.clone();
                front[at] ^= flip;
                let _either = decode(KIND_BATCH, &front.into(), &record.back);
            }
        }
    }
}
