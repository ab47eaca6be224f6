//! Trees against a model: a map from keys to stored entries.

use std::collections::{BTreeMap, BTreeSet};

use kvorum_encoding::checksum;
use proptest::prelude::*;

use crate::{LeafHash, Tree, TreeSize, differing, folded_root};

type Model = BTreeMap<u16, u64>;

fn segment(key: u16) -> u32 {
    checksum(&key.to_le_bytes())
}

fn hash(key: u16, counter: u64) -> LeafHash {
    LeafHash::new(&key.to_le_bytes(), [(1, counter)], counter, false)
}

fn tree_of(size: TreeSize, model: &Model) -> Tree {
    let mut tree = Tree::new(size);
    for (key, counter) in model {
        tree.change(segment(*key), None, Some(hash(*key, *counter)));
    }
    tree
}

fn apply(model: &mut Model, tree: &mut Tree, key: u16, new: Option<u64>) {
    let old = match new {
        Some(counter) => model.insert(key, counter),
        None => model.remove(&key),
    };
    let hash = |counter| hash(key, counter);
    tree.change(segment(key), old.map(hash), new.map(hash));
}

fn writes() -> impl Strategy<Value = Vec<(u16, Option<u64>)>> {
    let write = (0u16..300, prop::option::weighted(0.7, 1u64..5));
    prop::collection::vec(write, 0..400)
}

fn size() -> impl Strategy<Value = TreeSize> {
    prop::sample::select(&TreeSize::ALL[..4])
}

