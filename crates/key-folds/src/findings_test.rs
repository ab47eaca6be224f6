//! Findings against a model: entries in a list, which each question searches.

use std::collections::BTreeMap;

use bytes::Bytes;
use kvorum_encoding::{Key, checksum, tree_position};
use proptest::prelude::*;

use crate::{EntryClass, Findings, FoldKind, FoldedEntry, KeyClock, KeyNumber};

#[derive(Clone, Debug)]
struct Entry {
    key: Key,
    siblings: u64,
    bytes: u64,
    is_tombstone: bool,
    hash: u32,
}

impl FoldedEntry for Entry {
    fn key(&self) -> &Key {
        &self.key
    }

    fn siblings(&self) -> u64 {
        self.siblings
    }

    fn size_bytes(&self) -> u64 {
        self.bytes
    }

    fn is_tombstone(&self) -> bool {
        self.is_tombstone
    }

    fn segment(&self) -> u32 {
        checksum(self.key.as_bytes())
    }

    fn leaf_hash(&self, seed: Option<u64>) -> u32 {
        match seed {
            None => self.hash,
            Some(seed) => checksum(&(seed ^ u64::from(self.hash)).to_le_bytes()),
        }
    }

    fn clock(&self) -> Bytes {
        Bytes::from(format!("clock of {}", self.key))
    }
}

fn entry(number: u16, siblings: u64, bytes: u64, is_tombstone: bool) -> Entry {
    let key = Key::new(number.to_be_bytes().to_vec());
    let hash = checksum(&[key.as_bytes(), &bytes.to_le_bytes()].concat());
    Entry {
        key,
        siblings,
        bytes,
        is_tombstone,
        hash,
    }
}

/// Entries, each with a key of its own.
fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let value = (1u64..6, 0u64..100_000, any::<bool>());
    let entries = prop::collection::btree_map(any::<u16>(), value, 0..60);
    entries.prop_map(|map| {
        let of = |(number, (siblings, bytes, is_tombstone))| {
            entry(number, siblings, bytes, is_tombstone)
        };
        map.into_iter().map(of).collect()
    })
}

const CLASSES: [EntryClass; 3] = [EntryClass::Any, EntryClass::Living, EntryClass::Tombstones];
const LEAVES: u32 = 64;

fn kinds() -> Vec<FoldKind> {
    let mut kinds = vec![
        FoldKind::ObjectStats,
        FoldKind::SiblingsAbove(2),
        FoldKind::SizeAbove(5_000),
        FoldKind::Tree {
            leaves: LEAVES,
            seed: None,
        },
        FoldKind::Tree {
            leaves: LEAVES,
            seed: Some(5),
        },
    ];
    kinds.extend(CLASSES.map(FoldKind::Clocks));
    kinds.extend(CLASSES.map(FoldKind::Count));
    kinds
}

fn found(kind: FoldKind, entries: &[Entry]) -> Findings {
    let mut findings = Findings::default();
    for entry in entries {
        findings.take(kind, entry);
    }
    findings
}

fn histogram(values: impl Iterator<Item = u64>) -> BTreeMap<u64, u64> {
    let mut histogram = BTreeMap::new();
    for value in values {
        *histogram.entry(value).or_default() += 1;
    }
    histogram
}

fn of_class(class: EntryClass, entries: &[Entry]) -> impl Iterator<Item = &Entry> {
    let is_of = move |entry: &&Entry| match class {
        EntryClass::Any => true,
        EntryClass::Living => !entry.is_tombstone,
        EntryClass::Tombstones => entry.is_tombstone,
    };
    entries.iter().filter(is_of)
}

