//! The space that the files of a disk in memory take, in whole blocks.
//!
//! A file takes space while it has a name or a handle, as on a real file system: a removed file
//! that is still open takes as much as before.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The space that the files of a disk take.
pub(super) struct Used {
    block_bytes: u64,
    bytes: AtomicU64,
}

impl Used {
    /// No space in use, on a disk with blocks of this size.
    pub(super) fn new(block_bytes: u64) -> Arc<Self> {
        assert!(block_bytes > 0, "a block has a size");
        Arc::new(Self {
            block_bytes,
            bytes: AtomicU64::new(0),
        })
    }

    /// No space in use, on a disk like this one.
    pub(super) fn nothing_like(&self) -> Arc<Self> {
        Self::new(self.block_bytes)
    }

    /// Space that a file of this length takes, in bytes.
    pub(super) fn of_file(&self, len: usize) -> u64 {
        let blocks = (len as u64).checked_next_multiple_of(self.block_bytes);
        blocks.unwrap_or(u64::MAX)
    }

    /// Space that all files take, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Notes a change of a file's length.
    pub(super) fn change(&self, before: usize, after: usize) {
        let (before, after) = (self.of_file(before), self.of_file(after));
        if after >= before {
            self.bytes.fetch_add(after - before, Ordering::Relaxed);
        } else {
            self.bytes.fetch_sub(before - after, Ordering::Relaxed);
        }
    }
}
