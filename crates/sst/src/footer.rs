//! The two ends of a table's file: the header with the identity, and the footer with the places at
//! which reading begins.

use std::path::Path;

use kvorum_encoding::{ByteReader, Truncated, checksum, checksum_append, mask_checksum};

use crate::{BlockHandle, Part, Result, SstError, TableId};

pub(crate) const FILE_HEADER_BYTES: u64 = 32;
pub(crate) const FOOTER_BYTES: u64 = 48;
pub(crate) const MAGIC: [u8; 8] = *b"KVsorted";
pub(crate) const FOOTER_MAGIC: [u8; 8] = *b"KVsstend";
const VERSION: u8 = 1;

/// Encodes a file header:
///
/// ```text
/// offset  size  field
///      0     8  magic "KVsorted"
///      8     1  format version, 1
///      9     3  zero
///     12     8  store
///     20     8  table number
///     28     4  masked CRC-32C of bytes 0..28
/// ```
pub(crate) fn encode_file_header(id: &TableId) -> [u8; 32] {
    let mut out = [0; 32];
    out[..8].copy_from_slice(&MAGIC);
    out[8] = VERSION;
    out[12..20].copy_from_slice(&id.store.to_le_bytes());
    out[20..28].copy_from_slice(&id.number.to_le_bytes());
    let check = mask_checksum(checksum(&out[..28]));
    out[28..].copy_from_slice(&check.to_le_bytes());
    out
}

/// Checks that a file is the expected table.
pub(crate) fn check_file_header(bytes: &[u8], expected: &TableId, path: &Path) -> Result<()> {
    let damaged = |found: &str| {
        let len = FILE_HEADER_BYTES;
        SstError::damaged(path, 0, len, Part::FileHeader, found)
    };
    let decode = || -> std::result::Result<_, Truncated> {
        let mut reader = ByteReader::new(bytes);
        let magic = reader.array::<8>()?;
        let version = reader.u8()?;
        let _zero = reader.take(3)?;
        let id = TableId {
            store: reader.u64()?,
            number: reader.u64()?,
        };
        Ok((magic, version, id, reader.u32()?))
    };
    let (magic, version, got, stored) = decode().map_err(|_| damaged("cut short"))?;
    if magic != MAGIC || mask_checksum(checksum(&bytes[..28])) != stored {
        return Err(damaged("does not match its checksum"));
    }
    if version > VERSION {
        return Err(SstError::NewerFormat {
            path: path.to_owned(),
            got: version,
            expected: VERSION,
        });
    }
    if got != *expected {
        return Err(SstError::Foreign {
            path: path.to_owned(),
            got_store: got.store,
            got_number: got.number,
            expected_store: expected.store,
            expected_number: expected.number,
        });
    }
    Ok(())
}

/// The identity in a file's header; `None` if it is damaged.
pub(crate) fn header_id(bytes: &[u8], path: &Path) -> Option<TableId> {
    let nobody = TableId {
        store: 0,
        number: 0,
    };
    match check_file_header(bytes, &nobody, path) {
        Ok(()) => Some(nobody),
        Err(SstError::Foreign {
            got_store,
            got_number,
            ..
        }) => Some(TableId {
            store: got_store,
            number: got_number,
        }),
        Err(_) => None,
    }
}

/// The places at which reading begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) top_index: BlockHandle,
    pub(crate) properties: BlockHandle,
}

impl Footer {
    /// The note between the properties and the top index, if there is one.
    pub(crate) fn note(&self) -> Option<BlockHandle> {
        let offset = self.properties.end();
        let len = self.top_index.offset.checked_sub(offset)?;
        let len = u32::try_from(len).ok().filter(|len| *len > 0)?;
        Some(BlockHandle { offset, len })
    }

