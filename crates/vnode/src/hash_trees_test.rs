//! Trees against a model: each entry is in its tree once, with any changes between the steps of a fold.

use std::collections::BTreeMap;
use std::sync::Arc;

use kvorum_backend::{Sequence, StoreId};
use kvorum_encoding::{StorageKey, checksum};
use kvorum_planted_defects::{PlantedDefect, plant};
use kvorum_ring::{Partition, RingSize};
use kvorum_tictac::{LeafHash, Stamp, Tree, TreeSize};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::hash_trees::{HashTrees, RecountOrder, Taking, TreeEntry, TreesOrigin};
use crate::kept_trees::OpenedStore;
use crate::tree_name::{TreeName, TreePlacing};

/// Places each key in one of two trees, or in none.
struct ByRemainder;

fn partition(number: u16) -> Partition {
    RingSize::new(8).unwrap().partition(number).unwrap()
}

fn name(number: u16) -> TreeName {
    TreeName {
        owner: partition(number),
        n_val: 3,
    }
}

impl TreePlacing for ByRemainder {
    fn tree_of(&self, key: &StorageKey) -> Option<TreeName> {
        match key.as_bytes()[0] % 8 {
            7 => None,
            remainder => Some(name(u16::from(remainder % 2))),
        }
    }
}

fn key(number: u8) -> StorageKey {
    StorageKey::from_encoded(vec![number, b'k'])
}

fn segment(key: &StorageKey) -> u32 {
    checksum(key.as_bytes())
}

fn hash(key: &StorageKey, version: u64) -> LeafHash {
    LeafHash::new(key.as_bytes(), [(1, version)], version, false)
}

fn entry(key: &StorageKey, version: u64) -> TreeEntry {
    TreeEntry {
        segment: segment(key),
        hash: hash(key, version),
    }
}

type Stored = BTreeMap<StorageKey, u64>;

#[derive(Clone, Debug)]
enum Step {
    /// The store accepts a write or a removal, which is not shown yet.
    Accept(u8, bool),
    /// The store changes in a way that is not shown.
    Silent(u8),
    /// One accepted write is shown.
    Show(u8),
    BeginPage,
    BeginRecount,
    TakeSnapshot,
    /// The page, of this many entries, or the recount ends.
    End(u8),
    DropAll,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fold {
    None,
    Page,
    Recount,
}

/// A store with its trees, and the folds under way.
struct World {
    trees: HashTrees,
    stored: Stored,
    unshown: BTreeMap<StorageKey, (Option<u64>, Option<u64>)>,
    versions: u64,
    fold: Fold,
    from: StorageKey,
    snapshot: Option<Stored>,
}

impl World {
    fn new() -> Self {
        Self {
            trees: HashTrees::new(Arc::new(ByRemainder)),
            stored: Stored::new(),
            unshown: BTreeMap::new(),
            versions: 0,
            fold: Fold::None,
            from: key(0),
            snapshot: None,
        }
    }

    /// The next run over the same store.
    fn next_run(self) -> Self {
        let opened = OpenedStore {
            store: StoreId(1),
            sequence: Sequence(1),
            replayed: None,
        };
        Self {
            trees: HashTrees::new(Arc::new(ByRemainder)).opened_on(opened),
            stored: self.stored,
            versions: self.versions,
            ..Self::new()
        }
    }

    /// The trees as they come back from a file.
    fn copied(&self) -> BTreeMap<TreeName, Tree> {
        let stamp = Stamp {
            store: 1,
            sequence: 1,
        };
        let encoded = self.trees.encoded(stamp).into_iter();
        let decoded = encoded.map(|(name, bytes)| (name, Tree::decode(&bytes).unwrap().0));
        decoded.collect()
    }

    fn take(&self, trees: BTreeMap<TreeName, Tree>, lacking: Vec<u32>) -> bool {
        assert!(self.trees.begin_taking(0, 0).is_some());
        self.trees.take(Taking {
            trees,
            lacking,
            complete: Sequence(1),
            origin: TreesOrigin::default(),
        })
    }

    fn show(&mut self, key: &StorageKey) {
        if let Some((old, new)) = self.unshown.remove(key) {
            let hash_of = |version: Option<u64>| version.map(|it| hash(key, it));
            let (old, new) = (hash_of(old), hash_of(new));
            self.trees.changed(key, segment(key), old, new);
        }
    }

    fn show_all(&mut self) {
        for key in self.unshown.keys().cloned().collect::<Vec<_>>() {
            self.show(&key);
        }
    }

    fn store(&mut self, key: &StorageKey, is_put: bool) -> (Option<u64>, Option<u64>) {
        self.versions += 1;
        match is_put {
            true => {
                let old = self.stored.insert(key.clone(), self.versions);
                (old, Some(self.versions))
            }
            false => (self.stored.remove(key), None),
        }
    }

