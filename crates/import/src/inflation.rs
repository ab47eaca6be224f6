//! Compressed values as several of Riak's backends write them.

use bytes::Bytes;

/// Inflates an LZ4 block that follows its inflated length, 32 bits in little-endian order; `None`
/// for a defect, or for more than `bytes_max`.
pub fn inflate_lz4(packed: &[u8], bytes_max: usize) -> Option<Bytes> {
    let (len, block) = packed.split_first_chunk::<4>()?;
    let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
    // A byte of LZ4 inflates to at most 255 bytes.
    if len > bytes_max.min(block.len().saturating_mul(255)) {
        return None;
    }
    let mut inflated = vec![0; len];
    let written = lz4_flex::block::decompress_into(block, &mut inflated).ok()?;
    (written == len).then(|| inflated.into())
}
