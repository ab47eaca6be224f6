//! The byte form of heads.

use std::sync::Arc;

use bytes::Bytes;
use kvorum_encoding::{ByteReader, Truncated, put_varint, varint_len};
use xxhash_rust::xxh3::xxh3_64;

use crate::clock_encoding::{CHECKSUM_LEN, check_envelope, open_envelope, put_checksum};
use crate::metadata_encoding::{metadata_len, put_metadata, read_metadata};
use crate::versions::{self, Siblings, Version};
use crate::{
    ActorId, Clock, DecodeError, Dot, Head, Metadata, Object, Part, Sibling, SiblingHead, Timestamp,
};

const VERSION: u8 = 1;
/// Flag: every sibling is deleted. Lets a reader of many heads skip tombstones by their second byte.
const TOMBSTONE: u8 = 1;

const VERSION_LEN: usize = 1;
const FLAGS_LEN: usize = 1;
const HASH_LEN: usize = 8;
const ACTOR_LEN: usize = 8;
const TIMESTAMP_LEN: usize = 8;

/// Writes the head of `object`, whose body is `body`.
///
/// ```text
/// head     = version        u8      1
///            flags          u8      bit 0: every sibling is deleted; the others are zero
///            body hash      u64     XXH3-64 of the body
///            clock          entries as drawn at `Clock::encode`
///            sibling count  varint  at least 1
///            sibling*               by strictly ascending dot
///            checksum       u32     masked CRC-32C of all bytes before
/// sibling  = actor          u64     0 for a value stored under a client's own clock
///            counter        varint  not 0
///            last modified  u64     microseconds since the Unix epoch
///            value len      varint  bytes of the body that are this sibling's
///            metadata len   varint
///            metadata               fields as drawn at `put_metadata`
/// ```
///
/// The body is the siblings' values back to back, in the order of the siblings.
pub(crate) fn encode_head(object: &Object, body: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(head_len(object));
    out.push(VERSION);
    out.push(if object.is_tombstone() { TOMBSTONE } else { 0 });
    out.extend_from_slice(&xxh3_64(body).to_le_bytes());
    object.clock().put_entries(&mut out);
    put_varint(&mut out, object.siblings().len() as u64);
    for Sibling {
        dot,
        metadata,
        value,
    } in object.siblings()
    {
        out.extend_from_slice(&dot.actor.0.to_le_bytes());
        put_varint(&mut out, dot.counter);
        out.extend_from_slice(&metadata.last_modified.as_micros().to_le_bytes());
        put_varint(&mut out, value.len() as u64);
        put_varint(&mut out, metadata_len(metadata) as u64);
        put_metadata(&mut out, metadata);
    }
    put_checksum(&mut out);
    out.into()
}

/// The length of what [`encode_head`] writes, in bytes.
pub(crate) fn head_len(object: &Object) -> usize {
    let siblings = object.siblings().iter().map(
        |Sibling {
             dot,
             metadata,
             value,
         }| {
            let metadata_len = metadata_len(metadata);
            ACTOR_LEN
                + varint_len(dot.counter)
                + TIMESTAMP_LEN
                + varint_len(value.len() as u64)
                + varint_len(metadata_len as u64)
                + metadata_len
        },
    );
    VERSION_LEN
        + FLAGS_LEN
        + HASH_LEN
        + object.clock().entries_len()
        + varint_len(object.siblings().len() as u64)
        + siblings.sum::<usize>()
        + CHECKSUM_LEN
}

impl Head {
    /// The hash of the body, read from an encoded head without the rest of it.
    pub fn body_hash_of(bytes: &Bytes) -> Result<u64, DecodeError> {
        let (covered, _) = open_envelope(bytes, Part::Head, VERSION)?;
        let mut reader = ByteReader::new(covered);
        let hash = reader
            .take(VERSION_LEN + FLAGS_LEN)
            .and_then(|_| reader.u64());
        hash.map_err(DecodeError::cut(Part::Head))
    }

    /// Reads a head; names and pairs in the metadata share its buffer.
    pub fn decode(bytes: &Bytes) -> Result<Self, DecodeError> {
        let covered = check_envelope(bytes, Part::Head, VERSION)?;
        read_head(bytes, covered).map_err(DecodeError::cut(Part::Head))
    }

