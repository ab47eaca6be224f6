//! Reading consecutive blocks with few reads of the file.

use bytes::Bytes;
use kvorum_disk::Reading;

use crate::frame::{BlockHandle, FrameReader};
use crate::window::Window;
use crate::{Part, Result};

/// Bytes of the first read.
const FIRST_READ_BYTES: usize = 16 << 10;

/// Reads consecutive blocks of one table, and keeps the bytes that were read beyond the last block.
#[derive(Debug)]
pub struct ReadAhead {
    window: Window,
    /// Bytes of the next read.
    ahead_bytes: usize,
    bytes_max: usize,
    /// The first byte behind the block of the last call of `goes_on`.
    behind: Option<u64>,
}

impl ReadAhead {
    /// A reader of at most `bytes_max` bytes at once, unless a block is larger.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            window: Window::default(),
            ahead_bytes: FIRST_READ_BYTES.min(bytes_max),
            bytes_max,
            behind: None,
        }
    }

    /// A data block's payload. No byte behind `end` is read.
    pub(crate) fn payload(
        &mut self,
        reader: &FrameReader,
        handle: BlockHandle,
        end: u64,
        reading: Reading,
    ) -> Result<Bytes> {
        let len = usize::try_from(handle.len).unwrap_or(usize::MAX);
        if self.window.held(handle.offset, len).is_none() {
            let rest = usize::try_from(end.saturating_sub(handle.offset)).unwrap_or(usize::MAX);
            // Each read is twice as long as the one before it, so that a short walk reads little in
            // vain.
            let ahead = self.ahead_bytes.min(rest).max(len);
            self.ahead_bytes = (2 * self.ahead_bytes).min(self.bytes_max);
            match self.window.fill(reader, handle.offset, ahead, reading) {
                // All unreadable bytes may lie behind this block.
                Err(error) if error.is_of_device() => {}
                filled => filled?,
            }
        }
        let opened = self
            .window
            .held(handle.offset, len)
            .and_then(|bytes| reader.open_frame(&bytes, handle, Part::Data).ok());
        match opened {
            Some(payload) => Ok(payload),
            // A device may return wrong data once: a damaged block is read again before it is
            // reported.
            None => reader.read_block(handle, Part::Data, reading),
        }
    }

    /// True if a block is small and close behind the previous one, so that the following blocks are
    /// likely needed too. Calls must be in the order of the blocks.
    pub(crate) fn goes_on(&mut self, handle: BlockHandle) -> bool {
        let reach = self.ahead_bytes as u64;
        let is_next = |behind| (behind..behind + reach).contains(&handle.offset);
        let goes_on = self.behind.is_some_and(is_next);
        // A large block would fill the window alone, or be cut at its end and read twice.
        let is_small = usize::try_from(handle.len).is_ok_and(|len| len <= self.bytes_max / 4);
        self.behind = Some(handle.end());
        goes_on && is_small
    }
}
