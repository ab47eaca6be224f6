//! Syncs of a segment without its writer, so that appends continue meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kvorum_disk::DiskFile;

use crate::{Result, SegmentError};

/// A handle that syncs a segment. It may outlive the segment's writer.
#[derive(Clone)]
pub struct SegmentSync {
    file: Arc<dyn DiskFile>,
    state: Arc<SyncState>,
}

/// The written and the durable length of a segment, in bytes.
struct SyncState {
    written_to: AtomicU64,
    synced_to: AtomicU64,
    is_suspect: AtomicBool,
}

impl SegmentSync {
    pub(crate) fn new(file: Arc<dyn DiskFile>, durable_to: u64) -> Self {
        let state = SyncState {
            written_to: AtomicU64::new(durable_to),
            synced_to: AtomicU64::new(durable_to),
            is_suspect: AtomicBool::new(false),
        };
        Self {
            file,
            state: Arc::new(state),
        }
    }

    /// Makes all appended records durable, and returns the durable length.
    ///
    /// # Errors
    /// A failure is final: the segment is suspect from then on, and every further call fails.
    pub fn sync(&self) -> Result<u64> {
        if self.is_suspect() {
            return Err(SegmentError::Suspect {
                path: self.file.path().to_owned(),
            });
        }
        let written_to = self.written_to();
        if self.synced_to() >= written_to {
            return Ok(written_to);
        }
        if let Err(error) = self.file.sync() {
            self.state.is_suspect.store(true, Ordering::Release);
            return Err(error.into());
        }
        self.state.synced_to.fetch_max(written_to, Ordering::AcqRel);
        Ok(written_to)
    }

    /// The end of the appended records, without a mark at the very end, which needs no sync of its
    /// own.
    pub fn written_to(&self) -> u64 {
        self.state.written_to.load(Ordering::Acquire)
    }

    /// The end of the bytes that are known to be durable.
    pub fn synced_to(&self) -> u64 {
        self.state.synced_to.load(Ordering::Acquire)
    }

    /// True after a failed sync.
    pub fn is_suspect(&self) -> bool {
        self.state.is_suspect.load(Ordering::Acquire)
    }

    pub(crate) fn set_written(&self, end: u64) {
        self.state.written_to.store(end, Ordering::Release);
    }
}
