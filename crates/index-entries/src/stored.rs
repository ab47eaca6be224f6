//! Reading an object's list of its index entries.

use bytes::Bytes;
use kvorum_backend::{BackendError, ErrorKind, Fields, Lookup, ReadAt, Reading, Result, Timestamp};
use kvorum_encoding::StorageKey;
use kvorum_ordered_tree::OrderedTree;

use crate::keyspace::object_key;

/// A read for which no entry is expired.
pub(crate) const OF_ANY_AGE: ReadAt = ReadAt {
    reading: Reading::MayBlock,
    now: Timestamp(0),
};

/// The state of an object in the tree.
pub(crate) enum Stored {
    /// The object's fields, and the list of its index entries.
    Found(Fields, Bytes),
    Absent,
    Damaged,
}

/// Reads an object, expired or not, without its body.
pub(crate) fn read_stored<T: OrderedTree>(
    tree: &T,
    key: &StorageKey,
    reading: Reading,
) -> Result<Stored> {
    let at = ReadAt {
        reading,
        ..OF_ANY_AGE
    };
    match tree.extra(&object_key(key.as_bytes()), at) {
        Err(error) if error.kind() == ErrorKind::Corrupt => Ok(Stored::Damaged),
        Err(error) => Err(error),
        Ok(Lookup::Found((fields, listed))) => Ok(Stored::Found(fields, listed)),
        Ok(Lookup::Absent) => Ok(Stored::Absent),
        Ok(Lookup::WouldBlock) => {
            let detail = format!("the index entries of {key:?}");
            Err(BackendError::new(ErrorKind::WouldBlock, detail))
        }
    }
}
