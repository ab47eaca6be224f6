//! The position of an entry in anti-entropy trees, by the segment stored beside it.
//!
//! Sorted tables sum up the segments of each block's keys, cut to 16 bits. These are the low bits
//! of a position, so that a fold over one leaf of a tree reads few blocks.

use crate::checksum::checksum;

/// The bits of a position, which is a leaf of the largest tree.
pub const POSITION_BITS: u32 = 22;

/// The segment of a storage key, which engines keep beside the entry.
pub fn key_segment(key: &[u8]) -> u32 {
    checksum(key)
}

/// The bits of a segment in sorted tables.
pub fn folded_segment(segment: u32) -> u16 {
    u16::try_from((segment ^ segment >> 16) & 0xffff).unwrap_or(0)
}

/// The position of a segment in the largest tree; smaller trees take its low bits.
///
/// ```text
/// position = bits 0-15   high half of the segment, exclusive or its low half
///            bits 16-21  low six bits of the high half
/// ```
pub fn tree_position(segment: u32) -> u32 {
    let above = segment >> 16 & ((1 << (POSITION_BITS - 16)) - 1);
    above << 16 | u32::from(folded_segment(segment))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_use_all_their_bits_evenly() {
        let segments = 0u32..100_000;
        let positions = segments.map(|it| tree_position(crate::checksum(&it.to_le_bytes())));
        let mut ones = [0u32; 32];
        for position in positions {
            for (bit, count) in ones.iter_mut().enumerate() {
                *count += position >> bit & 1;
            }
        }
        let (used, unused) = ones.split_at(POSITION_BITS as usize);
        assert!(used.iter().all(|it| (48_000..52_000).contains(it)));
        assert!(unused.iter().all(|it| *it == 0));
    }

    #[test]
    fn the_low_bits_are_those_that_tables_keep() {
        assert_eq!(folded_segment(0x0012_0034), 0x26);
        assert_eq!(tree_position(0x0012_0034), 0x0012_0026);
        assert_eq!(tree_position(0xffff_0000), 0x003f_ffff);
    }
}
