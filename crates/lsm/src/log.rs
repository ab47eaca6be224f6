//! The store's own log: what a memtable holds, for the next opening.
//!
//! Each write of a batch is a record of its own, so that one damaged byte costs one key.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use kvorum_encoding::{ByteReader, Truncated, put_varint};
use kvorum_segment::{BatchPlace, EncodedBack, Record, SegmentId, StoredRecord, file_name};

use crate::entry::encode_but_body;
use crate::{Body, Entry, Op, Value};

pub(crate) const KIND_ENTRY: u8 = 1;
pub(crate) const KIND_RANGE: u8 = 2;
const KIND_NOTHING: u8 = 3;
/// In a segment's header, for people.
pub(crate) const KIND_LOG: u8 = 7;

pub(crate) fn log_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(file_name(number))
}

pub(crate) fn log_id(identity: u64, number: u64) -> SegmentId {
    SegmentId {
        log_id: identity,
        number,
        kind: KIND_LOG,
    }
}

/// A batch as the log's records, without its sequence.
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
    /// its body (its sequence is the record's); the back is the body. The front of a removed range:
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
    match op {
        Op::Put { key, value } => {
            put_key(key);
            encode_but_body(out, 0, Some(value));
            match &value.body {
                Body::Inline(body) => (KIND_ENTRY, false, body),
                Body::Blob(_) => (KIND_ENTRY, false, &[]),
            }
        }
        Op::Remove { key } => {
            put_key(key);
            encode_but_body(out, 0, None);
            (KIND_ENTRY, true, &[])
        }
        Op::RemoveRange { from, to } => {
            put_key(from);
            out.extend_from_slice(to);
            (KIND_RANGE, true, &[])
        }
    }
}

/// The write that a record holds; `None` for an empty batch.
pub(crate) fn decode(record: &StoredRecord) -> Result<Option<Op>, Truncated> {
    let front = &record.head.front;
    let mut reader = ByteReader::new(front);
    if record.head.kind == KIND_NOTHING {
        return Ok(None);
    }
    let len = reader.take_prefixed()?.len();
    let at = reader.offset();
    let key = front.slice(at - len..at);
    let rest = front.slice(at..);
    match record.head.kind {
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
            let body = record
                .back
                .restore()
                .map_err(|_| Truncated { offset: at })?;
            let body = Body::Inline(body);
            Op::Put {
                key,
                value: Value { body, ..value },
            }
        }
    }))
}
