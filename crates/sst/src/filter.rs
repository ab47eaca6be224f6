//! Filters: a few bits of memory that exclude most keys that a table lacks.
//!
//! Young tables live for minutes, and flushes must not take long to write them. They get a blocked
//! Bloom filter, which costs a few nanoseconds a key to build and one cache line to query. Old
//! tables live for days. They get a binary fuse filter: it takes a multiple of the time to build,
//! but 9 bits a key instead of Bloom's 12 for one false positive in 256.

use kvorum_encoding::{ByteReader, Truncated};
use xorf::{BinaryFuse8, BinaryFuse8Ref, DmaSerializable, Filter, FilterRef};

/// A block of a blocked Bloom filter: a cache line.
pub const LINE_BYTES: usize = 64;
const BLOOM: u8 = 1;
const FUSE: u8 = 2;
const FUSE_DESCRIPTOR_BYTES: usize = BinaryFuse8::DESCRIPTOR_LEN;
/// With fewer keys, binary fuse costs more than it saves: its smallest array is larger.
const FUSE_KEYS_MIN: usize = 64;

/// Kinds of a table's filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterKind {
    /// No filter: every key may be in the table.
    None,
    /// Blocked Bloom with this many bits for each key.
    Bloom {
        /// Bits for each key: with 10, one absent key in a hundred passes.
        bits_per_key: u8,
    },
    /// Binary fuse with 8-bit fingerprints.
    Fuse,
}

