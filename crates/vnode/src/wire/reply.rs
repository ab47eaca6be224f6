//! Answers as bytes.

use std::sync::Arc;

use bytes::{BufMut as _, Bytes};
use kvorum_backend::Durable;
use kvorum_object::Object;
use kvorum_ring::Epoch;

use super::index::{index_page_bytes, put_index_page};
use super::key_fold::put_key_fold_part;
use super::message::{
    Reader, TEXT_BYTES_MAX, VERSION, WireError, WireMessage, put_place, put_prefixed, put_text,
};
use super::tree::{put_tree_answer, tree_answer_bytes};
use crate::key_fold_request::KeyFoldPart;
use crate::page_request::{CountPage, Page};
use crate::paged_object::PagedUpdate;
use crate::replica_request::{ReplicaFailure, ReplicaReply};
use crate::tree_request::TreeAnswer;

const FOUND: u8 = 1;
const NOT_FOUND: u8 = 2;
const STORED: u8 = 3;
const STORED_AS_SENT: u8 = 4;
const RECEIVED: u8 = 5;
const REAPED: u8 = 6;
const FAILED: u8 = 7;
const LISTED: u8 = 8;
const INDEX_LISTED: u8 = 9;
const TREES: u8 = 10;
const FOLDED: u8 = 11;
const COUNTED: u8 = 12;
const UPDATED: u8 = 13;
const NEEDS_WHOLE: u8 = 14;

const STALE_EPOCH: u8 = 1;
const CONDITION_FOUND: u8 = 2;
const CONDITION_MODIFIED: u8 = 3;
const CONDITION_ABSENT: u8 = 4;
const OBJECT_TOO_LARGE: u8 = 5;
const TOO_MANY_SIBLINGS: u8 = 6;
const FULL: u8 = 7;
const DAMAGED: u8 = 8;
const STORAGE: u8 = 9;
const INTERNAL: u8 = 10;
const NOT_SERVING: u8 = 11;
const INDEXES_NOT_SUPPORTED: u8 = 12;
const INCOMPLETE: u8 = 13;
const UNWRITABLE: u8 = 14;
const OPENING: u8 = 15;
const OPENING_FAILED: u8 = 16;
const NOT_PRESENT: u8 = 17;
const OPERATION_REFUSED: u8 = 18;

/// The bytes of an answer. `Stored`, `Updated` and `Received` are sent once they are durable,
/// without their tickets.
///
/// `sent` is the request's value: an object with exactly this value is returned without it.
///
/// ```text
/// head    = version  u8   1
///           kind     u8   1 found, 2 not found, 3 stored, 4 stored as sent, 5 received, 6 reaped,
///                         7 failed, 8 listed, 9 index listed, 10 tree, 11 folded, 12 counted,
///                         13 updated, 14 needs whole
///           rest          found, stored, stored as sent: the object's head
///                         updated: the delta of a set, with its length; the object's head
///                         failed: code u8, then by code two numbers u64 or a text
///                         listed: has_more u8, of 1 a key; varint count, keys
///                         counted: has_more u8, of 1 a key; varint count
///                         index listed: drawn in `index.rs`; tree: drawn in `tree.rs`;
///                         folded: drawn in `key_fold.rs`
/// text, key = varint length, bytes
/// body    = the object's, empty when it is as sent
/// ```
pub fn encode_reply(reply: &ReplicaReply, sent: &Bytes) -> WireMessage {
    match reply {
        ReplicaReply::Found(object) => of_object(FOUND, object, None),
        ReplicaReply::NotFound => plain(NOT_FOUND),
        ReplicaReply::Stored { object, .. } => of_object(STORED, object, Some(sent)),
        ReplicaReply::Updated { update, .. } => of_update(update),
        ReplicaReply::NeedsWhole => plain(NEEDS_WHOLE),
        ReplicaReply::Received { .. } => plain(RECEIVED),
        ReplicaReply::Reaped => plain(REAPED),
        ReplicaReply::Failed(failure) => of_failure(failure),
        ReplicaReply::Listed(page) => of_page(page),
        ReplicaReply::Counted(page) => of_count(page),
        ReplicaReply::Trees(answer) => of_tree(answer),
        ReplicaReply::Folded(part) => of_key_fold(part),
        ReplicaReply::IndexListed(page) => {
            let mut head = start(INDEX_LISTED, index_page_bytes(page));
            put_index_page(&mut head, page);
            WireMessage {
                head: head.into(),
                body: Bytes::new(),
            }
        }
    }
}

fn of_tree(answer: &TreeAnswer) -> WireMessage {
    let mut head = start(TREES, tree_answer_bytes(answer));
    put_tree_answer(&mut head, answer);
    WireMessage {
        head: head.into(),
        body: Bytes::new(),
    }
}

