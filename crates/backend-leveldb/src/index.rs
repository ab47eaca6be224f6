//! The tree as index entries see it.

use bytes::Bytes;
use kvorum_backend::{
    BackendError, ErrorKind, Fields, Lookup, ReadAt, Reading, Result, Timestamp, Write,
};
use kvorum_encoding::StorageKey;
use kvorum_index_entries::changes::{IndexedTree, Stored};
use kvorum_index_entries::keyspace::{object_key, object_range_of};
use kvorum_lsm::{Body, Lsm, Op, Value};

use crate::put_op::put_op;

/// For reads to which nothing is expired.
pub(crate) const OF_ANY_AGE: ReadAt = ReadAt {
    reading: Reading::MayBlock,
    now: Timestamp(0),
};

/// A tree with index entries.
pub(crate) struct Indexed<'a>(pub(crate) &'a Lsm);

impl IndexedTree for Indexed<'_> {
    type Op = Op;

    fn stored(&self, key: &StorageKey, reading: Reading) -> Result<Stored> {
        let is_lost = || self.0.doubts_opened() > 0 && self.0.is_doubt(&object_range_of(key));
        Ok(match read_object(self.0, key, reading)? {
            Object::Found(value) => Stored::Found {
                listed: value.extra,
                fields: value.fields,
            },
            Object::Absent if is_lost() => Stored::Unknown,
            Object::Absent => Stored::Absent,
            Object::Damaged => Stored::Unknown,
        })
    }

    fn object_op(&self, write: &Write, listed: Bytes) -> Op {
        put_op(write, listed, self.0.kept_from())
    }

    fn entry_op(&self, key: Bytes, fields: Fields) -> Op {
        entry_op(key, fields)
    }

    fn remove_op(&self, key: Bytes) -> Op {
        Op::Remove { key }
    }
}

/// An object as the tree has it.
pub(crate) enum Object {
    Found(Value),
    Absent,
    Damaged,
}

/// Reads an object, expired or not, without its body.
pub(crate) fn read_object(lsm: &Lsm, key: &StorageKey, reading: Reading) -> Result<Object> {
    let at = ReadAt {
        reading,
        ..OF_ANY_AGE
    };
    match lsm.head(&object_key(key.as_bytes()), at) {
        Err(error) if error.kind() == ErrorKind::Corrupt => Ok(Object::Damaged),
        Err(error) => Err(error),
        Ok(Lookup::Found((_, value))) => Ok(Object::Found(value)),
        Ok(Lookup::Absent) => Ok(Object::Absent),
        Ok(Lookup::WouldBlock) => {
            let detail = format!("the index entries of {key:?}");
            Err(BackendError::new(ErrorKind::WouldBlock, detail))
        }
    }
}

/// An index entry lives and expires as its object does.
pub(crate) fn entry_op(key: Bytes, fields: Fields) -> Op {
    let value = Value {
        fields,
        extra: Bytes::new(),
        head: Bytes::new(),
        body: Body::Inline(Bytes::new()),
    };
    Op::Put { key, value }
}
