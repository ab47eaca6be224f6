//! Findings: entries are added one by one, and parts are merged.

use std::collections::BTreeMap;

use bytes::Bytes;
use kvorum_encoding::{Key, tree_position};

use crate::entry::FoldedEntry;
use crate::key_fold::FoldKind;

/// The approximate memory of a listed key without its bytes: two handles, and the buffers behind them.
const LISTED_KEY_BYTES: usize = 128;
/// The approximate memory of a leaf: its place in a map.
const LEAF_BYTES: usize = 16;

/// The findings of a fold. Only the fields for its kind of question are filled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// The answer to [`FoldKind::ObjectStats`].
    pub stats: ObjectStats,
    /// The answer to [`FoldKind::SiblingsAbove`] and [`FoldKind::SizeAbove`].
    pub numbers: Vec<KeyNumber>,
    /// The answer to [`FoldKind::Clocks`].
    pub clocks: Vec<KeyClock>,
    /// The answer to [`FoldKind::Count`].
    pub count: u64,
    /// The answer to [`FoldKind::Tree`]: the leaves with entries, by their number.
    pub leaves: BTreeMap<u32, u32>,
    /// The bytes of the listed keys and clocks.
    pub(crate) listed_bytes: usize,
}

/// Counts and histograms over entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectStats {
    /// Entries.
    pub count: u64,
    /// The sum of their sizes, in bytes.
    pub bytes: u64,
    /// Entries by the order of magnitude of their size: 0 below ten bytes, 1 below a hundred, and so on.
    pub sizes: BTreeMap<u64, u64>,
    /// Entries by their number of siblings.
    pub siblings: BTreeMap<u64, u64>,
}

/// A key and a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyNumber {
    /// The key.
    pub key: Key,
    /// Its siblings or bytes.
    pub number: u64,
}

/// A key and the clock of its entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyClock {
    /// The key.
    pub key: Key,
    /// The encoded clock.
    pub clock: Bytes,
}

impl ObjectStats {
    fn take(&mut self, entry: &impl FoldedEntry) {
        let bytes = entry.size_bytes();
        let magnitude = bytes.checked_ilog10().unwrap_or(0);
        self.count += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        *self.sizes.entry(u64::from(magnitude)).or_default() += 1;
        *self.siblings.entry(entry.siblings()).or_default() += 1;
    }

    fn merge(&mut self, other: Self) {
        self.count += other.count;
        self.bytes = self.bytes.saturating_add(other.bytes);
        add(&mut self.sizes, other.sizes);
        add(&mut self.siblings, other.siblings);
    }
}

fn add(histogram: &mut BTreeMap<u64, u64>, other: BTreeMap<u64, u64>) {
    for (of, count) in other {
        *histogram.entry(of).or_default() += count;
    }
}

impl Findings {
    /// Adds an entry of the question's scope, once.
    pub fn take(&mut self, kind: FoldKind, entry: &impl FoldedEntry) {
        match kind {
            FoldKind::ObjectStats => self.stats.take(entry),
            FoldKind::SiblingsAbove(limit) => self.take_number(entry, entry.siblings(), limit),
            FoldKind::SizeAbove(limit) => self.take_number(entry, entry.size_bytes(), limit),
            FoldKind::Clocks(class) => {
                if class.has(entry.is_tombstone()) {
                    self.push_clock(KeyClock {
                        key: entry.key().clone(),
                        clock: entry.clock(),
                    });
                }
            }
            FoldKind::Count(class) => self.count += u64::from(class.has(entry.is_tombstone())),
            FoldKind::Tree { leaves, seed } => {
                let leaf = tree_position(entry.segment()) & leaves.saturating_sub(1);
                *self.leaves.entry(leaf).or_default() ^= entry.leaf_hash(seed);
            }
        }
    }

    fn take_number(&mut self, entry: &impl FoldedEntry, number: u64, limit: u64) {
        if number > limit {
            self.push_number(KeyNumber {
                key: entry.key().clone(),
                number,
            });
        }
    }

    /// Merges the findings of another part. The two parts share no key.
    pub fn merge(&mut self, other: Self) {
        self.stats.merge(other.stats);
        self.numbers.extend(other.numbers);
        self.clocks.extend(other.clocks);
        self.count += other.count;
        for (leaf, hash) in other.leaves {
            *self.leaves.entry(leaf).or_default() ^= hash;
        }
        self.listed_bytes = self.listed_bytes.saturating_add(other.listed_bytes);
    }

    /// Sorts lists by key.
    pub fn sort(&mut self) {
        self.numbers.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        self.clocks.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    }

    /// The approximate memory of lists and leaves.
    pub fn memory_bytes(&self) -> usize {
        let listed = self.numbers.len() + self.clocks.len();
        listed * LISTED_KEY_BYTES + self.leaves.len() * LEAF_BYTES + self.listed_bytes
    }

    pub(crate) fn push_number(&mut self, found: KeyNumber) {
        self.listed_bytes += found.key.as_bytes().len();
        self.numbers.push(found);
    }

    pub(crate) fn push_clock(&mut self, found: KeyClock) {
        self.listed_bytes += found.key.as_bytes().len() + found.clock.len();
        self.clocks.push(found);
    }
}
