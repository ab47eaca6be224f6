//! Counts of changes to the indexes of an open store.

use std::sync::atomic::{AtomicU64, Ordering};

use kvorum_backend::IndexCounts;

/// [`IndexCounts`] to which many threads add.
#[derive(Default)]
pub(crate) struct IndexCounters {
    writes: AtomicU64,
    postings_written: AtomicU64,
    deletes: AtomicU64,
    postings_deleted: AtomicU64,
}

impl IndexCounters {
    /// Adds the counts of a batch.
    pub(crate) fn add(&self, counts: &IndexCounts) {
        for (counter, events) in [
            (&self.writes, counts.writes),
            (&self.postings_written, counts.postings_written),
            (&self.deletes, counts.deletes),
            (&self.postings_deleted, counts.postings_deleted),
        ] {
            if events > 0 {
                counter.fetch_add(events, Ordering::Relaxed);
            }
        }
    }

    /// The sums.
    pub(crate) fn read(&self) -> IndexCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        IndexCounts {
            writes: read(&self.writes),
            postings_written: read(&self.postings_written),
            deletes: read(&self.deletes),
            postings_deleted: read(&self.postings_deleted),
        }
    }
}
