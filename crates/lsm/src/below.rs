//! Entries put below everything that is in memory: for upkeep that writes what it has derived from what it
//! read.
//!
//! Such a write must not undo a put that came since it was decided. It goes to a table of its own on level
//! 0 while nothing can be flushed, so whatever was put meanwhile stands above it; that takes no lock that a
//! put waits for, no sequence, which a log in front of the store would miss, and no place in a log: it is
//! durable with the manifest. Rejected: to put it like any other batch unless its keys were written since.
//! The batch would have a sequence that the value log does not know.

use bytes::Bytes;
use kvorum_backend::Result;

use crate::install::install_below;
use crate::store::Store;
use crate::{Entry, Op};

/// The caller holds upkeep's lock, and no flush is going on.
pub(crate) fn write_below(store: &Store, ops: Vec<Op>) -> Result<u64> {
    // That of the newest table: a later one would say that what is in memory has been flushed.
    let sequence = store.manifest.lock().sequence;
    let mut entries: Vec<(Bytes, Entry)> = ops
        .into_iter()
        .filter_map(|op| match op {
            Op::Put { key, value } => Some((key, Entry::of(sequence, Some(value)))),
            Op::Remove { key } => Some((key, Entry::removal(sequence))),
            Op::RemoveRange { .. } => None,
        })
        .collect();
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    entries.dedup_by(|a, b| a.0 == b.0);
    install_below(store, &entries, None)
}