    fn end(&mut self, entries_max: usize) {
        let Some(snapshot) = self.snapshot.take() else {
            return;
        };
        self.show_all();
        let fold = std::mem::replace(&mut self.fold, Fold::None);
        let all = snapshot.range(self.from.clone()..);
        let all = all.map(|(key, version)| (key.clone(), entry(key, *version)));
        if fold == Fold::Recount {
            self.trees.end_recount(&all_leaves(), all.collect());
            return;
        }
        let mut page: Vec<(StorageKey, TreeEntry)> = all.collect();
        let next = page.get(entries_max).map(|it| it.0.clone());
        page.truncate(entries_max);
        self.trees.take_page(page, next);
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Accept(number, is_put) => {
                let key = key(*number);
                self.show(&key);
                let change = self.store(&key, *is_put);
                self.unshown.insert(key, change);
            }
            Step::Silent(number) => {
                let key = key(*number);
                self.show(&key);
                self.store(&key, false);
            }
            Step::Show(number) => self.show(&key(*number)),
            Step::BeginPage if self.fold == Fold::None => {
                if let Some(from) = self.trees.begin_page(10) {
                    (self.fold, self.from) = (Fold::Page, from);
                }
            }
            Step::BeginRecount if self.fold == Fold::None => {
                if self.trees.begin_recount() {
                    (self.fold, self.from) = (Fold::Recount, key(0));
                }
            }
            Step::TakeSnapshot if self.fold != Fold::None => {
                self.snapshot = Some(self.stored.clone());
            }
            Step::End(entries_max) => self.end(usize::from(*entries_max).max(1)),
            Step::DropAll => self.trees.drop_all(),
            Step::BeginPage | Step::BeginRecount | Step::TakeSnapshot => {}
        }
    }

    /// Ends everything in progress and builds the trees.
    fn settle(&mut self) {
        self.step(&Step::TakeSnapshot);
        self.end(3);
        while !self.trees.status().is_built {
            self.step(&Step::BeginPage);
            self.step(&Step::TakeSnapshot);
            self.end(3);
        }
        self.show_all();
    }

    /// The first tree that differs from the stored entries.
    fn wrong_tree(&self) -> Option<TreeName> {
        [name(0), name(1)].into_iter().find(|name| {
            let of_tree = |it: &(&StorageKey, &u64)| ByRemainder.tree_of(it.0) == Some(*name);
            let expected = |size| {
                let mut tree = Tree::new(size);
                for (key, version) in self.stored.iter().filter(of_tree) {
                    tree.change(segment(key), None, Some(hash(key, *version)));
                }
                tree
            };
            self.trees.look(*name, |tree, is_building| {
                assert!(!is_building);
                let expected = expected(tree.size());
                let branches = 0..tree.size().branches();
                tree.root() != expected.root()
                    || branches
                        .into_iter()
                        .any(|it| tree.branch(it) != expected.branch(it))
            })
        })
    }
}

