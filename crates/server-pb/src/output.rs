//! The output of a connection: many replies, one write.
//!
//! Small parts are copied into one buffer that is kept. A large value stays in the store's buffer,
//! and one system call writes output and values together.

use std::io::{self, IoSlice};

use bytes::{Buf, BufMut as _, Bytes};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

/// Values of at least this size, in bytes, are not copied. Copying smaller ones is cheaper than
/// another part of a vectored write.
const SHARED_VALUE_BYTES_MIN: usize = 16 * 1024;

/// A buffer that grew beyond this, in bytes, is freed after a write.
const KEPT_BYTES_MAX: usize = 256 * 1024;

/// Parts of one vectored write: a value has one in front and one behind.
const PARTS_MAX: usize = 9;

/// Replies that wait to be sent.
#[derive(Debug, Default)]
pub(crate) struct Output {
    /// Everything but the large values, in order.
    buffer: Vec<u8>,
    /// The large values, each with the length of the buffer in front of it.
    values: Vec<(usize, Bytes)>,
    values_bytes: usize,
}

impl Output {
    /// Bytes that wait.
    pub(crate) fn len(&self) -> usize {
        self.buffer.len() + self.values_bytes
    }

    /// The buffer to which replies are appended.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Appends a value, by handle if it is large.
    pub(crate) fn put_value(&mut self, value: &Bytes) {
        if value.len() < SHARED_VALUE_BYTES_MIN {
            self.buffer.put_slice(value);
        } else {
            self.values_bytes += value.len();
            self.values.push((self.buffer.len(), value.clone()));
        }
    }

    /// Sends everything.
    pub(crate) async fn send(&mut self, stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        if self.len() == 0 {
            return Ok(());
        }
        if self.values.is_empty() {
            stream.write_all(&self.buffer).await?;
        } else {
            self.send_parts(stream).await?;
            self.values.clear();
            self.values_bytes = 0;
        }
        self.buffer.clear();
        if self.buffer.capacity() > KEPT_BYTES_MAX {
            self.buffer = Vec::new();
        }
        stream.flush().await
    }

    async fn send_parts(&self, stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        let mut parts = Parts::of(self);
        while parts.has_remaining() {
            let mut slices = [IoSlice::new(&[]); PARTS_MAX];
            let filled = parts.chunks_vectored(&mut slices);
            match stream.write_vectored(&slices[..filled]).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => parts.advance(written),
            }
        }
        Ok(())
    }
}

/// The unsent rest of an output.
struct Parts<'a> {
    buffer: &'a [u8],
    /// Position of the next byte in `buffer`.
    at: usize,
    values: &'a [(usize, Bytes)],
    /// Bytes of the first of `values` that are sent.
    sent_of_value: usize,
    remaining: usize,
}

impl<'a> Parts<'a> {
    fn of(output: &'a Output) -> Self {
        Self {
            buffer: &output.buffer,
            at: 0,
            values: &output.values,
            sent_of_value: 0,
            remaining: output.len(),
        }
    }

    /// The parts that are left, one after the other; none is empty.
    fn parts(&self) -> impl Iterator<Item = &'a [u8]> {
        let (buffer, mut at, mut sent) = (self.buffer, self.at, self.sent_of_value);
        let up_to_value = self.values.iter().flat_map(move |(position, value)| {
            let before = &buffer[at..*position];
            let value = &value[sent..];
            (at, sent) = (*position, 0);
            [before, value]
        });
        let last = self
            .values
            .last()
            .map_or(self.at, |(position, _)| *position);
        up_to_value
            .chain([&buffer[last..]])
            .filter(|part| !part.is_empty())
    }
}

impl Buf for Parts<'_> {
    fn remaining(&self) -> usize {
        self.remaining
    }

    fn chunk(&self) -> &[u8] {
        self.parts().next().unwrap_or_default()
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let filled = slices.iter_mut().zip(self.parts());
        filled
            .map(|(slice, part)| *slice = IoSlice::new(part))
            .count()
    }

    fn advance(&mut self, mut count: usize) {
        self.remaining -= count;
        while let Some((position, value)) = self.values.first() {
            let before = count.min(position - self.at);
            self.at += before;
            count -= before;
            if count < value.len() - self.sent_of_value {
                self.sent_of_value += count;
                return;
            }
            count -= value.len() - self.sent_of_value;
            self.values = &self.values[1..];
            self.sent_of_value = 0;
        }
        self.at += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `s`, `e` and so on are small, capitals are large.
    fn output(parts: &str) -> (Output, Vec<u8>) {
        let (mut output, mut expected) = (Output::default(), Vec::new());
        for part in parts.bytes() {
            let is_large = part.is_ascii_uppercase();
            let len = if is_large { SHARED_VALUE_BYTES_MIN } else { 3 };
            let bytes = vec![part; len];
            expected.extend_from_slice(&bytes);
            output.put_value(&bytes.into());
        }
        (output, expected)
    }

    #[test]
    fn large_values_are_queued_by_handle_and_small_ones_are_copied() {
        let mut output = Output::default();
        let large = Bytes::from(vec![b'l'; SHARED_VALUE_BYTES_MIN]);
        output.buffer().put_slice(b"head");
        output.put_value(&Bytes::from_static(b"small"));
        output.put_value(&large);
        output.buffer().put_slice(b"end");
        let parts: Vec<&[u8]> = Parts::of(&output).parts().collect();
        assert_eq!(parts, [b"headsmall", &large[..], b"end"]);
        assert_eq!(parts[1].as_ptr(), large.as_ptr());
        assert_eq!(output.len(), 4 + 5 + SHARED_VALUE_BYTES_MIN + 3);
    }

    #[test]
    fn parts_are_consumed_in_any_portions() {
        for row in ["a", "A", "aB", "Ab", "AB", "aBCd", "aBcDe", "ABcdEF"] {
            let (output, expected) = output(row);
            for portion in [1000, SHARED_VALUE_BYTES_MIN, SHARED_VALUE_BYTES_MIN + 3] {
                let mut parts = Parts::of(&output);
                let mut got = Vec::new();
                while parts.has_remaining() {
                    assert_eq!(parts.remaining(), expected.len() - got.len());
                    let row: Vec<u8> = parts.parts().flatten().copied().collect();
                    let portion = portion.min(row.len());
                    assert!(!parts.chunk().is_empty());
                    got.extend_from_slice(&row[..portion]);
                    parts.advance(portion);
                }
                assert!(got == expected, "{row} by {portion}");
                assert!(parts.chunk().is_empty());
            }
        }
    }
}
