//! Frames: messages in a byte stream, read and written.
//!
//! Reading is incremental over a `BytesMut` that the connection fills; a payload is handed out as a
//! slice of that buffer. Such a slice keeps the whole buffer alive, so a value that is kept for longer
//! than a request has to be copied. Writing goes straight into the connection's output buffer: the
//! length is patched in afterwards, so no message is encoded twice or copied.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::encoding::{encode_varint, encoded_len_varint};

use crate::message_code::{CodedMessage, MessageCode};

/// Width of the length field, in bytes.
const LENGTH_BYTES: usize = 4;
/// Width of the message code, in bytes. The length field counts it.
const CODE_BYTES: usize = 1;
/// Bytes in front of a payload.
pub const HEADER_BYTES: usize = LENGTH_BYTES + CODE_BYTES;

/// Maximum of room reserved for a partly received frame, unless more than this has arrived.
const READ_AHEAD_BYTES: usize = 64 * 1024;

/// Longest error text that is sent, in bytes; longer ones are cut.
const ERROR_TEXT_BYTES_MAX: usize = 64 * 1024;

/// A buffer to which frames are appended. A `Vec` takes small pieces in fewer steps than a `BytesMut`,
/// which can hand out parts of itself.
pub trait FrameBuffer: BufMut + AsMut<[u8]> {
    /// Keeps the first `len` bytes.
    fn truncate(&mut self, len: usize);
}

impl FrameBuffer for BytesMut {
    fn truncate(&mut self, len: usize) {
        self.truncate(len);
    }
}

impl FrameBuffer for Vec<u8> {
    fn truncate(&mut self, len: usize) {
        self.truncate(len);
    }
}

/// An error of a frame.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The length field is zero, but it counts the code. The stream cannot be followed: close it.
    #[error("frame of length 0, which has no message code")]
    LengthZero,
    /// The peer announced more than the limit. The stream cannot be followed: close it.
    #[error("frame of {length} bytes, the limit is {frame_bytes_max}")]
    TooLong {
        /// The announced length, in bytes.
        length: u32,
        /// The limit in force, in bytes.
        frame_bytes_max: u32,
    },
    /// A message of our own does not fit the length field; nothing was written.
    #[error("{code} of {payload_bytes} bytes does not fit a frame")]
    Unsendable {
        /// The message.
        code: MessageCode,
        /// Its size, in bytes.
        payload_bytes: usize,
    },
    /// The payload is not the message that the code promises. The stream stays in step.
    #[error("payload of {code} cannot be decoded")]
    Payload {
        /// The code of the frame.
        code: MessageCode,
        /// The decoder's error.
        source: prost::DecodeError,
    },
}

/// One message as received: its code and its payload, not yet decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The code of the payload.
    pub code: MessageCode,
    /// The encoded message; empty for messages without fields.
    pub payload: Bytes,
}

impl Frame {
    /// Decodes the payload as `M`; its `bytes` fields share the frame's buffer.
    ///
    /// The code is not compared with `M`: some answers travel under the code of another message.
    ///
    /// # Errors
    /// [`FrameError::Payload`] if the bytes are not a message of that shape.
    pub fn decode<M: prost::Message + Default>(&self) -> Result<M, FrameError> {
        M::decode(self.payload.clone()).map_err(|source| FrameError::Payload {
            code: self.code,
            source,
        })
    }

    /// Appends the frame as it is, for tests and relays.
    ///
    /// # Errors
    /// [`FrameError::Unsendable`] beyond 4 GiB; `buffer` is then as before.
    pub fn encode(&self, buffer: &mut impl FrameBuffer) -> Result<(), FrameError> {
        encode_with(self.code, buffer, |buffer| {
            buffer.put_slice(&self.payload);
        })
    }
}

/// Cuts frames out of a receive buffer.
#[derive(Clone, Copy, Debug)]
pub struct FrameDecoder {
    frame_bytes_max: u32,
}

impl FrameDecoder {
    /// `frame_bytes_max` limits the length field: code and payload, in bytes.
    pub fn new(frame_bytes_max: u32) -> FrameDecoder {
        FrameDecoder { frame_bytes_max }
    }

