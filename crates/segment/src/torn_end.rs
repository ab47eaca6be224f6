//! Possible remains of a segment's seal or mark after a power cut.
//!
//! Seals and marks are written when everything before them is durable, and no caller waits for
//! their own sync. Records of a later segment may become durable first. So a segment of durable
//! records may have a torn seal or mark, which is not corruption.

use std::ops::Range;

use kvorum_encoding::mask_checksum;

use crate::RECORD_ALIGN_BYTES;
use crate::record::{FLAG_MARK, FLAG_SEAL, RECORD_HEADER_BYTES};
use crate::seal::{SEAL_FRONT_BYTES, Seal};

/// The length of a seal, which is longer than a mark.
const BYTES: usize = RECORD_HEADER_BYTES + SEAL_FRONT_BYTES;
/// The variable bytes of a seal: checksums, the sequence, and the front except for the seal's
/// offset.
const FREE_IN_SEAL: [Range<usize>; 4] = [0..4, 8..16, 30..32, RECORD_HEADER_BYTES + 8..BYTES];
/// The variable bytes of a mark: checksums, and the durable length of the segment.
const FREE_IN_MARK: [Range<usize>; 3] = [0..4, 24..28, 30..32];

/// True when `bytes` may be the remains of a seal or a mark at `at`: each fixed byte is right or
/// still zero. Any other record with a front differs at least in its lengths.
pub(crate) fn is_of_seal_or_mark(bytes: &[u8], at: u64) -> bool {
    is_of(bytes, &seal_at(at), &FREE_IN_SEAL) || is_of(bytes, &mark(), &FREE_IN_MARK)
}

fn is_of(bytes: &[u8], expected: &[u8; BYTES], free: &[Range<usize>]) -> bool {
    bytes.iter().enumerate().all(|(place, byte)| {
        let is_free = || free.iter().any(|range| range.contains(&place));
        *byte == 0 || expected.get(place) == Some(byte) || is_free()
    })
}

/// A seal at this offset, as drawn above `encode_front`.
fn seal_at(at: u64) -> [u8; BYTES] {
    let mut seal = mark();
    let front = Seal {
        data_end: at,
        records: 0,
        sequence_min: 0,
        sequence_max: 0,
    };
    let front = front.encode();
    seal[RECORD_HEADER_BYTES..].copy_from_slice(&front);
    seal[16] = front.len().to_le_bytes()[0];
    let synced_to = at / RECORD_ALIGN_BYTES;
    seal[24..28].copy_from_slice(&synced_to.to_le_bytes()[..4]);
    seal[28] = FLAG_SEAL;
    seal
}

fn mark() -> [u8; BYTES] {
    let mut mark = [0; BYTES];
    mark[4..8].copy_from_slice(&mask_checksum(0).to_le_bytes());
    mark[28] = FLAG_MARK;
    mark
}
