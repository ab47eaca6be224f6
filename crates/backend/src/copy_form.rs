//! The common frame of a store's small file in two copies, for all engines.
//!
//! ```text
//! offset  size  field
//!      0     8  magic
//!      8     1  format version
//!      9     3  zero
//!     12     4  masked CRC-32C of bytes 0..12 and 16 to the end
//!     16     8  generation
//!     24     8  identity
//!     32     8  identity before the last erasure
//!     40        fields; the last one is the store's label, where it has one: a byte for its length, and it
//! ```

use std::path::Path;

use kvorum_disk::anatomy::Dissection;
use kvorum_encoding::{ByteReader, Truncated, checksum, checksum_append, mask_checksum};

use crate::{BackendError, ErrorKind, LABEL_BYTES_MAX, Result, StoreCopy};

/// The bytes before the engine's own fields; the checksum is for [`end_copy`].
pub fn begin_copy(magic: [u8; 8], version: u8, copy: &impl StoreCopy) -> Vec<u8> {
    let mut out = [&magic[..], &[version, 0, 0, 0], &[0; 4]].concat();
    for number in [copy.generation(), copy.identity(), copy.erased()] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out
}

/// Appends a label.
pub fn put_label(out: &mut Vec<u8>, label: &str) {
    let len = u8::try_from(label.len());
    assert!(len.is_ok(), "a label has at most {LABEL_BYTES_MAX} bytes");
    out.extend(len);
    out.extend_from_slice(label.as_bytes());
}

/// Reads the label in the form of [`put_label`].
///
/// # Errors
/// [`Truncated`] when the bytes end within it.
pub fn take_label(reader: &mut ByteReader<'_>) -> std::result::Result<String, Truncated> {
    let len = usize::from(reader.u8()?);
    Ok(String::from_utf8_lossy(reader.take(len)?).into_owned())
}

/// The whole copy, with its checksum.
pub fn end_copy(mut out: Vec<u8>) -> Vec<u8> {
    let check = check_of(&out);
    out[12..16].copy_from_slice(&check.to_le_bytes());
    out
}

/// The version, and the bytes behind the checksum; `Ok(None)` for damaged bytes.
///
/// # Errors
/// [`ErrorKind::NewerFormat`] for a version above `newest`.
pub fn open_copy<'a>(
    bytes: &'a [u8],
    magic: [u8; 8],
    newest: u8,
    path: &Path,
) -> Result<Option<(u8, &'a [u8])>> {
    match read_prefix(bytes, magic) {
        Ok((version, stored)) if check_of(bytes) == stored => match version > newest {
            true => Err(newer_format(path, version, newest)),
            false => Ok(Some((version, &bytes[16..]))),
        },
        _ => Ok(None),
    }
}

/// The version and the checksum.
fn read_prefix(bytes: &[u8], magic: [u8; 8]) -> std::result::Result<(u8, u32), Truncated> {
    let mut reader = ByteReader::new(bytes);
    if reader.array::<8>()? != magic {
        return Err(Truncated { offset: 0 });
    }
    let version = reader.u8()?;
    let _zero = reader.take(3)?;
    Ok((version, reader.u32()?))
}

fn check_of(bytes: &[u8]) -> u32 {
    mask_checksum(checksum_append(checksum(&bytes[..12]), &bytes[16..]))
}

/// A copy taken apart up to the engine's own fields.
pub fn dissect_copy<'a>(bytes: &'a [u8], magic: &[u8; 8]) -> Dissection<'a> {
    let mut fields = Dissection::new(bytes, 0);
    fields.magic(magic);
    fields.number("format version", 1);
    fields.number("zero", 3);
    let head = &bytes[..bytes.len().min(12)];
    let rest = bytes.get(16..).unwrap_or(&[]);
    let computed = mask_checksum(checksum_append(checksum(head), rest));
    fields.checksum("checksum of the file", computed);
    fields.number("generation", 8);
    fields.identity("identity", 8);
    fields.identity("identity before the last erasure", 8);
    fields
}

/// The refusal of a file that a newer version wrote.
pub fn newer_format(path: &Path, got: u8, newest: u8) -> BackendError {
    let path = path.display();
    let detail = format!("{path} has format version {got}, expected at most {newest}");
    BackendError::new(ErrorKind::NewerFormat, detail)
}
