//! A vnode's trees follow its store, and its answers about them are those of its store.

use std::collections::BTreeSet;
use std::sync::Arc;

use kvorum_backend::{Durability, FoldClock, Lease};
use kvorum_encoding::StorageKey;
use kvorum_object::{Clock, ObjectTag, Resolution};
use kvorum_ring::Epoch;
use kvorum_tictac::{LEAVES_A_BRANCH, TreeSize};
use kvorum_vnode::{
    BuildStep, LeafKeys, Operation, PageFailure, ReplicaFailure, SeenEntry, TreeAnswer, TreeName,
    TreePlacing, TreeQuestion, TreeRequest,
};
use proptest::prelude::*;

use crate::{Bench, NOW, made_elsewhere, partition, storage_key, store};

/// Everything is in one tree.
pub(crate) struct OneTree;

const N_VAL: u8 = 3;

pub(crate) fn tree() -> TreeName {
    TreeName {
        owner: partition(),
        n_val: N_VAL,
    }
}

impl TreePlacing for OneTree {
    fn tree_of(&self, _key: &StorageKey) -> Option<TreeName> {
        Some(tree())
    }
}

fn with_trees() -> Bench {
    let mut bench = Bench::new();
    bench.vnode = bench.vnode.with_trees(Arc::new(OneTree));
    bench
}

fn build(bench: &Bench, entries_max: usize) -> BuildStep {
    let clock = FoldClock::stopped_at(NOW);
    bench
        .vnode
        .build_trees(&clock, Lease::Unlimited, entries_max)
        .unwrap()
}

fn build_whole(bench: &Bench) {
    while build(bench, 3) == BuildStep::Going {}
}

fn try_ask(bench: &Bench, epoch: u64, question: TreeQuestion) -> Result<TreeAnswer, PageFailure> {
    let request = TreeRequest {
        partition: partition(),
        epoch: Epoch::new(epoch),
        tree: tree(),
        question,
    };
    let clock = FoldClock::stopped_at(NOW);
    bench
        .vnode
        .answer_about_trees(&request, &clock, Lease::Unlimited)
}

fn ask(bench: &Bench, question: TreeQuestion) -> TreeAnswer {
    try_ask(bench, 3, question).unwrap()
}

/// The root and all branches, and true if the tree lacks entries.
fn whole(bench: &Bench) -> (Vec<u32>, Vec<Vec<u32>>, bool) {
    let TreeAnswer::Root {
        size,
        root,
        is_building,
        ..
    } = ask(bench, TreeQuestion::Root)
    else {
        panic!("no root");
    };
    let branches = (0..u32::try_from(size.branches()).unwrap()).collect();
    let TreeAnswer::Branches { branches, .. } =
        ask(bench, TreeQuestion::Branches { size, branches })
    else {
        panic!("no branches");
    };
    (root, branches, is_building)
}

fn all_keys() -> LeafKeys {
    LeafKeys {
        size: TreeSize::XxSmall,
        leaves: (0..TreeSize::XxSmall.leaves()).collect(),
        bucket_prefix: None,
        modified: None,
        after: None,
        keys_max: 1_000,
    }
}

fn keys(bench: &Bench, asked: LeafKeys) -> (Vec<SeenEntry>, bool) {
    match ask(bench, TreeQuestion::Keys(asked)) {
        TreeAnswer::Keys {
            entries, is_cut, ..
        } => (entries, is_cut),
        other => panic!("{other:?}"),
    }
}

#[derive(Clone, Debug)]
enum Write {
    Put(u8),
    Delete(u8),
    Store(u8),
    Mend(u8),
    Reap(u8),
    Forget(u8),
    Build,
}

fn writes() -> impl Strategy<Value = Vec<Write>> {
    let key = 0u8..9;
    let write = prop_oneof![
        key.clone().prop_map(Write::Put),
        key.clone().prop_map(Write::Delete),
        key.clone().prop_map(Write::Store),
        key.clone().prop_map(Write::Mend),
        key.clone().prop_map(Write::Reap),
        key.prop_map(Write::Forget),
        Just(Write::Build),
    ];
    proptest::collection::vec(write, 1..60)
}

