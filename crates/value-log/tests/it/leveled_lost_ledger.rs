//! A ledger of leveled that is lost again and again, as a whole or in part. Entries that expire
//! hide older ones that do not, and the power is cut in the middle of collections and of rebuilding
//! tables: removed entries stay away, and live ones stay.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests stop at any failure, as tests do"
)]

use std::collections::BTreeMap;

use kvorum_backend::{ErrorKind, Fields, TaskKind, Timestamp};
use kvorum_disk::{CrashOptions, Disk, MemoryDisk};

use crate::leveled_node::{Draw, KEYS, NOW, Node, SMALL, close, files, flip, remove_files};

/// The time of expiry.
const END: Timestamp = Timestamp(NOW.0 + 10);
const EXPIRING: Fields = Fields {
    segment: 0,
    last_modified: Timestamp(0),
    expiry: Some(END),
    tag: kvorum_backend::Tag(0),
};

/// Does upkeep of the store and of the log, in turn, until the tables are rebuilt.
fn reopened_without_tables(disk: &MemoryDisk, node: Node, now: Timestamp) -> Node {
    close(node);
    remove_files(disk, ".sst");
    let node = Node::open(disk);
    node.keep_store_at(now);
    node
}

/// Keys that are removed or expire, each after a put.
fn hidden() -> impl Iterator<Item = usize> {
    (0..KEYS).step_by(2)
}

/// Regression: a removal was found in the journal after the ledger was lost, and the rebuilt table
/// did not record that the older put was in the journal too. So the next merge dropped the removal,
/// and the put came back when the ledger was lost once more.
#[test]
fn a_removal_found_in_the_journal_stays_as_long_as_what_it_removes() {
    check_that_they_stay_away(NOW, Node::remove);
}

/// The same with entries that expire in place of removals.
#[test]
fn an_expired_entry_found_in_the_journal_stays_as_long_as_what_it_hides() {
    check_that_they_stay_away(END, |node, key| node.put_with(key, 7, EXPIRING));
}

fn check_that_they_stay_away(now: Timestamp, hide: impl Fn(&Node, usize)) {
    let disk = MemoryDisk::new();
    let mut node = Node::open(&disk);
    // Each put stays beside others that are needed.
    for key in 0..KEYS {
        node.put(key, 1);
        (0..6).for_each(|other| node.put(100 + 10 * key + other, 1));
    }
    node.flush();
    node.keep_store_at(now);
    node.log.roll().unwrap();
    // The removal that hides it lies among garbage.
    for key in hidden() {
        hide(&node, key);
        (60..72).for_each(|other| node.put(other, 2));
    }
    node.flush();
    node.keep_store_at(now);
    let expected = node.values_at(now);
    assert!(hidden().all(|key| !expected.contains_key(&key)));
    for _ in 0..3 {
        node = reopened_without_tables(&disk, node, now);
        node.keep_all_at(now);
        assert_eq!(node.values_at(now), expected);
    }
}

/// The value of each key, and whether it expires.
type Model = BTreeMap<usize, (u8, bool)>;

fn at(model: &Model, now: Timestamp) -> BTreeMap<usize, u8> {
    let lasts = |expires: bool| !expires || now < END;
    let known = model.iter().filter(|(_, (_, expires))| lasts(*expires));
    known.map(|(key, (value, _))| (*key, *value)).collect()
}

/// Random puts, removals and upkeep.
fn write_some(node: &Node, model: &mut Model, draw: &mut Draw, now: Timestamp) {
    for _ in 0..draw.below(200) + 30 {
        let (key, value) = (draw.below(KEYS), u8::try_from(draw.below(250)).unwrap());
        match draw.below(12) {
            0..=3 => {
                node.put(key, value);
                model.insert(key, (value, false));
            }
            4..=5 => {
                node.put_with(key, value, EXPIRING);
                model.insert(key, (value, true));
            }
            6..=8 => {
                node.remove(key);
                model.remove(&key);
            }
            9 => node.keep_store_at(now),
            10 => node.flush(),
            _ => node.collect(),
        }
    }
    if draw.below(2) == 0 {
        node.keep_all_at(now);
    }
}

/// The lost part of the ledger.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lost {
    Nothing,
    Tables,
    /// A block of a table, which a merge has to meet before the block is rebuilt.
    Block,
}

