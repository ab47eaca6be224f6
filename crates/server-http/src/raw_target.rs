//! Request targets with raw bytes, percent-encoded before the HTTP library sees them.
//!
//! Riak's HTTP parser took nearly any byte in a path, and some clients send keys unencoded: `a<b`,
//! or Latin-1 letters. The library that reads requests here refuses these, with an empty answer.
//! Such bytes of a request line are therefore percent-encoded on their way in, as a client should
//! have sent them; the route decodes them again.
//!
//! Finding the request lines requires following the messages: heads, bodies by their length,
//! chunks. This is done here for plain messages. After anything else (two lengths, a folded header,
//! `CONNECT`, ...) the connection is passed on unchanged, so that a body is never mistaken for a
//! request line.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection whose request targets are percent-encoded as they are read.
pub(crate) struct RawTargets<S> {
    stream: S,
    escaper: Escaper,
    /// Bytes that were read and had to be changed.
    pending: Bytes,
}

impl<S> RawTargets<S> {
    /// `decoding` is true if the routes decode percent-encoding. Otherwise nothing is encoded.
    pub(crate) fn new(stream: S, decoding: bool) -> Self {
        let state = if decoding {
            State::Start
        } else {
            State::Opaque
        };
        Self {
            stream,
            escaper: Escaper::at(state),
            pending: Bytes::new(),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for RawTargets<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.pending.is_empty() {
            let start = buffer.filled().len();
            ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
            let mut escaped = Vec::new();
            let kept = this.escaper.follow(&buffer.filled()[start..], &mut escaped);
            if escaped.is_empty() {
                return Poll::Ready(Ok(()));
            }
            buffer.set_filled(start + kept);
            this.pending = escaped.into();
        }
        let length = this.pending.len().min(buffer.remaining());
        buffer.put_slice(&this.pending[..length]);
        this.pending.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for RawTargets<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

/// Bytes of a header's line that are kept; the headers that matter are shorter.
const LINE_MAX: usize = 128;

/// The place of the next byte in the messages of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The space before a request line, which may have empty lines.
    Start,
    Method,
    Target,
    /// The rest of the request line.
    Version,
    Headers,
    /// A body, or the data of a chunk, with this many bytes missing.
    Body {
        rest: u64,
        is_chunk: bool,
    },
    /// The end of the line behind a chunk's data.
    ChunkEnd,
    ChunkSize,
    Trailers,
    /// The rest is not parsed.
    Opaque,
}

/// The length of the body behind the head that is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    None,
    Length(u64),
    Chunked,
}

struct Escaper {
    state: State,
    framing: Framing,
    /// The beginning of a line that has not ended, or of the method.
    line: Vec<u8>,
}

impl Escaper {
    fn at(state: State) -> Self {
        Self {
            state,
            framing: Framing::None,
            line: Vec::new(),
        }
    }

    /// Follows the bytes that were read. Returns the number of unchanged bytes, and appends the
    /// replacement of the rest to `escaped`.
    fn follow(&mut self, read: &[u8], escaped: &mut Vec<u8>) -> usize {
        let mut kept = None;
        let mut at = 0;
        while at < read.len() {
            if self.state == State::Target && is_raw(read[at]) {
                if kept.is_none() {
                    kept = Some(at);
                }
                escaped.extend(format!("%{:02X}", read[at]).bytes());
                at += 1;
                continue;
            }
            let taken = self.take(&read[at..]);
            if kept.is_some() {
                escaped.extend_from_slice(&read[at..at + taken]);
            }
            at += taken;
        }
        kept.unwrap_or(read.len())
    }

    /// Takes bytes that stay unchanged, at least one.
    fn take(&mut self, read: &[u8]) -> usize {
        match self.state {
            State::Start => self.start(read[0]),
            State::Method => self.method(read[0]),
            State::Target => self.target(read),
            State::Version | State::Headers | State::ChunkSize | State::Trailers => self.line(read),
            State::Body { rest, is_chunk } => self.body(read, rest, is_chunk),
            State::ChunkEnd => self.chunk_end(read[0]),
            State::Opaque => read.len(),
        }
    }

    fn start(&mut self, byte: u8) -> usize {
        if !matches!(byte, b'\r' | b'\n') {
            self.framing = Framing::None;
            self.line.clear();
            self.line.push(byte);
            self.state = State::Method;
        }
        1
    }

    fn method(&mut self, byte: u8) -> usize {
        match byte {
            // Its target is not a path, and another protocol may follow.
            b' ' if self.line == b"CONNECT" => self.state = State::Opaque,
            b' ' => self.state = State::Target,
            b'A'..=b'Z' if self.line.len() < LINE_MAX => self.line.push(byte),
            _ => self.state = State::Opaque,
        }
        1
    }

