//! Frames: the pieces that a connection carries. A pure codec.
//!
//! ```text
//! size  field
//! 4     length of what follows the checksum, at most FRAME_BYTES_MAX
//! 4     CRC-32C of what follows
//! 1     kind
//! 8     stream: the number of the request, chosen by its sender
//!       kind 0, request begins:
//! 4       milliseconds that its sender will wait
//! 4       length of its head
//! 8       length of its head and body
//! ...     the first bytes of head and body
//!       kind 1, answer begins:
//! 4       length of its head
//! 8       length of its head and body
//! ...     the first bytes of head and body
//!       kind 2, a message goes on:
//! ...     the next bytes
//!       kind 3, cancelled: the answer is not needed any more
//!       kind 4, overload: the request was not carried out
//!       kind 5, ping; kind 6, pong: stream is 0
//!       kind 7, farewell: requests without an answer were not and will not be executed; stream is 0
//! ```
//!
//! A version without the farewell counts it as damage and ends the connection, which ends in any
//! case.
//!
//! Numbers are little-endian. A message's fragments arrive in order; fragments of several messages
//! alternate.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

use crate::error::ProtocolError;

/// The most bytes of a fragment: a small message waits for that many while a large one is under
/// way.
pub(crate) const FRAGMENT_BYTES_MAX: usize = 64 * 1024;
/// Room for the fields before a fragment.
const FIELDS_BYTES_MAX: usize = 1 + 8 + 4 + 4 + 8;
/// The longest content of a frame after its checksum.
pub(crate) const FRAME_BYTES_MAX: usize = FRAGMENT_BYTES_MAX + FIELDS_BYTES_MAX;
/// Length and checksum.
pub(crate) const PREFIX_BYTES: usize = 8;

/// A frame without its fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameHead {
    Request {
        stream: u64,
        wait_ms: u32,
        head_len: u32,
        len: u64,
    },
    Answer {
        stream: u64,
        head_len: u32,
        len: u64,
    },
    More {
        stream: u64,
    },
    Cancelled {
        stream: u64,
    },
    Overload {
        stream: u64,
    },
    Ping,
    Pong,
    Farewell,
}

/// A frame with its fragment, which is a slice of the bytes read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) head: FrameHead,
    pub(crate) fragment: Bytes,
}

/// Appends a frame's prefix and fields; the caller appends the parts of the fragment.
pub(crate) fn put_frame(out: &mut BytesMut, head: FrameHead, fragment: &[&[u8]]) {
    let start = out.len();
    out.put_bytes(0, PREFIX_BYTES);
    put_fields(out, head);
    let fields = out.len() - start - PREFIX_BYTES;
    let length = fields + fragment.iter().map(|part| part.len()).sum::<usize>();
    let own = crc32c::crc32c(&out[start + PREFIX_BYTES..]);
    let checksum = fragment
        .iter()
        .fold(own, |checksum, part| crc32c::crc32c_append(checksum, part));
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    out[start + 4..start + PREFIX_BYTES].copy_from_slice(&checksum.to_le_bytes());
}

fn put_fields(out: &mut BytesMut, head: FrameHead) {
    match head {
        FrameHead::Request {
            stream,
            wait_ms,
            head_len,
            len,
        } => {
            put_kind(out, 0, stream);
            out.put_u32_le(wait_ms);
            out.put_u32_le(head_len);
            out.put_u64_le(len);
        }
        FrameHead::Answer {
            stream,
            head_len,
            len,
        } => {
            put_kind(out, 1, stream);
            out.put_u32_le(head_len);
            out.put_u64_le(len);
        }
        FrameHead::More { stream } => put_kind(out, 2, stream),
        FrameHead::Cancelled { stream } => put_kind(out, 3, stream),
        FrameHead::Overload { stream } => put_kind(out, 4, stream),
        FrameHead::Ping => put_kind(out, 5, 0),
        FrameHead::Pong => put_kind(out, 6, 0),
        FrameHead::Farewell => put_kind(out, 7, 0),
    }
}

fn put_kind(out: &mut BytesMut, kind: u8, stream: u64) {
    out.put_u8(kind);
    out.put_u64_le(stream);
}

/// Takes the next whole frame from the front of `input`; `None` when more bytes are needed.
pub(crate) fn take_frame(input: &mut BytesMut) -> Result<Option<Frame>, ProtocolError> {
    let Some(prefix) = input.first_chunk::<PREFIX_BYTES>() else {
        return Ok(None);
    };
    let [a, b, c, d, e, f, g, h] = *prefix;
    let length = usize::try_from(u32::from_le_bytes([a, b, c, d])).unwrap_or(usize::MAX);
    if length > FRAME_BYTES_MAX {
        let max = FRAME_BYTES_MAX;
        return Err(ProtocolError::FrameLength { got: length, max });
    }
    if input.len() < PREFIX_BYTES + length {
        return Ok(None);
    }
    let expected = u32::from_le_bytes([e, f, g, h]);
    input.advance(PREFIX_BYTES);
    let frame = input.split_to(length).freeze();
    let got = crc32c::crc32c(&frame);
    if got != expected {
        return Err(ProtocolError::Checksum { got, expected });
    }
    decode(frame).map(Some)
}

