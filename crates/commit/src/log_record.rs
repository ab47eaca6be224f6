//! A batch as a record of the log.

use bytes::Bytes;
use kvorum_backend::{
    Batch, Fields, IndexChange, IndexEntry, Sequence, StoreId, Tag, Timestamp, Write,
};
use kvorum_encoding::{ByteReader, StorageKey, Truncated, put_varint};

const KIND_PUT: u8 = 1;
const KIND_REMOVE: u8 = 2;
const INDEX_ADD: u8 = 1;
const INDEX_REMOVE: u8 = 2;

/// A batch and the store that it belongs to, ready to be appended. The body of a batch of one write
/// is shared, not copied.
pub(crate) struct LogRecord {
    pub(crate) store: StoreId,
    pub(crate) sequence: Sequence,
    pub(crate) front: Vec<u8>,
    pub(crate) back: Bytes,
}

impl LogRecord {
    /// Encodes a batch:
    ///
    /// ```text
    /// front
    ///   store identity   u64
    ///   sequence         u64      in the store's order
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
    ///     index changes  varint   how many; then for each
    ///       change       u8       1 add, 2 remove
    ///       field, term  varint length, bytes; twice
    /// back
    ///   the bodies of the puts, in order
    /// ```
    ///
    /// All numbers are little-endian. The segment's record adds checksums over both parts.
    pub(crate) fn encode(store: StoreId, sequence: Sequence, batch: &Batch) -> Self {
        let mut front = Vec::with_capacity(256);
        front.extend_from_slice(&store.0.to_le_bytes());
        front.extend_from_slice(&sequence.0.to_le_bytes());
        put_varint(&mut front, batch.writes.len() as u64);
        for write in &batch.writes {
            put_write(&mut front, write);
        }
        Self {
            store,
            sequence,
            front,
            back: bodies(batch),
        }
    }

    /// Decodes what [`LogRecord::encode`] wrote.
    pub(crate) fn decode(
        front: &Bytes,
        back: &Bytes,
    ) -> Result<(StoreId, Sequence, Batch), Truncated> {
        let mut reader = ByteReader::new(front);
        let store = StoreId(reader.u64()?);
        let sequence = Sequence(reader.u64()?);
        let count = reader.varint_len()?;
        let mut bodies = Bodies { back, at: 0 };
        let mut writes = Vec::with_capacity(count);
        for _ in 0..count {
            writes.push(take_write(front, &mut reader, &mut bodies)?);
        }
        Ok((store, sequence, Batch { writes }))
    }

    pub(crate) fn len(&self) -> u64 {
        (self.front.len() + self.back.len()) as u64
    }
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
    put_varint(front, write.index_changes().len() as u64);
    for change in write.index_changes() {
        let (kind, entry) = match change {
            IndexChange::Add(entry) => (INDEX_ADD, entry),
            IndexChange::Remove(entry) => (INDEX_REMOVE, entry),
        };
        front.push(kind);
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
    fn take(&mut self, len: u64) -> Result<Bytes, Truncated> {
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
) -> Result<Write, Truncated> {
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
            let index_changes = take_index_changes(front, reader)?;
            Ok(Write::Put {
                key,
                fields,
                head,
                body,
                index_changes,
            })
        }
        KIND_REMOVE => Ok(Write::Remove {
            key,
            index_changes: take_index_changes(front, reader)?,
        }),
        _ => Err(Truncated { offset: at }),
    }
}

fn take_index_changes(
    front: &Bytes,
    reader: &mut ByteReader<'_>,
) -> Result<Vec<IndexChange>, Truncated> {
    let count = reader.varint_len()?;
    let mut changes = Vec::with_capacity(count);
    for _ in 0..count {
        let at = reader.offset();
        let kind = reader.u8()?;
        let field = take_bytes(front, reader)?;
        let entry = IndexEntry {
            field,
            term: take_bytes(front, reader)?,
        };
        changes.push(match kind {
            INDEX_ADD => IndexChange::Add(entry),
            INDEX_REMOVE => IndexChange::Remove(entry),
            _ => return Err(Truncated { offset: at }),
        });
    }
    Ok(changes)
}

fn take_bytes(front: &Bytes, reader: &mut ByteReader<'_>) -> Result<Bytes, Truncated> {
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
                    index_changes: vec![IndexChange::Add(entry.clone())],
                },
                Write::Remove {
                    key: key("b"),
                    index_changes: vec![IndexChange::Remove(entry)],
                },
                Write::put(key("c"), Fields::default(), Bytes::new(), "x".into()),
            ],
        }
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
            let record = LogRecord::encode(StoreId(3), Sequence(5), &batch);
            let front = Bytes::from(record.front);
            let decoded = LogRecord::decode(&front, &record.back).unwrap();
            assert_eq!(decoded, (StoreId(3), Sequence(5), batch));
        }
    }

    #[test]
    fn a_cut_record_is_refused_at_every_length() {
        let record = LogRecord::encode(StoreId(3), Sequence(5), &batch());
        for len in 0..record.front.len() {
            let front = Bytes::copy_from_slice(&record.front[..len]);
            assert!(LogRecord::decode(&front, &record.back).is_err(), "{len}");
        }
        let front = Bytes::from(record.front);
        assert!(LogRecord::decode(&front, &record.back.slice(..4)).is_err());
    }
}
