//! The form of a batch in a log that the next opening reads: the store's own log, or the value log.
//!
//! Each write of a batch is a record of its own, so that one damaged byte costs one key.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use kvorum_encoding::{ByteReader, Truncated, put_varint};
use kvorum_segment::{
    BatchPlace, Compressor, EncodedBack, Record, SegmentId, StoredBack, StoredRecord, file_name,
};
use kvorum_value_log::{LogPlace, LogRecord, LoggedRecord};

use crate::entry::{Head, encode_but_body};
use crate::keeping::Keeping;
use crate::{Body, Entry, LoggedPlace, Older, Op, Value};

pub(crate) const KIND_ENTRY: u8 = 1;
pub(crate) const KIND_RANGE: u8 = 2;
const KIND_NOTHING: u8 = 3;
/// The upper half of these kinds in the value log, where other engines have kinds of their own.
const LOGGED: u8 = 1 << 4;
/// The kind in a segment's header, for display.
pub const KIND_LOG: u8 = 7;

/// The path of a segment of the store's own log.
pub fn log_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(file_name(number))
}

/// The identity of such a segment, derived from its store's.
pub fn log_id(identity: u64, number: u64) -> SegmentId {
    SegmentId {
        log_id: identity,
        number,
        kind: KIND_LOG,
    }
}

/// A batch as records of the log, without its sequence.
pub(crate) struct Encoded<'a> {
    fronts: Vec<u8>,
    parts: Vec<Part<'a>>,
}

struct Part<'a> {
    kind: u8,
    removal: bool,
    front_end: usize,
    back: &'a [u8],
}

impl<'a> Encoded<'a> {
    /// Encodes a batch. The front of an entry: varint length of the key, the key, the entry without
    /// its body (the record has its sequence); the back is the body. The front of a removed range:
    /// varint length of the first key, the first key, the key behind.
    pub(crate) fn new(ops: &'a [Op]) -> Self {
        let mut fronts = Vec::new();
        let mut parts = Vec::with_capacity(ops.len());
        for op in ops {
            let (kind, removal, back) = encode_front(&mut fronts, op);
            parts.push(Part {
                kind,
                removal,
                front_end: fronts.len(),
                back,
            });
        }
        if parts.is_empty() {
            parts.push(Part {
                kind: KIND_NOTHING,
                removal: false,
                front_end: 0,
                back: &[],
            });
        }
        Self { fronts, parts }
    }

    pub(crate) fn records(&self, sequence: u64) -> Vec<Record<'_>> {
        let mut start = 0;
        let mut records = Vec::with_capacity(self.parts.len());
        for (index, part) in self.parts.iter().enumerate() {
            records.push(Record {
                sequence,
                kind: part.kind,
                removal: part.removal,
                batch: BatchPlace::of(index, self.parts.len()),
                front: &self.fronts[start..part.front_end],
                back: EncodedBack::plain(part.back),
            });
            start = part.front_end;
        }
        records
    }
}

fn encode_front<'a>(out: &mut Vec<u8>, op: &'a Op) -> (u8, bool, &'a [u8]) {
    let mut put_key = |key: &Bytes| {
        put_varint(out, key.len() as u64);
        out.extend_from_slice(key);
    };
    let head = Head {
        sequence: 0,
        removed_at: None,
        older: &Older::default(),
    };
    match op {
        Op::Put { key, value } => {
            put_key(key);
            encode_but_body(out, &head, Some(value));
            match &value.body {
                Body::Inline(body) => (KIND_ENTRY, false, body),
                Body::Blob(_) | Body::Logged(_) => (KIND_ENTRY, false, &[]),
            }
        }
        Op::Remove { key } => {
            put_key(key);
            encode_but_body(out, &head, None);
            (KIND_ENTRY, true, &[])
        }
        Op::RemoveRange { from, to } => {
            put_key(from);
            out.extend_from_slice(to);
            (KIND_RANGE, true, &[])
        }
    }
}

/// A batch as records of the value log. Bodies that stay there are compressed; others go to tables,
/// which compress them with their neighbours.
pub(crate) fn logged_records(
    ops: &[Op],
    compressor: &Compressor,
    keeping: Keeping,
) -> Vec<LogRecord> {
    let record = |op: &Op| {
        let mut front = LogRecord::front_for(0);
        let (kind, removal, body) = encode_front(&mut front, op);
        let back = match op {
            Op::Put { key, value } => match &value.body {
                Body::Inline(body) if keeping.keeps(key, body.len()) => {
                    StoredBack::of(compressor.encode(body), body)
                }
                Body::Inline(bytes) => StoredBack::of(EncodedBack::plain(body), bytes),
                Body::Blob(_) | Body::Logged(_) => StoredBack::empty(),
            },
            Op::Remove { .. } | Op::RemoveRange { .. } => StoredBack::empty(),
        };
        LogRecord {
            kind: kind | LOGGED,
            removal,
            front,
            back,
        }
    };
    if ops.is_empty() {
        return vec![LogRecord {
            kind: KIND_NOTHING | LOGGED,
            removal: false,
            front: LogRecord::front_for(0),
            back: StoredBack::empty(),
        }];
    }
    ops.iter().map(record).collect()
}