fn is_same(one: &Tree, other: &Tree) -> bool {
    let branches = 0..one.size().branches();
    one.root() == other.root()
        && one.keys() == other.keys()
        && branches
            .clone()
            .all(|it| one.branch(it) == other.branch(it))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_tree_kept_at_each_write_is_the_tree_of_what_is_there(size in size(), writes in writes()) {
        let (mut model, mut tree) = (Model::new(), Tree::new(size));
        for (key, new) in writes {
            apply(&mut model, &mut tree, key, new);
        }
        prop_assert!(is_same(&tree, &tree_of(size, &model)));
    }

    #[test]
    fn merged_trees_are_the_tree_of_the_union(
        sizes in (size(), size()),
        model in prop::collection::btree_map(any::<u16>(), 1u64..9, 0..300),
    ) {
        let (even, odd): (Model, Model) = model.iter().partition(|(key, _)| *key % 2 == 0);
        let merged = tree_of(sizes.0, &even).merged(&tree_of(sizes.1, &odd));
        prop_assert!(is_same(&merged, &tree_of(sizes.0.min(sizes.1), &model)));
    }

    #[test]
    fn a_folded_tree_is_the_smaller_tree(
        sizes in (size(), size()),
        model in prop::collection::btree_map(any::<u16>(), 1u64..9, 0..300),
    ) {
        let small = sizes.0.min(sizes.1);
        let tree = tree_of(sizes.0.max(sizes.1), &model);
        let smaller = tree_of(small, &model);
        prop_assert_eq!(folded_root(tree.root(), small), smaller.root().to_vec());
        prop_assert!(is_same(&tree.folded_to(small), &smaller));
    }

    #[test]
    fn what_differs_is_found_by_root_and_branches(
        size in size(),
        model in prop::collection::btree_map(0u16..300, 1u64..9, 0..200),
        changes in prop::collection::btree_map(0u16..300, prop::option::of(10u64..20), 1..6),
    ) {
        let (mut other, mut theirs) = (model.clone(), tree_of(size, &model));
        let ours = theirs.clone();
        for (key, new) in &changes {
            apply(&mut other, &mut theirs, *key, *new);
        }
        let changed = changes.keys().filter(|key| model.get(key) != other.get(key));
        let mut expected: Vec<u32> = changed.map(|key| size.leaf_of(segment(*key))).collect();
        expected.sort_unstable();
        expected.dedup();
        let mut found = Vec::new();
        for branch in differing(ours.root(), theirs.root()) {
            let leaves = differing(ours.branch(branch), theirs.branch(branch));
            found.extend(leaves.into_iter().map(|leaf| u32::try_from(branch * 256 + leaf).unwrap()));
        }
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn a_wrong_leaf_is_put_right() {
    let model: Model = (0..100).map(|key| (key, 1)).collect();
    let mut tree = tree_of(TreeSize::XxSmall, &model);
    let right = tree.clone();
    let number = TreeSize::XxSmall.leaf_of(segment(5));
    assert!(!tree.correct(number, right.leaf(number)));
    assert!(tree.correct(number, 12));
    assert_eq!(tree.leaf(number), 12);
    assert!(tree.correct(number, right.leaf(number)));
    assert!(is_same(&tree, &right));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn leaves_that_were_forgotten_and_filled_again_are_as_they_were(
        sizes in (size(), size()),
        model in prop::collection::btree_map(any::<u16>(), 1u64..9, 0..200),
        forgotten in prop::collection::btree_set(any::<u16>(), 0..20),
    ) {
        let (small, large) = (sizes.0.min(sizes.1), sizes.0.max(sizes.1));
        let tree = tree_of(large, &model);
        let leaf = |key: &u16| small.leaf_of(segment(*key));
        let leaves: BTreeSet<u32> = forgotten.iter().map(leaf).collect();
        let mut other = tree.clone();
        let wanted: Vec<u32> = leaves.iter().copied().collect();
        other.forget_leaves(small, &wanted);
        let (gone, rest): (Model, Model) =
            model.iter().partition(|(key, _)| leaves.contains(&leaf(key)));
        let without = tree_of(large, &rest);
        prop_assert_eq!(other.root(), without.root());
        for (key, counter) in &gone {
            other.refill(segment(*key), hash(*key, *counter));
        }
        prop_assert!(is_same(&other, &tree));
    }
}

#[test]
fn untouched_branches_take_a_pointer() {
    let mut tree = Tree::new(TreeSize::Large);
    let empty = tree.memory_bytes();
    assert!(empty < 50 << 10, "{empty}");
    tree.change(1, None, Some(hash(1, 1)));
    assert_eq!(tree.memory_bytes(), empty + 1024);
    tree.change(1, Some(hash(1, 1)), Some(hash(1, 2)));
    assert_eq!(tree.memory_bytes(), empty + 1024);
}

/// Sixty-four partitions at n_val 3 have three trees each, and each tree covers at most a million
/// keys.
#[test]
fn trees_of_64_partitions_of_a_million_keys_fit_into_256_megabytes() {
    let size = TreeSize::for_keys(1_000_000);
    let mut tree = Tree::new(size);
    for key in 0u32..100_000 {
        let segment = checksum(&key.to_le_bytes());
        tree.change(segment, None, Some(LeafHash::new(b"k", [(1, 1)], 0, false)));
    }
    let touched = tree.memory_bytes();
    assert_eq!(
        touched,
        Tree::memory_bytes_max(size),
        "every branch is touched"
    );
    let all = 64 * 3 * touched;
    assert!(all < 256 << 20, "{all}");
    assert!(
        all < 200 << 20,
        "with room for 50 trees that are being built: {all}"
    );
}

/// A tree takes about a byte of memory for each key, as long as its size fits the number of keys.
#[test]
fn memory_grows_with_the_keys() {
    for keys in [
        20_000u64, 100_000, 500_000, 2_000_000, 10_000_000, 16_000_000,
    ] {
        let bytes = Tree::memory_bytes_max(TreeSize::for_keys(keys)) as u64;
        assert!(bytes <= 17 * keys / 4, "{keys}: {bytes}");
        assert!(bytes >= keys, "{keys}: {bytes}");
    }
    let mut tree = Tree::new(TreeSize::XxSmall);
    for key in 0..16_385u16 {
        tree.change(segment(key), None, Some(hash(key, 1)));
        assert_eq!(tree.is_outgrown(), key == 16_384);
    }
}

#[test]
#[should_panic(expected = "two versions of the hash")]
fn trees_of_two_versions_are_not_merged() {
    let old = Tree::of_version(TreeSize::Small, 0);
    let _merged = Tree::new(TreeSize::Small).merged(&old);
}