fn decode(mut frame: Bytes) -> Result<Frame, ProtocolError> {
    let got = frame.len();
    let kind = frame.first().copied().unwrap_or(u8::MAX);
    let fields = match kind {
        0 => FIELDS_BYTES_MAX,
        1 => FIELDS_BYTES_MAX - 4,
        2..=7 => 1 + 8,
        kind => return Err(ProtocolError::UnknownKind { kind }),
    };
    if got < fields {
        return Err(ProtocolError::Truncated { kind, got });
    }
    frame.advance(1);
    let stream = frame.get_u64_le();
    let head = match kind {
        0 => FrameHead::Request {
            stream,
            wait_ms: frame.get_u32_le(),
            head_len: frame.get_u32_le(),
            len: frame.get_u64_le(),
        },
        1 => FrameHead::Answer {
            stream,
            head_len: frame.get_u32_le(),
            len: frame.get_u64_le(),
        },
        2 => FrameHead::More { stream },
        3 => FrameHead::Cancelled { stream },
        4 => FrameHead::Overload { stream },
        5 => FrameHead::Ping,
        6 => FrameHead::Pong,
        _ => FrameHead::Farewell,
    };
    Ok(Frame {
        head,
        fragment: frame,
    })
}

#[cfg(test)]
mod tests {
    use kvorum_golden::assert_bytes;
    use proptest::prelude::*;

    use super::*;

    fn encoded(head: FrameHead, fragment: &[u8]) -> BytesMut {
        let mut out = BytesMut::new();
        put_frame(&mut out, head, &[fragment]);
        out.extend_from_slice(fragment);
        out
    }

    #[test]
    fn the_bytes_are_as_drawn() {
        let request = FrameHead::Request {
            stream: 7,
            wait_ms: 1_500,
            head_len: 4,
            len: 300,
        };
        let answer = FrameHead::Answer {
            stream: 7,
            head_len: 4,
            len: 300,
        };
        let prefix = [
            ("length of what follows the checksum", 4),
            ("CRC-32C of what follows", 4),
            ("kind", 1),
            ("stream", 8),
        ];
        let wait = [("milliseconds that its sender will wait", 4)];
        let lens = [
            ("length of its head", 4),
            ("length of its head and body", 8),
            ("the first bytes of head and body", 5),
        ];
        let next = [("the next bytes", 5)];
        let drawing = [
            &prefix[..],
            &wait,
            &lens, // 0: a request begins
            &prefix,
            &lens, // 1: an answer begins
            &prefix,
            &next,   // 2: a message goes on
            &prefix, // 3: cancelled
            &prefix, // 7: farewell
        ]
        .concat();
        let more = FrameHead::More { stream: 7 };
        let frames = [
            encoded(request, b"first"),
            encoded(answer, b"first"),
            encoded(more, b"later"),
            encoded(FrameHead::Cancelled { stream: 7 }, b""),
            encoded(FrameHead::Farewell, b""),
        ];
        assert_bytes("frame.hex", &drawing, &frames.concat());
    }

    fn any_head() -> impl Strategy<Value = FrameHead> {
        prop_oneof![
            any::<(u64, u32, u32, u64)>().prop_map(|(stream, wait_ms, head_len, len)| {
                FrameHead::Request {
                    stream,
                    wait_ms,
                    head_len,
                    len,
                }
            }),
            any::<(u64, u32, u64)>().prop_map(|(stream, head_len, len)| FrameHead::Answer {
                stream,
                head_len,
                len,
            }),
            any::<u64>().prop_map(|stream| FrameHead::More { stream }),
            any::<u64>().prop_map(|stream| FrameHead::Cancelled { stream }),
            any::<u64>().prop_map(|stream| FrameHead::Overload { stream }),
            Just(FrameHead::Ping),
            Just(FrameHead::Pong),
            Just(FrameHead::Farewell),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_frame_survives_its_way(head in any_head(), fragment in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut input = encoded(head, &fragment);
            let whole = input.clone();
            for cut in 0..whole.len() {
                prop_assert_eq!(take_frame(&mut BytesMut::from(&whole[..cut])), Ok(None));
            }
            let frame = take_frame(&mut input).unwrap().unwrap();
            prop_assert_eq!(frame.head, head);
            prop_assert_eq!(&frame.fragment[..], &fragment[..]);
            prop_assert!(input.is_empty());
        }

        #[test]
        fn a_flipped_bit_is_never_another_frame(head in any_head(), at in any::<prop::sample::Index>(), bit in 0..8u8) {
            let mut input = encoded(head, b"fragment");
            let at = at.index(input.len());
            input[at] ^= 1 << bit;
            if let Ok(Some(frame)) = take_frame(&mut input) {
                prop_assert!(false, "taken for {frame:?}");
            }
        }

        #[test]
        fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut input = BytesMut::from(&bytes[..]);
            while let Ok(Some(_)) = take_frame(&mut input) {}
        }
    }

    #[test]
    fn a_length_beyond_the_limit_is_refused_before_it_is_read() {
        let mut input = BytesMut::from(&[0xff; PREFIX_BYTES][..]);
        let refused = take_frame(&mut input);
        assert!(matches!(refused, Err(ProtocolError::FrameLength { .. })));
    }
}
