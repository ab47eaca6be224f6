//! The byte form of a sibling's metadata: tagged fields, of which the empty ones are left out.

use bytes::Bytes;
use kvorum_encoding::{ByteReader, Truncated, put_varint, varint_len};

use crate::{IndexEntry, Link, Metadata, Timestamp, UserMetadata};

const CONTENT_TYPE: u8 = 1;
const CHARSET: u8 = 2;
const CONTENT_ENCODING: u8 = 3;
const DELETED: u8 = 4;
const EXPIRES_AT: u8 = 5;
const LINK: u8 = 6;
const USER_METADATA: u8 = 7;
const INDEX_ENTRY: u8 = 8;

const TAG_LEN: usize = 1;
const TIMESTAMP_LEN: usize = 8;
const HAS_VALUE_LEN: usize = 1;

/// The length of what [`put_metadata`] writes, in bytes.
pub(crate) fn metadata_len(metadata: &Metadata) -> usize {
    let mut len = 0;
    each_field(metadata, |_, parts| {
        len += TAG_LEN + prefixed_len(parts_len(parts));
    });
    len
}

/// Appends all metadata but the last-modified time, which every sibling has in a place of its own.
///
/// ```text
/// metadata      = field*            by ascending tag; unknown tags are kept and written last
/// field         = tag     u8
///                 len     varint    bytes of content
///                 content
/// content of tag
///  1 content type      bytes
///  2 charset           bytes
///  3 content encoding  bytes
///  4 deleted           empty; the field's presence says it
///  5 expires at        u64, microseconds since the Unix epoch
///  6 link              prefixed bucket, prefixed key, tag to the end       (repeated)
///  7 user metadata     prefixed name, u8 has value, value to the end      (repeated)
///  8 index entry       prefixed field, value to the end                   (repeated)
/// prefixed      = len varint, then that many bytes
/// ```
pub(crate) fn put_metadata(out: &mut Vec<u8>, metadata: &Metadata) {
    each_field(metadata, |tag, parts| {
        out.push(tag);
        put_varint(out, parts_len(parts) as u64);
        for part in parts {
            match part {
                Piece::Prefixed(bytes) => {
                    put_varint(out, bytes.len() as u64);
                    out.extend_from_slice(bytes);
                }
                Piece::Plain(bytes) => out.extend_from_slice(bytes),
            }
        }
    });
}

/// Decodes the form of [`put_metadata`] into `metadata`, which is empty. `fields` is a part of `head`,
/// whose buffer is shared.
pub(crate) fn read_metadata(
    head: &Bytes,
    mut fields: ByteReader<'_>,
    metadata: &mut Metadata,
) -> Result<(), Truncated> {
    while !fields.is_empty() {
        let tag = fields.u8()?;
        let offset = fields.offset();
        let content = head.slice_ref(fields.take_prefixed()?);
        read_field(metadata, tag, content).map_err(|_| Truncated { offset })?;
    }
    Ok(())
}

fn read_field(metadata: &mut Metadata, tag: u8, content: Bytes) -> Result<(), Truncated> {
    let mut reader = ByteReader::new(&content);
    match tag {
        CONTENT_TYPE => metadata.content_type = content,
        CHARSET => metadata.charset = content,
        CONTENT_ENCODING => metadata.content_encoding = content,
        DELETED => metadata.deleted = true,
        EXPIRES_AT => metadata.expires_at = Some(Timestamp::from_micros(reader.u64()?)),
        LINK => {
            let bucket = content.slice_ref(reader.take_prefixed()?);
            let key = content.slice_ref(reader.take_prefixed()?);
            let tag = content.slice_ref(reader.take_rest());
            metadata.links.push(Link { bucket, key, tag });
        }
        USER_METADATA => {
            let name = content.slice_ref(reader.take_prefixed()?);
            let has_value = reader.u8()? != 0;
            let rest = content.slice_ref(reader.take_rest());
            let value = has_value.then_some(rest);
            metadata.user_metadata.push(UserMetadata { name, value });
        }
        INDEX_ENTRY => {
            let field = content.slice_ref(reader.take_prefixed()?);
            let value = content.slice_ref(reader.take_rest());
            metadata.indexes.push(IndexEntry { field, value });
        }
        unknown => metadata.unrecognized.0.push((unknown, content)),
    }
    Ok(())
}

