//! Trees in the form of recorded answers of a Riak node.

use std::io::Read as _;

use flate2::read::ZlibDecoder;

use crate::{LeafHash, Tree, TreeSize, compressed_branch, level_bytes, level_json, tree_json};

/// Branches 0 and 1 of a recorded answer to a request for branches (Riak KV 3.2.3, n_val 3, size large).
const RECORDED: [&str; 2] = [
    "00000000789c63601805a360148c54000004000001",
    "00000001789c6360181a80e542bed140bb61148c82e10600e1300176",
];

fn from_hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().map(|it| it.to_digit(16).unwrap()).collect();
    let bytes = digits.chunks(2).map(|it| it[0] << 4 | it[1]);
    bytes.map(|it| u8::try_from(it).unwrap()).collect()
}

fn leaves_of(branch: &[u8]) -> (u32, Vec<u32>) {
    let number = u32::from_be_bytes(branch[..4].try_into().unwrap());
    let mut bytes = Vec::new();
    ZlibDecoder::new(&branch[4..])
        .read_to_end(&mut bytes)
        .unwrap();
    let leaves = bytes
        .chunks(4)
        .map(|it| u32::from_be_bytes(it.try_into().unwrap()));
    (number, leaves.collect())
}

#[test]
fn branches_are_those_of_a_riak_node() {
    for (number, recorded) in (0..).zip(RECORDED) {
        let (got, leaves) = leaves_of(&from_hex(recorded));
        assert_eq!((got, leaves.len()), (number, 256));
        let ours = compressed_branch(number, &leaves);
        assert_eq!(leaves_of(&ours), (number, leaves));
    }
    let (_, leaves) = leaves_of(&from_hex(RECORDED[1]));
    let exclusive_or = leaves.iter().fold(0, |so_far, leaf| so_far ^ leaf);
    assert_eq!(leaves[42], 0x04d0_6f32);
    assert_eq!(
        exclusive_or, 0x04d0_6f32,
        "the node's root has it under branch 1"
    );
}

#[test]
fn an_empty_level_is_spelt_as_riak_spells_it() {
    assert_eq!(compressed_branch(0, &[0; 256]), from_hex(RECORDED[0]));
    assert_eq!(level_json(&[0]), "[65,65,65,65,65,65,61,61]");
    assert_eq!(level_bytes(&[0x0102_0304]), [1, 2, 3, 4]);
}

#[test]
fn a_tree_is_an_object_of_two_levels() {
    let mut tree = Tree::new(TreeSize::XSmall);
    tree.change(77, None, Some(LeafHash::new(b"k", [(1, 1)], 2, false)));
    let json: serde_json::Value = serde_json::from_str(&tree_json(&tree)).unwrap();
    assert_eq!(
        json["level1"].as_array().unwrap().len(),
        344,
        "base64 of 256 bytes"
    );
    let branches = json["level2"].as_object().unwrap();
    let numbers: Vec<&str> = branches.keys().map(String::as_str).collect();
    let expected: Vec<String> = (0..64).map(|it| it.to_string()).collect();
    assert_eq!(numbers, expected);
    // The recorded form of a branch without an entry.
    let empty = "eJxjYBgFo2AUjFQAAAQAAAE=";
    let codes: Vec<u64> = empty.bytes().map(u64::from).collect();
    let is_empty = |it: &&serde_json::Value| **it == serde_json::json!(codes);
    assert_eq!(branches.values().filter(is_empty).count(), 63);
}
