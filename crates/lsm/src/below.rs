//! Entries put below everything that is in memory: for upkeep that writes what it has derived from what it
//! read.
//!
//! Such a write must not undo a put that came since it was decided. It goes to a table of its own on level
//! 0 while nothing can be flushed, so whatever was put meanwhile stands above it; that takes no lock that a
//! put waits for, no sequence, which a log in front of the store would miss, and no place in a log: it is
//! durable with the manifest. Rejected: to put it like any other batch unless its keys were written since.
//! The batch would have a sequence that the value log does not know.

use bytes::Bytes;
use kvorum_backend::{Result, StepOutcome, Timestamp};

use crate::Entry;
use crate::install::install_below;
use crate::store::Store;
use crate::{Lsm, Op};

/// What became of a write below memory.
#[derive(Debug)]
pub enum PutBelow<T> {
    /// It was made, and what was decided is returned with the bytes written.
    Done(T, u64),
    /// What is in memory is being flushed first; ask again.
    Flushing(StepOutcome),
}

impl Lsm {
    /// Reads and writes at once, as far as flushes go: `decide` says what is to be put, in any order, each
    /// key once. Puts go on meanwhile, and what they write counts.
    ///
    /// What is put has a key and fields, and no body that would go to a blob file. Removals of ranges are
    /// left out.
    pub fn put_below<T>(
        &self,
        budget_bytes: u64,
        now: Timestamp,
        decide: impl FnOnce() -> Result<(Vec<Op>, T)>,
    ) -> Result<PutBelow<T>> {
        let mut jobs = self.upkeep.jobs.lock();
        self.store.check_writable()?;
        // A flush leaves out removals below which there was nothing when it began.
        if jobs.flush.is_going_on() {
            let flushed = jobs.flush.step(&self.store, budget_bytes, now, true);
            return Ok(PutBelow::Flushing(flushed?));
        }
        let (ops, decided) = decide()?;
        let bytes = write_below(&self.store, ops)?;
        Ok(PutBelow::Done(decided, bytes))
    }

    /// Flushes some of what is in memory, whether that is due or not.
    pub fn flush_part(&self, budget_bytes: u64, now: Timestamp) -> Result<StepOutcome> {
        let mut jobs = self.upkeep.jobs.lock();
        self.store.check_writable()?;
        jobs.flush.step(&self.store, budget_bytes, now, true)
    }
}

/// The caller holds upkeep's lock, and no flush is going on.
fn write_below(store: &Store, ops: Vec<Op>) -> Result<u64> {
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