    fn target(&mut self, read: &[u8]) -> usize {
        let length = read.iter().position(|&byte| byte <= b' ' || is_raw(byte));
        match length {
            None => read.len(),
            Some(0) => {
                self.line.clear();
                self.state = match read[0] {
                    b' ' => State::Version,
                    _ => State::Opaque, // a line break: no version follows
                };
                1
            }
            Some(length) => length,
        }
    }

    fn line(&mut self, read: &[u8]) -> usize {
        let end = read.iter().position(|&byte| byte == b'\n');
        let part = &read[..end.unwrap_or(read.len())];
        let Some(end) = end else {
            self.keep(part);
            return read.len();
        };
        if self.line.is_empty() {
            self.state = self.after(part);
        } else {
            self.keep(part);
            let line = std::mem::take(&mut self.line);
            self.state = self.after(&line);
        }
        end + 1
    }

    fn keep(&mut self, part: &[u8]) {
        let room = LINE_MAX.saturating_sub(self.line.len());
        self.line.extend_from_slice(&part[..part.len().min(room)]);
    }

    /// The state behind a whole line.
    fn after(&mut self, line: &[u8]) -> State {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match self.state {
            State::Version => State::Headers,
            State::Headers if line.is_empty() => match self.framing {
                Framing::None | Framing::Length(0) => State::Start,
                Framing::Length(rest) => State::Body {
                    rest,
                    is_chunk: false,
                },
                Framing::Chunked => State::ChunkSize,
            },
            State::Headers => self.header(line),
            State::ChunkSize => chunk_size(line),
            State::Trailers if line.is_empty() => State::Start,
            State::Trailers => State::Trailers,
            _ => State::Opaque,
        }
    }

    /// The state behind a header. Headers with the body's length are noted.
    fn header(&mut self, line: &[u8]) -> State {
        let colon = line.iter().position(|&byte| byte == b':');
        let (name, value) = match colon {
            Some(colon) if !matches!(line[0], b' ' | b'\t') => (&line[..colon], &line[colon + 1..]),
            // A folded line, or no header.
            _ => return State::Opaque,
        };
        let framing = if name.eq_ignore_ascii_case(b"content-length") {
            length(value).map(Framing::Length)
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            let is_plain = value.trim_ascii().eq_ignore_ascii_case(b"chunked");
            is_plain.then_some(Framing::Chunked)
        } else {
            return State::Headers;
        };
        match (framing, self.framing) {
            (Some(framing), Framing::None) if line.len() < LINE_MAX => {
                self.framing = framing;
                State::Headers
            }
            _ => State::Opaque,
        }
    }

    fn body(&mut self, read: &[u8], rest: u64, is_chunk: bool) -> usize {
        let taken = usize::try_from(rest).map_or(read.len(), |rest| rest.min(read.len()));
        let rest = rest - taken as u64;
        self.state = match (rest, is_chunk) {
            (0, false) => State::Start,
            (0, true) => State::ChunkEnd,
            _ => State::Body { rest, is_chunk },
        };
        taken
    }

