//! Folds in the order of leveled's journal while its files come and go, and the journal's treatment
//! of kinds of entries: the removals that stay, and the entries that are read again when the ledger
//! is rebuilt.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests stop at any failure, as tests do"
)]

use std::collections::BTreeMap;

use bytes::Bytes;
use kvorum_backend::{
    Fields, Flow, FoldFilter, FoldRange, JournalFoldEnd, JournalFolded, Lease, Tag, Timestamp,
    Visited,
};
use kvorum_backend_leveled::{JournalPolicy, LeveledSettings};
use kvorum_disk::MemoryDisk;

use crate::leveled_node::{
    BODY_BYTES, KEYS, NOW, Node, close, files, flip, remove_files, settings,
};

const FORGOTTEN: Tag = Tag(9);
const FORGOTTEN_KEYS: usize = 10;

/// A value that differs between keys.
fn value_of(key: usize) -> u8 {
    u8::try_from(key + 1).unwrap()
}

/// The keys in the order of the fold with their values, and the end of the fold; `meanwhile` is
/// called with the number of entries shown.
fn folded(
    node: &Node,
    lease: Lease,
    meanwhile: &mut dyn FnMut(usize) -> Flow,
) -> (Vec<(usize, u8)>, JournalFolded) {
    let mut shown = Vec::new();
    let visit = &mut |it: Visited<'_>| {
        let key = it.key.decode().unwrap().key;
        let number = std::str::from_utf8(key.as_bytes()).unwrap();
        assert_eq!(it.body, vec![it.head[0]; BODY_BYTES]);
        shown.push((number.parse().unwrap(), it.head[0]));
        meanwhile(shown.len())
    };
    let folds = node.store.journal_folds().unwrap();
    let filter = FoldFilter::unexpired(NOW);
    let ended = folds.fold_in_journal_order(&FoldRange::all(), lease, &filter, visit);
    (shown, ended.unwrap())
}

const WHOLE: JournalFolded = JournalFolded {
    end: JournalFoldEnd::Complete,
    has_met_damage: false,
};

#[test]
fn entries_come_in_the_order_in_which_they_were_put_and_each_once() {
    let disk = MemoryDisk::new();
    let node = Node::open(&disk);
    (0..KEYS).rev().for_each(|key| node.put(key, 250));
    (0..KEYS).for_each(|key| node.put(key, value_of(key)));
    node.remove(7);
    let expected: Vec<(usize, u8)> = (0..KEYS)
        .filter(|key| *key != 7)
        .map(|key| (key, value_of(key)))
        .collect();
    let go_on = &mut |_| Flow::Continue;
    assert_eq!(
        folded(&node, Lease::Unlimited, go_on),
        (expected.clone(), WHOLE)
    );
    node.flush();
    node.keep_all();
    assert!(!files(&disk, ".journal").is_empty(), "nothing was moved");
    assert_eq!(folded(&node, Lease::Unlimited, go_on), (expected, WHOLE));
}

#[test]
fn what_is_put_moved_and_removed_meanwhile_changes_nothing() {
    let disk = MemoryDisk::new();
    let node = Node::open(&disk);
    for round in 0..3 {
        (0..KEYS).for_each(|key| node.put(key, 200 + round));
    }
    (0..KEYS).for_each(|key| node.put(key, value_of(key)));
    node.flush();
    node.keep_all();
    let expected: BTreeMap<usize, u8> = node.values();
    let (shown, ended) = folded(&node, Lease::Unlimited, &mut |count| {
        if count % 10 == 1 {
            (0..KEYS).for_each(|key| node.put(key, 100));
            (0..KEYS).step_by(3).for_each(|key| node.remove(key));
            node.flush();
            node.keep_all();
        }
        Flow::Continue
    });
    assert_eq!(ended, WHOLE);
    assert_eq!(shown.len(), expected.len());
    assert_eq!(shown.into_iter().collect::<BTreeMap<_, _>>(), expected);
}

#[test]
fn a_fold_ends_where_it_is_stopped_and_with_its_lease() {
    let disk = MemoryDisk::new();
    let node = Node::open(&disk);
    (0..KEYS).for_each(|key| node.put(key, value_of(key)));
    let stop = &mut |count| match count {
        5 => Flow::Stop,
        _ => Flow::Continue,
    };
    let (shown, ended) = folded(&node, Lease::Unlimited, stop);
    assert_eq!((shown.len(), ended.end), (5, JournalFoldEnd::Stopped));
    let over = Lease::Until(Timestamp(NOW.0));
    let (shown, ended) = folded(&node, over, &mut |_| Flow::Continue);
    assert_eq!(
        (shown, ended.end),
        (Vec::new(), JournalFoldEnd::LeaseExpired)
    );
}

