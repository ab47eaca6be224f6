//! Requests as bytes.

use std::sync::Arc;

use bytes::{BufMut as _, Bytes};
use kvorum_backend::Durability;
use kvorum_data_types::{decode_context, encode_context};
use kvorum_encoding::StorageKey;
use kvorum_object::{Clock, Content, Object, ObjectTag, Resolution, Timestamp};
use kvorum_ring::{Epoch, Partition, RingSize, Role};

use super::index::put_index_page_request;
use super::key_fold::put_key_fold_request;
use super::message::{
    KEY_BYTES_MAX, Reader, VERSION, WireError, WireMessage, put_bound, put_clock, put_owners,
    put_prefixed,
};
use super::tree::put_tree_request;
use crate::data_type_update::DataTypeUpdate;
use crate::index_page_request::IndexPageRequest;
use crate::key_fold_request::KeyFoldRequest;
use crate::page_request::{PageKind, PageRequest};
use crate::replica_request::{ClientUpdate, Condition, Detail, Operation, ReplicaRequest};
use crate::tree_request::TreeRequest;

/// A request of one node to another.
#[derive(Clone, Debug)]
pub enum PeerRequest {
    /// An operation on a replica.
    Replica {
        /// The role of the addressed node: the partition's owner, or a stand-in.
        role: Role,
        /// The request.
        request: ReplicaRequest,
    },
    /// A part of a listing.
    Page(PageRequest),
    /// A part of an index query.
    IndexPage(IndexPageRequest),
    /// A question about a tree of a vnode.
    Tree(TreeRequest),
    /// A part of a fold over keys.
    KeyFold(KeyFoldRequest),
}

const GET: u8 = 1;
const COORDINATE: u8 = 2;
const STORE: u8 = 3;
const MEND: u8 = 4;
const REAP: u8 = 5;
const PAGE: u8 = 6;
const INDEX_PAGE: u8 = 7;
const APPLY: u8 = 8;
const TREE: u8 = 9;
const KEY_FOLD: u8 = 10;
const FOLLOW: u8 = 11;

const NEWEST_WINS: u8 = 1;

/// The properties of a coordinated write in addition to its rules, as bits.
const IS_TIMED: u8 = 1;
const IS_WRITTEN_ONCE: u8 = 2;

/// Room for all but key, clocks and object.
const FIXED_BYTES: usize = 64;

/// The bytes of a request.
///
/// ```text
/// head       = version    u8        1
///              kind       u8        1 get, 2 coordinate, 3 store, 4 mend, 5 reap, 6 page,
///                                   7 index page, drawn in `index.rs`, 8 apply,
///                                   9 tree, drawn in `tree.rs`,
///                                   10 key fold, drawn in `key_fold.rs`, 11 follow
///              partition  u16
///              epoch      u64
///              rest                 by kind
/// get        = role key detail u8   0 head, 1 whole
/// coordinate = role key durability u8, rules u8, condition u8 (0 always, 1 absent,
///              2 version, 3 nothing beyond), of 2 and 3 a clock, context clock,
///              flags u8 (bit 0: the content has a time, bit 1: it is written once), the head of an
///              object that holds the content; body: its value
/// apply      = role key durability u8, rules u8, precision u8, has_context u8, of 1 bytes: what
///              `kvorum_data_types::encode_context` gives; body: the operation
/// follow     = role key durability u8, rules u8, bytes: the delta as `kvorum_data_types` writes it, object
///              head; body: the head of the set, which is the object's value
/// store      = role key durability u8, rules u8, object head; body: the object's
/// mend       = role key rules u8, object head; body: the object's
/// reap       = role key clock
/// page       = kind u8 (0 keys, 1 buckets, 2 count), hash u8 (0 standard, 1 bucket only), ring size u16,
///              names_max u32, is_filtered u8, of 1 a varint count and owners u16 each,
///              range (bound, bound), a bound being u8 (0 none, 1 included, 2 excluded) and bytes
/// role       = u8                   0 primary, 1 fallback
/// key, clock, bytes = varint length, bytes
/// durability = 0 buffered, 1 grouped, 2 backend default
/// rules      = bit 0: 0 keep siblings, 1 newest wins; the others: the number of the kind of objects
/// ```
///
/// A replica on another node merges a write-once object as any object whose newest version wins: the store
/// message has no room for the difference.
pub fn encode_request(request: &PeerRequest) -> WireMessage {
    match request {
        PeerRequest::Replica { role, request } => encode_replica(*role, request),
        PeerRequest::Page(page) => encode_page(page),
        PeerRequest::IndexPage(page) => {
            let mut out = start(INDEX_PAGE, page.partition, page.epoch, 0);
            put_index_page_request(&mut out, page);
            message(out, Bytes::new())
        }
        PeerRequest::Tree(request) => {
            let mut out = start(TREE, request.partition, request.epoch, 0);
            put_tree_request(&mut out, request);
            message(out, Bytes::new())
        }
        PeerRequest::KeyFold(request) => {
            let mut out = start(KEY_FOLD, request.partition, request.epoch, 0);
            put_key_fold_request(&mut out, request);
            message(out, Bytes::new())
        }
    }
}

