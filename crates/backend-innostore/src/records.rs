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
