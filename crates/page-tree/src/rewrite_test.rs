//! Rewrites against an ordered map, on a disk that is cut and damaged.

use std::path::Path;

use kvorum_disk::{CrashOptions, Disk, MemoryDisk, OpenMode};
use kvorum_encoding::KeyRange;
use proptest::prelude::*;

use super::*;
use crate::cache::PageCache;
use crate::census::{Census, Counted};
use crate::file::{FileRecord, path_of};
use crate::file_scan::{FileScan, ScannedPage};
use crate::manifest::{self, Manifest};
use crate::walk::{Walk, Walked};

const STORE: u64 = 77;
const PAGE_BYTES: usize = 300;
const BODY_APART_BYTES: usize = 150;
const FILE_BYTES_MAX: u64 = 4_000;
const KEYS: usize = 60;

type Map = BTreeMap<Bytes, Bytes>;

/// A store that consists of a tree and its manifest.
struct Store {
    disk: MemoryDisk,
    body_apart_bytes: usize,
    manifest: Manifest,
    tree: Tree,
}

impl Store {
    fn create(disk: &MemoryDisk) -> Result<Self> {
        let manifest = Manifest {
            generation: 1,
            identity: STORE,
            ..Manifest::default()
        };
        manifest::write(disk, Path::new(""), &manifest).both()?;
        Self::open(disk)
    }

    fn open(disk: &MemoryDisk) -> Result<Self> {
        let found = manifest::read(disk, Path::new(""), &Default::default())?;
        let mut manifest = found.content.unwrap_or_default();
        for entry in disk.list(Path::new(""))? {
            if let Some(number) = crate::file::number_of(&entry.name) {
                manifest.next_number = manifest.next_number.max(number + 1);
            }
        }
        let open = |it: &FileRecord| PageFile::open(disk, Path::new(""), it.number).ok();
        let files = manifest.files.iter().filter_map(open);
        let files = files.map(|it| (it.number(), Arc::new(it))).collect();
        let cache = Arc::new(PageCache::new(2_000));
        Ok(Self {
            disk: disk.clone(),
            body_apart_bytes: BODY_APART_BYTES,
            tree: Tree::new(STORE, manifest.root, files, cache),
            manifest,
        })
    }

    fn rewrite(&self, changes: Vec<(Bytes, Change)>, leaving: BTreeSet<u64>) -> Rewrite {
        let settings = RewriteSettings {
            page_bytes: PAGE_BYTES,
            body_apart_bytes: self.body_apart_bytes,
            leaving,
        };
        let output = OutputSettings {
            disk: Arc::new(self.disk.clone()),
            directory: "".into(),
            store: STORE,
            generation: self.manifest.generation + 1,
            next_number: self.manifest.next_number,
            file_bytes_max: FILE_BYTES_MAX,
        };
        let changes = Box::new(changes.into_iter());
        Rewrite::new(
            self.tree.clone(),
            changes,
            settings,
            output,
            Box::new(|_| false),
        )
    }

    /// Makes the changes in steps; returns the losses.
    fn apply(&mut self, changes: Vec<(Bytes, Change)>, budget: u64) -> Result<Vec<LostPage>> {
        let mut rewrite = self.rewrite(changes, BTreeSet::new());
        while !rewrite.step(budget)?.is_done {}
        self.finish(&mut rewrite)
    }

    fn finish(&mut self, rewrite: &mut Rewrite) -> Result<Vec<LostPage>> {
        let rewritten = rewrite.finish()?;
        self.install(rewritten, rewrite.files_begun().end)
    }

    fn install(&mut self, rewritten: Rewritten, next_number: u64) -> Result<Vec<LostPage>> {
        let mut next = self.manifest.clone();
        next.generation += 1;
        next.root = rewritten.tree.root();
        next.next_number = next_number;
        for (number, len) in &rewritten.written {
            next.files.push(FileRecord {
                number: *number,
                len: *len,
                live_bytes: 0,
            });
        }
        let has_lost_branch = rewritten.lost.iter().any(|it| it.is_branch);
        let counted = match has_lost_branch {
            true => Some(live_bytes(&rewritten.tree)?),
            false => None,
        };
        for file in &mut next.files {
            if let Some(counted) = &counted {
                file.live_bytes = counted.get(&file.number).copied().unwrap_or(0);
                continue;
            }
            let of = |counts: &BTreeMap<u64, u64>| counts.get(&file.number).copied().unwrap_or(0);
            let (added, retired) = (of(&rewritten.added), of(&rewritten.retired));
            file.live_bytes = (file.live_bytes + added).checked_sub(retired).unwrap();
        }
        manifest::write(&self.disk, Path::new(""), &next).both()?;
        self.manifest = next;
        self.tree = rewritten.tree;
        Ok(rewritten.lost)
    }
}