    fn chunk_end(&mut self, byte: u8) -> usize {
        self.state = match byte {
            b'\r' => State::ChunkEnd,
            b'\n' => State::ChunkSize,
            _ => State::Opaque,
        };
        1
    }
}

/// Bytes of a target that the HTTP library refuses, or takes only as part of UTF-8. A space and a line
/// break end the target.
fn is_raw(byte: u8) -> bool {
    match byte {
        b' ' | b'\r' | b'\n' => false,
        b'"' | b'<' | b'>' | b'`' | 0x7f.. => true,
        control => control < b' ',
    }
}

fn length(value: &[u8]) -> Option<u64> {
    let digits = value.trim_ascii();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The state behind the line in front of a chunk.
fn chunk_size(line: &[u8]) -> State {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit());
    let digits = &line[..digits.count()];
    let text = std::str::from_utf8(digits).unwrap_or_default();
    match u64::from_str_radix(text, 16) {
        Ok(0) => State::Trailers,
        Ok(rest) => State::Body {
            rest,
            is_chunk: true,
        },
        Err(_) => State::Opaque,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The output for `sent` if it is read in pieces of these lengths.
    fn passed(sent: &[u8], mut pieces: impl Iterator<Item = usize>) -> Vec<u8> {
        let mut escaper = Escaper::at(State::Start);
        let (mut passed, mut rest) = (Vec::new(), sent);
        while !rest.is_empty() {
            let length = pieces.next().unwrap_or(rest.len()).clamp(1, rest.len());
            let (piece, after) = rest.split_at(length);
            let mut escaped = Vec::new();
            let kept = escaper.follow(piece, &mut escaped);
            passed.extend_from_slice(&piece[..kept]);
            passed.extend_from_slice(&escaped);
            rest = after;
        }
        passed
    }

    fn assert_passed(sent: &[u8], expected: &[u8]) {
        for length in [1, 2, 3, 7, sent.len()] {
            let got = passed(sent, std::iter::repeat(length));
            assert_eq!(
                got,
                expected,
                "in pieces of {length}: {}",
                got.escape_ascii()
            );
        }
    }

    #[test]
    fn raw_bytes_of_a_target_are_encoded() {
        assert_passed(
            b"PUT /b/a<b>`\x01\xe4?x=\xff HTTP/1.1\r\nA: <\xe4\r\nContent-Length: 3\r\n\r\na<b",
            b"PUT /b/a%3Cb%3E%60%01%E4?x=%FF HTTP/1.1\r\nA: <\xe4\r\nContent-Length: 3\r\n\r\na<b",
        );
        let plain = b"GET /[{|}]%20%zz HTTP/1.1\r\n\r\n";
        assert_passed(plain, plain);
        assert_passed(
            b"GET /\"?\" HTTP/1.1\r\n\r\n",
            b"GET /%22?%22 HTTP/1.1\r\n\r\n",
        );
    }

    #[test]
    fn requests_behind_bodies_are_found() {
        assert_passed(
            b"PUT /< HTTP/1.1\r\ncontent-LENGTH: 0020\r\nx:\r\n\r\nGET /< HTTP/1.1\r\n\r\n<\
              \r\n\r\nGET /< HTTP/1.1\nHost: x\n\n\
              PUT /< HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5;x=<\r\n<GET \r\n0a \r\n/< HTTP/1.\
              \r\n0\r\nT: <\r\n\r\nGET /< HTTP/1.1\r\n\r\n",
            b"PUT /%3C HTTP/1.1\r\ncontent-LENGTH: 0020\r\nx:\r\n\r\nGET /< HTTP/1.1\r\n\r\n<\
              \r\n\r\nGET /%3C HTTP/1.1\nHost: x\n\n\
              PUT /%3C HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5;x=<\r\n<GET \r\n0a \r\n/< HTTP/1.\
              \r\n0\r\nT: <\r\n\r\nGET /%3C HTTP/1.1\r\n\r\n",
        );
    }

    /// A body that was mistaken for the next request would be stored changed.
    #[test]
    fn nothing_is_changed_behind_what_is_not_plain() {
        let long = format!("Content-Length: {}1", " ".repeat(LINE_MAX));
        for header in [
            "Content-Length: 1\r\nContent-Length: 1",
            "Content-Length: 1\r\nTransfer-Encoding: chunked",
            "Content-Length: +1",
            "Content-Length: 99999999999999999999",
            "Transfer-Encoding: gzip, chunked",
            "X: y\r\n Content-Length: 1",
            "Content-Length",
            long.as_str(),
        ] {
            let next = "GET /< HTTP/1.1\r\n\r\n";
            let sent = format!("PUT /a HTTP/1.1\r\n{header}\r\n\r\n{next}");
            assert_passed(sent.as_bytes(), sent.as_bytes());
        }
        for sent in [
            &b"CONNECT < HTTP/1.1\r\n\r\nGET /< HTTP/1.1\r\n\r\n"[..],
            b"GET /a\r\nGET /< HTTP/1.1\r\n\r\n",
            b"get /< HTTP/1.1\r\n\r\n",
            b"\x16\x03\x01\x02<",
        ] {
            assert_passed(sent, sent);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn bodies_stay_as_they_are_however_they_are_read(
            bodies in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..60), any::<bool>()), 1..6),
            pieces in prop::collection::vec(1..40_usize, 0..60),
        ) {
            let (mut sent, mut expected) = (Vec::new(), Vec::new());
            for (body, is_chunked) in &bodies {
                let head = |target: &str, framing: &str| format!("PUT {target} HTTP/1.1\r\n{framing}\r\n\r\n");
                let (framing, body) = match is_chunked {
                    false => (format!("Content-Length: {}", body.len()), body.clone()),
                    true => {
                        let mut chunks = Vec::new();
                        for chunk in body.chunks(7) {
                            chunks.extend(format!("{:x}\r\n", chunk.len()).bytes());
                            chunks.extend_from_slice(chunk);
                            chunks.extend_from_slice(b"\r\n");
                        }
                        chunks.extend_from_slice(b"0\r\n\r\n");
                        ("Transfer-Encoding: chunked".to_owned(), chunks)
                    }
                };
                sent.extend_from_slice(&[head("/a<", &framing).as_bytes(), &body].concat());
                expected.extend_from_slice(&[head("/a%3C", &framing).as_bytes(), &body].concat());
            }
            prop_assert_eq!(passed(&sent, pieces.into_iter()), expected);
        }

        #[test]
        fn anything_at_all_is_passed_on(sent: Vec<u8>, pieces in prop::collection::vec(1..9_usize, 0..20)) {
            let got = passed(&sent, pieces.into_iter());
            prop_assert!(got.len() >= sent.len());
        }
    }
}
