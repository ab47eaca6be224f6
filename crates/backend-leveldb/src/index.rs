//! Index entries: the list that an object keeps of its own, and what a write changes in it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use kvorum_backend::{
    BackendError, Batch, ErrorKind, Fields, IndexCounts, IndexEntry, Lookup, ReadAt, Reading,
    Result, Timestamp, Write,
};
use kvorum_encoding::{ByteReader, StorageKey, Truncated, put_varint};
use kvorum_lsm::{Body, KeyRange, Lsm, Op, Value};

use crate::keyspace::{index_key, object_key, object_range_of};
use crate::put_op::put_op;

/// For reads to which nothing is expired.
pub(crate) const OF_ANY_AGE: ReadAt = ReadAt {
    reading: Reading::MayBlock,
    now: Timestamp(0),
};

/// Encodes a list of index entries: for each, varint length and bytes of the field and of the term.
pub(crate) fn encode(entries: &BTreeSet<IndexEntry>) -> Bytes {
    let mut out = Vec::new();
    for entry in entries {
        for part in [&entry.field, &entry.term] {
            put_varint(&mut out, part.len() as u64);
            out.extend_from_slice(part);
        }
    }
    out.into()
}

pub(crate) fn decode(bytes: &[u8]) -> std::result::Result<BTreeSet<IndexEntry>, Truncated> {
    let mut reader = ByteReader::new(bytes);
    let mut entries = BTreeSet::new();
    while !reader.is_empty() {
        entries.insert(IndexEntry {
            field: Bytes::copy_from_slice(reader.take_prefixed()?),
            term: Bytes::copy_from_slice(reader.take_prefixed()?),
        });
    }
    Ok(entries)
}

/// What an object has before a write.
#[derive(Clone, Default)]
struct Before {
    entries: BTreeSet<IndexEntry>,
    fields: Option<Fields>,
    is_unknown: bool,
}

/// The changes of a batch, index entries included.
pub(crate) struct Changes {
    pub(crate) ops: Vec<Op>,
    pub(crate) counts: IndexCounts,
    /// Objects of which nobody knows what entries they had.
    pub(crate) unknown: Vec<KeyRange>,
}

/// What a batch changes.
///
/// `rewrites_all` says that index entries are gone by their own age, so that those which stay have to
/// be written again.
pub(crate) fn ops_of(lsm: &Lsm, batch: &Batch, rewrites_all: bool) -> Result<Changes> {
    let mut known: BTreeMap<&StorageKey, Before> = BTreeMap::new();
    let mut ops = Vec::with_capacity(batch.writes.len());
    let mut counts = plain_counts(batch);
    let mut unknown = Vec::new();
    for write in &batch.writes {
        let key = write.key();
        let before = match known.get(key) {
            Some(before) => before.clone(),
            None => read_before(lsm, key, write.old().reading)?,
        };
        if before.is_unknown {
            unknown.push(object_range_of(key));
        }
        let after: BTreeSet<IndexEntry> = write.index_entries().iter().cloned().collect();
        let fields = match write {
            Write::Put { fields, .. } => Some(*fields),
            Write::Remove { .. } => None,
        };
        for gone in before.entries.difference(&after) {
            let key = index_key(key, gone);
            ops.push(Op::Remove { key });
            counts.postings_deleted += 1;
        }
        counts.postings_written += after.difference(&before.entries).count() as u64;
        if let Some(fields) = fields {
            let is_as_before = before.fields.map(|it| it.expiry) == Some(fields.expiry);
            for entry in &after {
                let stays = is_as_before && !rewrites_all && before.entries.contains(entry);
                if !stays {
                    ops.push(index_op(key, entry, fields));
                }
            }
        }
        ops.push(put_op(write, encode(&after), lsm.kept_from()));
        let before = Before {
            entries: after,
            fields,
            is_unknown: false,
        };
        known.insert(key, before);
    }
    Ok(Changes {
        ops,
        counts,
        unknown,
    })
}

/// What there is of an object.
pub(crate) enum Stored {
    Found(Value),
    Absent,
    Damaged,
}

/// Reads an object, expired or not, without its body.
pub(crate) fn read_object(lsm: &Lsm, key: &StorageKey, reading: Reading) -> Result<Stored> {
    let at = ReadAt {
        reading,
        ..OF_ANY_AGE
    };
    match lsm.head(&object_key(key.as_bytes()), at) {
        Err(error) if error.kind() == ErrorKind::Corrupt => Ok(Stored::Damaged),
        Err(error) => Err(error),
        Ok(Lookup::Found((_, value))) => Ok(Stored::Found(value)),
        Ok(Lookup::Absent) => Ok(Stored::Absent),
        Ok(Lookup::WouldBlock) => {
            let detail = format!("the index entries of {key:?}");
            Err(BackendError::new(ErrorKind::WouldBlock, detail))
        }
    }
}

/// What a batch counts besides its index entries.
pub(crate) fn plain_counts(batch: &Batch) -> IndexCounts {
    let is_put = |write: &&Write| matches!(write, Write::Put { .. });
    let puts = batch.writes.iter().filter(is_put).count();
    IndexCounts {
        writes: puts as u64,
        deletes: (batch.writes.len() - puts) as u64,
        ..IndexCounts::default()
    }
}

/// The entry of a key, expired or not. Writing over one that is damaged is how it is repaired; which index
/// entries it had is found out later, by reading them all.
fn read_before(lsm: &Lsm, key: &StorageKey, reading: Reading) -> Result<Before> {
    let value = match read_object(lsm, key, reading)? {
        Stored::Found(value) => value,
        Stored::Absent => {
            let is_lost = || lsm.is_doubt(&object_range_of(key));
            return Ok(Before {
                is_unknown: lsm.doubts_opened() > 0 && is_lost(),
                ..Before::default()
            });
        }
        Stored::Damaged => {
            return Ok(Before {
                is_unknown: true,
                ..Before::default()
            });
        }
    };
    Ok(Before {
        entries: decode(&value.extra).unwrap_or_default(),
        fields: Some(value.fields),
        is_unknown: false,
    })
}

/// An index entry lives and expires as its object does.
pub(crate) fn index_op(key: &StorageKey, entry: &IndexEntry, fields: Fields) -> Op {
    Op::Put {
        key: index_key(key, entry),
        value: Value {
            fields,
            extra: Bytes::new(),
            head: Bytes::new(),
            body: Body::Inline(Bytes::new()),
        },
    }
}