fn start(kind: u8, partition: Partition, epoch: Epoch, more: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(FIXED_BYTES + more);
    out.put_u8(VERSION);
    out.put_u8(kind);
    out.put_u16_le(partition.number());
    out.put_u64_le(epoch.get());
    out
}

fn encode_replica(role: Role, request: &ReplicaRequest) -> WireMessage {
    let begin = |kind, key: &StorageKey, more| {
        let more = key.as_bytes().len() + more;
        let mut out = start(kind, request.partition, request.epoch, more);
        out.put_u8(u8::from(role == Role::Fallback));
        put_prefixed(&mut out, key.as_bytes());
        out
    };
    match &request.operation {
        Operation::Get { key, detail } => {
            let mut out = begin(GET, key, 0);
            out.put_u8(u8::from(*detail == Detail::Whole));
            message(out, Bytes::new())
        }
        Operation::Coordinate {
            key,
            update,
            durability,
        } => {
            let content = update.content.clone();
            let flags = flags_code(update);
            let object = Object::as_is(Clock::new(), content, Timestamp::ZERO).encode();
            let clocks = 2 * update.context.encoded_len();
            let mut out = begin(COORDINATE, key, object.head.len() + clocks);
            out.put_u8(durability_code(*durability));
            out.put_u8(rules_code(update.resolution, update.tag));
            put_condition(&mut out, &update.condition);
            put_clock(&mut out, &update.context);
            out.put_u8(flags);
            out.extend_from_slice(&object.head);
            message(out, object.body)
        }
        Operation::Apply {
            key,
            update,
            durability,
        } => {
            let context = update.context.as_ref().map(encode_context);
            let more = context.as_ref().map_or(0, Bytes::len);
            let mut out = begin(APPLY, key, more);
            out.put_u8(durability_code(*durability));
            out.put_u8(rules_code(Resolution::KeepSiblings, update.tag));
            out.put_u8(update.precision);
            out.put_u8(u8::from(context.is_some()));
            if let Some(context) = context {
                put_prefixed(&mut out, &context);
            }
            message(out, update.operation.encode())
        }
        Operation::Follow {
            key,
            update,
            resolution,
            tag,
            durability,
        } => {
            let (object, delta) = (update.object.encode(), update.delta.encode());
            let mut out = begin(FOLLOW, key, object.head.len() + delta.len());
            out.put_u8(durability_code(*durability));
            out.put_u8(rules_code(*resolution, *tag));
            put_prefixed(&mut out, &delta);
            out.extend_from_slice(&object.head);
            message(out, object.body)
        }
        Operation::Store {
            key,
            object,
            resolution,
            tag,
            durability,
        } => {
            let object = object.encode();
            let mut out = begin(STORE, key, object.head.len());
            out.put_u8(durability_code(*durability));
            out.put_u8(rules_code(*resolution, *tag));
            out.extend_from_slice(&object.head);
            message(out, object.body)
        }
        Operation::Mend {
            key,
            object,
            resolution,
            tag,
        } => {
            let object = object.encode();
            let mut out = begin(MEND, key, object.head.len());
            out.put_u8(rules_code(*resolution, *tag));
            out.extend_from_slice(&object.head);
            message(out, object.body)
        }
        Operation::Reap { key, clock } => {
            let mut out = begin(REAP, key, clock.encoded_len());
            put_clock(&mut out, clock);
            message(out, Bytes::new())
        }
    }
}

fn encode_page(page: &PageRequest) -> WireMessage {
    let mut out = start(PAGE, page.partition, page.epoch, 0);
    out.put_u8(match page.kind {
        PageKind::Keys => 0,
        PageKind::Buckets => 1,
        PageKind::Count => 2,
    });
    out.put_u8(u8::from(page.hash == kvorum_ring::KeyHash::BucketOnly));
    out.put_u16_le(page.size.get());
    out.put_u32_le(page.names_max);
    put_owners(&mut out, page.owners.as_deref());
    for bound in [&page.range.from, &page.range.to] {
        put_bound(&mut out, bound);
    }
    message(out, Bytes::new())
}

