//! CRC-32C, the checksum of every byte that Kvorum writes.
//!
//! Stored checksums are masked: a checksum over data that itself holds checksums is weak, and a run
//! of zeros must not check as zero.

const MASK_DELTA: u32 = 0xa282_ead8;

/// CRC-32C of `bytes`.
pub fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// Continues a CRC-32C over further bytes.
pub fn checksum_append(so_far: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(so_far, bytes)
}

/// The form in which a checksum is stored next to its data.
pub fn mask_checksum(checksum: u32) -> u32 {
    checksum.rotate_right(15).wrapping_add(MASK_DELTA)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_polynomial_is_castagnoli() {
        assert_eq!(checksum(b"123456789"), 0xe306_9283);
        assert_eq!(checksum_append(checksum(b"1234"), b"56789"), 0xe306_9283);
    }

    #[test]
    fn zeros_do_not_check_as_zero() {
        assert_ne!(mask_checksum(checksum(&[])), 0);
    }
}