    /// Encodes a footer:
    ///
    /// ```text
    /// offset  size  field
    ///      0     8  offset of the top index
    ///      8     4  its length
    ///     12     8  offset of the properties
    ///     20     4  their length
    ///     24     1  format version, 1
    ///     25    11  zero
    ///     36     4  masked CRC-32C of: store, table (not stored), bytes 0..36 and the magic
    ///     40     8  magic "KVsstend"
    /// ```
    pub(crate) fn encode(&self, id: &TableId) -> [u8; 48] {
        let mut out = [0; 48];
        out[..8].copy_from_slice(&self.top_index.offset.to_le_bytes());
        out[8..12].copy_from_slice(&self.top_index.len.to_le_bytes());
        out[12..20].copy_from_slice(&self.properties.offset.to_le_bytes());
        out[20..24].copy_from_slice(&self.properties.len.to_le_bytes());
        out[24] = VERSION;
        let check = footer_checksum(&out[..36], id);
        out[36..40].copy_from_slice(&check.to_le_bytes());
        out[40..].copy_from_slice(&FOOTER_MAGIC);
        out
    }

    /// `None` for damaged bytes.
    pub(crate) fn decode(bytes: &[u8], id: &TableId) -> Option<Self> {
        let mut reader = ByteReader::new(bytes);
        let footer = Self {
            top_index: take_handle(&mut reader).ok()?,
            properties: take_handle(&mut reader).ok()?,
        };
        let _version_and_zero = reader.take(12).ok()?;
        let stored = reader.u32().ok()?;
        let is_whole = reader.array::<8>().ok()? == FOOTER_MAGIC
            && footer_checksum(bytes.get(..36)?, id) == stored;
        is_whole.then_some(footer)
    }
}

fn take_handle(reader: &mut ByteReader<'_>) -> std::result::Result<BlockHandle, Truncated> {
    Ok(BlockHandle {
        offset: reader.u64()?,
        len: reader.u32()?,
    })
}

/// The checksum of a footer with the bytes `covered` before it.
pub(crate) fn footer_checksum(covered: &[u8], id: &TableId) -> u32 {
    let seeded = checksum_append(checksum(&id.store.to_le_bytes()), &id.number.to_le_bytes());
    mask_checksum(checksum_append(
        checksum_append(seeded, covered),
        &FOOTER_MAGIC,
    ))
}

#[cfg(test)]
mod tests {
    use kvorum_golden::assert_bytes;

    use super::*;

    const ID: TableId = TableId {
        store: 5,
        number: 9,
    };

    #[test]
    fn the_bytes_are_as_drawn() {
        let header = encode_file_header(&ID);
        let drawing = [
            ("magic \"KVsorted\"", 8),
            ("format version, 1", 1),
            ("zero", 3),
            ("store", 8),
            ("table number", 8),
            ("masked CRC-32C of bytes 0..28", 4),
        ];
        assert_bytes("footer.file_header.hex", &drawing, &header);
        let handle = |offset, len| BlockHandle { offset, len };
        let footer = Footer {
            top_index: handle(0x0102_0304, 300),
            properties: handle(0x0102, 70),
        };
        let drawing = [
            ("offset of the top index", 8),
            ("its length", 4),
            ("offset of the properties", 8),
            ("their length", 4),
            ("format version, 1", 1),
            ("zero", 11),
            (
                "masked CRC-32C of store, table, bytes 0..36 and the magic",
                4,
            ),
            ("magic \"KVsstend\"", 8),
        ];
        let bytes = footer.encode(&ID);
        assert_bytes("footer.hex", &drawing, &bytes);
        assert_eq!(Footer::decode(&bytes, &ID), Some(footer));
    }

    #[test]
    fn any_flip_in_header_or_footer_is_refused() {
        let header = encode_file_header(&ID);
        assert!(check_file_header(&header, &ID, Path::new("x")).is_ok());
        for at in 0..header.len() {
            let mut bad = header;
            bad[at] ^= 4;
            assert!(check_file_header(&bad, &ID, Path::new("x")).is_err());
            assert!(check_file_header(&header[..at], &ID, Path::new("x")).is_err());
        }
        let footer = Footer {
            top_index: BlockHandle { offset: 7, len: 8 },
            properties: BlockHandle { offset: 1, len: 2 },
        };
        let bytes = footer.encode(&ID);
        assert_eq!(Footer::decode(&bytes, &ID), Some(footer));
        let other = TableId { number: 8, ..ID };
        assert_eq!(Footer::decode(&bytes, &other), None);
        for at in 0..bytes.len() {
            let mut bad = bytes;
            bad[at] ^= 4;
            assert_eq!(Footer::decode(&bad, &ID), None, "byte {at}");
        }
    }
}