/// The hash of a key in filters and hash indexes.
pub fn hash_key(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

/// Builds a filter over hashes: a byte for its kind, then
///
/// ```text
/// 1 (Bloom):  1 probes, then lines of 64 bytes; bit b is bit b % 8 of byte b / 8
/// 2 (fuse):  20 seed (8), segment length, segment mask, segments' length (4 each); fingerprints
/// ```
pub(crate) fn build_filter(kind: FilterKind, hashes: &mut Vec<u64>) -> Option<Vec<u8>> {
    hashes.sort_unstable();
    hashes.dedup();
    match kind {
        FilterKind::None => None,
        FilterKind::Bloom { bits_per_key } => Some(build_bloom(hashes, bits_per_key)),
        FilterKind::Fuse if hashes.len() < FUSE_KEYS_MIN => Some(build_bloom(hashes, 12)),
        FilterKind::Fuse => Some(build_fuse(hashes).unwrap_or_else(|| build_bloom(hashes, 12))),
    }
}

fn build_bloom(hashes: &[u64], bits_per_key: u8) -> Vec<u8> {
    let bits = hashes.len() * usize::from(bits_per_key.max(1));
    let lines = bits.div_ceil(8 * LINE_BYTES).max(1);
    // A little less than 69 % of the bits for each key: all probes of a key fall into one line.
    let probes = (u16::from(bits_per_key) * 6 / 10).clamp(1, 12);
    let probes = u8::try_from(probes).unwrap_or(6);
    let mut out = vec![0; 2 + lines * LINE_BYTES];
    (out[0], out[1]) = (BLOOM, probes);
    for hash in hashes {
        let start = 2 + line_of(*hash, lines) * LINE_BYTES;
        let line = &mut out[start..start + LINE_BYTES];
        for bit in probe_bits(*hash, probes) {
            line[bit / 8] |= 1 << (bit % 8);
        }
    }
    out
}

/// `None` if no seed fits, which happened with none of a million sets.
fn build_fuse(hashes: &[u64]) -> Option<Vec<u8>> {
    let filter = BinaryFuse8::try_from(hashes).ok()?;
    let mut out = vec![FUSE; 1 + FUSE_DESCRIPTOR_BYTES];
    filter.dma_copy_descriptor_to(&mut out[1..]);
    out.extend_from_slice(filter.dma_fingerprints());
    Some(out)
}

/// False when the filter was certainly built without a key of this hash.
pub(crate) fn may_contain(filter: &[u8], hash: u64) -> Result<bool, Truncated> {
    let mut reader = ByteReader::new(filter);
    match reader.u8()? {
        BLOOM => {
            let probes = reader.u8()?;
            let bits = reader.take_rest();
            bloom_contains(bits, probes, hash).ok_or(Truncated { offset: 2 })
        }
        FUSE => {
            let descriptor = reader.take(FUSE_DESCRIPTOR_BYTES)?;
            let fingerprints = reader.take_rest();
            check_fuse(descriptor, fingerprints)?;
            Ok(BinaryFuse8Ref::from_dma(descriptor, fingerprints).contains(&hash))
        }
        _ => Err(Truncated { offset: 0 }),
    }
}

fn bloom_contains(bits: &[u8], probes: u8, hash: u64) -> Option<bool> {
    let lines = bits.len() / LINE_BYTES;
    let start = line_of(hash, lines) * LINE_BYTES;
    let line = bits.get(start..start + LINE_BYTES)?;
    Some(probe_bits(hash, probes).all(|bit| line[bit / 8] & (1 << (bit % 8)) != 0))
}

/// Checks numbers that the library uses as indexes without checks.
fn check_fuse(descriptor: &[u8], fingerprints: &[u8]) -> Result<(), Truncated> {
    let mut reader = ByteReader::new(descriptor);
    let _seed = reader.u64()?;
    let (length, mask, all) = (reader.u32()?, reader.u32()?, reader.u32()?);
    let needed = u64::from(all) + 2 * u64::from(length);
    let is_sound = length.is_power_of_two()
        && mask == length - 1
        && all % length == 0
        && all > 0
        && needed <= fingerprints.len() as u64;
    if is_sound {
        Ok(())
    } else {
        Err(Truncated { offset: 1 })
    }
}

/// The line of a blocked Bloom filter with the bits of a key, by the upper half of its hash.
pub fn line_of(hash: u64, lines: usize) -> usize {
    let scaled = ((hash >> 32) * lines as u64) >> 32;
    usize::try_from(scaled).unwrap_or(0)
}

/// The bits of a key within its line, by the lower half of its hash.
pub fn probe_bits(hash: u64, probes: u8) -> impl Iterator<Item = usize> {
    let low = u32::try_from(hash & 0xffff_ffff).unwrap_or(0);
    let mut state = low.wrapping_mul(0x9e37_79b9);
    (0..probes).map(move |_| {
        let bit = state >> 23;
        state = state.wrapping_mul(0x85eb_ca6b).rotate_left(7);
        bit as usize
    })
}

#[cfg(test)]
mod tests {
    use kvorum_golden::assert_bytes;

    use super::*;

    fn hashes(range: std::ops::Range<u64>) -> Vec<u64> {
        range.map(|it| hash_key(&it.to_le_bytes())).collect()
    }

    fn false_positives(filter: &[u8]) -> usize {
        let absent = hashes(1_000_000..1_020_000);
        absent
            .iter()
            .filter(|it| may_contain(filter, **it).unwrap())
            .count()
    }

    /// Hash, probes and layout are fixed: the filters of existing tables depend on them.
    #[test]
    fn the_bytes_are_as_drawn() {
        let kind = FilterKind::Bloom { bits_per_key: 10 };
        let bloom = build_filter(kind, &mut hashes(0..60)).unwrap();
        let drawing = [
            ("1, Bloom", 1),
            ("probes", 1),
            ("line", LINE_BYTES),
            ("line", LINE_BYTES),
        ];
        assert_bytes("filter.bloom.hex", &drawing, &bloom);
        let fuse = build_filter(FilterKind::Fuse, &mut hashes(0..64)).unwrap();
        let drawing = [
            ("2, fuse", 1),
            ("seed", 8),
            ("segment length", 4),
            ("segment mask", 4),
            ("segments' length", 4),
            ("fingerprints", fuse.len() - 21),
        ];
        assert_bytes("filter.fuse.hex", &drawing, &fuse);
    }

    #[test]
    fn no_key_is_denied_and_few_others_are_let_through() {
        let kinds = [
            (FilterKind::Bloom { bits_per_key: 10 }, 20_000 * 15 / 1000),
            (FilterKind::Bloom { bits_per_key: 16 }, 20_000 * 3 / 1000),
            (FilterKind::Fuse, 20_000 * 5 / 1000),
        ];
        for (kind, positives_max) in kinds {
            for count in [1, 10, 100, 5_000] {
                let mut present = hashes(0..count);
                let filter = build_filter(kind, &mut present).unwrap();
                assert!(present.iter().all(|it| may_contain(&filter, *it).unwrap()));
                let positives = false_positives(&filter);
                assert!(positives <= positives_max, "{kind:?} {count}: {positives}");
            }
        }
        let fuse = build_filter(FilterKind::Fuse, &mut hashes(0..5_000)).unwrap();
        assert!(fuse.len() * 8 < 5_000 * 11, "{}", fuse.len());
    }

    #[test]
    fn hostile_filters_are_refused_without_a_panic() {
        let mut good = build_filter(FilterKind::Fuse, &mut hashes(0..300)).unwrap();
        for at in 0..40 {
            for bits in [1, 0x80, 0xff] {
                good[at] ^= bits;
                let _answered_or_refused = may_contain(&good, 77);
                good[at] ^= bits;
            }
            assert!(may_contain(&good[..at], 5).is_err(), "cut at {at}");
        }
        assert!(may_contain(&[BLOOM, 6, 1, 2], 5).is_err());
    }
}
