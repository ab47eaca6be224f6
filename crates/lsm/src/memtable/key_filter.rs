//! A filter that excludes most keys that are not in a memtable, without a search.
//!
//! A blocked Bloom filter that is filled while it is read. A lookup takes one cache line; a search
//! compares with a dozen keys, each in lines of its own. The filter has a size for a number of
//! keys. With more keys it answers "perhaps" more often, and never "no" wrongly.

use std::sync::atomic::{AtomicU64, Ordering};

use kvorum_sst::{LINE_BYTES, line_of, probe_bits};

const LINE_WORDS: usize = LINE_BYTES / 8;
/// With the expected number of keys, one absent key in a hundred is searched for.
const BITS_PER_KEY: usize = 10;
const PROBES: u8 = 6;

/// A filter over the hashes of keys.
pub(super) struct KeyFilter {
    lines: Box<[[AtomicU64; LINE_WORDS]]>,
}

impl KeyFilter {
    pub(super) fn new(keys_expected: usize) -> Self {
        let lines = (keys_expected * BITS_PER_KEY).div_ceil(64 * LINE_WORDS);
        let line = |_| [const { AtomicU64::new(0) }; LINE_WORDS];
        Self {
            lines: (0..lines.max(1)).map(line).collect(),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.lines)
    }

    pub(super) fn add(&self, hash: u64) {
        let line = self.line(hash);
        for bit in probe_bits(hash, PROBES) {
            line[bit / 64].fetch_or(1 << (bit % 64), Ordering::Relaxed);
        }
    }

    pub(super) fn may_contain(&self, hash: u64) -> bool {
        let line = self.line(hash);
        let is_set = |bit: usize| line[bit / 64].load(Ordering::Relaxed) & (1 << (bit % 64)) != 0;
        probe_bits(hash, PROBES).all(is_set)
    }

    fn line(&self, hash: u64) -> &[AtomicU64; LINE_WORDS] {
        &self.lines[line_of(hash, self.lines.len())]
    }
}

#[cfg(test)]
mod tests {
    use kvorum_sst::hash_key;

    use super::*;

    #[test]
    fn what_was_added_is_reported_and_most_else_is_not() {
        let hashes = |range: std::ops::Range<u32>| range.map(|it| hash_key(&it.to_le_bytes()));
        let filter = KeyFilter::new(10_000);
        hashes(0..10_000).for_each(|hash| filter.add(hash));
        assert!(hashes(0..10_000).all(|hash| filter.may_contain(hash)));
        let wrong = hashes(10_000..110_000).filter(|hash| filter.may_contain(*hash));
        let wrong = wrong.count();
        assert!(wrong < 2_500, "{wrong} of 100,000 absent keys");
        assert_eq!(filter.bytes(), 12_544);
    }

    #[test]
    fn one_that_is_too_small_answers_perhaps() {
        let filter = KeyFilter::new(0);
        let hashes: Vec<u64> = (0..5_000_u32)
            .map(|it| hash_key(&it.to_le_bytes()))
            .collect();
        hashes.iter().for_each(|hash| filter.add(*hash));
        assert!(hashes.iter().all(|hash| filter.may_contain(*hash)));
    }
}