/// The kind that a record of the value log would have in a log of the store's own; `None` for a record of
/// another engine.
pub(crate) fn own_kind(kind: u8) -> Option<u8> {
    (kind & 0xf0 == LOGGED).then_some(kind & 0x0f)
}

/// The body of a record of the value log; `None` for an unknown compression.
pub(crate) fn restored(back: &StoredBack) -> Option<Bytes> {
    back.restore().ok()
}

/// The write in a record of the value log, with the place of a body that stays there; `None` for an
/// empty batch.
pub(crate) fn decode_logged(
    record: &LoggedRecord,
    keeping: Keeping,
) -> Result<Option<Op>, Truncated> {
    let (head, back) = (&record.stored.head, &record.stored.back);
    let kind = own_kind(head.kind).ok_or(Truncated { offset: 0 })?;
    decode_parts(kind, &head.front, |key, at| {
        // A damaged body stays in its place: reads report the damage.
        let len = head.raw_back_len;
        match usize::try_from(len) {
            Ok(bytes) if !keeping.keeps(key, bytes) && !record.is_back_lost => restored(back)
                .map(Body::Inline)
                .ok_or(Truncated { offset: at }),
            _ => Ok(Body::Logged(LoggedPlace {
                at: record.place(),
                len,
            })),
        }
    })
}

/// Decodes the front of an entry to a write with a body of this length at this place of the value
/// log. Returns `None` if the front is not an entry's.
pub(crate) fn decode_front(
    front: &Bytes,
    at: LogPlace,
    body_bytes: u64,
) -> Result<Option<Op>, Truncated> {
    decode_parts(KIND_ENTRY, front, |_, _| {
        let len = body_bytes;
        Ok(Body::Logged(LoggedPlace { at, len }))
    })
}

/// The key in the front of an entry's record; `None` for other records.
pub(crate) fn key_of_entry(kind: u8, front: &Bytes) -> Option<Bytes> {
    if own_kind(kind) != Some(KIND_ENTRY) {
        return None;
    }
    let mut reader = ByteReader::new(front);
    let len = reader.take_prefixed().ok()?.len();
    let at = reader.offset();
    Some(front.slice(at - len..at))
}

/// The write that a record holds; `None` for an empty batch.
pub fn decode(record: &StoredRecord) -> Result<Option<Op>, Truncated> {
    decode_parts(record.head.kind, &record.head.front, |_, at| {
        let body = record.back.restore();
        body.map(Body::Inline).map_err(|_| Truncated { offset: at })
    })
}

fn decode_parts(
    kind: u8,
    front: &Bytes,
    body: impl FnOnce(&[u8], usize) -> Result<Body, Truncated>,
) -> Result<Option<Op>, Truncated> {
    let mut reader = ByteReader::new(front);
    if kind == KIND_NOTHING {
        return Ok(None);
    }
    let len = reader.take_prefixed()?.len();
    let at = reader.offset();
    let key = front.slice(at - len..at);
    let rest = front.slice(at..);
    match kind {
        KIND_ENTRY => {}
        KIND_RANGE => {
            return Ok(Some(Op::RemoveRange {
                from: key,
                to: rest,
            }));
        }
        _ => return Err(Truncated { offset: 0 }),
    }
    let entry = Entry::decode(&rest)?;
    Ok(Some(match entry.value {
        None => Op::Remove { key },
        Some(value) => {
            let body = body(&key, at)?;
            let value = Value { body, ..value };
            Op::Put { key, value }
        }
    }))
}

#[cfg(test)]
mod tests {
    use kvorum_golden::assert_bytes;

    use crate::entry::tests::full_entry;

    use super::*;

    /// A put with something in every part, a removal, and the removal of a range.
    fn ops() -> [Op; 3] {
        let key = Bytes::from_static(b"key");
        [
            Op::Put {
                key: key.clone(),
                value: full_entry().value.unwrap(),
            },
            Op::Remove { key: key.clone() },
            Op::RemoveRange {
                from: key,
                to: Bytes::from_static(b"kez"),
            },
        ]
    }

    #[test]
    fn the_bytes_of_fronts_are_as_drawn() {
        let ops = ops();
        let encoded = Encoded::new(&ops);
        let records = encoded.records(300);
        let fronts: Vec<&[u8]> = records.iter().map(|record| record.front).collect();
        let entry_bytes = |front: usize| fronts[front].len() - 4;
        let drawing = [
            ("put: length of the key", 1),
            ("key", 3),
            ("entry without its body", entry_bytes(0)),
            ("removal: length of the key", 1),
            ("key", 3),
            ("entry", entry_bytes(1)),
            ("range: length of the first key", 1),
            ("first key", 3),
            ("key behind", 3),
        ];
        assert_bytes("log.hex", &drawing, &fronts.concat());
        let kinds = records
            .iter()
            .map(|it| (it.kind, it.removal, it.back.raw_len()));
        let expected = [
            (KIND_ENTRY, false, 4),
            (KIND_ENTRY, true, 0),
            (KIND_RANGE, true, 0),
        ];
        assert_eq!(kinds.collect::<Vec<_>>(), expected);
    }
}
