//! What a connection is about to send: many replies, one write.
//!
//! Small parts are copied into one buffer that is kept. A large value is not: it is queued as the
//! handle that it came as, and the write gathers buffer and values in one system call.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use bytes::{Buf, BufMut as _, Bytes, BytesMut};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

/// Values from this size on are sent from where they are, in bytes: copying less is cheaper than
/// another part of a vectored write.
const SHARED_VALUE_BYTES_MIN: usize = 16 * 1024;

/// A buffer that grew beyond this is given back after a write, in bytes.
const KEPT_BYTES_MAX: usize = 256 * 1024;

/// Replies that wait to be sent.
#[derive(Debug, Default)]
pub(crate) struct Output {
    /// What comes before `tail`, in order.
    parts: Parts,
    tail: BytesMut,
}

#[derive(Debug, Default)]
struct Parts {
    parts: VecDeque<Bytes>,
    bytes: usize,
}

impl Output {
    /// Bytes that wait.
    pub(crate) fn len(&self) -> usize {
        self.parts.bytes + self.tail.len()
    }

    /// Where replies are appended.
    pub(crate) fn buffer(&mut self) -> &mut BytesMut {
        &mut self.tail
    }

    /// Appends a value, by handle if it is large.
    pub(crate) fn put_value(&mut self, value: &Bytes) {
        if value.len() < SHARED_VALUE_BYTES_MIN {
            self.tail.put_slice(value);
        } else {
            self.end_tail();
            self.parts.push(value.clone());
        }
    }

    /// Sends everything.
    pub(crate) async fn send(&mut self, stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        if self.len() == 0 {
            return Ok(());
        }
        if self.parts.bytes == 0 {
            stream.write_all(&self.tail).await?;
            self.tail.clear();
        } else {
            self.end_tail();
            stream.write_all_buf(&mut self.parts).await?;
        }
        if self.tail.capacity() > KEPT_BYTES_MAX {
            self.tail = BytesMut::new();
        }
        stream.flush().await
    }

    fn end_tail(&mut self) {
        if !self.tail.is_empty() {
            self.parts.push(self.tail.split().freeze());
        }
    }
}

impl Parts {
    fn push(&mut self, part: Bytes) {
        self.bytes += part.len();
        self.parts.push_back(part);
    }
}

impl Buf for Parts {
    fn remaining(&self) -> usize {
        self.bytes
    }

    fn chunk(&self) -> &[u8] {
        self.parts.front().map_or(&[], |part| part)
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let filled = slices.iter_mut().zip(&self.parts);
        filled
            .map(|(slice, part)| *slice = IoSlice::new(part))
            .count()
    }

    fn advance(&mut self, mut count: usize) {
        self.bytes -= count;
        while let Some(part) = self.parts.front_mut() {
            if count < part.len() {
                part.advance(count);
                return;
            }
            count -= part.len();
            self.parts.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_values_are_queued_by_handle_and_small_ones_are_copied() {
        let mut output = Output::default();
        let large = Bytes::from(vec![b'l'; SHARED_VALUE_BYTES_MIN]);
        output.buffer().put_slice(b"head");
        output.put_value(&Bytes::from_static(b"small"));
        output.put_value(&large);
        output.buffer().put_slice(b"end");
        assert_eq!(output.parts.parts.len(), 2);
        assert_eq!(output.parts.parts[1].as_ptr(), large.as_ptr());
        assert_eq!(output.len(), 4 + 5 + SHARED_VALUE_BYTES_MIN + 3);
    }

    #[test]
    fn parts_are_consumed_across_their_borders() {
        let mut parts = Parts::default();
        for part in [&b"abc"[..], b"de", b"f"] {
            parts.push(Bytes::copy_from_slice(part));
        }
        parts.advance(4);
        assert_eq!((parts.remaining(), parts.chunk()), (2, &b"e"[..]));
        let mut slices = [IoSlice::new(&[]); 4];
        assert_eq!(parts.chunks_vectored(&mut slices), 2);
        assert_eq!(&*slices[1], b"f");
        parts.advance(2);
        assert!(!parts.has_remaining() && parts.chunk().is_empty());
    }
}
