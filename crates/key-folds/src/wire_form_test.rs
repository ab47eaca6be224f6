//! The wire form: valid bytes are read back, and damaged ones are refused.

use std::collections::BTreeMap;

use bytes::Bytes;
use kvorum_encoding::{Bucket, BucketType, ByteReader, Key};
use kvorum_golden::assert_bytes;
use proptest::prelude::*;

use crate::{
    EntryClass, Findings, FoldKind, FoldScope, KeyClock, KeyFold, KeyNumber, LeafFilter,
    ObjectStats,
};

fn kinds() -> Vec<FoldKind> {
    let leaves = 1 << 22;
    vec![
        FoldKind::ObjectStats,
        FoldKind::SiblingsAbove(1),
        FoldKind::SizeAbove(u64::MAX),
        FoldKind::Clocks(EntryClass::Any),
        FoldKind::Clocks(EntryClass::Tombstones),
        FoldKind::Count(EntryClass::Living),
        FoldKind::Tree { leaves, seed: None },
        FoldKind::Tree {
            leaves,
            seed: Some(u64::MAX),
        },
    ]
}

fn scopes() -> [FoldScope; 2] {
    let whole = FoldScope::bucket(&BucketType::default_type(), &Bucket::from("b"));
    let narrow = FoldScope {
        bucket_type: BucketType::from("type"),
        bucket: Bucket::new(b"b\0\xff".to_vec()),
        keys: Some((Key::from(""), Key::new(b"k\xff".to_vec()))),
        modified_seconds: Some((0, u64::MAX)),
        leaves: LeafFilter::new(4096, vec![4095, 0]),
    };
    [whole, narrow]
}

fn folds() -> Vec<KeyFold> {
    let scopes = scopes();
    let with = |kind| scopes.clone().map(|scope| KeyFold { scope, kind });
    kinds().into_iter().flat_map(with).collect()
}

fn findings() -> Findings {
    let mut findings = Findings {
        stats: ObjectStats {
            count: 3,
            bytes: 808,
            sizes: BTreeMap::from([(2, 3)]),
            siblings: BTreeMap::from([(1, 2), (300, 1)]),
        },
        count: u64::MAX,
        leaves: BTreeMap::from([(0, 7), (u32::MAX, 1)]),
        ..Findings::default()
    };
    findings.push_number(KeyNumber {
        key: Key::new(b"k\0".to_vec()),
        number: 1 << 40,
    });
    findings.push_clock(KeyClock {
        key: Key::from("k"),
        clock: Bytes::from_static(b"\x01clock"),
    });
    findings
}

fn bytes_of(fold: &KeyFold) -> Vec<u8> {
    let mut bytes = Vec::new();
    fold.encode(&mut bytes);
    bytes
}

#[test]
fn the_bytes_are_as_drawn() {
    let scope = [
        ("length of the type", 1),
        ("type", 4),
        ("length of the bucket", 1),
        ("bucket", 3),
        ("1 it has keys", 1),
        ("length of the first key", 1),
        ("length of the last key", 1),
        ("last key", 2),
        ("1 it has times", 1),
        ("first second", 1),
        ("last second", 10),
        ("1 it has leaves", 1),
        ("number of leaves", 4),
        ("count of the wanted ones", 1),
        ("leaf", 4),
        ("leaf", 4),
    ];
    let kind = [
        ("kind: 5 tree", 1),
        ("number of leaves", 4),
        ("1 it has a seed", 1),
        ("seed", 8),
    ];
    let [_, narrow] = scopes();
    let fold = KeyFold {
        scope: narrow,
        kind: FoldKind::Tree {
            leaves: 1 << 22,
            seed: Some(7),
        },
    };
    let drawing = [&scope[..], &kind].concat();
    assert_bytes("wire_form.question.hex", &drawing, &bytes_of(&fold));
    let mut bytes = Vec::new();
    findings().encode(&mut bytes);
    let drawing = [
        ("count of the statistics", 1),
        ("bytes", 2),
        ("sizes in the histogram", 1),
        ("size, and how often", 2),
        ("siblings in the histogram", 1),
        ("siblings, and how often", 2),
        ("siblings, and how often", 3),
        ("count of keys with a number", 1),
        ("length of the key", 1),
        ("key", 2),
        ("number", 6),
        ("count of keys with a clock", 1),
        ("length of the key", 1),
        ("key", 1),
        ("length of the clock", 1),
        ("clock", 6),
        ("count", 10),
        ("count of leaves", 1),
        ("leaf", 4),
        ("hash", 4),
        ("leaf", 4),
        ("hash", 4),
    ];
    assert_bytes("wire_form.findings.hex", &drawing, &bytes);
}

#[test]
fn questions_return_as_they_were() {
    for fold in folds() {
        let bytes = bytes_of(&fold);
        let mut reader = ByteReader::new(&bytes);
        assert_eq!(KeyFold::decode(&mut reader), Ok(fold));
        assert!(reader.is_empty());
    }
}

#[test]
fn findings_return_as_they_were() {
    for findings in [Findings::default(), findings()] {
        let mut bytes = Vec::new();
        findings.encode(&mut bytes);
        let mut reader = ByteReader::new(&bytes);
        let decoded = Findings::decode(&mut reader);
        assert!(reader.is_empty());
        let memory = decoded.as_ref().map(Findings::memory_bytes);
        assert_eq!(memory, Ok(findings.memory_bytes()));
        assert_eq!(decoded, Ok(findings));
    }
}

#[test]
fn what_is_cut_short_is_refused() {
    for fold in folds() {
        let bytes = bytes_of(&fold);
        for len in 0..bytes.len() {
            let mut reader = ByteReader::new(&bytes[..len]);
            assert!(KeyFold::decode(&mut reader).is_err(), "{fold:?} {len}");
        }
    }
    let mut bytes = Vec::new();
    findings().encode(&mut bytes);
    for len in 0..bytes.len() {
        let mut reader = ByteReader::new(&bytes[..len]);
        assert!(Findings::decode(&mut reader).is_err(), "{len}");
    }
}

#[test]
fn kinds_and_trees_that_cannot_be_are_refused() {
    let [whole, _] = scopes();
    let stats = KeyFold {
        scope: whole.clone(),
        kind: FoldKind::ObjectStats,
    };
    let mut bytes = bytes_of(&stats);
    *bytes.last_mut().unwrap() = 9;
    assert!(KeyFold::decode(&mut ByteReader::new(&bytes)).is_err());
    let tree = KeyFold {
        scope: whole,
        kind: FoldKind::Tree {
            leaves: 3,
            seed: None,
        },
    };
    let bytes = bytes_of(&tree);
    assert!(KeyFold::decode(&mut ByteReader::new(&bytes)).is_err());
}

proptest! {
    #[test]
    fn no_bytes_are_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let _question = KeyFold::decode(&mut ByteReader::new(&bytes));
        let _findings = Findings::decode(&mut ByteReader::new(&bytes));
    }
}