/// Reads a request; bytes of an object are compared with its checksums.
pub fn decode_request(message: &WireMessage) -> Result<PeerRequest, WireError> {
    let mut reader = Reader::new(&message.head)?;
    let kind = reader.bytes.u8()?;
    let (partition, epoch) = (reader.partition()?, Epoch::new(reader.bytes.u64()?));
    let body = &message.body;
    if kind == PAGE {
        let page = reader.page(partition, epoch)?;
        reader.end(body)?;
        return Ok(PeerRequest::Page(page));
    }
    if kind == INDEX_PAGE {
        let page = reader.index_page_request(partition, epoch)?;
        reader.end(body)?;
        return Ok(PeerRequest::IndexPage(page));
    }
    if kind == TREE {
        let request = reader.tree_request(partition, epoch)?;
        reader.end(body)?;
        return Ok(PeerRequest::Tree(request));
    }
    if kind == KEY_FOLD {
        let request = reader.key_fold_request(partition, epoch)?;
        reader.end(body)?;
        return Ok(PeerRequest::KeyFold(request));
    }
    let role = match reader.bytes.u8()? {
        0 => Role::Primary,
        1 => Role::Fallback,
        _ => return Err(reader.malformed()),
    };
    let key = reader.key()?;
    let operation = match kind {
        GET => {
            let detail = match reader.bytes.u8()? {
                0 => Detail::Head,
                1 => Detail::Whole,
                _ => return Err(reader.malformed()),
            };
            reader.end(body)?;
            Operation::Get { key, detail }
        }
        COORDINATE => Operation::Coordinate {
            key,
            durability: reader.durability()?,
            update: Arc::new(reader.update(body)?),
        },
        APPLY => Operation::Apply {
            key,
            durability: reader.durability()?,
            update: Arc::new(reader.data_type_update(body)?),
        },
        FOLLOW => {
            let durability = reader.durability()?;
            let (resolution, tag) = reader.rules()?;
            Operation::Follow {
                key,
                durability,
                resolution,
                tag,
                update: Arc::new(reader.paged_update(body)?),
            }
        }
        STORE => {
            let durability = reader.durability()?;
            let (resolution, tag) = reader.rules()?;
            Operation::Store {
                key,
                durability,
                resolution,
                tag,
                object: Arc::new(reader.object(body)?),
            }
        }
        MEND => {
            let (resolution, tag) = reader.rules()?;
            Operation::Mend {
                key,
                resolution,
                tag,
                object: Arc::new(reader.object(body)?),
            }
        }
        REAP => {
            let clock = reader.clock()?;
            reader.end(body)?;
            Operation::Reap { key, clock }
        }
        _ => return Err(reader.malformed()),
    };
    let request = ReplicaRequest {
        partition,
        epoch,
        operation,
    };
    Ok(PeerRequest::Replica { role, request })
}