    /// Reads a head that a storage engine of this node returned: as [`Head::decode`], without the
    /// checksum. See [`Object::from_engine`] for why.
    pub fn from_engine(bytes: &Bytes) -> Result<Self, DecodeError> {
        let (covered, _) = open_envelope(bytes, Part::Head, VERSION)?;
        read_head(bytes, covered).map_err(DecodeError::cut(Part::Head))
    }
}

fn read_head(bytes: &Bytes, covered: &[u8]) -> Result<Head, Truncated> {
    let mut siblings = Siblings::new();
    let (body_hash, clock) = read(bytes, covered, &mut siblings, |dot, metadata, value_len| {
        SiblingHead {
            dot,
            metadata,
            value_len,
        }
    })?;
    Ok(Head {
        clock,
        siblings,
        body_hash,
        encoded_len: bytes.len(),
        beside_bytes: 0,
    })
}

/// Reads the head of an object and cuts `body` into the siblings' values.
pub(crate) fn read_object(head: &Bytes, body: Bytes) -> Result<Arc<Object>, DecodeError> {
    let (covered, _) = open_envelope(head, Part::Head, VERSION)?;
    let got = body.len() as u64;
    let mut expected = 0u64;
    let mut rest = body;
    let mut siblings = Siblings::new();
    let read = read(head, covered, &mut siblings, |dot, metadata, value_len| {
        expected = expected.saturating_add(value_len as u64);
        let value = rest.split_to(value_len.min(rest.len()));
        Sibling {
            dot,
            metadata,
            value,
        }
    });
    let (_, clock) = read.map_err(DecodeError::cut(Part::Head))?;
    if got != expected {
        return Err(DecodeError::BodyLength { got, expected });
    }
    Ok(Arc::new(Object::new(clock, siblings)))
}

/// Reads the bytes of [`encode_head`]: the hash of the body, the clock and the siblings. `version`
/// makes a sibling from its dot, its metadata and the length of its value.
#[inline]
fn read<V: Version>(
    bytes: &Bytes,
    covered: &[u8],
    siblings: &mut Siblings<V>,
    mut version: impl FnMut(Dot, Metadata, usize) -> V,
) -> Result<(u64, Clock), Truncated> {
    let mut reader = ByteReader::new(covered);
    reader.take(VERSION_LEN)?;
    let flags = reader.u8()?;
    let body_hash = reader.u64()?;
    let clock = Clock::read_entries(&mut reader)?;
    let count = reader.varint_len()?;
    for _ in 0..count {
        let offset = reader.offset();
        let dot = Dot {
            actor: ActorId(reader.u64()?),
            counter: reader.varint()?,
        };
        let unsorted = siblings.last().is_some_and(|last| last.dot() >= dot);
        let unseen = dot.actor != ActorId::CONTENT && !clock.contains(dot);
        if dot.counter == 0 || unsorted || unseen {
            return Err(Truncated { offset });
        }
        let mut metadata = Metadata::default();
        let value_len = read_sibling(bytes, &mut reader, &mut metadata)?;
        siblings.push(version(dot, metadata, value_len));
    }
    let is_tombstone = versions::is_tombstone(siblings);
    let expected_flags = if is_tombstone { TOMBSTONE } else { 0 };
    if count == 0 || !reader.is_empty() || flags != expected_flags {
        return Err(Truncated {
            offset: reader.offset(),
        });
    }
    Ok((body_hash, clock))
}

/// Reads the bytes behind a sibling's dot: the metadata, in place since it is too large to be
/// moved, and the length of the value.
#[inline]
fn read_sibling(
    bytes: &Bytes,
    reader: &mut ByteReader<'_>,
    metadata: &mut Metadata,
) -> Result<usize, Truncated> {
    metadata.last_modified = Timestamp::from_micros(reader.u64()?);
    let value_offset = reader.offset();
    // The value is elsewhere, so its length has no bound here; the body is checked against it.
    let value_len = usize::try_from(reader.varint()?)
        .ok()
        .filter(|len| isize::try_from(*len).is_ok());
    let value_len = value_len.ok_or(Truncated {
        offset: value_offset,
    })?;
    let fields = reader.take_prefixed()?;
    let fields_offset = reader.offset() - fields.len();
    let read = read_metadata(bytes, ByteReader::new(fields), metadata);
    read.map_err(|error| Truncated {
        offset: fields_offset + error.offset,
    })?;
    Ok(value_len)
}
