//! Questions and answers of transfers as bytes.
//!
//! As with replica requests, the whole meaning of a message is in its head, and objects' values are
//! its body. Heads of objects are sent as they are stored, with their checksums. The receiver
//! compares each body with the hash in its head before a merge. A message's head ends in a checksum
//! of its own, so that a flipped bit cannot mark a page as the last.

use std::time::Duration;

use bytes::{BufMut as _, Bytes};
use kvorum_encoding::{ByteReader, StorageKey, Truncated, checksum, put_varint};
use kvorum_peer::Message;
use kvorum_ring::{Epoch, Partition};
use kvorum_vnode::StoredObject;

use crate::chain::Chain;
use crate::transfer_id::{TransferKind, Wanted};

/// The first byte of every message of this service.
pub(crate) const SERVICE: u8 = b'T';
const VERSION: u8 = 1;
const CHECKSUM_BYTES: usize = 4;
/// The longest storage key: a key, a bucket and a type of at most 64 KiB each, escaped.
const KEY_BYTES_MAX: usize = 512 << 10;
/// The longest reason that is sent.
const REASON_BYTES_MAX: usize = 512;

const PAGE: u8 = 1;
const PIECE: u8 = 2;
const KNOWS: u8 = 3;
const LATER: u8 = 4;
const UNKNOWN_SESSION: u8 = 5;
const REFUSED: u8 = 6;
const LACKS_NOTHING: u8 = 7;
const PIN: u8 = 8;

/// The reason why bytes are not a message of this service.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The sender uses another version.
    #[error("transfer message of version {got} where {VERSION} is supported")]
    Version {
        /// The version found.
        got: u8,
    },
    /// The bytes end early, or are in no valid form.
    #[error("malformed transfer message at byte {offset} of its head")]
    Malformed {
        /// The offset of the error, in bytes.
        offset: usize,
    },
}

impl From<Truncated> for WireError {
    fn from(truncated: Truncated) -> Self {
        Self::Malformed {
            offset: truncated.offset,
        }
    }
}

/// The session of a question: a source keeps a count and a digest for each session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    pub(crate) kind: TransferKind,
    /// The vnode that is filled.
    pub(crate) target: Partition,
    /// The source vnode.
    pub(crate) source: Partition,
    /// The session's number, which the receiver draws.
    pub(crate) number: u64,
    /// The page's number in the session, from 0.
    pub(crate) sequence: u32,
}

/// A question of one node to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    /// Asks for the objects after a key.
    Page(PageQuestion),
    /// Asks for a part of an object that is too large for a page.
    Piece {
        session: Session,
        offset: u64,
        bytes_max: u32,
    },
    /// Asks whether the node has durably reached this epoch.
    Knows { partition: Partition, epoch: Epoch },
    /// Asks whether the partition is open there and lacks nothing. An earlier version refuses the
    /// question.
    LacksNothing { partition: Partition },
    /// Asks for the pin of a partition that has reached this epoch. An earlier version refuses the
    /// question.
    Pin { partition: Partition, epoch: Epoch },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PageQuestion {
    pub(crate) session: Session,
    /// The epoch that the source has to have reached for its partition.
    pub(crate) epoch: Epoch,
    pub(crate) wanted: Wanted,
    pub(crate) after: Option<StorageKey>,
    pub(crate) bytes_max: u32,
    pub(crate) entries_max: u32,
    pub(crate) piece_bytes_max: u32,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Page(Page),
    Piece {
        session: Session,
        offset: u64,
        bytes: Bytes,
    },
    Knows(bool),
    /// The backend of the whole partition, if it is pinned to one.
    Pin(Option<String>),
    /// Not now: the source has not applied the move, or has too much to do.
    Later {
        wait: Duration,
        reason: String,
    },
    /// The source has dropped the session, or never had it.
    UnknownSession,
    /// Asking again will not help.
    Refused(String),
}

/// Objects in ascending key order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) session: Session,
    /// The epoch that the source had reached before it took the snapshot of this page.
    pub(crate) epoch: Epoch,
    /// The chain of all entries sent in this session, including this page.
    pub(crate) total: Chain,
    /// The approximate number of keys of the source; 0 if unknown.
    pub(crate) keys_about: u64,
    /// True when no page follows.
    pub(crate) is_last: bool,
    /// The last key that was read.
    pub(crate) through: Option<StorageKey>,
    pub(crate) content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Entries(Vec<Entry>),
    /// One object, whose body is fetched by separate questions.
    Large {
        key: StorageKey,
        head: Bytes,
        body_len: u64,
    },
}