/// A stretch of a field's content.
enum Piece<'a> {
    /// With its length in front.
    Prefixed(&'a [u8]),
    /// As it is.
    Plain(&'a [u8]),
}

/// Walks the fields that are there, so that measuring and writing cannot disagree.
fn each_field(metadata: &Metadata, mut field: impl FnMut(u8, &[Piece<'_>])) {
    let texts = [
        (CONTENT_TYPE, &metadata.content_type),
        (CHARSET, &metadata.charset),
        (CONTENT_ENCODING, &metadata.content_encoding),
    ];
    for (tag, text) in texts {
        if !text.is_empty() {
            field(tag, &[Piece::Plain(text)]);
        }
    }
    if metadata.deleted {
        field(DELETED, &[]);
    }
    if let Some(expires_at) = metadata.expires_at {
        let micros: [u8; TIMESTAMP_LEN] = expires_at.as_micros().to_le_bytes();
        field(EXPIRES_AT, &[Piece::Plain(&micros)]);
    }
    for Link { bucket, key, tag } in &metadata.links {
        field(
            LINK,
            &[
                Piece::Prefixed(bucket),
                Piece::Prefixed(key),
                Piece::Plain(tag),
            ],
        );
    }
    for UserMetadata { name, value } in &metadata.user_metadata {
        let has_value: [u8; HAS_VALUE_LEN] = [u8::from(value.is_some())];
        let value = value.as_deref().unwrap_or_default();
        let pieces = [
            Piece::Prefixed(name),
            Piece::Plain(&has_value),
            Piece::Plain(value),
        ];
        field(USER_METADATA, &pieces);
    }
    for IndexEntry { field: name, value } in &metadata.indexes {
        field(INDEX_ENTRY, &[Piece::Prefixed(name), Piece::Plain(value)]);
    }
    for (tag, content) in &metadata.unrecognized.0 {
        field(*tag, &[Piece::Plain(content)]);
    }
}

fn parts_len(parts: &[Piece<'_>]) -> usize {
    let lens = parts.iter().map(|part| match part {
        Piece::Prefixed(bytes) => prefixed_len(bytes.len()),
        Piece::Plain(bytes) => bytes.len(),
    });
    lens.sum()
}

fn prefixed_len(len: usize) -> usize {
    varint_len(len as u64) + len
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(metadata: &Metadata) -> Bytes {
        let mut out = Vec::new();
        put_metadata(&mut out, metadata);
        assert_eq!(out.len(), metadata_len(metadata));
        out.into()
    }

    fn decoded(bytes: &Bytes) -> Result<Metadata, Truncated> {
        let mut metadata = Metadata::default();
        read_metadata(bytes, ByteReader::new(bytes), &mut metadata)?;
        Ok(metadata)
    }

    #[test]
    fn the_bytes_are_as_drawn() {
        let metadata = Metadata {
            content_type: Bytes::from_static(b"a/b"),
            deleted: true,
            user_metadata: vec![UserMetadata {
                name: Bytes::from_static(b"n"),
                value: None,
            }],
            indexes: vec![IndexEntry {
                field: Bytes::from_static(b"f_int"),
                value: Bytes::from_static(b"12"),
            }],
            ..Metadata::default()
        };
        let bytes = encoded(&metadata);
        assert_eq!(
            &bytes[..],
            b"\x01\x03a/b\x04\x00\x07\x03\x01n\x00\x08\x08\x05f_int12"
        );
        assert_eq!(decoded(&bytes), Ok(metadata));
    }

    #[test]
    fn fields_of_a_newer_program_survive_this_one() {
        let bytes = Bytes::from_static(b"\x01\x03a/b\x63\x02xy\xff\x00");
        let metadata = decoded(&bytes).unwrap();
        assert_eq!(metadata.content_type, "a/b");
        assert!(!metadata.unrecognized.is_empty());
        assert_eq!(encoded(&metadata), bytes);
    }

    #[test]
    fn a_field_cut_short_is_refused() {
        for bytes in [
            &b"\x01"[..],
            b"\x01\x03a",
            b"\x05\x02ab",
            b"\x06\x02\x05a",
            b"\x07\x02\x01n",
        ] {
            assert!(decoded(&Bytes::from_static(bytes)).is_err(), "{bytes:?}");
        }
    }
}