fn check(kind: FoldKind, entries: &[Entry], findings: &Findings) {
    match kind {
        FoldKind::ObjectStats => {
            let stats = &findings.stats;
            assert_eq!(stats.count, entries.len() as u64);
            assert_eq!(stats.bytes, entries.iter().map(|it| it.bytes).sum::<u64>());
            let digits = |it: &Entry| it.bytes.to_string().len() as u64 - 1;
            assert_eq!(stats.sizes, histogram(entries.iter().map(digits)));
            let siblings = entries.iter().map(|it| it.siblings);
            assert_eq!(stats.siblings, histogram(siblings));
        }
        FoldKind::SiblingsAbove(limit) => {
            check_numbers(entries, findings, |it| it.siblings, limit);
        }
        FoldKind::SizeAbove(limit) => check_numbers(entries, findings, |it| it.bytes, limit),
        FoldKind::Clocks(class) => {
            let expected = of_class(class, entries).map(|it| KeyClock {
                key: it.key.clone(),
                clock: it.clock(),
            });
            assert_eq!(findings.clocks, expected.collect::<Vec<_>>());
        }
        FoldKind::Count(class) => {
            assert_eq!(findings.count, of_class(class, entries).count() as u64);
        }
        FoldKind::Tree { leaves, seed } => {
            for leaf in 0..leaves {
                let falls_into = |it: &&Entry| tree_position(it.segment()) % leaves == leaf;
                let hashes = entries.iter().filter(falls_into);
                let expected = hashes.fold(0, |sum, it| sum ^ it.leaf_hash(seed));
                let got = findings.leaves.get(&leaf).copied().unwrap_or(0);
                assert_eq!(got, expected, "leaf {leaf}");
            }
        }
    }
}

fn check_numbers(entries: &[Entry], findings: &Findings, of: fn(&Entry) -> u64, limit: u64) {
    let above = entries.iter().filter(|it| of(it) > limit);
    let expected = above.map(|it| KeyNumber {
        key: it.key.clone(),
        number: of(it),
    });
    assert_eq!(findings.numbers, expected.collect::<Vec<_>>());
}

proptest! {
    #[test]
    fn every_question_finds_what_a_look_at_all_entries_finds(entries in entries()) {
        for kind in kinds() {
            check(kind, &entries, &found(kind, &entries));
        }
    }

    #[test]
    fn parts_have_together_what_the_whole_has(entries in entries(), cut in 0usize..60) {
        let (front, back) = entries.split_at(cut.min(entries.len()));
        for kind in kinds() {
            let whole = found(kind, &entries);
            let mut merged = found(kind, front);
            merged.merge(found(kind, back));
            prop_assert_eq!(&merged, &whole);
            prop_assert_eq!(merged.memory_bytes(), whole.memory_bytes());
        }
    }

    #[test]
    fn sorted_lists_do_not_depend_on_the_order_of_parts(entries in entries()) {
        let (front, back) = entries.split_at(entries.len() / 2);
        for kind in kinds() {
            let mut merged = found(kind, back);
            merged.merge(found(kind, front));
            merged.sort();
            prop_assert_eq!(merged, found(kind, &entries));
        }
    }
}

#[test]
fn what_is_listed_takes_memory_and_what_is_counted_takes_none() {
    let entries: Vec<Entry> = (0..100).map(|it| entry(it, 3, 9_999, true)).collect();
    let bytes = |kind| found(kind, &entries).memory_bytes();
    assert_eq!(bytes(FoldKind::ObjectStats), 0);
    assert_eq!(bytes(FoldKind::Count(EntryClass::Any)), 0);
    assert_eq!(bytes(FoldKind::SiblingsAbove(3)), 0);
    assert!(bytes(FoldKind::SiblingsAbove(2)) > 100 * 2);
    let clocks = bytes(FoldKind::Clocks(EntryClass::Tombstones));
    assert!(clocks > bytes(FoldKind::SizeAbove(9)));
    let tree = FoldKind::Tree {
        leaves: LEAVES,
        seed: None,
    };
    assert!((1..100 * 100).contains(&bytes(tree)));
}

#[test]
fn an_object_of_no_bytes_is_of_the_lowest_magnitude() {
    let entries = [
        entry(1, 1, 0, false),
        entry(2, 1, 9, false),
        entry(3, 1, 10, false),
    ];
    let stats = found(FoldKind::ObjectStats, &entries).stats;
    assert_eq!(stats.sizes, BTreeMap::from([(0, 2), (1, 1)]));
}