fn key(number: usize) -> Bytes {
    format!("key {number:03}").into()
}

fn body(number: usize, len: usize, round: usize) -> Bytes {
    let mut body = format!("{number} {round} ").into_bytes();
    body.resize(body.len().max(len), b'.');
    body.into()
}

fn put(number: usize, len: usize, round: usize) -> Change {
    Change::Put(Entry {
        sequence: round as u64,
        fields: Fields::default(),
        extra: Bytes::new(),
        head: Bytes::from_static(b"head"),
        body: Body::Inline(body(number, len, round)),
    })
}

/// The body of a key, or the loss of it.
fn body_of(tree: &Tree, key: &Bytes) -> std::result::Result<Option<Bytes>, LostPage> {
    let entry = match tree.get(key, Reading::MayBlock).unwrap() {
        Found::Here(entry) => entry,
        Found::Absent => return Ok(None),
        Found::Lost(lost) => return Err(lost),
        Found::WouldBlock => panic!("a read that may wait would have to"),
    };
    match tree.body(key, &entry, Reading::MayBlock).unwrap() {
        Found::Here(body) => Ok(Some(body)),
        Found::Lost(lost) => Err(lost),
        other => panic!("a body is {other:?}"),
    }
}

/// All entries of a walk, and the ranges that the walk skips.
fn walked(tree: &Tree, from: &Bytes) -> (Map, Vec<KeyRange>) {
    let mut walk = Walk::new(tree.clone(), from.clone());
    let (mut map, mut lost) = (Map::new(), Vec::new());
    loop {
        match walk.advance().unwrap() {
            Walked::Entry(key, entry) => {
                let last = map.last_key_value().map(|(last, _)| last);
                assert!(
                    last.is_none_or(|last| *last < key),
                    "{key:?} behind {last:?}"
                );
                let body = match tree.body(&key, &entry, Reading::MayBlock).unwrap() {
                    Found::Here(body) => body,
                    Found::Lost(_) => continue,
                    other => panic!("a body is {other:?}"),
                };
                map.insert(key, body);
            }
            Walked::Lost(page) => lost.push(page.range),
            Walked::End => return (map, lost),
        }
    }
}

/// Checks that the tree has the map's entries, and that its counts are right.
fn check(tree: &Tree, model: &Map) {
    assert_eq!(walked(tree, &Bytes::new()), (model.clone(), Vec::new()));
    for number in 0..KEYS {
        let key = key(number);
        assert_eq!(
            body_of(tree, &key).unwrap(),
            model.get(&key).cloned(),
            "{key:?}"
        );
    }
    for from in [key(0), key(KEYS / 2), key(KEYS), "key 0301".into()] {
        let behind: Map = model
            .range(from.clone()..)
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        assert_eq!(walked(tree, &from).0, behind, "from {from:?}");
    }
    assert_eq!(tree.keys(), model.len() as u64);
    assert_eq!(tree.root().is_none(), model.is_empty());
}

fn check_live_bytes(store: &Store) {
    let reached = live_bytes(&store.tree).unwrap();
    for file in &store.manifest.files {
        let expected = reached.get(&file.number).copied().unwrap_or(0);
        assert_eq!(file.live_bytes, expected, "file {}", file.number);
        let held = file.len - crate::file::HEADER_BYTES as u64;
        assert!(file.live_bytes <= held, "{file:?}");
    }
}

#[derive(Clone, Debug)]
enum Planned {
    Put(usize),
    Remove,
    Touch,
}

fn planned() -> impl Strategy<Value = Planned> {
    prop_oneof![
        5 => (0usize..400).prop_map(Planned::Put),
        1 => (400usize..2_000).prop_map(Planned::Put),
        3 => Just(Planned::Remove),
        1 => Just(Planned::Touch),
    ]
}

