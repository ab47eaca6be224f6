//! Unsigned LEB128 varints: 7 bits a byte, low bits first, high bit set on all but the last byte.

use bytes::BufMut;

/// The longest encoding of a 64-bit number, in bytes.
pub const VARINT_BYTES_MAX: usize = 10;

/// Appends `value` to `out`.
#[inline]
pub fn put_varint(out: &mut impl BufMut, mut value: u64) {
    while value >= 0x80 {
        out.put_u8(low_byte(value) | 0x80);
        value >>= 7;
    }
    out.put_u8(low_byte(value));
}

/// The number of bytes that [`put_varint`] writes for `value`.
#[inline]
pub fn varint_len(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

fn low_byte(value: u64) -> u8 {
    (value & 0x7f).to_le_bytes()[0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ByteReader;

    #[test]
    fn varints_of_every_length_round_trip() {
        for shift in 0..64 {
            for value in [(1u64 << shift) - 1, 1 << shift, u64::MAX >> shift] {
                let mut out = Vec::new();
                put_varint(&mut out, value);
                assert_eq!(out.len(), varint_len(value));
                let mut reader = ByteReader::new(&out);
                assert_eq!(reader.varint(), Ok(value));
                assert!(reader.is_empty());
            }
        }
    }

    #[test]
    fn an_overlong_or_cut_varint_is_refused() {
        assert!(ByteReader::new(&[0x80; 11]).varint().is_err());
        assert!(ByteReader::new(&[0x80]).varint().is_err());
        let too_large = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02];
        assert!(ByteReader::new(&too_large).varint().is_err());
    }
}