fn of_key_fold(part: &KeyFoldPart) -> WireMessage {
    let mut head = start(FOLDED, part.findings.memory_bytes());
    put_key_fold_part(&mut head, part);
    WireMessage {
        head: head.into(),
        body: Bytes::new(),
    }
}

fn start(kind: u8, more: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(2 + more);
    out.put_u8(VERSION);
    out.put_u8(kind);
    out
}

fn plain(kind: u8) -> WireMessage {
    WireMessage {
        head: start(kind, 0).into(),
        body: Bytes::new(),
    }
}

fn of_object(kind: u8, object: &Object, sent: Option<&Bytes>) -> WireMessage {
    let encoded = object.encode();
    // The same bytes in the same place, or equal: the sender has both.
    let is_as_sent = sent.is_some_and(|sent| *sent == encoded.body);
    let kind = if is_as_sent { STORED_AS_SENT } else { kind };
    let mut head = start(kind, encoded.head.len());
    head.extend_from_slice(&encoded.head);
    WireMessage {
        head: head.into(),
        body: if is_as_sent {
            Bytes::new()
        } else {
            encoded.body
        },
    }
}

fn of_update(update: &PagedUpdate) -> WireMessage {
    let (object, delta) = (update.object.encode(), update.delta.encode());
    let mut head = start(UPDATED, object.head.len() + delta.len() + 10);
    put_prefixed(&mut head, &delta);
    head.extend_from_slice(&object.head);
    WireMessage {
        head: head.into(),
        body: object.body,
    }
}

fn of_page(page: &Page) -> WireMessage {
    let bytes: usize = page.keys.iter().map(|key| key.as_bytes().len() + 3).sum();
    let mut head = start(LISTED, bytes);
    put_place(&mut head, page.next.as_ref());
    kvorum_encoding::put_varint(&mut head, page.keys.len() as u64);
    for key in &page.keys {
        put_prefixed(&mut head, key.as_bytes());
    }
    WireMessage {
        head: head.into(),
        body: Bytes::new(),
    }
}

fn of_count(page: &CountPage) -> WireMessage {
    let mut head = start(COUNTED, 16);
    put_place(&mut head, page.next.as_ref());
    kvorum_encoding::put_varint(&mut head, page.keys);
    WireMessage {
        head: head.into(),
        body: Bytes::new(),
    }
}

fn of_failure(failure: &ReplicaFailure) -> WireMessage {
    let mut head = start(FAILED, 32);
    let numbers = |head: &mut Vec<u8>, code, one: u64, other: u64| {
        head.put_u8(code);
        head.put_u64_le(one);
        head.put_u64_le(other);
    };
    let text = |head: &mut Vec<u8>, code, text: &str| {
        head.put_u8(code);
        put_text(head, text);
    };
    match failure {
        ReplicaFailure::StaleEpoch { got, expected } => {
            numbers(&mut head, STALE_EPOCH, got.get(), expected.get());
        }
        ReplicaFailure::ConditionFound => head.put_u8(CONDITION_FOUND),
        ReplicaFailure::ConditionModified => head.put_u8(CONDITION_MODIFIED),
        ReplicaFailure::ConditionAbsent => head.put_u8(CONDITION_ABSENT),
        ReplicaFailure::ObjectTooLarge { bytes, bytes_max } => {
            numbers(&mut head, OBJECT_TOO_LARGE, *bytes, *bytes_max);
        }
        ReplicaFailure::TooManySiblings {
            siblings,
            siblings_max,
        } => {
            let (siblings, siblings_max) = (*siblings as u64, *siblings_max as u64);
            numbers(&mut head, TOO_MANY_SIBLINGS, siblings, siblings_max);
        }
        ReplicaFailure::Full(detail) => text(&mut head, FULL, detail),
        ReplicaFailure::Damaged(detail) => text(&mut head, DAMAGED, detail),
        ReplicaFailure::Storage(detail) => text(&mut head, STORAGE, detail),
        ReplicaFailure::Internal(detail) => text(&mut head, INTERNAL, detail),
        ReplicaFailure::NotServing => head.put_u8(NOT_SERVING),
        ReplicaFailure::Incomplete => head.put_u8(INCOMPLETE),
        ReplicaFailure::Unwritable(detail) => text(&mut head, UNWRITABLE, detail),
        ReplicaFailure::NotOpen { is_failed: false } => head.put_u8(OPENING),
        ReplicaFailure::NotOpen { is_failed: true } => head.put_u8(OPENING_FAILED),
        ReplicaFailure::IndexesNotSupported(engine) => {
            text(&mut head, INDEXES_NOT_SUPPORTED, engine);
        }
        ReplicaFailure::NotPresent(term) => text(&mut head, NOT_PRESENT, term),
        ReplicaFailure::OperationRefused(detail) => text(&mut head, OPERATION_REFUSED, detail),
    }
    WireMessage {
        head: head.into(),
        body: Bytes::new(),
    }
}