/// Sets of changes, each with the budget of its steps.
fn script() -> impl Strategy<Value = Vec<(BTreeMap<usize, Planned>, u64)>> {
    let changes = proptest::collection::btree_map(0..KEYS, planned(), 0..40);
    proptest::collection::vec((changes, 1u64..3_000), 1..12)
}

fn changes_of(
    planned: &BTreeMap<usize, Planned>,
    round: usize,
    model: &mut Map,
) -> Vec<(Bytes, Change)> {
    let change = |(number, planned): (&usize, &Planned)| {
        let (number, key) = (*number, key(*number));
        let change = match planned {
            Planned::Put(len) => {
                model.insert(key.clone(), body(number, *len, round));
                put(number, *len, round)
            }
            Planned::Remove => {
                model.remove(&key);
                Change::Remove
            }
            Planned::Touch => Change::Touch,
        };
        (key, change)
    };
    planned.iter().map(change).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 200, ..Default::default() })]

    #[test]
    fn a_tree_is_the_map_that_its_changes_make_and_former_trees_stay(
        script in script(),
        has_bodies_apart: bool,
    ) {
        let mut store = Store::create(&MemoryDisk::new()).unwrap();
        if !has_bodies_apart {
            store.body_apart_bytes = usize::MAX;
        }
        let mut model = Map::new();
        let mut former: Vec<(Tree, Map)> = Vec::new();
        for (round, (planned, budget)) in script.iter().enumerate() {
            former.push((store.tree.clone(), model.clone()));
            let changes = changes_of(planned, round, &mut model);
            prop_assert_eq!(store.apply(changes, *budget).unwrap(), []);
            check(&store.tree, &model);
            check_live_bytes(&store);
            check(&Store::open(&store.disk).unwrap().tree, &model);
        }
        for (tree, model) in &former {
            check(tree, model);
        }
    }

    #[test]
    fn after_a_power_cut_the_tree_is_the_last_one_or_the_next(script in script(), cut in 0u64..200, seed: u64) {
        let disk = MemoryDisk::new();
        let mut store = Store::create(&disk).unwrap();
        disk.cut_after(disk.operations() + cut);
        let (mut model, mut allowed) = (Map::new(), vec![Map::new()]);
        for (round, (planned, budget)) in script.iter().enumerate() {
            let changes = changes_of(planned, round, &mut model);
            allowed.push(model.clone());
            if store.apply(changes, *budget).is_err() {
                break;
            }
            allowed.remove(0);
        }
        for options in CrashOptions::extremes().into_iter().chain([CrashOptions::drawn(seed)]) {
            let image = disk.crash_image(options);
            let mut store = Store::open(&image).unwrap();
            let (mut got, lost) = walked(&store.tree, &Bytes::new());
            prop_assert_eq!(lost, []);
            prop_assert!(allowed.contains(&got), "{options:?}");
            check(&store.tree, &got);
            store.apply(vec![(key(1), put(1, 9, 99))], 1).unwrap();
            got.insert(key(1), body(1, 9, 99));
            let after = image.crash_image(CrashOptions::nothing_unsynced());
            check(&Store::open(&after).unwrap().tree, &got);
        }
    }
}

/// Regression: the rest of a leaf behind its last whole page went to the next leaf, with the next
/// leaf's lower bound, which is behind the keys of the rest: lookups did not find these keys, and
/// walks found them too late.
#[test]
fn what_is_left_of_a_leaf_keeps_its_keys_before_those_of_the_next() {
    let mut store = Store::create(&MemoryDisk::new()).unwrap();
    store.body_apart_bytes = usize::MAX;
    let mut model = Map::new();
    let first = (0..4).map(|it| (10 * it, Planned::Put(200)));
    let changes = changes_of(&first.collect(), 0, &mut model);
    store.apply(changes, u64::MAX).unwrap();
    let second = BTreeMap::from([(1, Planned::Put(1_000)), (2, Planned::Put(1))]);
    let changes = changes_of(&second, 1, &mut model);
    store.apply(changes, u64::MAX).unwrap();
    check(&store.tree, &model);
}

fn filled(rounds: usize) -> (Store, Map) {
    filled_with(rounds, BODY_APART_BYTES)
}