/// An object as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: StorageKey,
    pub(crate) head: Bytes,
    pub(crate) body: Bytes,
}

impl From<StoredObject> for Entry {
    fn from(stored: StoredObject) -> Self {
        Self {
            key: stored.key,
            head: stored.head_bytes,
            body: stored.body_bytes,
        }
    }
}

impl Entry {
    pub(crate) fn len(&self) -> usize {
        self.key.as_bytes().len() + self.head.len() + self.body.len()
    }
}

/// The bytes of a question.
///
/// ```text
/// head    = service u8 'T', version u8 1, kind u8, rest by kind, checksum u32 of all before;
///           body empty
/// page    = 1: session, epoch u64, wanted, after, bytes_max u32, entries_max u32,
///           piece_bytes_max u32
/// piece   = 2: session, offset u64, bytes_max u32
/// knows   = 3: partition u16, epoch u64
/// lacks   = 7: partition u16
/// pin     = 8: partition u16, epoch u64
/// session = kind u8 (1 ownership, 2 growth, 3 repair), target u16, source u16, number u64,
///           sequence u32
/// wanted  = u8 0 all; 1 some: replicas u16, varint count, owners u16 each
/// after   = u8 0 none; 1: varint length, bytes
/// ```
pub(crate) fn encode_question(question: &Question) -> Message {
    let mut out = vec![SERVICE, VERSION];
    match question {
        Question::Page(page) => {
            out.put_u8(PAGE);
            put_session(&mut out, page.session);
            out.put_u64_le(page.epoch.get());
            put_wanted(&mut out, &page.wanted);
            put_key(&mut out, page.after.as_ref());
            out.put_u32_le(page.bytes_max);
            out.put_u32_le(page.entries_max);
            out.put_u32_le(page.piece_bytes_max);
        }
        Question::Piece {
            session,
            offset,
            bytes_max,
        } => {
            out.put_u8(PIECE);
            put_session(&mut out, *session);
            out.put_u64_le(*offset);
            out.put_u32_le(*bytes_max);
        }
        Question::Knows { partition, epoch } => {
            out.put_u8(KNOWS);
            out.put_u16_le(partition.number());
            out.put_u64_le(epoch.get());
        }
        Question::LacksNothing { partition } => {
            out.put_u8(LACKS_NOTHING);
            out.put_u16_le(partition.number());
        }
        Question::Pin { partition, epoch } => {
            out.put_u8(PIN);
            out.put_u16_le(partition.number());
            out.put_u64_le(epoch.get());
        }
    }
    Message::of_head(sealed(out))
}

pub(crate) fn decode_question(message: &Message) -> Result<Question, WireError> {
    let mut reader = Reader::new(&message.head)?;
    let question = match reader.bytes.u8()? {
        PAGE => Question::Page(PageQuestion {
            session: reader.session()?,
            epoch: Epoch::new(reader.bytes.u64()?),
            wanted: reader.wanted()?,
            after: reader.key()?,
            bytes_max: reader.bytes.u32()?,
            entries_max: reader.bytes.u32()?,
            piece_bytes_max: reader.bytes.u32()?,
        }),
        PIECE => Question::Piece {
            session: reader.session()?,
            offset: reader.bytes.u64()?,
            bytes_max: reader.bytes.u32()?,
        },
        KNOWS => Question::Knows {
            partition: reader.partition()?,
            epoch: Epoch::new(reader.bytes.u64()?),
        },
        LACKS_NOTHING => Question::LacksNothing {
            partition: reader.partition()?,
        },
        PIN => Question::Pin {
            partition: reader.partition()?,
            epoch: Epoch::new(reader.bytes.u64()?),
        },
        _ => return Err(reader.malformed()),
    };
    if reader.bytes.is_empty() && message.body.is_empty() {
        Ok(question)
    } else {
        Err(reader.malformed())
    }
}