fn all_leaves() -> RecountOrder {
    RecountOrder {
        tree: name(0),
        size: TreeSize::XxSmall,
        leaves: (0..TreeSize::XxSmall.leaves()).collect(),
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let number = 0u8..24;
    let step = prop_oneof![
        6 => (number.clone(), any::<bool>()).prop_map(|(key, is_put)| Step::Accept(key, is_put)),
        4 => number.clone().prop_map(Step::Show),
        3 => Just(Step::BeginPage),
        1 => Just(Step::BeginRecount),
        3 => Just(Step::TakeSnapshot),
        3 => (1u8..8).prop_map(Step::End),
        1 => prop_oneof![4 => number.prop_map(Step::Show), 1 => Just(Step::DropAll)],
    ];
    proptest::collection::vec(step, 1..80)
}

/// The trees after these steps.
fn after(steps: &[Step]) -> World {
    let mut world = World::new();
    steps.iter().for_each(|step| world.step(step));
    world.settle();
    world
}

proptest! {
    #[test]
    fn each_entry_is_in_its_tree_once_wherever_writes_fall(steps in steps()) {
        prop_assert_eq!(after(&steps).wrong_tree(), None);
    }

    #[test]
    fn a_recount_puts_right_what_nobody_showed(
        before in steps(),
        silent in proptest::collection::vec(0u8..24, 1..6),
        beside in proptest::collection::vec((0u8..24, any::<bool>()), 0..6),
    ) {
        let mut world = after(&before);
        silent.into_iter().for_each(|number| world.step(&Step::Silent(number)));
        let (first, second) = beside.split_at(beside.len() / 2);
        world.step(&Step::BeginRecount);
        first.iter().for_each(|(number, is_put)| world.step(&Step::Accept(*number, *is_put)));
        world.step(&Step::TakeSnapshot);
        second.iter().for_each(|(number, is_put)| world.step(&Step::Accept(*number, *is_put)));
        world.end(1);
        world.show_all();
        prop_assert_ne!(world.wrong_tree(), Some(name(0)));
    }
}

type Writes = Vec<(u8, bool)>;

fn writes() -> impl Strategy<Value = Writes> {
    proptest::collection::vec((0u8..24, any::<bool>()), 0..8)
}

fn accept_all(world: &mut World, writes: &[(u8, bool)]) {
    let writes = writes.iter();
    writes.for_each(|(number, is_put)| world.step(&Step::Accept(*number, *is_put)));
}

/// A run that takes the trees of the run before. They lack the writes `since`, of which `lacking`
/// is reported, and meet the `early` writes of this run.
fn gone_on(
    before: &[Step],
    since: &[(u8, bool)],
    lacking: &[(u8, bool)],
    early: &[(u8, bool)],
    late: &[Step],
) -> World {
    let mut first = after(before);
    let copied = first.copied();
    accept_all(&mut first, since);
    first.show_all();
    let mut next = first.next_run();
    accept_all(&mut next, early);
    let lacking = lacking.iter().map(|(number, _)| segment(&key(*number)));
    assert!(next.take(copied, lacking.collect()));
    late.iter().for_each(|step| next.step(step));
    next.settle();
    next
}

proptest! {
    #[test]
    fn trees_of_another_run_are_caught_up_wherever_writes_fall(
        before in steps(),
        since in writes(),
        early in writes(),
        late in steps(),
    ) {
        let next = gone_on(&before, &since, &since, &early, &late);
        prop_assert_eq!(next.wrong_tree(), None);
    }
}

/// The property above finds trees that are taken although they lack writes, as after a rollback.
#[test]
fn trees_that_lack_writes_are_found() {
    let puts: Vec<Step> = (0..9).map(|number| Step::Accept(number, true)).collect();
    let since = vec![(1, true)];
    let wrong = |lacking: &[(u8, bool)]| gone_on(&puts, &since, lacking, &[], &[]).wrong_tree();
    assert_eq!(wrong(&since[..]), None);
    assert_eq!(wrong(&[]), Some(name(1)));
}

#[test]
fn trees_without_a_difference_are_whole_at_once_and_kept_as_they_are() {
    let first = after(&[Step::Accept(1, true), Step::Accept(2, true)]);
    let copied = first.copied();
    let mut next = first.next_run();
    assert!(next.take(copied, Vec::new()));
    assert!(next.trees.status().is_built && next.trees.status().were_kept);
    assert!(next.trees.are_kept_at(Sequence(1)));
    accept_all(&mut next, &[(1, true)]);
    next.show_all();
    assert!(!next.trees.are_kept() && !next.trees.are_kept_at(Sequence(1)));
    assert_eq!(next.wrong_tree(), None);
}

#[test]
fn nothing_is_taken_after_building_has_begun_or_with_too_many_changes() {
    let first = after(&[Step::Accept(1, true)]);
    let copied = first.copied();
    let mut next = first.next_run();
    next.step(&Step::BeginPage);
    assert!(next.trees.begin_taking(0, 0).is_none());
    next.settle();
    let next = next.next_run();
    assert!(!next.take(copied, (0..600).collect()));
    assert!(!next.trees.status().is_built);
}

/// The property above finds a change that is taken both from the page and from the record.
#[test]
fn a_change_that_is_taken_twice_is_found() {
    let _planted = plant(PlantedDefect::ChangeDuringPageTakenTwice);
    let mut runner = TestRunner::deterministic();
    let found = runner.run(&steps(), |steps| {
        prop_assert_eq!(after(&steps).wrong_tree(), None);
        Ok(())
    });
    assert!(found.is_err());
}

#[test]
fn a_page_beside_too_many_changes_is_read_again() {
    let trees = HashTrees::new(Arc::new(ByRemainder));
    assert!(trees.begin_page(10).is_some());
    for number in 0..100_001u32 {
        let bytes = [&[1][..], &number.to_be_bytes()].concat();
        let key = StorageKey::from_encoded(bytes);
        trees.changed(&key, segment(&key), None, Some(hash(&key, 1)));
    }
    assert!(!trees.take_page(Vec::new(), None));
    assert!(!trees.status().is_built);
    assert!(trees.begin_page(10).is_some());
    assert!(trees.take_page(Vec::new(), None));
    assert!(trees.status().is_built);
}

#[test]
fn a_tree_that_has_outgrown_its_size_is_made_larger_when_it_is_built_again() {
    let trees = HashTrees::new(Arc::new(ByRemainder));
    let page: Vec<(StorageKey, TreeEntry)> = (0..20_000u32)
        .map(|number| {
            let bytes = [&[1][..], &number.to_be_bytes()].concat();
            let key = StorageKey::from_encoded(bytes);
            (key.clone(), entry(&key, 1))
        })
        .collect();
    for expected in [TreeSize::XxSmall, TreeSize::XSmall] {
        assert!(trees.begin_page(10).is_some());
        assert!(trees.take_page(page.clone(), None));
        assert_eq!(trees.look(name(1), |tree, _| tree.size()), expected);
        assert_eq!(trees.are_outgrown(), expected == TreeSize::XxSmall);
        trees.drop_all();
    }
}