#[test]
fn a_fold_says_that_it_met_damage() {
    let disk = MemoryDisk::new();
    let node = Node::open(&disk);
    for round in 0..3 {
        (0..KEYS).for_each(|key| node.put(key, 200 + round));
    }
    (0..KEYS)
        .step_by(2)
        .for_each(|key| node.put(key, value_of(key)));
    node.flush();
    node.keep_all();
    close(node);
    let file = files(&disk, ".journal").pop_first().unwrap();
    flip(&disk, &file, 60);
    let node = Node::open(&disk);
    let (shown, ended) = folded(&node, Lease::Unlimited, &mut |_| Flow::Continue);
    assert!(ended.has_met_damage);
    assert!(shown.len() < KEYS, "{} were shown", shown.len());
}

fn is_forgotten(tag: Tag) -> bool {
    tag == FORGOTTEN
}

/// The keys that remain when the ledger is lost after they were put, removed, and collected.
fn left_of(tag: Tag) -> usize {
    // Journal files are left as they are.
    let journal_policy = JournalPolicy {
        run_files_max: 1_000,
        single_file_percent: 0,
        longest_run_percent: 0,
        ..JournalPolicy::default()
    };
    let settings = LeveledSettings {
        forgotten: is_forgotten,
        journal_policy,
        ..settings()
    };
    let disk = MemoryDisk::new();
    let node = Node::open_with(&disk, &settings);
    let fields = Fields {
        tag,
        ..Fields::default()
    };
    // Each removal is in a journal file with live entries, and so is not worth a collection later.
    for key in 0..FORGOTTEN_KEYS {
        (60..72).for_each(|other| node.put(other, 1));
        node.put_with(key, 1, fields);
        (0..6).for_each(|other| node.put(100 + 10 * key + other, 1));
    }
    node.flush();
    node.keep_all();
    node.log.roll().unwrap();
    assert!(!files(&disk, ".journal").is_empty(), "nothing was moved");
    // The removals lie among garbage.
    for key in 0..FORGOTTEN_KEYS {
        node.remove(key);
        (60..72).for_each(|other| node.put(other, 2));
    }
    node.flush();
    node.keep_all();
    assert!((0..FORGOTTEN_KEYS).all(|key| node.value(key).unwrap().is_none()));
    close(node);
    remove_files(&disk, ".sst");
    let node = Node::open_with(&disk, &settings);
    node.keep_store();
    (0..FORGOTTEN_KEYS)
        .filter(|key| matches!(node.value(*key), Ok(Some(_))))
        .count()
}

/// A journal without removals has its price, which other kinds do not pay.
#[test]
fn removals_of_a_kind_that_is_forgotten_go_and_others_stay() {
    assert_eq!(left_of(Tag::default()), 0);
    assert!(left_of(FORGOTTEN) > 0, "the removals stayed");
}

fn relisted(tag: Tag, head: &Bytes, _: &dyn Fn() -> Option<Bytes>) -> Option<Bytes> {
    let entry = kvorum_backend::IndexEntry {
        field: Bytes::from_static(b"f_int"),
        term: Bytes::from(vec![head[0] + 1]),
    };
    let entries = std::collections::BTreeSet::from([entry]);
    (tag == FORGOTTEN).then(|| kvorum_backend_leveled::encode_index_list(&entries))
}

/// For kinds that require it, the index entries of a rebuilt ledger are those of the present program.
#[test]
fn a_lost_ledger_has_index_entries_taken_anew() {
    let settings = LeveledSettings {
        recalculated: relisted,
        ..settings()
    };
    let disk = MemoryDisk::new();
    let node = Node::open_with(&disk, &settings);
    let fields = Fields {
        tag: FORGOTTEN,
        ..Fields::default()
    };
    (0..KEYS).for_each(|key| match key % 2 {
        0 => node.put_with(key, value_of(key), fields),
        _ => node.put(key, value_of(key)),
    });
    node.flush();
    node.keep_all();
    let as_put: BTreeMap<usize, u8> = (0..KEYS).map(|key| (key, value_of(key))).collect();
    assert_eq!(node.indexed().unwrap(), as_put);
    close(node);
    remove_files(&disk, ".sst");
    let node = Node::open_with(&disk, &settings);
    node.keep_all();
    let anew = |key: usize| value_of(key) + u8::from(key.is_multiple_of(2));
    let expected: BTreeMap<usize, u8> = (0..KEYS).map(|key| (key, anew(key))).collect();
    assert_eq!(node.indexed().unwrap(), expected);
    assert_eq!(node.values(), as_put);
}
