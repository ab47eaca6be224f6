//! Get, put and delete requests laid out from borrowed fields.
//!
//! The generated messages own their fields, so a client with a key in a slice would have to
//! allocate before encoding. The types here write the same bytes from references. An absent option
//! means the bucket's default.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::encoding::{self, WireType};

use crate::frame::{FrameError, encode_with};
use crate::message_code::MessageCode;
use crate::pb;

/// Options of a get beyond bucket and key; every absent field means the default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GetOptions {
    /// Replicas that must answer, see [`crate::quorum`].
    pub r: Option<u32>,
    /// Primary replicas that must answer.
    pub pr: Option<u32>,
    /// Give up as soon as more than half of the replicas failed.
    pub basic_quorum: Option<bool>,
    /// Count a replica without the object as an answer.
    pub notfound_ok: Option<bool>,
    /// Answer "unchanged" if the object still has this vclock.
    pub if_modified: Option<Bytes>,
    /// Leave the values out.
    pub head: Option<bool>,
    /// Return the vclock of a tombstone.
    pub deletedvclock: Option<bool>,
    /// The server's time limit, in milliseconds.
    pub timeout_ms: Option<u32>,
    /// True if fallback replicas may answer.
    pub sloppy_quorum: Option<bool>,
    /// Number of replicas to consider, at most the bucket's.
    pub n_val: Option<u32>,
    /// Distinct nodes that must answer.
    pub node_confirms: Option<u32>,
}

/// A get: address and options.
#[derive(Clone, Copy, Debug)]
pub struct Get<'a> {
    /// Bucket type; `None` is the default type.
    pub bucket_type: Option<&'a [u8]>,
    /// Bucket name.
    pub bucket: &'a [u8],
    /// Key.
    pub key: &'a [u8],
    /// Everything else.
    pub options: &'a GetOptions,
}

impl Get<'_> {
    /// Appends the request as a frame.
    ///
    /// # Errors
    /// [`FrameError::Unsendable`] beyond 4 GiB; `buffer` is then as before.
    pub fn encode(&self, buffer: &mut BytesMut) -> Result<(), FrameError> {
        encode_with(MessageCode::RPB_GET_REQ, buffer, |buffer| {
            self.write_payload(buffer);
        })
    }

    fn write_payload(&self, buffer: &mut BytesMut) {
        let options = self.options;
        put_bytes(1, self.bucket, buffer);
        put_bytes(2, self.key, buffer);
        put_u32(3, options.r, buffer);
        put_u32(4, options.pr, buffer);
        put_bool(5, options.basic_quorum, buffer);
        put_bool(6, options.notfound_ok, buffer);
        put_optional_bytes(7, options.if_modified.as_deref(), buffer);
        put_bool(8, options.head, buffer);
        put_bool(9, options.deletedvclock, buffer);
        put_u32(10, options.timeout_ms, buffer);
        put_bool(11, options.sloppy_quorum, buffer);
        put_u32(12, options.n_val, buffer);
        put_optional_bytes(13, self.bucket_type, buffer);
        put_u32(14, options.node_confirms, buffer);
    }
}

/// Options of a put beyond address, vclock and content; absent fields mean the default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PutOptions {
    /// Replicas that must accept the write, see [`crate::quorum`].
    pub w: Option<u32>,
    /// Replicas that must have it on disk.
    pub dw: Option<u32>,
    /// Primary replicas that must accept it.
    pub pw: Option<u32>,
    /// Distinct nodes that must accept it.
    pub node_confirms: Option<u32>,
    /// Return the object as stored.
    pub return_body: Option<bool>,
    /// Return the object as stored, without values.
    pub return_head: Option<bool>,
    /// Fail unless the stored object has the given vclock.
    pub if_not_modified: Option<bool>,
    /// Fail if there is an object.
    pub if_none_match: Option<bool>,
    /// The server's time limit, in milliseconds.
    pub timeout_ms: Option<u32>,
    /// Store the vclock as given.
    pub asis: Option<bool>,
    /// True if fallback replicas may accept it.
    pub sloppy_quorum: Option<bool>,
    /// Number of replicas to consider, at most the bucket's.
    pub n_val: Option<u32>,
    /// `backend`, `one` or `all`.
    pub sync_on_write: Option<Bytes>,
}

/// A put: address, causality, content and options.
#[derive(Clone, Copy, Debug)]
pub struct Put<'a> {
    /// Bucket type; `None` is the default type.
    pub bucket_type: Option<&'a [u8]>,
    /// Bucket name.
    pub bucket: &'a [u8],
    /// Key; `None` asks the server for one.
    pub key: Option<&'a [u8]>,
    /// The vclock of the get that this write builds on.
    pub vclock: Option<&'a [u8]>,
    /// Value and metadata.
    pub content: &'a pb::RpbContent,
    /// Everything else.
    pub options: &'a PutOptions,
}

