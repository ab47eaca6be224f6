//! The form of a batch in the log. Each write is a record of its own, so that one damaged byte
//! costs one key.
//!
//! ```text
//! front   varint length of the key, and the key; of a put, the entry without its body as
//!         `Entry::encode` draws it
//! back    the body
//! ```

use bytes::Bytes;
use kvorum_encoding::{ByteReader, Truncated, put_varint};
use kvorum_page_tree::{Body, Entry};
use kvorum_segment::{EncodedBack, StoredBack};
use kvorum_value_log::{LogRecord, LoggedRecord};

use crate::change::Op;

/// The upper half of this engine's kinds.
const OWN: u8 = 2 << 4;
const KIND_PUT: u8 = OWN | 1;
const KIND_REMOVE: u8 = OWN | 2;
const KIND_NOTHING: u8 = OWN | 3;

/// A batch as records. One without writes has a special record.
pub(crate) fn records_of(ops: &[Op]) -> Vec<LogRecord> {
    if ops.is_empty() {
        return vec![LogRecord {
            kind: KIND_NOTHING,
            removal: false,
            front: LogRecord::front_for(0),
            back: StoredBack::empty(),
        }];
    }
    ops.iter().map(record_of).collect()
}

fn record_of(op: &Op) -> LogRecord {
    let mut front = LogRecord::front_for(0);
    put_varint(&mut front, op.key.len() as u64);
    front.extend_from_slice(&op.key);
    let Some(entry) = &op.entry else {
        return LogRecord {
            kind: KIND_REMOVE,
            removal: true,
            front,
            back: StoredBack::empty(),
        };
    };
    let back = match &entry.body {
        Body::Inline(body) => StoredBack::of(EncodedBack::plain(body), body),
        Body::Apart { .. } | Body::Lost => StoredBack::empty(),
    };
    let bodiless = Entry {
        body: Body::Inline(Bytes::new()),
        ..entry.clone()
    };
    bodiless.encode(&mut front);
    LogRecord {
        kind: KIND_PUT,
        removal: false,
        front,
        back,
    }
}

/// The write of a record; `None` for one that has none.
pub(crate) fn op_of(record: &LoggedRecord) -> Result<Option<Op>, Truncated> {
    let head = &record.stored.head;
    let mut reader = ByteReader::new(&head.front);
    match head.kind {
        KIND_NOTHING => Ok(None),
        KIND_REMOVE => {
            let key = Bytes::copy_from_slice(reader.take_prefixed()?);
            Ok(Some(Op { key, entry: None }))
        }
        KIND_PUT => {
            let key = Bytes::copy_from_slice(reader.take_prefixed()?);
            // The bytes are a slice of something larger, which is not to be kept with them.
            let rest = Bytes::copy_from_slice(reader.take_rest());
            let entry = Entry {
                body: body_of(record),
                ..Entry::decode(&rest)?
            };
            let entry = Some(entry);
            Ok(Some(Op { key, entry }))
        }
        _ => Err(Truncated { offset: 0 }),
    }
}

fn body_of(record: &LoggedRecord) -> Body {
    let restored = match record.is_back_lost {
        true => None,
        false => record.stored.back.restore().ok(),
    };
    restored.map_or(Body::Lost, |body| {
        Body::Inline(Bytes::copy_from_slice(&body))
    })
}

#[cfg(test)]
mod tests {
    use kvorum_backend::{Fields, Tag, Timestamp};
    use kvorum_golden::assert_bytes;

    use super::*;

    #[test]
    fn the_bytes_of_fronts_are_as_drawn() {
        let fields = Fields {
            segment: 7,
            last_modified: Timestamp(1_000),
            expiry: None,
            tag: Tag(2),
        };
        let entry = Entry {
            sequence: 0,
            fields,
            extra: Bytes::new(),
            head: Bytes::from_static(b"head"),
            body: Body::Inline(Bytes::from_static(b"body")),
        };
        let op = |entry| Op {
            key: Bytes::from_static(b"key"),
            entry,
        };
        let records = records_of(&[op(Some(entry)), op(None)]);
        let fronts: Vec<&[u8]> = records.iter().map(|it| &it.front[..]).collect();
        let prefix = ("prefix, which the value log fills", LogRecord::PREFIX_BYTES);
        let drawing = [
            prefix,
            ("put: length of the key", 1),
            ("key", 3),
            ("entry: sequence, which is the record's", 1),
            ("flags", 1),
            ("anti-entropy segment", 4),
            ("last modified", 2),
            ("tag", 1),
            ("length of the extra bytes", 1),
            ("length of the head", 1),
            ("head", 4),
            prefix,
            ("removal: length of the key", 1),
            ("key", 3),
        ];
        assert_bytes("records.hex", &drawing, &fronts.concat());
        let kinds: Vec<(u8, bool)> = records.iter().map(|it| (it.kind, it.removal)).collect();
        assert_eq!(kinds, [(KIND_PUT, false), (KIND_REMOVE, true)]);
        assert_eq!(records_of(&[])[0].kind, KIND_NOTHING);
    }
}
