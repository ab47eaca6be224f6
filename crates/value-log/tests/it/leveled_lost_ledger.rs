//! A ledger of leveled that is lost again and again, as a whole or in part, with entries that expire over older
//! ones that do not, and with power cuts in the middle of collections and of making tables again: what is gone
//! stays away, and what is there stays.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests stop at any failure, as tests do"
)]

use std::collections::BTreeMap;

use kvorum_backend::{ErrorKind, Fields, TaskKind, Timestamp};
use kvorum_disk::{CrashOptions, Disk, MemoryDisk};

use crate::leveled_node::{Draw, KEYS, NOW, Node, SMALL, close, files, remove_files};

/// When what expires does so.
const END: Timestamp = Timestamp(NOW.0 + 10);
const EXPIRING: Fields = Fields {
    segment: 0,
    last_modified: Timestamp(0),
    expiry: Some(END),
    tag: kvorum_backend::Tag(0),
};

/// Upkeep of the store and of the log, in turn, until the tables have been made again.
fn reopened_without_tables(disk: &MemoryDisk, node: Node, now: Timestamp) -> Node {
    close(node);
    remove_files(disk, ".sst");
    let node = Node::open(disk);
    node.keep_store_at(now);
    node
}

/// A removal was found in the journal after the ledger was lost, and the table that was made of it did not say
/// that the older put was in the journal too. So the removal went with the next merge, and the put came back
/// when the ledger was lost once more.
#[test]
fn a_removal_found_in_the_journal_stays_as_long_as_what_it_removes() {
    check_that_it_stays_away(NOW, |node| node.remove(0));
}

/// The same with an entry that expires in place of the removal.
#[test]
fn an_expired_entry_found_in_the_journal_stays_as_long_as_what_it_hides() {
    check_that_it_stays_away(END, |node| node.put_with(0, 7, EXPIRING));
}

/// The same with a removal that was in memory alone when the tables were lost.
#[test]
fn a_removal_that_was_in_memory_stays_as_long_as_what_it_removes() {
    let disk = MemoryDisk::new();
    let node = Node::open(&disk);
    (0..9).for_each(|key| node.put(key, 1));
    node.flush();
    node.keep_store();
    node.remove(0);
    let disk = disk.crash_image(CrashOptions::everything());
    remove_files(&disk, ".sst");
    let node = Node::open(&disk);
    node.keep_store();
    check_that_removals_do_not_go(&disk, node, NOW);
}

fn check_that_it_stays_away(now: Timestamp, hide: impl Fn(&Node)) {
    let disk = MemoryDisk::new();
    let node = Node::open(&disk);
    // What stays where it is, with the put beside it.
    (0..9).for_each(|key| node.put(key, 1));
    node.flush();
    hide(&node);
    (10..20).for_each(|key| node.put(key, 2));
    node.flush();
    node.keep_store_at(now);
    let node = reopened_without_tables(&disk, node, now);
    check_that_removals_do_not_go(&disk, node, now);
}

/// Lets everything go that may go, loses the ledger, and looks for what was hidden.
fn check_that_removals_do_not_go(disk: &MemoryDisk, node: Node, now: Timestamp) {
    for value in 3..6 {
        (10..30).for_each(|key| node.put(key, value));
        node.flush();
        node.keep_all_at(now);
    }
    let expected = node.values_at(now);
    assert!(!expected.contains_key(&0) && expected.contains_key(&1));
    let node = reopened_without_tables(disk, node, now);
    assert_eq!(node.values_at(now), expected);
}

/// What keys hold: the value, and whether it expires.
type Model = BTreeMap<usize, (u8, bool)>;

fn at(model: &Model, now: Timestamp) -> BTreeMap<usize, u8> {
    let lasts = |expires: bool| !expires || now < END;
    let known = model.iter().filter(|(_, (_, expires))| lasts(*expires));
    known.map(|(key, (value, _))| (*key, *value)).collect()
}

/// Puts, removals and upkeep as they are drawn.
fn write_some(node: &Node, model: &mut Model, draw: &mut Draw, now: Timestamp) {
    for _ in 0..draw.below(200) + 30 {
        let (key, value) = (draw.below(KEYS), draw.below(250) as u8);
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

/// Removes all tables, or one of them. Returns false where there is none.
fn lose_tables(disk: &MemoryDisk, draw: &mut Draw) -> bool {
    let tables: Vec<_> = files(disk, ".sst").into_iter().collect();
    if tables.is_empty() {
        return false;
    }
    match draw.below(2) {
        0 => remove_files(disk, ".sst"),
        _ => disk.remove_file(&tables[draw.below(tables.len())]).unwrap(),
    }
    true
}

/// Does some of what is due, and cuts the power in the middle of it.
fn cut_in_upkeep(disk: &MemoryDisk, node: &Node, draw: &mut Draw, now: Timestamp) -> MemoryDisk {
    disk.cut_after(disk.operations() + draw.below(60) as u64);
    // What fails, fails because the power is gone, or the ledger.
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
    for seed in 0..40 {
        run_lives(seed);
    }
}

fn run_lives(seed: u64) {
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
        let is_lost = draw.below(4) > 0 && lose_tables(&disk, &mut draw);
        node = Node::open(&disk);
        check_what_is_known(&node, &at(&model, now), now, &story);
        if is_lost && draw.below(2) == 0 {
            let image = cut_in_upkeep(&disk, &node, &mut draw, now);
            drop(node);
            disk = image;
            node = Node::open(&disk);
            check_what_is_known(&node, &at(&model, now), now, &story);
        }
        node.keep_store_at(now);
        assert_eq!(node.values_at(now), at(&model, now), "{story}");
        if life < 2 {
            assert_eq!(node.indexed().unwrap(), at(&model, now), "{story}");
        }
    }
}

/// What is not known yet is no answer, and what is known is right.
fn check_what_is_known(node: &Node, expected: &BTreeMap<usize, u8>, now: Timestamp, story: &str) {
    for key in 0..KEYS {
        match node.value_at(key, now) {
            Ok(value) => assert_eq!(value, expected.get(&key).copied(), "{story}, key {key}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "{story}"),
        }
    }
}

/// A step of making tables again is as small as any other.
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
        // One step may write what was gathered.
        assert!(
            step.cost_bytes < 8 * SMALL.bytes,
            "{} bytes",
            step.cost_bytes
        );
        steps += 1;
    }
    assert!(steps > 100, "{steps} steps");
}
