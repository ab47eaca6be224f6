//! The place of a page: enough to find the page, and to detect any other page there.

use kvorum_encoding::{ByteReader, Truncated, put_varint};

/// The low bits of a page's name, with its offset in its file; the high bits are the file's number.
const OFFSET_BITS: u32 = 36;

/// The place of a page, as recorded in the page above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PagePlace {
    /// The number of its file.
    pub file: u64,
    /// The page's offset in the file, in bytes.
    pub offset: u64,
    /// Its length, in bytes.
    pub len: u32,
    /// The page's checksum, which is in its first bytes.
    pub check: u32,
}

impl PagePlace {
    /// A number for the page, in doubts and lists of failures.
    pub fn name(&self) -> u64 {
        (self.file << OFFSET_BITS) | (self.offset & ((1 << OFFSET_BITS) - 1))
    }

    /// The file of the page with this name.
    pub fn file_of_name(name: u64) -> u64 {
        name >> OFFSET_BITS
    }

    /// Appends the place: varints file, offset and length, and the checksum as 4 bytes.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.file);
        put_varint(out, self.offset);
        put_varint(out, u64::from(self.len));
        out.extend_from_slice(&self.check.to_le_bytes());
    }

    /// Reads the form of [`PagePlace::encode`].
    pub(crate) fn decode(reader: &mut ByteReader<'_>) -> Result<Self, Truncated> {
        let (file, offset) = (reader.varint()?, reader.varint()?);
        let at = reader.offset();
        let len = u32::try_from(reader.varint()?).map_err(|_| Truncated { offset: at })?;
        let check = reader.u32()?;
        Ok(Self {
            file,
            offset,
            len,
            check,
        })
    }
}