/// Reads an answer. `sent` is the request's value, for an object that was returned without it; its
/// hash is compared like any other's.
pub fn decode_reply(message: &WireMessage, sent: &Bytes) -> Result<ReplicaReply, WireError> {
    let mut reader = Reader::new(&message.head)?;
    let body = &message.body;
    let stored = |object| ReplicaReply::Stored {
        object: Arc::new(object),
        durable: Durable::Already,
    };
    let reply = match reader.bytes.u8()? {
        FOUND => return Ok(ReplicaReply::Found(Arc::new(reader.object(body)?))),
        STORED => return Ok(stored(reader.object(body)?)),
        STORED_AS_SENT if body.is_empty() => return Ok(stored(reader.object(sent)?)),
        UPDATED => {
            return Ok(ReplicaReply::Updated {
                update: Arc::new(reader.paged_update(body)?),
                durable: Durable::Already,
            });
        }
        NEEDS_WHOLE => ReplicaReply::NeedsWhole,
        NOT_FOUND => ReplicaReply::NotFound,
        RECEIVED => ReplicaReply::Received {
            durable: Durable::Already,
        },
        REAPED => ReplicaReply::Reaped,
        FAILED => ReplicaReply::Failed(reader.failure()?),
        LISTED => ReplicaReply::Listed(reader.listed()?),
        COUNTED => ReplicaReply::Counted(reader.count_page()?),
        INDEX_LISTED => ReplicaReply::IndexListed(reader.index_page()?),
        TREES => ReplicaReply::Trees(reader.tree_answer()?),
        FOLDED => ReplicaReply::Folded(Box::new(reader.key_fold_part()?)),
        _ => return Err(reader.malformed()),
    };
    reader.end(body)?;
    Ok(reply)
}

impl Reader<'_> {
    fn failure(&mut self) -> Result<ReplicaFailure, WireError> {
        Ok(match self.bytes.u8()? {
            STALE_EPOCH => ReplicaFailure::StaleEpoch {
                got: Epoch::new(self.bytes.u64()?),
                expected: Epoch::new(self.bytes.u64()?),
            },
            CONDITION_FOUND => ReplicaFailure::ConditionFound,
            CONDITION_MODIFIED => ReplicaFailure::ConditionModified,
            CONDITION_ABSENT => ReplicaFailure::ConditionAbsent,
            OBJECT_TOO_LARGE => ReplicaFailure::ObjectTooLarge {
                bytes: self.bytes.u64()?,
                bytes_max: self.bytes.u64()?,
            },
            TOO_MANY_SIBLINGS => ReplicaFailure::TooManySiblings {
                siblings: self.count()?,
                siblings_max: self.count()?,
            },
            FULL => ReplicaFailure::Full(self.text()?),
            DAMAGED => ReplicaFailure::Damaged(self.text()?),
            STORAGE => ReplicaFailure::Storage(self.text()?),
            INTERNAL => ReplicaFailure::Internal(self.text()?),
            NOT_SERVING => ReplicaFailure::NotServing,
            INCOMPLETE => ReplicaFailure::Incomplete,
            UNWRITABLE => ReplicaFailure::Unwritable(self.text()?),
            OPENING => ReplicaFailure::NotOpen { is_failed: false },
            OPENING_FAILED => ReplicaFailure::NotOpen { is_failed: true },
            INDEXES_NOT_SUPPORTED => ReplicaFailure::IndexesNotSupported(self.text()?),
            NOT_PRESENT => ReplicaFailure::NotPresent(self.text()?),
            OPERATION_REFUSED => ReplicaFailure::OperationRefused(self.text()?),
            _ => return Err(self.malformed()),
        })
    }

    fn count(&mut self) -> Result<usize, WireError> {
        let number = self.bytes.u64()?;
        usize::try_from(number).map_err(|_| self.malformed())
    }

    fn text(&mut self) -> Result<String, WireError> {
        let bytes = self.prefixed(TEXT_BYTES_MAX)?;
        String::from_utf8(bytes.to_vec()).map_err(|_| self.malformed())
    }

    fn listed(&mut self) -> Result<Page, WireError> {
        let next = self.place()?;
        let count = self.bytes.varint_len()?;
        // Each key takes a byte at least.
        if count > self.bytes.remaining() {
            return Err(self.malformed());
        }
        let keys = (0..count).map(|_| self.listed_key());
        let keys = keys.collect::<Result<_, _>>()?;
        Ok(Page { keys, next })
    }

    fn count_page(&mut self) -> Result<CountPage, WireError> {
        let next = self.place()?;
        let keys = self.bytes.varint()?;
        Ok(CountPage { keys, next })
    }
}