/// The bytes of an answer.
///
/// ```text
/// head    = service u8 'T', version u8 1, kind u8, rest by kind, checksum u32 of all before
/// page    = 1: session, epoch u64, count u64, digest u64, keys_about u64, is_last u8, through,
///           shape u8: 0 entries: varint count, each varint length and key, varint length and head,
///                     varint length of the body; body: theirs, one after the other
///                     1 large: key, head, varint length of the body; body empty
/// piece   = 2: session, offset u64; body: the bytes
/// knows   = 3: u8
/// later   = 4: wait in ms u32, varint length, reason
/// unknown = 5
/// refused = 6: varint length, reason
/// pin     = 8: u8 0 none; 1: varint length, name of the backend
/// session, through as in questions
/// ```
pub(crate) fn encode_answer(answer: &Answer) -> Message {
    let mut out = vec![SERVICE, VERSION];
    let mut body = Bytes::new();
    match answer {
        Answer::Page(page) => {
            out.put_u8(PAGE);
            body = put_page(&mut out, page);
        }
        Answer::Piece {
            session,
            offset,
            bytes,
        } => {
            out.put_u8(PIECE);
            put_session(&mut out, *session);
            out.put_u64_le(*offset);
            body = bytes.clone();
        }
        Answer::Knows(does) => {
            out.put_u8(KNOWS);
            out.put_u8(u8::from(*does));
        }
        Answer::Pin(name) => {
            out.put_u8(PIN);
            out.put_u8(u8::from(name.is_some()));
            if let Some(name) = name {
                put_bytes(&mut out, name.as_bytes());
            }
        }
        Answer::Later { wait, reason } => {
            out.put_u8(LATER);
            out.put_u32_le(u32::try_from(wait.as_millis()).unwrap_or(u32::MAX));
            put_reason(&mut out, reason);
        }
        Answer::UnknownSession => out.put_u8(UNKNOWN_SESSION),
        Answer::Refused(reason) => {
            out.put_u8(REFUSED);
            put_reason(&mut out, reason);
        }
    }
    let head = sealed(out).into();
    Message { head, body }
}

fn sealed(mut head: Vec<u8>) -> Vec<u8> {
    let sum = checksum(&head);
    head.put_u32_le(sum);
    head
}

pub(crate) fn decode_answer(message: &Message) -> Result<Answer, WireError> {
    let mut reader = Reader::new(&message.head)?;
    let mut body = message.body.clone();
    let answer = match reader.bytes.u8()? {
        PAGE => Answer::Page(reader.page(&mut body)?),
        PIECE => Answer::Piece {
            session: reader.session()?,
            offset: reader.bytes.u64()?,
            bytes: std::mem::take(&mut body),
        },
        KNOWS => Answer::Knows(reader.flag()?),
        PIN => Answer::Pin(reader.name()?),
        LATER => Answer::Later {
            wait: Duration::from_millis(u64::from(reader.bytes.u32()?)),
            reason: reader.reason()?,
        },
        UNKNOWN_SESSION => Answer::UnknownSession,
        REFUSED => Answer::Refused(reader.reason()?),
        _ => return Err(reader.malformed()),
    };
    if reader.bytes.is_empty() && body.is_empty() {
        Ok(answer)
    } else {
        Err(reader.malformed())
    }
}

fn put_session(out: &mut Vec<u8>, session: Session) {
    out.put_u8(session.kind.code());
    out.put_u16_le(session.target.number());
    out.put_u16_le(session.source.number());
    out.put_u64_le(session.number);
    out.put_u32_le(session.sequence);
}

