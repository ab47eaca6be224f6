//! The file of a vnode's trees, and the rule by which it is trusted.

use kvorum_golden::assert_bytes;
use kvorum_planted_defects::{PlantedDefect, plant};
use kvorum_tictac::{LeafHash, TreeSize};

use super::*;

const STAMP: KeptStamp = KeptStamp {
    store: StoreId(7),
    complete: Sequence(100),
    reached: Sequence(105),
    lost: 2,
    built_at: 1_000,
    placements: 0xabcd,
};

const PRESENT: Present = Present {
    lost: 2,
    placements: 0xabcd,
};

fn name(owner: u16, n_val: u8) -> TreeName {
    TreeName {
        owner: Partition::of_number(owner).unwrap(),
        n_val,
    }
}

fn tree(segments: &[u32]) -> Tree {
    let mut tree = Tree::new(TreeSize::XxSmall);
    for segment in segments {
        let hash = LeafHash::new(&segment.to_le_bytes(), [(1, 1)], 7, false);
        tree.change(*segment, None, Some(hash));
    }
    tree
}

fn trees() -> BTreeMap<TreeName, Tree> {
    [
        (name(1, 3), tree(&[1, 2, 70_000])),
        (name(2, 1), tree(&[])),
        (name(2, 3), tree(&[5])),
    ]
    .into()
}

fn encoded() -> Vec<u8> {
    let trees = trees();
    let encoded = trees
        .iter()
        .map(|(name, it)| (*name, it.encode(STAMP.of_tree())));
    encode(&STAMP, &encoded.collect::<Vec<_>>())
}

fn opened(sequence: u64, replayed: Option<(u64, u64)>) -> OpenedStore {
    OpenedStore {
        store: STAMP.store,
        sequence: Sequence(sequence),
        replayed: replayed.map(|(from, to)| Replayed {
            from: Sequence(from),
            to: Sequence(to),
            segments: vec![3, 9],
        }),
    }
}

#[test]
fn trees_come_back_as_they_were() {
    assert_eq!(decode(&encoded()), Ok((STAMP, trees())));
    assert_eq!(decode_stamp(&encoded()), Ok((STAMP, 3)));
    let none = encode(&STAMP, &[]);
    assert_eq!(decode(&none), Ok((STAMP, BTreeMap::new())));
}

#[test]
fn the_bytes_are_as_drawn() {
    let tree = tree(&[1]).encode(STAMP.of_tree());
    let bytes = encode(&STAMP, &[(name(0x0102, 3), tree.clone())]);
    let drawing = [
        ("magic \"kvortre1\"", 8),
        ("store identity", 8),
        ("complete", 8),
        ("reached", 8),
        ("lost", 8),
        ("built at", 8),
        ("placements", 4),
        ("number of trees", 4),
        ("masked CRC-32C of the stamp", 4),
        ("owner partition", 2),
        ("n_val", 1),
        ("zero", 1),
        ("length of the tree", 4),
        ("masked CRC-32C of the names", 4),
        ("tree, which kvorum-tictac draws", tree.len()),
    ];
    assert_bytes("kept_trees.hex", &drawing, &bytes);
}

#[test]
fn no_flipped_bit_and_no_cut_passes() {
    let bytes = encoded();
    // The leaves of trees are covered by tests of their own form.
    let step = |at: usize| match at {
        0..160 => 1,
        _ => 97,
    };
    let mut at = 0;
    while at < bytes.len() {
        assert!(decode(&bytes[..at]).is_err(), "cut at {at}");
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x10;
        assert!(decode(&flipped).is_err(), "byte {at}");
        at += step(at);
    }
    let longer = [&bytes[..], &[0]].concat();
    assert!(decode(&longer).is_err());
}

#[test]
fn trees_of_other_contents_than_the_stamp_are_refused() {
    let stamp = Stamp {
        sequence: 99,
        ..STAMP.of_tree()
    };
    let bytes = encode(&STAMP, &[(name(1, 3), tree(&[1]).encode(stamp))]);
    assert!(matches!(decode(&bytes), Err(DecodeError::Malformed { .. })));
    let twice = [(name(1, 3), tree(&[]).encode(STAMP.of_tree()))];
    let twice = [&twice[..], &twice].concat();
    let bytes = encode(&STAMP, &twice);
    assert!(matches!(decode(&bytes), Err(DecodeError::Malformed { .. })));
}

#[test]
fn a_store_that_ends_where_the_trees_do_has_them_whole() {
    let clean = KeptStamp {
        reached: STAMP.complete,
        ..STAMP
    };
    assert_eq!(clean.judge(&opened(100, None), &PRESENT), Trust::Whole);
}

#[test]
fn a_store_that_went_on_has_them_if_the_log_gave_back_all_since() {
    let judge = |sequence, replayed| STAMP.judge(&opened(sequence, replayed), &PRESENT);
    let lacking = Trust::Lacking(vec![3, 9]);
    assert_eq!(judge(110, Some((100, 110))), lacking);
    assert_eq!(judge(110, Some((90, 110))), lacking);
    assert_eq!(judge(105, Some((90, 105))), lacking);
    let unknown = Trust::Refused(Refusal::BatchesUnknown);
    assert_eq!(judge(110, None), unknown);
    assert_eq!(judge(110, Some((101, 110))), unknown);
    assert_eq!(judge(110, Some((100, 109))), unknown);
}

#[test]
fn a_store_that_is_not_what_it_was_has_none() {
    let refused = |opened: &OpenedStore, present: &Present| match STAMP.judge(opened, present) {
        Trust::Refused(refusal) => refusal,
        trusted => panic!("{trusted:?}"),
    };
    let other = OpenedStore {
        store: StoreId(8),
        ..opened(110, Some((100, 110)))
    };
    assert_eq!(refused(&other, &PRESENT), Refusal::OtherStore);
    for sequence in [0, 50, 100, 104] {
        let older = opened(sequence, Some((0, sequence)));
        assert_eq!(refused(&older, &PRESENT), Refusal::OlderStore);
    }
    let later = opened(110, Some((100, 110)));
    let lossy = Present { lost: 3, ..PRESENT };
    assert_eq!(refused(&later, &lossy), Refusal::Lossy);
    let moved = Present {
        placements: 1,
        ..PRESENT
    };
    assert_eq!(refused(&later, &moved), Refusal::OtherPlacements);
}

#[test]
fn a_rule_that_keeps_trees_across_a_rollback_is_found() {
    let is_kept = || STAMP.judge(&opened(50, None), &PRESENT) == Trust::Whole;
    assert!(!is_kept());
    let _planted = plant(PlantedDefect::TreeKeptAcrossRollback);
    assert!(is_kept());
}