/// Removes all tables, or one of them, or damages one.
fn lose_tables(disk: &MemoryDisk, draw: &mut Draw) -> Lost {
    let tables: Vec<_> = files(disk, ".sst").into_iter().collect();
    if tables.is_empty() || draw.below(4) == 0 {
        return Lost::Nothing;
    }
    let path = &tables[draw.below(tables.len())];
    match draw.below(5) {
        0 | 1 => remove_files(disk, ".sst"),
        2 | 3 => disk.remove_file(path).unwrap(),
        _ => {
            flip(disk, path, 40);
            return Lost::Block;
        }
    }
    Lost::Tables
}

/// Does some of the due upkeep, and cuts the power in the middle of it.
fn cut_in_upkeep(disk: &MemoryDisk, node: &Node, draw: &mut Draw, now: Timestamp) -> MemoryDisk {
    disk.cut_after(disk.operations() + draw.below(60) as u64);
    // Only the power cut or the lost ledger can cause a failure.
    for _ in 0..draw.below(4) {
        let mut steps = draw.below(80);
        while steps > 0
            && let Some(Ok(_)) = node.upkeep_step(now)
        {
            steps -= 1;
        }
        let _failed = node.try_to_collect();
    }
    let extremes = CrashOptions::extremes();
    let options = match draw.below(2) {
        0 => CrashOptions::drawn(draw.below(1 << 20) as u64),
        _ => extremes[draw.below(extremes.len())],
    };
    disk.crash_image(options)
}

#[test]
fn whatever_is_lost_of_the_ledger_nothing_comes_back_and_nothing_is_missing() {
    for seed in 0..30 {
        run_lives(seed);
    }
}

/// Four runs of a node, with losses between them.
pub(crate) fn run_lives(seed: u64) {
    let (mut draw, mut disk) = (Draw(seed), MemoryDisk::new());
    let (mut node, mut model) = (Node::open(&disk), Model::new());
    for life in 0..4 {
        let now = if life < 2 { NOW } else { END };
        let story = format!("seed {seed}, life {life}");
        write_some(&node, &mut model, &mut draw, now);
        if draw.below(2) == 0 {
            let image = cut_in_upkeep(&disk, &node, &mut draw, now);
            drop(node);
            disk = image;
        } else {
            close(node);
        }
        let lost = lose_tables(&disk, &mut draw);
        node = Node::open(&disk);
        check_what_is_known(&node, &at(&model, now), now, &story);
        if lost != Lost::Nothing && draw.below(2) == 0 {
            let image = cut_in_upkeep(&disk, &node, &mut draw, now);
            drop(node);
            disk = image;
            node = Node::open(&disk);
            check_what_is_known(&node, &at(&model, now), now, &story);
        }
        node.keep_store_at(now);
        if lost == Lost::Block {
            // Merges pass the block, or no put touches it.
            (KEYS..3 * KEYS).for_each(|key| node.put(key, 1));
            node.keep_store_at(now);
            check_what_is_known(&node, &at(&model, now), now, &story);
            return;
        }
        assert_eq!(node.values_at(now), at(&model, now), "{story}");
        if life < 2 {
            assert_eq!(node.indexed().unwrap(), at(&model, now), "{story}");
        }
    }
}

/// Unknown keys have no answer, and known ones the right answer.
fn check_what_is_known(node: &Node, expected: &BTreeMap<usize, u8>, now: Timestamp, story: &str) {
    for key in 0..KEYS {
        match node.value_at(key, now) {
            Ok(value) => assert_eq!(value, expected.get(&key).copied(), "{story}, key {key}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "{story}"),
        }
    }
}

/// A step of rebuilding tables is as small as any other.
#[test]
fn tables_are_made_again_in_small_steps() {
    let disk = MemoryDisk::new();
    let node = Node::open(&disk);
    (0..400).for_each(|key| node.put(key, 1));
    node.flush();
    node.keep_store();
    close(node);
    remove_files(&disk, ".sst");
    let node = Node::open(&disk);
    let mut steps = 0;
    loop {
        let due = node.store.maintenance_due(NOW);
        let Some(task) = due.iter().find(|it| it.kind == TaskKind::Rebuild) else {
            break;
        };
        let step = node.store.maintenance_step(task, SMALL, NOW).unwrap();
        // One step may write all gathered entries.
        assert!(
            step.cost_bytes < 8 * SMALL.bytes,
            "{} bytes",
            step.cost_bytes
        );
        steps += 1;
    }
    assert!(steps > 100, "{steps} steps");
}