fn filled_with(rounds: usize, body_apart_bytes: usize) -> (Store, Map) {
    let mut store = Store::create(&MemoryDisk::new()).unwrap();
    store.body_apart_bytes = body_apart_bytes;
    let mut model = Map::new();
    for round in 0..rounds {
        let planned = (0..KEYS)
            .filter(|it| it % rounds == round)
            .map(|it| (it, Planned::Put(it * 37 % 260)));
        let changes = changes_of(&planned.collect(), round, &mut model);
        store.apply(changes, u64::MAX).unwrap();
    }
    assert!(store.tree.root().unwrap().level >= 2);
    (store, model)
}

/// A wrong byte costs at most a leaf or a body and is reported, and the rest is served.
#[test]
fn any_flip_of_a_live_byte_is_noticed_and_neighbours_are_served() {
    let (store, model) = filled(3);
    let mut met = 0;
    for record in &store.manifest.files {
        let path = path_of(Path::new(""), record.number);
        let file = store.disk.open(&path, OpenMode::ReadWrite).unwrap();
        for at in (0..record.len).step_by(3) {
            let mut byte = [0];
            file.read_at(&mut byte, at, Reading::MayBlock).unwrap();
            file.write_at(&[byte[0] ^ 0x10], at).unwrap();
            met += usize::from(check_damaged(
                &Store::open(&store.disk).unwrap().tree,
                &model,
            ));
            file.write_at(&byte, at).unwrap();
        }
    }
    assert!(met > 100, "{met} flips were met");
    check(&Store::open(&store.disk).unwrap().tree, &model);
}

/// Checks that shown entries are right and missing ones are reported; true when one is missing.
fn check_damaged(tree: &Tree, model: &Map) -> bool {
    let (seen, lost) = walked(tree, &Bytes::new());
    assert!(seen.iter().all(|(key, body)| model.get(key) == Some(body)));
    let mut unread = 0;
    for (key, body) in model {
        match body_of(tree, key) {
            Ok(found) => assert_eq!(found.as_ref(), Some(body)),
            Err(page) => {
                assert!(page.range.contains(key), "{page:?}");
                assert!(!seen.contains_key(key));
                unread += 1;
            }
        }
        let is_passed = lost.iter().any(|it| it.contains(key));
        assert!(!is_passed || !seen.contains_key(key));
    }
    assert_eq!(seen.len() + unread, model.len());
    assert!(unread <= 20, "{unread} keys are lost");
    unread > 0
}

/// The replacement of a damaged leaf has the changes, and the loss is reported with its range of
/// keys.
#[test]
fn a_rewrite_goes_on_without_a_damaged_leaf_and_says_what_is_missing() {
    let (mut store, mut model) = filled(1);
    let place = leaf_of(&store.tree, &key(30));
    damage(&store, &place);
    store = Store::open(&store.disk).unwrap();
    let lost = store.apply(vec![(key(30), put(30, 9, 5))], 1).unwrap();
    assert_eq!(lost.len(), 1);
    assert_eq!(lost[0].place, place);
    assert!(lost[0].range.contains(&key(30)));
    model.retain(|key, _| !lost[0].range.contains(key));
    model.insert(key(30), body(30, 9, 5));
    check(&store.tree, &model);
    check_live_leaves(&store.tree);
}

/// The first leaf serves lookups of all keys before it.
#[test]
fn a_damaged_first_leaf_is_about_all_keys_before_it() {
    let (mut store, _) = filled(1);
    let removals = (0..20).map(|it| (key(it), Change::Remove)).collect();
    store.apply(removals, u64::MAX).unwrap();
    let place = leaf_of(&store.tree, &key(0));
    damage(&store, &place);
    store = Store::open(&store.disk).unwrap();
    let met = body_of(&store.tree, &key(0)).unwrap_err();
    assert!(met.range.contains(&key(0)), "{met:?}");
    let (_, passed) = walked(&store.tree, &Bytes::new());
    assert!(passed.iter().any(|it| it.contains(&key(0))), "{passed:?}");
    let lost = store.apply(vec![(key(0), Change::Touch)], 1).unwrap();
    assert!(lost.iter().any(|it| it.range.contains(&key(0))), "{lost:?}");
}