fn write(bench: &Bench, write: &Write, counter: u64) {
    let name = |number: &u8| format!("k{number}");
    let clock_of = |key: &str| bench.get(key).map(|it| it.clock().clone());
    match write {
        Write::Put(key) => {
            let key = name(key);
            let context = clock_of(&key).unwrap_or_default();
            bench.put(&key, &format!("v{counter}"), &context);
        }
        Write::Delete(key) => {
            if bench.get(&name(key)).is_some() {
                bench.delete(&name(key));
            }
        }
        Write::Store(key) => {
            let object = made_elsewhere("there", &Clock::new(), counter);
            bench.done(store(&name(key), &object));
        }
        Write::Mend(key) => {
            bench.done(Operation::Mend {
                key: storage_key(&name(key)),
                object: Arc::new(made_elsewhere("mended", &Clock::new(), counter)),
                resolution: Resolution::KeepSiblings,
                tag: ObjectTag::default(),
            });
        }
        Write::Reap(key) => {
            if let Some(clock) = clock_of(&name(key)) {
                let key = storage_key(&name(key));
                bench.done(Operation::Reap { key, clock });
            }
        }
        Write::Forget(key) => {
            if let Some(clock) = clock_of(&name(key)) {
                let key = storage_key(&name(key));
                let forgotten = bench.vnode.forget(&key, &clock, Durability::Buffered, NOW);
                assert!(forgotten.unwrap());
            }
        }
        Write::Build => {
            build(bench, 2);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn trees_that_follow_writes_are_those_that_are_built_from_the_store(writes in writes()) {
        let bench = with_trees();
        for (counter, it) in (1..).zip(&writes) {
            write(&bench, it, counter);
        }
        build_whole(&bench);
        let followed = whole(&bench);
        bench.vnode.drop_trees();
        build_whole(&bench);
        prop_assert_eq!(followed, whole(&bench));
    }
}

#[test]
fn a_tree_says_that_it_lacks_entries_until_it_is_built_and_while_the_vnode_does() {
    let bench = with_trees();
    bench.put("a", "1", &Clock::new());
    bench.put("b", "1", &Clock::new());
    assert!(whole(&bench).2);
    assert_eq!(build(&bench, 1), BuildStep::Going);
    assert!(whole(&bench).2);
    while build(&bench, 1) == BuildStep::Going {}
    assert!(!whole(&bench).2);
    assert_eq!(build(&bench, 1), BuildStep::Idle);
    bench.vnode.mark_incomplete();
    assert!(whole(&bench).2);
    let refused = try_ask(&bench, 3, TreeQuestion::Keys(all_keys()));
    let incomplete = PageFailure::Failed(ReplicaFailure::Incomplete);
    assert_eq!(refused, Err(incomplete));
}

#[test]
fn a_question_by_an_older_ring_is_refused() {
    let bench = with_trees();
    let refused = try_ask(&bench, 2, TreeQuestion::Root);
    let is_stale = matches!(
        refused,
        Err(PageFailure::Failed(ReplicaFailure::StaleEpoch { .. }))
    );
    assert!(is_stale, "{refused:?}");
}

#[test]
fn a_vnode_without_trees_knows_nothing_of_them() {
    let bench = Bench::new();
    assert_eq!(ask(&bench, TreeQuestion::Root), TreeAnswer::Unknown);
    assert_eq!(build(&bench, 1), BuildStep::Idle);
    assert_eq!(bench.vnode.trees_status(), None);
}

#[test]
fn keys_of_leaves_are_listed_with_versions_within_bounds() {
    let bench = with_trees();
    for number in 0..20 {
        bench.put(&format!("k{number:02}"), "v", &Clock::new());
    }
    build_whole(&bench);
    let (all, is_cut) = keys(&bench, all_keys());
    assert_eq!((all.len(), is_cut), (20, false));
    let versions: BTreeSet<u64> = all.iter().map(|it| it.version).collect();
    assert_eq!(versions.len(), 20);

    let one = &all[7];
    let leaf = TreeSize::XxSmall.leaf_of(one.segment);
    let of_leaf = LeafKeys {
        leaves: [leaf].into(),
        ..all_keys()
    };
    let (listed, _) = keys(&bench, of_leaf);
    let expected = |it: &&SeenEntry| TreeSize::XxSmall.leaf_of(it.segment) == leaf;
    let expected: Vec<SeenEntry> = all.iter().filter(expected).cloned().collect();
    assert_eq!(listed, expected);

    let first = LeafKeys {
        keys_max: 5,
        ..all_keys()
    };
    let (listed, is_cut) = keys(&bench, first);
    assert_eq!((&listed[..], is_cut), (&all[..5], true));
    let rest = LeafKeys {
        after: Some(listed[4].key.clone()),
        ..all_keys()
    };
    assert_eq!(keys(&bench, rest), (all[5..].to_vec(), false));

    let earlier = LeafKeys {
        modified: Some((0, all[0].modified - 1)),
        ..all_keys()
    };
    assert_eq!(keys(&bench, earlier), (Vec::new(), false));
    let other_bucket = LeafKeys {
        bucket_prefix: Some(b"zzz"[..].into()),
        after: Some(all[0].key.clone()),
        ..all_keys()
    };
    assert_eq!(keys(&bench, other_bucket), (Vec::new(), false));

    bench.put("k07", "w", all[7].key_clock(&bench).as_ref().unwrap());
    let (changed, _) = keys(&bench, all_keys());
    assert_ne!(changed[7].version, one.version);
    assert_eq!(changed[8..], all[8..]);
}

trait KeyClock {
    fn key_clock(&self, bench: &Bench) -> Option<Clock>;
}

impl KeyClock for SeenEntry {
    /// The clock of the object under the key.
    fn key_clock(&self, bench: &Bench) -> Option<Clock> {
        let stored = bench.vnode.stored_object(&self.key, NOW).unwrap();
        stored.map(|it| it.head.clock().clone())
    }
}

#[test]
fn a_leaf_with_an_entry_that_was_taken_away_behind_the_vnode_is_put_right() {
    let bench = with_trees();
    bench.put("a", "1", &Clock::new());
    bench.put("b", "1", &Clock::new());
    build_whole(&bench);
    let with_both = whole(&bench);
    let removal = kvorum_backend::Write::remove(storage_key("a"));
    let store = bench.vnode.store_for_upkeep();
    let removal = kvorum_backend::Batch::of(removal);
    let _buffered = store.put(&removal, Durability::Buffered).unwrap();
    assert_eq!(whole(&bench), with_both);
    let leaves = all_keys().leaves;
    let size = TreeSize::XxSmall;
    let recounted = ask(&bench, TreeQuestion::Recount { size, leaves });
    assert_eq!(recounted, TreeAnswer::Recounted);
    let recounted = whole(&bench);
    assert_ne!(recounted, with_both);
    bench.vnode.drop_trees();
    build_whole(&bench);
    assert_eq!(whole(&bench), recounted);
    assert!(bench.vnode.trees_status().unwrap().leaves_corrected >= 1);
}

#[test]
fn branches_beyond_the_tree_are_not_known() {
    let bench = with_trees();
    build_whole(&bench);
    let asked = |size, branch| {
        ask(
            &bench,
            TreeQuestion::Branches {
                size,
                branches: [branch].into(),
            },
        )
    };
    let TreeAnswer::Branches { branches, .. } = asked(TreeSize::XxSmall, 15) else {
        panic!("no branches");
    };
    assert_eq!(branches, [vec![0; LEAVES_A_BRANCH]]);
    assert_eq!(asked(TreeSize::XxSmall, 16), TreeAnswer::Unknown);
    assert_eq!(asked(TreeSize::XLarge, 0), TreeAnswer::Unknown);
}