fn put_wanted(out: &mut Vec<u8>, wanted: &Wanted) {
    match wanted {
        Wanted::All => out.put_u8(0),
        Wanted::Owners { owners, replicas } => {
            out.put_u8(1);
            out.put_u16_le(*replicas);
            put_varint(out, owners.len() as u64);
            for owner in owners {
                out.put_u16_le(owner.number());
            }
        }
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_key(out: &mut Vec<u8>, key: Option<&StorageKey>) {
    out.put_u8(u8::from(key.is_some()));
    if let Some(key) = key {
        put_bytes(out, key.as_bytes());
    }
}

/// The beginning of a reason, cut at the end of a character.
fn put_reason(out: &mut Vec<u8>, reason: &str) {
    let mut end = reason.len().min(REASON_BYTES_MAX);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    put_bytes(out, &reason.as_bytes()[..end]);
}

fn put_page(out: &mut Vec<u8>, page: &Page) -> Bytes {
    put_session(out, page.session);
    out.put_u64_le(page.epoch.get());
    out.put_u64_le(page.total.count);
    out.put_u64_le(page.total.digest);
    out.put_u64_le(page.keys_about);
    out.put_u8(u8::from(page.is_last));
    put_key(out, page.through.as_ref());
    match &page.content {
        Content::Entries(entries) => {
            out.put_u8(0);
            put_varint(out, entries.len() as u64);
            let bodies = entries.iter().map(|entry| entry.body.len()).sum();
            let mut body = Vec::with_capacity(bodies);
            for entry in entries {
                put_bytes(out, entry.key.as_bytes());
                put_bytes(out, &entry.head);
                put_varint(out, entry.body.len() as u64);
                body.extend_from_slice(&entry.body);
            }
            body.into()
        }
        Content::Large {
            key,
            head,
            body_len,
        } => {
            out.put_u8(1);
            put_bytes(out, key.as_bytes());
            put_bytes(out, head);
            put_varint(out, *body_len);
            Bytes::new()
        }
    }
}

/// Reads the head of a message; the parts taken from it share its buffer.
struct Reader<'a> {
    whole: &'a Bytes,
    bytes: ByteReader<'a>,
}

impl<'a> Reader<'a> {
    fn new(whole: &'a Bytes) -> Result<Self, WireError> {
        let content_len = whole.len().saturating_sub(CHECKSUM_BYTES);
        let (content, sum) = whole.split_at(content_len);
        let mut reader = Self {
            whole,
            bytes: ByteReader::new(content),
        };
        if reader.bytes.u8()? != SERVICE {
            return Err(reader.malformed());
        }
        match reader.bytes.u8()? {
            VERSION if sum == checksum(content).to_le_bytes() => Ok(reader),
            VERSION => Err(WireError::Malformed {
                offset: content_len,
            }),
            got => Err(WireError::Version { got }),
        }
    }

    fn malformed(&self) -> WireError {
        WireError::Malformed {
            offset: self.bytes.offset(),
        }
    }

    fn flag(&mut self) -> Result<bool, WireError> {
        match self.bytes.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.malformed()),
        }
    }

    fn partition(&mut self) -> Result<Partition, WireError> {
        let partition = Partition::of_number(self.bytes.u16()?);
        partition.ok_or_else(|| self.malformed())
    }

    fn prefixed(&mut self) -> Result<Bytes, WireError> {
        let taken = self.bytes.take_prefixed()?;
        Ok(self.whole.slice_ref(taken))
    }

    fn some_key(&mut self) -> Result<StorageKey, WireError> {
        let key = self.prefixed()?;
        if key.len() > KEY_BYTES_MAX {
            return Err(self.malformed());
        }
        // A copy, so that a kept key does not keep the message in memory.
        Ok(StorageKey::from_encoded(Bytes::copy_from_slice(&key)))
    }

    fn key(&mut self) -> Result<Option<StorageKey>, WireError> {
        match self.flag()? {
            false => Ok(None),
            true => self.some_key().map(Some),
        }
    }

    fn reason(&mut self) -> Result<String, WireError> {
        let reason = self.prefixed()?;
        Ok(String::from_utf8_lossy(&reason).into_owned())
    }

    fn name(&mut self) -> Result<Option<String>, WireError> {
        if !self.flag()? {
            return Ok(None);
        }
        let name = String::from_utf8(self.prefixed()?.to_vec());
        name.map(Some).map_err(|_| self.malformed())
    }

    fn session(&mut self) -> Result<Session, WireError> {
        let kind = TransferKind::from_code(self.bytes.u8()?);
        Ok(Session {
            kind: kind.ok_or_else(|| self.malformed())?,
            target: self.partition()?,
            source: self.partition()?,
            number: self.bytes.u64()?,
            sequence: self.bytes.u32()?,
        })
    }

    fn wanted(&mut self) -> Result<Wanted, WireError> {
        if !self.flag()? {
            return Ok(Wanted::All);
        }
        let replicas = self.bytes.u16()?;
        let count = self.bytes.varint()?;
        let mut owners = Vec::new();
        for _ in 0..count {
            owners.push(self.partition()?);
        }
        Ok(Wanted::Owners { owners, replicas })
    }

    fn page(&mut self, body: &mut Bytes) -> Result<Page, WireError> {
        Ok(Page {
            session: self.session()?,
            epoch: Epoch::new(self.bytes.u64()?),
            total: Chain {
                count: self.bytes.u64()?,
                digest: self.bytes.u64()?,
            },
            keys_about: self.bytes.u64()?,
            is_last: self.flag()?,
            through: self.key()?,
            content: self.content(body)?,
        })
    }

    fn content(&mut self, body: &mut Bytes) -> Result<Content, WireError> {
        if self.flag()? {
            return Ok(Content::Large {
                key: self.some_key()?,
                head: self.prefixed()?,
                body_len: self.bytes.varint()?,
            });
        }
        let count = self.bytes.varint()?;
        let mut entries = Vec::new();
        for _ in 0..count {
            let (key, head) = (self.some_key()?, self.prefixed()?);
            let len = usize::try_from(self.bytes.varint()?);
            let len = len.ok().filter(|len| *len <= body.len());
            let body = body.split_to(len.ok_or_else(|| self.malformed())?);
            entries.push(Entry { key, head, body });
        }
        Ok(Content::Entries(entries))
    }
}

#[cfg(test)]
#[path = "wire_test.rs"]
mod tests;