    /// Takes the next whole frame off the front of `buffer`, or `None` if more bytes are needed.
    ///
    /// When a frame is incomplete, room for the next read is reserved: never more than the bytes that
    /// have already arrived or 64 KiB, whichever is larger, so that an announced length alone costs
    /// nothing.
    ///
    /// # Errors
    /// [`FrameError::LengthZero`] and [`FrameError::TooLong`], both before any payload is read;
    /// after either, the buffer is unchanged and the connection has to be closed.
    pub fn decode(&self, buffer: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
        let Some(length_field) = buffer.first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*length_field);
        if length == 0 {
            return Err(FrameError::LengthZero);
        }
        if length > self.frame_bytes_max {
            return Err(FrameError::TooLong {
                length,
                frame_bytes_max: self.frame_bytes_max,
            });
        }
        let frame_bytes = LENGTH_BYTES + length as usize;
        if buffer.len() < frame_bytes {
            let missing_bytes = frame_bytes - buffer.len();
            buffer.reserve(missing_bytes.min(buffer.len().max(READ_AHEAD_BYTES)));
            return Ok(None);
        }
        buffer.advance(LENGTH_BYTES);
        let code = MessageCode(buffer.get_u8());
        let payload_bytes = length as usize - CODE_BYTES;
        let payload = match payload_bytes {
            0 => Bytes::new(), // shares no buffer, and so keeps none alive
            _ => buffer.split_to(payload_bytes).freeze(),
        };
        Ok(Some(Frame { code, payload }))
    }
}

/// Length of the frame at the front of `buffer` by its length field, that field included, in bytes;
/// `None` until the field has arrived. Not checked against any limit.
pub fn announced_bytes(buffer: &[u8]) -> Option<usize> {
    let length = u32::from_be_bytes(*buffer.first_chunk::<LENGTH_BYTES>()?);
    Some((length as usize).saturating_add(LENGTH_BYTES))
}

/// Appends `message` as a frame under its own code.
///
/// # Errors
/// [`FrameError::Unsendable`] beyond 4 GiB; `buffer` is then as before.
pub fn encode<M: CodedMessage>(
    message: &M,
    buffer: &mut impl FrameBuffer,
) -> Result<(), FrameError> {
    encode_as(M::CODE, message, buffer)
}

/// Appends `message` as a frame under a given code.
///
/// # Errors
/// [`FrameError::Unsendable`] beyond 4 GiB; `buffer` is then as before.
pub fn encode_as<M: prost::Message>(
    code: MessageCode,
    message: &M,
    buffer: &mut impl FrameBuffer,
) -> Result<(), FrameError> {
    encode_with(code, buffer, |buffer| {
        // The buffer grows as needed, so that the only error, lack of room, cannot occur; the
        // length check of `encode_with` would see the difference.
        let _ = message.encode(buffer);
    })
}

/// Appends a message without fields.
pub fn encode_empty(code: MessageCode, buffer: &mut impl BufMut) {
    buffer.put_slice(&[0, 0, 0, 1, code.0]);
}

/// Appends an `RpbErrorResp` with `text`; `errcode` is always 0. Text beyond 64 KiB is cut.
pub fn encode_error(text: &[u8], buffer: &mut impl BufMut) {
    const ERRMSG_TAG: u8 = 0x0a; // field 1, length-delimited
    const ERRCODE: [u8; 2] = [0x10, 0x00]; // field 2, varint 0
    let text = text.get(..ERROR_TEXT_BYTES_MAX).unwrap_or(text);
    let text_bytes = text.len() as u64;
    let payload_bytes = 1 + encoded_len_varint(text_bytes) + text.len() + ERRCODE.len();
    // Below 2^17, see ERROR_TEXT_BYTES_MAX: the conversion never saturates.
    buffer.put_u32(u32::try_from(CODE_BYTES + payload_bytes).unwrap_or(u32::MAX));
    buffer.put_u8(MessageCode::RPB_ERROR_RESP.0);
    buffer.put_u8(ERRMSG_TAG);
    encode_varint(text_bytes, buffer);
    buffer.put_slice(text);
    buffer.put_slice(&ERRCODE);
}

/// Appends a frame whose payload `write_payload` appends.
///
/// ```text
/// offset  width     field
/// 0       4         length, big-endian: 1 + payload width
/// 4       1         message code
/// 5       length-1  payload: one protocol-buffer (proto2) message
/// ```
///
/// # Errors
/// [`FrameError::Unsendable`] if the payload outgrows the length field; `buffer` is then as before.
pub(crate) fn encode_with<B: FrameBuffer>(
    code: MessageCode,
    buffer: &mut B,
    write_payload: impl FnOnce(&mut B),
) -> Result<(), FrameError> {
    let start = buffer.as_mut().len();
    buffer.put_u32(0);
    buffer.put_u8(code.0);
    write_payload(buffer);
    let payload_bytes = buffer.as_mut().len() - start - HEADER_BYTES;
    let Ok(length) = u32::try_from(CODE_BYTES + payload_bytes) else {
        buffer.truncate(start);
        return Err(FrameError::Unsendable {
            code,
            payload_bytes,
        });
    };
    buffer.as_mut()[start..start + LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
    Ok(())
}