/// Regression: a leaf without keys was left out, and the leaf before it served its lookups: if that
/// leaf was unreadable, a removed key was reported as lost.
#[test]
fn a_removed_key_is_absent_also_behind_a_damaged_leaf() {
    for is_damaged_too in [false, true] {
        for first in [0, 10] {
            let (mut store, mut model) = filled_with(1, usize::MAX);
            let before = leaf_of(&store.tree, &key(first));
            let keys: Vec<Bytes> = model.keys().cloned().collect();
            let mut behind = keys.iter().filter(|it| **it > key(first));
            let next = behind.find(|it| leaf_of(&store.tree, it) != before);
            let next = leaf_of(&store.tree, next.unwrap());
            let removed = keys.iter().filter(|it| leaf_of(&store.tree, it) == next);
            let removed: Vec<Bytes> = removed.cloned().collect();
            damage(&store, &before);
            if is_damaged_too {
                damage(&store, &next);
            }
            store = Store::open(&store.disk).unwrap();
            let changes = removed.iter().map(|key| (key.clone(), Change::Remove));
            store.apply(changes.collect(), 1).unwrap();
            for key in &removed {
                assert_eq!(body_of(&store.tree, key), Ok(None), "{key:?}");
                model.remove(key);
            }
            assert!(body_of(&store.tree, &key(first)).is_err());
            check_damaged(&store.tree, &model);
            check_live_bytes(&store);
            let rest = model.keys().map(|key| (key.clone(), Change::Remove));
            store.apply(rest.collect(), 100).unwrap();
            check(&store.tree, &Map::new());
            check_live_bytes(&store);
        }
    }
}

fn damage(store: &Store, place: &PagePlace) {
    let path = path_of(Path::new(""), place.file);
    let file = store.disk.open(&path, OpenMode::ReadWrite).unwrap();
    file.write_at(&[0xff; 8], place.offset + 8).unwrap();
}

fn leaf_of(tree: &Tree, key: &Bytes) -> PagePlace {
    let root = tree.root().unwrap();
    let (mut place, mut level) = (root.place, root.level);
    while level > 0 {
        let PageRead::Page(page) = tree.read(&place, level, Reading::MayBlock, false).unwrap()
        else {
            panic!("{place:?} cannot be read");
        };
        place = Child::of(&page, page.child_for(key)).unwrap().place;
        level -= 1;
    }
    place
}

fn check_live_leaves(tree: &Tree) {
    assert_eq!(walked(tree, &Bytes::new()).1, []);
}

/// The loss of both copies of a branch costs its leaves; keys put there afterwards are served.
#[test]
fn a_lost_branch_is_begun_anew() {
    let (mut store, mut model) = filled(1);
    let root = store.tree.root().unwrap();
    let PageRead::Page(page) = store
        .tree
        .read(&root.place, root.level, Reading::MayBlock, false)
        .unwrap()
    else {
        panic!("the root cannot be read");
    };
    let place = Child::of(&page, 0).unwrap().place;
    let path = path_of(Path::new(""), place.file);
    let file = store.disk.open(&path, OpenMode::ReadWrite).unwrap();
    for copy in 0..2 {
        let at = place.offset + copy * u64::from(place.len);
        file.write_at(&[0xff; 8], at + 60).unwrap();
    }
    store = Store::open(&store.disk).unwrap();
    assert!(body_of(&store.tree, &key(0)).unwrap_err().is_branch);
    let lost = store.apply(vec![(key(0), put(0, 9, 5))], 1).unwrap();
    assert_eq!(lost.len(), 1);
    model.retain(|key, _| !lost[0].range.contains(key));
    model.insert(key(0), body(0, 9, 5));
    check(&store.tree, &model);
    check_live_bytes(&store);
    let removals = model
        .keys()
        .map(|key| (key.clone(), Change::Remove))
        .collect();
    store.apply(removals, 100).unwrap();
    check(&store.tree, &Map::new());
    assert_eq!(store.tree.root(), None);
}

/// Touching the live keys that a scan of a file finds empties the file.
#[test]
fn what_a_scan_of_a_file_finds_leaves_it() {
    for file in 0..3 {
        let (mut store, model) = filled(3);
        let record = store.manifest.files[file];
        let mut scan = FileScan::new(store.tree.files()[&record.number].clone(), &record);
        let (mut keys, mut bytes) = (BTreeSet::new(), 0);
        loop {
            let (scanned, read) = scan.advance(&store.tree).unwrap();
            bytes += read;
            match scanned {
                ScannedPage::Live(key) => _ = keys.insert(key),
                ScannedPage::Superseded => {}
                ScannedPage::Damaged => panic!("a page of a whole file is damaged"),
                ScannedPage::End => break,
            }
        }
        assert!(bytes > record.live_bytes / 2 && bytes < record.len);
        let touches = keys.into_iter().map(|key| (key, Change::Touch)).collect();
        let mut rewrite = store.rewrite(touches, BTreeSet::from([record.number]));
        while !rewrite.step(500).unwrap().is_done {}
        assert_eq!(store.finish(&mut rewrite).unwrap(), []);
        assert_eq!(store.manifest.files[file].live_bytes, 0);
        check_live_bytes(&store);
        let left = store.tree.without_files(|number| number == record.number);
        check(&left, &model);
    }
}

