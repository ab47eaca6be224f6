//! Entries put below everything in memory: for upkeep that writes entries derived from others.
//!
//! Such a write must not undo a later put. It goes to a table of its own on level 0 while no flush
//! can run, so puts made meanwhile are above it. It takes no lock that a put waits for, and neither
//! a sequence nor a place in a log: it is durable with the manifest. Rejected: a batch that is put
//! unless its keys were written since. The value log would miss the batch's sequence.

use bytes::Bytes;
use kvorum_backend::Result;

use crate::install::install_below;
use crate::store::Store;
use crate::{Entry, Op};

/// The caller holds upkeep's lock, and no flush is in progress.
pub(crate) fn write_below(store: &Store, ops: Vec<Op>) -> Result<u64> {
    // The sequence of the newest table: a later sequence would mean that memory has been flushed.
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
