//! Tells of most keys that are not in a memtable that they are not, without a search.
//!
//! A blocked Bloom filter that grows bit by bit while it is asked: one cache line for a key, where a
//! search compares with a dozen keys, each in lines of its own. It is laid out for a number of keys; with
//! more it answers "perhaps" more often, and never "no" wrongly.

use std::sync::atomic::{AtomicU64, Ordering};

/// A line of the processor's cache.
const LINE_BITS: u64 = 512;
const LINE_WORDS: usize = 8;
/// With as many keys as expected, one absent key in a hundred is searched for.
const BITS_PER_KEY: usize = 10;
const PROBES: u32 = 6;

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
        for bit in probes(hash) {
            line[word_of(bit)].fetch_or(1 << (bit % 64), Ordering::Relaxed);
        }
    }

    pub(super) fn may_contain(&self, hash: u64) -> bool {
        let line = self.line(hash);
        probes(hash).all(|bit| line[word_of(bit)].load(Ordering::Relaxed) & (1 << (bit % 64)) != 0)
    }

    /// By the upper half of the hash.
    fn line(&self, hash: u64) -> &[AtomicU64; LINE_WORDS] {
        let at = ((hash >> 32) * self.lines.len() as u64) >> 32;
        &self.lines[usize::try_from(at).unwrap_or(0)]
    }
}

/// By the lower half of the hash, as two steps through the line.
fn probes(hash: u64) -> impl Iterator<Item = u64> {
    let (start, step) = (hash & 0xffff, (hash >> 16 & 0xffff) | 1);
    (0..u64::from(PROBES)).map(move |probe| (start + probe * step) % LINE_BITS)
}

fn word_of(bit: u64) -> usize {
    usize::try_from(bit / 64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use kvorum_sst::hash_key;

    use super::*;

    #[test]
    fn what_was_added_is_told_and_most_else_is_not() {
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
