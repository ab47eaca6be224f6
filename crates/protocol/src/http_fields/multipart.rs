//! `multipart/mixed`: the siblings of an object in one body; or the objects that links lead to,
//! with an inner body for each step.
//!
//! ```text
//! CRLF --BOUNDARY CRLF headers CRLF CRLF value      for each sibling
//! CRLF --BOUNDARY-- CRLF
//! ```
//!
//! The vclock is only in the main header, since it belongs to all siblings.

use bytes::{BufMut, Bytes, BytesMut};

use super::date::format_http_date;
use super::object_headers::ObjectHeaders;
use super::user_metadata::metadata_header_value;

/// The fields above a sibling's value.
#[derive(Clone, Debug, Default)]
pub struct PartHead<'a> {
    /// The fields that the client stored beside the value.
    pub stored: ObjectHeaders,
    /// The sibling's vtag, which is written without quotes.
    pub vtag: &'a [u8],
    /// Last modified, in seconds since the epoch.
    pub last_modified_seconds: u64,
    /// True if the sibling is a tombstone.
    pub is_deleted: bool,
    /// The time of the sibling's expiry, in seconds since the epoch.
    pub expires_at_seconds: Option<u64>,
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

    /// The `Content-Type` of the whole body.
    pub fn content_type(&self) -> String {
        format!("multipart/mixed; boundary={}", self.boundary)
    }

    /// Appends a sibling.
    pub fn push(&mut self, head: &PartHead<'_>, value: &[u8]) {
        self.push_below(&[], head, value);
    }

    /// Appends a sibling, with these header lines above its own.
    pub fn push_below(&mut self, above: &[(&str, &[u8])], head: &PartHead<'_>, value: &[u8]) {
        self.body.reserve(value.len() + 512);
        self.put_boundary(b"\r\n");
        for (name, value) in above {
            self.put_header(name, value);
        }
        self.put_head(head);
        self.body.put_slice(b"\r\n");
        self.body.put_slice(value);
    }

    /// Appends a body of parts as one part.
    pub fn push_nested(&mut self, inner: MultipartWriter) {
        self.put_boundary(b"\r\n");
        self.put_header("Content-Type", inner.content_type().as_bytes());
        // The line break above the first boundary is the empty line below the headers.
        self.body.put_slice(&inner.finish());
    }

    /// Bytes so far.
    pub fn bytes(&self) -> usize {
        self.body.len()
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
        let stored = &head.stored;
        self.put_header("Content-Type", &stored.content_type);
        if let Some(encoding) = &stored.content_encoding {
            self.put_header("Content-Encoding", encoding);
        }
        if !stored.link.is_empty() {
            self.put_header("Link", stored.link.as_bytes());
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
        for (name, value) in &stored.others {
            self.put_header(name, value);
        }
    }

    /// Appends a header line, unless its value would break the line.
    fn put_header(&mut self, name: &str, value: &[u8]) {
        if let Some(value) = metadata_header_value(value) {
            for piece in [name.as_bytes(), b": ", value, b"\r\n"] {
                self.body.put_slice(piece);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::link::UrlGeneration;
    use super::super::object_headers::StoredFields;
    use super::*;

    fn stored(fields: &StoredFields<'_>) -> ObjectHeaders {
        ObjectHeaders::of(fields, UrlGeneration::Second, b"b")
    }

    #[test]
    fn two_siblings_are_laid_out_as_clients_expect() {
        let mut writer = MultipartWriter::new("XYZ".to_owned());
        let fields = StoredFields {
            content_type: b"text/plain",
            charset: b"utf-8",
            content_encoding: b"gzip",
            user_metadata: vec![
                (b"X-Riak-Meta-Color", Some(b"red")),
                (b"bad name", Some(b"x")),
                (b"injected", Some(b"a\r\nb: c")),
            ],
            indexes: vec![(b"age_int", b"7")],
            ..StoredFields::default()
        };
        let head = PartHead {
            stored: stored(&fields),
            vtag: b"4v5xOg4",
            last_modified_seconds: 784_111_777,
            is_deleted: false,
            expires_at_seconds: Some(784_111_778),
        };
        writer.push(&head, b"one");
        let tombstone = PartHead {
            stored: stored(&StoredFields::default()),
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
            X-Riak-Meta-Bad%20name: x\r\nX-Riak-Meta-Injected: a%0D%0Ab: c\r\n\
            X-Riak-Meta-Kvorum-Exact: n:bad%2520name=bad%20name,\
            v:injected=injected=a%0D%0Ab%3A%20c\r\n\
            x-riak-index-age_int: 7\r\n\r\none\
            \r\n--XYZ\r\nContent-Type: application/octet-stream\r\n\
            Link: </buckets/b>; rel=\"up\"\r\nEtag: 2\r\n\
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
        let fields = StoredFields {
            content_type: b"a/b\r\nEvil: 1",
            charset: b"x\r\nEvil: 2",
            content_encoding: b"x\nEvil: 3",
            user_metadata: vec![(b"Evil", Some(b"\r\nEvil: 4")), (b"x:\r\nEvil", None)],
            indexes: vec![(b"f_bin", b"\nEvil: 5"), (b"\nEvil: 6_bin", b"x")],
            ..StoredFields::default()
        };
        let head = PartHead {
            stored: stored(&fields),
            vtag: b"v\nEvil: 7",
            ..PartHead::default()
        };
        writer.push(&head, b"");
        let body = String::from_utf8(writer.finish().to_vec()).unwrap();
        assert!(!body.contains("\nEvil"), "{body}");
    }
}
