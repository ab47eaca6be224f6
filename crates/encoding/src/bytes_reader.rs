//! A bounds-checked cursor over untrusted bytes.
//!
//! Every decoder reads through it, so that a truncated or hostile buffer ends in [`Truncated`],
//! never in a panic and never in an allocation by an unverified length.

use crate::VARINT_BYTES_MAX;

/// The buffer ended, or held a number out of range, before the value was complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncated {
    /// The offset at which reading stopped, in bytes from the buffer's start.
    pub offset: usize,
}

impl std::fmt::Display for Truncated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "value cut short or out of range at byte {}", self.offset)
    }
}

impl std::error::Error for Truncated {}

/// A cursor over a byte slice.
#[derive(Clone, Debug)]
pub struct ByteReader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> ByteReader<'a> {
    /// Starts at the first byte.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0 }
    }

    /// Bytes read so far.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Bytes not yet read.
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.offset
    }

    /// True when all bytes were read.
    pub fn is_empty(&self) -> bool {
        self.remaining() == 0
    }

    /// The next `len` bytes.
    #[inline]
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], Truncated> {
        let end = self
            .offset
            .checked_add(len)
            .filter(|end| *end <= self.bytes.len());
        let Some(end) = end else {
            return Err(self.truncated());
        };
        let taken = &self.bytes[self.offset..end];
        self.offset = end;
        Ok(taken)
    }

    /// A varint length followed by that many bytes.
    #[inline]
    pub fn take_prefixed(&mut self) -> Result<&'a [u8], Truncated> {
        let len = self.varint_len()?;
        self.take(len)
    }

    /// All bytes that are left.
    pub fn take_rest(&mut self) -> &'a [u8] {
        let rest = &self.bytes[self.offset..];
        self.offset = self.bytes.len();
        rest
    }

    /// One byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, Truncated> {
        Ok(self.array::<1>()?[0])
    }

    /// A little-endian 16-bit number.
    pub fn u16(&mut self) -> Result<u16, Truncated> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// A little-endian 32-bit number.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, Truncated> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// A little-endian 64-bit number.
    #[inline]
    pub fn u64(&mut self) -> Result<u64, Truncated> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// `N` bytes as an array.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Truncated> {
        let offset = self.offset;
        self.take(N)?.try_into().map_err(|_| Truncated { offset })
    }

    /// An unsigned LEB128 number.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, Truncated> {
        // Most numbers are lengths and counts below 128.
        if let Some(&byte @ ..0x80) = self.bytes.get(self.offset) {
            self.offset += 1;
            return Ok(byte.into());
        }
        self.long_varint()
    }

    fn long_varint(&mut self) -> Result<u64, Truncated> {
        let mut value = 0u64;
        for index in 0..VARINT_BYTES_MAX {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if index == VARINT_BYTES_MAX - 1 && bits > 1 {
                break;
            }
            value |= bits << (7 * index);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.truncated())
    }

    /// A varint that counts bytes or items in this very buffer, so never more than the rest of it.
    #[inline]
    pub fn varint_len(&mut self) -> Result<usize, Truncated> {
        let value = self.varint()?;
        usize::try_from(value)
            .ok()
            .filter(|len| *len <= self.remaining())
            .ok_or(self.truncated())
    }

    fn truncated(&self) -> Truncated {
        Truncated {
            offset: self.offset,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_past_the_end_names_its_offset() {
        let mut reader = ByteReader::new(&[1, 2, 3]);
        assert_eq!(reader.u16(), Ok(0x0201));
        assert_eq!(reader.u32(), Err(Truncated { offset: 2 }));
        assert_eq!(reader.take_rest(), &[3]);
        assert!(reader.is_empty());
    }

    #[test]
    fn a_length_beyond_the_buffer_is_refused() {
        assert!(ByteReader::new(&[200, 1, 0, 0]).take_prefixed().is_err());
        assert_eq!(
            ByteReader::new(&[2, 7, 8]).take_prefixed(),
            Ok(&[7u8, 8][..])
        );
    }
}
