//! The anti-entropy segments of each block's keys, so that a fold over few segments reads few
//! blocks.
//!
//! Segments are cut to 16 bits, so a block of 40 keys matches one of 32 wanted segments by chance
//! in one case of fifty. A bitmap or Bloom filter of the same size would admit nearly all blocks,
//! since each wanted segment would be tested.

use bytes::Bytes;
use kvorum_encoding::{ByteReader, FoldedFilter, Truncated, put_varint};

/// Appends the set of one block: varint count, then the segments ascending, two bytes each.
pub(crate) fn put_set(out: &mut Vec<u8>, segments: &mut Vec<u16>) {
    segments.sort_unstable();
    segments.dedup();
    put_varint(out, segments.len() as u64);
    for segment in segments.drain(..) {
        out.extend_from_slice(&segment.to_le_bytes());
    }
}

/// The sets of a partition's blocks, in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct SegmentSets {
    payload: Bytes,
    next: usize,
}

impl SegmentSets {
    pub(crate) fn new(payload: Bytes) -> Self {
        Self { payload, next: 0 }
    }

    /// True when the next block may have one of the wanted segments.
    pub(crate) fn next_meets(&mut self, wanted: &FoldedFilter) -> Result<bool, Truncated> {
        let mut reader = ByteReader::new(&self.payload[self.next..]);
        let count = reader.varint_len()?;
        let set = reader.take(count * 2)?;
        self.next += reader.offset();
        let mut segments = set
            .chunks_exact(2)
            .map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
        Ok(segments.any(|segment| wanted.admits(segment)))
    }
}

#[cfg(test)]
mod tests {
    use kvorum_encoding::{SegmentFilter, folded_segment};
    use kvorum_golden::assert_bytes;

    use super::*;

    #[test]
    fn the_bytes_are_as_drawn() {
        let mut out = Vec::new();
        put_set(&mut out, &mut vec![300, 7, 300]);
        put_set(&mut out, &mut Vec::new());
        let drawing = [
            ("segments of the first block", 1),
            ("segment", 2),
            ("segment", 2),
            ("segments of the second block", 1),
        ];
        assert_bytes("segment_sets.hex", &drawing, &out);
    }

    #[test]
    fn each_set_answers_for_its_own_block() {
        let mut out = Vec::new();
        put_set(&mut out, &mut vec![7, 3, 7]);
        put_set(&mut out, &mut Vec::new());
        put_set(&mut out, &mut vec![folded_segment(0x0012_0034)]);
        let mut sets = SegmentSets::new(out.clone().into());
        let only = |segment: u32| SegmentFilter::Segments(vec![segment]).folded();
        assert_eq!(sets.next_meets(&only(3)), Ok(true));
        assert_eq!(sets.next_meets(&only(3)), Ok(false));
        assert_eq!(sets.next_meets(&only(0x26)), Ok(true));
        assert!(sets.next_meets(&only(3)).is_err());
        assert!(
            SegmentSets::new(out[..3].to_vec().into())
                .next_meets(&only(1))
                .is_err()
        );
    }
}
