//! A file read through a buffer that moves forward, so that memory does not depend on the length of
//! files or records.

use std::sync::Arc;

use kvorum_disk::{DiskError, DiskFile, Reading};

/// Bytes read at once; also the longest view.
pub const WINDOW_BYTES: usize = 1 << 20;

/// A moving view of a file.
pub struct FileWindow {
    file: Arc<dyn DiskFile>,
    len: u64,
    start: u64,
    buffer: Vec<u8>,
}

impl FileWindow {
    /// A view of the first `len` bytes.
    pub fn new(file: Arc<dyn DiskFile>, len: u64) -> Self {
        Self {
            file,
            len,
            start: 0,
            buffer: Vec::new(),
        }
    }

    /// Length of the file when the view was made, in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True for an empty file.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// `count` bytes from `offset`, at most [`WINDOW_BYTES`], or fewer at the end.
    ///
    /// # Errors
    /// If the device cannot read.
    pub fn look(&mut self, offset: u64, count: usize) -> Result<&[u8], DiskError> {
        let left = self.len.saturating_sub(offset);
        let count = count.min(usize::try_from(left).unwrap_or(usize::MAX));
        let end = offset + count as u64;
        let has_all = offset >= self.start && end <= self.start + self.buffer.len() as u64;
        if !has_all {
            self.fill(offset, left)?;
        }
        let from = usize::try_from(offset - self.start).unwrap_or(usize::MAX);
        let view = self.buffer.get(from..).unwrap_or_default();
        Ok(&view[..count.min(view.len())])
    }

    fn fill(&mut self, offset: u64, left: u64) -> Result<(), DiskError> {
        let wanted = WINDOW_BYTES.min(usize::try_from(left).unwrap_or(usize::MAX));
        self.buffer.resize(wanted, 0);
        self.start = offset;
        let read = self
            .file
            .read_at(&mut self.buffer, offset, Reading::MayBlock);
        self.buffer.truncate(*read.as_ref().unwrap_or(&0));
        read.map(drop)
    }
}
