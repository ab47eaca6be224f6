//! Reading ahead: one read of the file for many consecutive blocks.

use bytes::Bytes;
use kvorum_disk::Reading;

use crate::Result;
use crate::frame::FrameReader;

/// A piece of a file in memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Window {
    at: u64,
    bytes: Bytes,
}

impl Window {
    /// Returns `len` bytes from `offset`, or fewer at the end of the file. If the window lacks
    /// them, `read_bytes` are read.
    pub(crate) fn bytes(
        &mut self,
        reader: &FrameReader,
        offset: u64,
        len: usize,
        read_bytes: usize,
        reading: Reading,
    ) -> Result<&[u8]> {
        if self.held(offset, len).is_none() {
            self.fill(reader, offset, len.max(read_bytes), reading)?;
        }
        let start = usize::try_from(offset - self.at).unwrap_or(usize::MAX);
        let held = self.bytes.get(start..).unwrap_or_default();
        Ok(&held[..len.min(held.len())])
    }

    /// `len` bytes from `offset` as a shared slice, if the window has all of them.
    pub(crate) fn held(&self, offset: u64, len: usize) -> Option<Bytes> {
        let start = usize::try_from(offset.checked_sub(self.at)?).ok()?;
        let end = start.checked_add(len)?;
        (end <= self.bytes.len()).then(|| self.bytes.slice(start..end))
    }

    /// Reads a new piece.
    pub(crate) fn fill(
        &mut self,
        reader: &FrameReader,
        offset: u64,
        len: usize,
        reading: Reading,
    ) -> Result<()> {
        self.bytes = Bytes::new();
        self.bytes = reader.read_blocks(offset, len, reading)?.into();
        self.at = offset;
        Ok(())
    }
}
