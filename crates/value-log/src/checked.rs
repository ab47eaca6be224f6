//! The checksum behind each small file of the log: 4 bytes, the masked CRC-32C of all before.

use kvorum_encoding::{checksum, mask_checksum};

pub(crate) const CHECKSUM_BYTES: usize = 4;

/// Appends the checksum of what is there.
pub(crate) fn push_checksum(out: &mut Vec<u8>) {
    let check = mask_checksum(checksum(out));
    out.extend_from_slice(&check.to_le_bytes());
}

/// What the checksum at the end covers; `None` when it is not that of these bytes.
pub(crate) fn covered(bytes: &[u8]) -> Option<&[u8]> {
    let (covered, check) = bytes.split_last_chunk::<CHECKSUM_BYTES>()?;
    (u32::from_le_bytes(*check) == mask_checksum(checksum(covered))).then_some(covered)
}