/// The pages of a tree by their keys, and the damaged pages, from a census.
fn counted(tree: &Tree) -> (Vec<(Bytes, PagePlace)>, Vec<LostPage>, Vec<LostPage>) {
    let mut census = Census::new(tree.clone());
    let (mut pages, mut one_copy, mut lost) = (Vec::new(), Vec::new(), Vec::new());
    let mut bytes = 0;
    loop {
        let (counted, read) = census.advance().unwrap();
        bytes += read;
        match counted {
            Counted::Page(key, place) => pages.push((key, place)),
            Counted::OneCopy(page) => one_copy.push(page),
            Counted::Lost(page) => lost.push(page),
            Counted::End => break,
        }
    }
    if lost.is_empty() {
        let live: u64 = live_bytes(tree).unwrap().values().sum();
        assert_eq!(bytes, live);
    }
    (pages, one_copy, lost)
}

/// A census finds damage to any page, second copies of branches included, with the range of keys.
#[test]
fn a_census_comes_by_every_page_and_finds_every_damaged_one() {
    let (store, model) = filled(3);
    let (pages, one_copy, lost) = counted(&store.tree);
    assert_eq!((one_copy, lost), (Vec::new(), Vec::new()));
    for (key, place) in &pages {
        let copies = match store.tree.leads_to(key, place, 0).unwrap() {
            true => 1,
            false => 2,
        };
        for copy in 0..copies {
            let path = path_of(Path::new(""), place.file);
            let file = store.disk.open(&path, OpenMode::ReadWrite).unwrap();
            let at = place.offset + copy * u64::from(place.len) + 20;
            let mut byte = [0];
            // The bytes behind a body are the next page.
            file.read_at(&mut byte, at, Reading::MayBlock).unwrap();
            file.write_at(&[byte[0] ^ 1], at).unwrap();
            let (_, one_copy, lost) = counted(&store.tree);
            file.write_at(&byte, at).unwrap();
            let mut found = one_copy.iter().chain(&lost);
            if copy == 0 {
                let page = found.find(|it| it.place == *place).unwrap();
                assert!(page.range.contains(key), "{page:?}");
                assert!(!page.is_branch || lost.is_empty(), "{page:?}");
            } else if let Some(page) = one_copy.first() {
                assert!(page.is_branch && page.place == *place, "{page:?}");
            }
        }
    }
    check(&store.tree, &model);
}

#[test]
fn steps_cost_about_their_budget() {
    let (mut store, model) = filled(1);
    let changes: Vec<_> = (0..KEYS).map(|it| (key(it), Change::Touch)).collect();
    let mut rewrite = store.rewrite(changes, BTreeSet::new());
    let mut steps = 0;
    loop {
        let outcome = rewrite.step(1_000).unwrap();
        assert!(
            outcome.cost_bytes < 1_000 + 4 * PAGE_BYTES as u64,
            "{outcome:?}"
        );
        steps += 1;
        if outcome.is_done {
            break;
        }
    }
    assert!(steps > 5);
    store.finish(&mut rewrite).unwrap();
    check(&store.tree, &model);
}

#[test]
fn children_are_cut_into_branches_of_two_and_more() {
    let child = |number: usize| Child {
        lower: key(number),
        place: PagePlace {
            file: 1,
            offset: 32,
            len: 100,
            check: 0,
        },
        keys: 1,
    };
    for count in 0..40 {
        let children: Vec<Child> = (0..count).map(child).collect();
        for page_bytes in [1, 60, 300, 10_000] {
            let parts = parts(&children, page_bytes);
            assert_eq!(parts.concat(), children);
            assert!(
                count < 2 || parts.iter().all(|it| it.len() >= 2),
                "{count} {page_bytes}"
            );
        }
    }
}
