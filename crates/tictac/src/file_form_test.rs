//! The file of a tree: it is decoded as it was written, and no damaged file passes for a tree.

use kvorum_golden::assert_bytes;
use proptest::prelude::*;

use crate::{LeafHash, Stamp, Tree, TreeFileError, TreeSize};

const STAMP: Stamp = Stamp {
    store: 0x1122_3344_5566_7788,
    sequence: 99,
};

fn tree_of(size: TreeSize, segments: &[u32]) -> Tree {
    let mut tree = Tree::new(size);
    for segment in segments {
        let hash = LeafHash::new(&segment.to_le_bytes(), [(1, 1)], 7, false);
        tree.change(*segment, None, Some(hash));
    }
    tree
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_tree_comes_back_as_it_was(
        number in 0u8..6,
        segments in prop::collection::vec(any::<u32>(), 0..200),
    ) {
        let tree = tree_of(TreeSize::from_number(number).unwrap(), &segments);
        let read = Tree::decode(&tree.encode(STAMP));
        prop_assert_eq!(read, Ok((tree, STAMP)));
    }
}

#[test]
fn the_bytes_are_as_drawn() {
    let bytes = tree_of(TreeSize::XxSmall, &[1, 70_000]).encode(STAMP);
    let header = [
        ("magic \"KVTT\"", 4),
        ("version, 1", 1),
        ("hash version of the leaves", 1),
        ("size: 0 xxsmall", 1),
        ("reserved", 1),
        ("identity of the store", 8),
        ("last batch of the store that is in the tree", 8),
        ("keys, an estimate", 8),
        ("branches", 4),
    ];
    let branch = [("number of the branch", 4), ("leaves", 1024)];
    let checksum = [("masked CRC-32C of all before", 4)];
    let drawing = [&header[..], &branch, &branch, &checksum].concat();
    assert_bytes("file_form.hex", &drawing, &bytes);
}

#[test]
fn every_flipped_bit_is_found() {
    let bytes = tree_of(TreeSize::XxSmall, &[1, 2, 500, 70_000]).encode(STAMP);
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            assert!(Tree::decode(&flipped).is_err(), "bit {bit} of byte {at}");
        }
    }
}

#[test]
fn a_file_that_ends_early_or_late_is_refused() {
    let bytes = tree_of(TreeSize::XxSmall, &[1, 70_000]).encode(STAMP);
    for len in 0..bytes.len() {
        assert!(Tree::decode(&bytes[..len]).is_err(), "{len}");
    }
    let longer = [&bytes[..], &[0]].concat();
    assert!(Tree::decode(&longer).is_err());
}

#[test]
fn what_cannot_be_read_says_why() {
    let mut bytes = tree_of(TreeSize::XxSmall, &[1]).encode(STAMP);
    assert_eq!(Tree::decode(b"KVTT"), Err(TreeFileError::NotATree));
    bytes[4] = 2;
    assert_eq!(Tree::decode(&bytes), Err(TreeFileError::Version { got: 2 }));
    bytes[4] = 1;
    bytes[40] ^= 1;
    let error = Tree::decode(&bytes).unwrap_err().to_string();
    assert!(
        error.starts_with("damaged anti-entropy tree: checksum"),
        "{error}"
    );
}