impl Put<'_> {
    /// Appends the request as a frame.
    ///
    /// # Errors
    /// [`FrameError::Unsendable`] beyond 4 GiB; `buffer` is then as before.
    pub fn encode(&self, buffer: &mut BytesMut) -> Result<(), FrameError> {
        encode_with(MessageCode::RPB_PUT_REQ, buffer, |buffer| {
            self.write_payload(buffer);
        })
    }

    fn write_payload(&self, buffer: &mut BytesMut) {
        let options = self.options;
        buffer.reserve(self.content.value.remaining() + self.bucket.len() + 64);
        put_bytes(1, self.bucket, buffer);
        put_optional_bytes(2, self.key, buffer);
        put_optional_bytes(3, self.vclock, buffer);
        encoding::message::encode(4, self.content, buffer);
        put_u32(5, options.w, buffer);
        put_u32(6, options.dw, buffer);
        put_bool(7, options.return_body, buffer);
        put_u32(8, options.pw, buffer);
        put_bool(9, options.if_not_modified, buffer);
        put_bool(10, options.if_none_match, buffer);
        put_bool(11, options.return_head, buffer);
        put_u32(12, options.timeout_ms, buffer);
        put_bool(13, options.asis, buffer);
        put_bool(14, options.sloppy_quorum, buffer);
        put_u32(15, options.n_val, buffer);
        put_optional_bytes(16, self.bucket_type, buffer);
        put_u32(17, options.node_confirms, buffer);
        put_optional_bytes(18, options.sync_on_write.as_deref(), buffer);
    }
}

/// Options of a delete beyond address and vclock; absent fields mean the default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeleteOptions {
    /// Both `r` and `w`, see [`crate::quorum`].
    pub rw: Option<u32>,
    /// Replicas that must answer the read before the delete.
    pub r: Option<u32>,
    /// Replicas that must accept the tombstone.
    pub w: Option<u32>,
    /// Primary replicas that must answer the read.
    pub pr: Option<u32>,
    /// Primary replicas that must accept the tombstone.
    pub pw: Option<u32>,
    /// Replicas that must have the tombstone on disk.
    pub dw: Option<u32>,
    /// The server's time limit, in milliseconds.
    pub timeout_ms: Option<u32>,
    /// True if fallback replicas may take part.
    pub sloppy_quorum: Option<bool>,
    /// Number of replicas to consider, at most the bucket's.
    pub n_val: Option<u32>,
}

/// A delete: address, causality and options.
#[derive(Clone, Copy, Debug)]
pub struct Delete<'a> {
    /// Bucket type; `None` is the default type.
    pub bucket_type: Option<&'a [u8]>,
    /// Bucket name.
    pub bucket: &'a [u8],
    /// Key.
    pub key: &'a [u8],
    /// The vclock to delete; without it the server reads first.
    pub vclock: Option<&'a [u8]>,
    /// Everything else.
    pub options: &'a DeleteOptions,
}

impl Delete<'_> {
    /// Appends the request as a frame.
    ///
    /// # Errors
    /// [`FrameError::Unsendable`] beyond 4 GiB; `buffer` is then as before.
    pub fn encode(&self, buffer: &mut BytesMut) -> Result<(), FrameError> {
        encode_with(MessageCode::RPB_DEL_REQ, buffer, |buffer| {
            self.write_payload(buffer);
        })
    }

    fn write_payload(&self, buffer: &mut BytesMut) {
        let options = self.options;
        put_bytes(1, self.bucket, buffer);
        put_bytes(2, self.key, buffer);
        put_u32(3, options.rw, buffer);
        put_optional_bytes(4, self.vclock, buffer);
        put_u32(5, options.r, buffer);
        put_u32(6, options.w, buffer);
        put_u32(7, options.pr, buffer);
        put_u32(8, options.pw, buffer);
        put_u32(9, options.dw, buffer);
        put_u32(10, options.timeout_ms, buffer);
        put_bool(11, options.sloppy_quorum, buffer);
        put_u32(12, options.n_val, buffer);
        put_optional_bytes(13, self.bucket_type, buffer);
    }
}

fn put_bytes(field: u32, value: &[u8], buffer: &mut BytesMut) {
    encoding::encode_key(field, WireType::LengthDelimited, buffer);
    encoding::encode_varint(value.len() as u64, buffer);
    buffer.put_slice(value);
}

fn put_optional_bytes(field: u32, value: Option<&[u8]>, buffer: &mut BytesMut) {
    if let Some(value) = value {
        put_bytes(field, value, buffer);
    }
}

fn put_u32(field: u32, value: Option<u32>, buffer: &mut BytesMut) {
    if let Some(value) = value {
        encoding::encode_key(field, WireType::Varint, buffer);
        encoding::encode_varint(u64::from(value), buffer);
    }
}

fn put_bool(field: u32, value: Option<bool>, buffer: &mut BytesMut) {
    put_u32(field, value.map(u32::from), buffer);
}