impl Reader<'_> {
    pub(super) fn partition(&mut self) -> Result<Partition, WireError> {
        let partition = Partition::of_number(self.bytes.u16()?);
        partition.ok_or_else(|| self.malformed())
    }

    fn key(&mut self) -> Result<StorageKey, WireError> {
        let key = StorageKey::from_encoded(self.prefixed(KEY_BYTES_MAX)?);
        match key.decode() {
            Ok(_) => Ok(key),
            Err(_) => Err(self.malformed()),
        }
    }

    fn durability(&mut self) -> Result<Durability, WireError> {
        match self.bytes.u8()? {
            0 => Ok(Durability::Buffered),
            1 => Ok(Durability::Grouped),
            2 => Ok(Durability::BackendDefault),
            _ => Err(self.malformed()),
        }
    }

    /// A kind of a newer version is refused, so that the object is not stored as another kind.
    fn rules(&mut self) -> Result<(Resolution, ObjectTag), WireError> {
        let rules = self.bytes.u8()?;
        let resolution = match rules & NEWEST_WINS {
            0 => Resolution::KeepSiblings,
            _ => Resolution::NewestWins,
        };
        let tag = ObjectTag::numbered(rules >> 1).ok_or_else(|| self.malformed())?;
        Ok((resolution, tag))
    }

    fn update(&mut self, body: &Bytes) -> Result<ClientUpdate, WireError> {
        let (mut resolution, tag) = self.rules()?;
        let condition = match self.bytes.u8()? {
            0 => Condition::Always,
            1 => Condition::Absent,
            2 => Condition::Version(self.clock()?),
            3 => Condition::NothingBeyond(self.clock()?),
            _ => return Err(self.malformed()),
        };
        let context = self.clock()?;
        let flags = self.bytes.u8()?;
        if flags & IS_WRITTEN_ONCE != 0 {
            resolution = Resolution::WrittenOnce;
        }
        let (_, mut siblings) = self.object(body)?.into_parts();
        let (Some(only), None) = (siblings.next(), siblings.next()) else {
            return Err(self.malformed());
        };
        let mut metadata = only.metadata;
        if flags & IS_TIMED == 0 {
            metadata.last_modified = Timestamp::ZERO;
        }
        Ok(ClientUpdate {
            context,
            condition,
            content: Content {
                metadata,
                value: only.value,
            },
            resolution,
            tag,
        })
    }

    fn data_type_update(&mut self, body: &Bytes) -> Result<DataTypeUpdate, WireError> {
        // Values of data types are merged: none is dropped.
        let (_keep_siblings, tag) = self.rules()?;
        let precision = self.bytes.u8()?;
        let context = match self.bytes.u8()? {
            0 => None,
            1 => Some(decode_context(&self.prefixed(usize::MAX)?)?),
            _ => return Err(self.malformed()),
        };
        self.end(&Bytes::new())?;
        Ok(DataTypeUpdate {
            operation: kvorum_data_types::Operation::decode(body)?,
            context,
            precision,
            tag,
        })
    }

    fn page(&mut self, partition: Partition, epoch: Epoch) -> Result<PageRequest, WireError> {
        let kind = match self.bytes.u8()? {
            0 => PageKind::Keys,
            1 => PageKind::Buckets,
            2 => PageKind::Count,
            _ => return Err(self.malformed()),
        };
        let hash = self.key_hash()?;
        let size = self.ring_size()?;
        let names_max = self.bytes.u32()?;
        let owners = self.owners()?;
        let range = kvorum_backend::FoldRange {
            from: self.bound()?,
            to: self.bound()?,
        };
        Ok(PageRequest {
            partition,
            epoch,
            kind,
            hash,
            size,
            owners,
            range,
            names_max,
        })
    }

    pub(super) fn key_hash(&mut self) -> Result<kvorum_ring::KeyHash, WireError> {
        match self.bytes.u8()? {
            0 => Ok(kvorum_ring::KeyHash::Standard),
            1 => Ok(kvorum_ring::KeyHash::BucketOnly),
            _ => Err(self.malformed()),
        }
    }

    pub(super) fn ring_size(&mut self) -> Result<RingSize, WireError> {
        RingSize::new(u64::from(self.bytes.u16()?)).map_err(|_| self.malformed())
    }

    pub(super) fn owners(&mut self) -> Result<Option<Vec<Partition>>, WireError> {
        match self.bytes.u8()? {
            0 => return Ok(None),
            1 => {}
            _ => return Err(self.malformed()),
        }
        let count = self.bytes.varint_len()?;
        if count > self.bytes.remaining() / 2 {
            return Err(self.malformed());
        }
        let owners = (0..count).map(|_| self.partition());
        owners.collect::<Result<_, _>>().map(Some)
    }

    pub(super) fn bound(&mut self) -> Result<std::ops::Bound<Bytes>, WireError> {
        self.bound_up_to(KEY_BYTES_MAX)
    }

    pub(super) fn bound_up_to(
        &mut self,
        bytes_max: usize,
    ) -> Result<std::ops::Bound<Bytes>, WireError> {
        use std::ops::Bound;
        Ok(match self.bytes.u8()? {
            0 => Bound::Unbounded,
            1 => Bound::Included(self.prefixed(bytes_max)?),
            2 => Bound::Excluded(self.prefixed(bytes_max)?),
            _ => return Err(self.malformed()),
        })
    }
}

fn put_condition(out: &mut Vec<u8>, condition: &Condition) {
    let (code, clock) = match condition {
        Condition::Always => return out.put_u8(0),
        Condition::Absent => return out.put_u8(1),
        Condition::Version(clock) => (2, clock),
        Condition::NothingBeyond(clock) => (3, clock),
    };
    out.put_u8(code);
    put_clock(out, clock);
}

fn durability_code(durability: Durability) -> u8 {
    match durability {
        Durability::Buffered => 0,
        Durability::Grouped => 1,
        Durability::BackendDefault => 2,
    }
}

fn flags_code(update: &ClientUpdate) -> u8 {
    let is_timed = update.content.metadata.last_modified != Timestamp::ZERO;
    let is_written_once = update.resolution == Resolution::WrittenOnce;
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    flag(is_timed, IS_TIMED) | flag(is_written_once, IS_WRITTEN_ONCE)
}

fn rules_code(resolution: Resolution, tag: ObjectTag) -> u8 {
    let resolution = match resolution {
        Resolution::KeepSiblings => 0,
        Resolution::NewestWins | Resolution::WrittenOnce => NEWEST_WINS,
    };
    tag.number() << 1 | resolution
}

fn message(head: Vec<u8>, body: Bytes) -> WireMessage {
    WireMessage {
        head: head.into(),
        body,
    }
}
