//! `multipart/mixed`: the siblings of an object in one body.
//!
//! ```text
//! CRLF --BOUNDARY CRLF headers CRLF CRLF value      for each sibling
//! CRLF --BOUNDARY-- CRLF
//! ```
//!
//! The vclock stands in the main header only: it belongs to all siblings.

use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};

use super::date::format_http_date;
use super::user_metadata::{metadata_header_name, metadata_header_value};

/// The content type of values stored without one.
const DEFAULT_MEDIA_TYPE: &[u8] = b"application/octet-stream";

/// What stands above a sibling's value.
#[derive(Clone, Copy, Debug, Default)]
pub struct PartHead<'a> {
    /// Stored media type; absent is `application/octet-stream`.
    pub media_type: Option<&'a [u8]>,
    /// Stored charset.
    pub charset: Option<&'a [u8]>,
    /// Stored content encoding.
    pub content_encoding: Option<&'a [u8]>,
    /// The whole `Link` header, see [`super::format_links`]; left out if empty.
    pub link: &'a str,
    /// The sibling's vtag, which is written without quotes.
    pub vtag: &'a [u8],
    /// Last modified, in seconds since the epoch.
    pub last_modified_seconds: u64,
    /// Whether the sibling is a tombstone.
    pub is_deleted: bool,
    /// When the sibling ceases to exist, in seconds since the epoch.
    pub expires_at_seconds: Option<u64>,
    /// User metadata: stored key and value. Pairs that cannot stand in a header are left out.
    pub user_metadata: &'a [(Bytes, Bytes)],
    /// Index entries: field and value as text.
    pub indexes: &'a [(Bytes, Bytes)],
}

/// Writes a multipart body into one buffer.
#[derive(Debug)]
pub struct MultipartWriter {
    boundary: String,
    body: BytesMut,
}

impl MultipartWriter {
    /// `boundary` must not occur in any value: draw it at random. At most 70 letters and digits.
    pub fn new(boundary: String) -> MultipartWriter {
        MultipartWriter {
            boundary,
            body: BytesMut::new(),
        }
    }

    /// The `Content-Type` of the whole.
    pub fn content_type(&self) -> String {
        format!("multipart/mixed; boundary={}", self.boundary)
    }

    /// Appends a sibling.
    pub fn push(&mut self, head: &PartHead<'_>, value: &[u8]) {
        self.body.reserve(value.len() + 512);
        self.put_boundary(b"\r\n");
        self.put_head(head);
        self.body.put_slice(b"\r\n");
        self.body.put_slice(value);
    }

    /// Closes the body and returns it.
    pub fn finish(mut self) -> Bytes {
        self.put_boundary(b"--\r\n");
        self.body.freeze()
    }

    fn put_boundary(&mut self, end: &[u8]) {
        self.body.put_slice(b"\r\n--");
        self.body.put_slice(self.boundary.as_bytes());
        self.body.put_slice(end);
    }

    fn put_head(&mut self, head: &PartHead<'_>) {
        let start = self.body.len();
        self.put_header(
            "Content-Type",
            head.media_type.unwrap_or(DEFAULT_MEDIA_TYPE),
        );
        if let Some(charset) = head.charset.and_then(metadata_header_value) {
            self.extend_header(start..self.body.len(), &[b"; charset=", charset]);
        }
        if let Some(encoding) = head.content_encoding {
            self.put_header("Content-Encoding", encoding);
        }
        if !head.link.is_empty() {
            self.put_header("Link", head.link.as_bytes());
        }
        self.put_header("Etag", head.vtag);
        self.put_header(
            "Last-Modified",
            format_http_date(head.last_modified_seconds).as_bytes(),
        );
        if head.is_deleted {
            self.put_header("X-Riak-Deleted", b"true");
        }
        if let Some(seconds) = head.expires_at_seconds {
            let date = format_http_date(seconds);
            self.put_header("X-Kvorum-Expires-At", date.as_bytes());
        }
        for (key, value) in head.user_metadata {
            if let Some(name) = metadata_header_name(key) {
                self.put_header(name, value);
            }
        }
        for (field, value) in head.indexes {
            if let Some(field) = metadata_header_name(field) {
                self.put_header(&format!("x-riak-index-{field}"), value);
            }
        }
    }

    /// Appends a header line; one whose value would break out of its line is left out.
    fn put_header(&mut self, name: &str, value: &[u8]) {
        if let Some(value) = metadata_header_value(value) {
            for piece in [name.as_bytes(), b": ", value, b"\r\n"] {
                self.body.put_slice(piece);
            }
        }
    }

    /// Continues the header line that takes up `line`, if it was written.
    fn extend_header(&mut self, line: Range<usize>, pieces: &[&[u8]]) {
        if !line.is_empty() {
            self.body.truncate(line.end - b"\r\n".len());
            for piece in pieces {
                self.body.put_slice(piece);
            }
            self.body.put_slice(b"\r\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_siblings_are_laid_out_as_clients_expect() {
        let mut writer = MultipartWriter::new("XYZ".to_owned());
        let user_metadata = [
            (Bytes::from("X-Riak-Meta-Color"), Bytes::from("red")),
            (Bytes::from("bad name"), Bytes::from("x")),
            (Bytes::from("injected"), Bytes::from("a\r\nb: c")),
        ];
        let indexes = [(Bytes::from("age_int"), Bytes::from("7"))];
        let head = PartHead {
            media_type: Some(b"text/plain"),
            charset: Some(b"utf-8"),
            content_encoding: Some(b"gzip"),
            link: "</buckets/b>; rel=\"up\"",
            vtag: b"4v5xOg4",
            last_modified_seconds: 784_111_777,
            is_deleted: false,
            expires_at_seconds: Some(784_111_778),
            user_metadata: &user_metadata,
            indexes: &indexes,
        };
        writer.push(&head, b"one");
        let tombstone = PartHead {
            vtag: b"2",
            is_deleted: true,
            ..PartHead::default()
        };
        writer.push(&tombstone, b"");
        assert_eq!(writer.content_type(), "multipart/mixed; boundary=XYZ");
        let expected = "\r\n--XYZ\r\nContent-Type: text/plain; charset=utf-8\r\n\
            Content-Encoding: gzip\r\nLink: </buckets/b>; rel=\"up\"\r\nEtag: 4v5xOg4\r\n\
            Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
            X-Kvorum-Expires-At: Sun, 06 Nov 1994 08:49:38 GMT\r\nX-Riak-Meta-Color: red\r\n\
            x-riak-index-age_int: 7\r\n\r\none\
            \r\n--XYZ\r\nContent-Type: application/octet-stream\r\nEtag: 2\r\n\
            Last-Modified: Thu, 01 Jan 1970 00:00:00 GMT\r\nX-Riak-Deleted: true\r\n\r\n\
            \r\n--XYZ--\r\n";
        assert_eq!(
            String::from_utf8(writer.finish().to_vec()).unwrap(),
            expected
        );
    }

    #[test]
    fn hostile_stored_metadata_cannot_break_out_of_its_line() {
        let mut writer = MultipartWriter::new("B".to_owned());
        let head = PartHead {
            media_type: Some(b"a/b\r\nEvil: 1"),
            charset: Some(b"x\r\nEvil: 2"),
            vtag: b"v\nEvil: 3",
            ..PartHead::default()
        };
        writer.push(&head, b"");
        let body = String::from_utf8(writer.finish().to_vec()).unwrap();
        assert!(!body.contains("Evil"), "{body}");
    }
}
