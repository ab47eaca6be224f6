//! The policy on simulated stores: sets of numbers in place of tables.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::*;
use crate::policy::is_zero_worth_merging;

const KEY_BYTES: u64 = 100;

fn settings() -> PolicySettings {
    PolicySettings {
        levels: 6,
        level_zero_tables: 4,
        base_bytes: 4_000 * KEY_BYTES,
        multiplier: 8,
        table_bytes_max: 2_000 * KEY_BYTES,
        ..PolicySettings::default()
    }
}

/// A store of keys without values.
struct Virtual {
    levels: Vec<Vec<(u64, BTreeSet<u32>)>>,
    next: u64,
    flushed: u64,
    written: u64,
    level_zero_max: usize,
}

impl Virtual {
    fn new() -> Self {
        Self {
            levels: vec![Vec::new(); settings().levels],
            next: 0,
            flushed: 0,
            written: 0,
            level_zero_max: 0,
        }
    }

    fn shape(&self) -> Shape {
        let key = |key: Option<&u32>| Bytes::from(key.unwrap().to_be_bytes().to_vec());
        let shape = |(number, keys): &(u64, BTreeSet<u32>)| TableShape {
            number: *number,
            bytes: keys.len() as u64 * KEY_BYTES,
            smallest: key(keys.first()),
            largest: key(keys.last()),
            entries: keys.len() as u64,
            removals: 0,
            half_expired_at: None,
            expired_at: None,
            is_misplaced: false,
        };
        let levels = self.levels.iter();
        Shape {
            levels: levels.map(|it| it.iter().map(shape).collect()).collect(),
        }
    }

    fn flush(&mut self, keys: BTreeSet<u32>) {
        self.flushed += keys.len() as u64;
        self.written += keys.len() as u64;
        self.next += 1;
        self.levels[0].insert(0, (self.next, keys));
        self.level_zero_max = self.level_zero_max.max(self.levels[0].len());
    }

    /// Does the most wanted merge; false when there is none.
    fn merge(&mut self) -> bool {
        let Some(pick) = picks(&self.shape(), &settings(), 0).into_iter().next() else {
            return false;
        };
        let mut merged = BTreeSet::new();
        let mut take = |level: &mut Vec<(u64, BTreeSet<u32>)>, numbers: &[u64]| {
            for (_, keys) in level.extract_if(.., |(number, _)| numbers.contains(number)) {
                merged.extend(keys);
            }
        };
        take(&mut self.levels[pick.level], &pick.inputs);
        take(&mut self.levels[pick.output], &pick.below);
        if !pick.is_move {
            self.written += merged.len() as u64;
        }
        let keys: Vec<u32> = merged.into_iter().collect();
        for keys in keys.chunks(2_000) {
            self.next += 1;
            let table = (self.next, keys.iter().copied().collect());
            self.levels[pick.output].push(table);
        }
        self.levels[pick.output].sort_by_key(|(_, keys)| keys.first().copied());
        true
    }

    fn entries(&self) -> usize {
        self.levels
            .iter()
            .flatten()
            .map(|(_, keys)| keys.len())
            .sum()
    }

    fn amplification_percent(&self) -> u64 {
        100 * self.written / self.flushed
    }
}

fn random(state: &mut u64) -> u32 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    u32::try_from(*state >> 33).unwrap()
}

#[test]
fn random_overwrites_stay_within_bounds_of_space_and_writes() {
    const KEYS: u32 = 30_000;
    let mut store = Virtual::new();
    let mut state = 7;
    for round in 0..200 {
        let keys = (0..1_000).map(|_| random(&mut state) % KEYS).collect();
        store.flush(keys);
        // Each flush is merged before the next.
        loop {
            let shape = store.shape();
            let has_backlog = backlog(&shape, &settings()).bytes > 0;
            let is_due = size_picks(&shape, &settings()).next().is_some();
            assert_eq!(has_backlog, is_due, "round {round}");
            if !store.merge() {
                break;
            }
        }
        assert_eq!(
            backlog(&store.shape(), &settings()).bytes,
            0,
            "round {round}"
        );
    }
    // The arithmetic of levels: two levels of eight, and level 0 over the base.
    assert!(
        store.amplification_percent() < 1_500,
        "{}",
        store.amplification_percent()
    );
    let space = 100 * store.entries() / KEYS as usize;
    assert!(space < 125, "{space} % of the live entries");
    assert!(store.level_zero_max <= 4);
}

#[test]
fn ascending_keys_are_moved_and_hardly_rewritten() {
    let mut store = Virtual::new();
    for round in 0..200u32 {
        store.flush((round * 1_000..(round + 1) * 1_000).collect());
        while store.merge() {}
    }
    assert!(
        store.amplification_percent() < 350,
        "{}",
        store.amplification_percent()
    );
}

#[test]
fn merging_at_a_bounded_rate_bounds_level_zero() {
    let mut store = Virtual::new();
    let mut state = 3;
    let mut due = 0;
    for _ in 0..150 {
        store.flush((0..1_000).map(|_| random(&mut state) % 25_000).collect());
        // Eleven entries are merged for each entry put: less than bursts need, enough on average.
        due += 11_000i64;
        while due > 0 {
            let before = store.written;
            if !store.merge() {
                due = 0;
                break;
            }
            due -= i64::try_from(store.written - before).unwrap();
        }
    }
    assert!(store.level_zero_max < 12, "{}", store.level_zero_max);
}

#[test]
fn levels_above_the_base_are_not_used() {
    let mut store = Virtual::new();
    store.flush((0..3_000).collect());
    store.levels[5] = store.levels[0].drain(..).collect();
    let shape = store.shape();
    assert_eq!(base_level(&shape, &settings()), 5);
    assert_eq!(targets(&shape, &settings())[..5], [0; 5]);
    let large = TableShape {
        bytes: 1_000_000 * KEY_BYTES,
        ..shape.levels[5][0].clone()
    };
    let shape = Shape {
        levels: vec![vec![], vec![], vec![], vec![], vec![], vec![large]],
    };
    let targets = targets(&shape, &settings());
    assert_eq!(targets[4], 125_000 * KEY_BYTES);
    assert_eq!(base_level(&shape, &settings()), 2);
    assert!(targets[2] <= settings().base_bytes && targets[2] > settings().base_bytes / 8);
}

#[test]
fn garbage_is_collected_when_nothing_is_too_large() {
    let table = |number, removals, expired_at| TableShape {
        number,
        bytes: 10,
        smallest: Bytes::from("a"),
        largest: Bytes::from("b"),
        entries: 10,
        removals,
        half_expired_at: None,
        expired_at,
        is_misplaced: false,
    };
    let on_level = |level: usize, table: TableShape| {
        let mut levels = vec![Vec::new(); 6];
        levels[level].push(table);
        Shape { levels }
    };
    let reason = |shape: &Shape, now| {
        let picks = picks(shape, &settings(), now);
        picks.first().map(|pick| (pick.reason, pick.output))
    };
    let expired = on_level(5, table(1, 0, Some(50)));
    assert_eq!(reason(&expired, 49), None);
    assert_eq!(reason(&expired, 50), Some((Reason::Expired, 5)));
    let removals = on_level(4, table(1, 6, None));
    // Level 4 is not in use with so little data: it is drained anyway.
    assert_eq!(reason(&removals, 0), Some((Reason::Size, 5)));
}

#[test]
fn removals_are_merged_early_where_they_free_enough() {
    let table = |number, entries, removals| TableShape {
        number,
        bytes: 10 * entries,
        smallest: Bytes::from("a"),
        largest: Bytes::from("b"),
        entries,
        removals,
        half_expired_at: None,
        expired_at: None,
        is_misplaced: false,
    };
    let shape = |entries, removals, below| {
        let mut levels = vec![Vec::new(); 6];
        levels[0].push(table(1, entries, removals));
        levels[5].push(table(2, below, 0));
        Shape { levels }
    };
    let picked = |shape: &Shape, removals_trigger| {
        let settings = PolicySettings {
            removals_trigger,
            ..settings()
        };
        let pick = picks(shape, &settings, 0).into_iter().next();
        pick.map(|it| (it.reason, it.level, it.output))
    };
    let many = shape(30, 20, 150);
    assert_eq!(picked(&many, Some(20)), Some((Reason::Removals, 0, 5)));
    assert_eq!(picked(&many, Some(21)), None);
    assert_eq!(picked(&many, None), None);
    // They would free less than a tenth of the entries to read.
    assert_eq!(picked(&shape(30, 20, 180), Some(20)), None);
}

#[test]
fn half_of_a_table_has_to_be_expired_or_all_of_it() {
    let table = TableShape {
        number: 1,
        bytes: 10,
        smallest: Bytes::from("a"),
        largest: Bytes::from("b"),
        entries: 10,
        removals: 0,
        half_expired_at: Some(50),
        expired_at: Some(90),
        is_misplaced: false,
    };
    for level in [0, 5] {
        let mut levels = vec![Vec::new(); 6];
        levels[level].push(table.clone());
        let shape = Shape { levels };
        let is_due = |rewrites_expired, now| {
            let settings = PolicySettings {
                rewrites_expired,
                ..settings()
            };
            !picks(&shape, &settings, now).is_empty()
        };
        assert!(!is_due(true, 49) && is_due(true, 50));
        assert!(!is_due(false, 89) && is_due(false, 90));
    }
}

#[test]
fn writers_feel_level_zero_smoothly() {
    let pressure = |count: usize| {
        let table = TableShape {
            number: 1,
            bytes: 10,
            smallest: Bytes::new(),
            largest: Bytes::new(),
            entries: 1,
            removals: 0,
            half_expired_at: None,
            expired_at: None,
            is_misplaced: false,
        };
        let shape = Shape {
            levels: vec![vec![table; count]],
        };
        backlog(&shape, &settings()).pressure_permille
    };
    let pressures: Vec<u64> = (0..25).map(pressure).collect();
    assert_eq!(pressures[8], 0);
    assert_eq!(pressures[20], 1000);
    assert!(
        pressures
            .windows(2)
            .all(|pair| pair[1] >= pair[0] && pair[1] - pair[0] < 100)
    );
}

/// A table with the keys from one letter to another, and this many bytes and entries.
fn table(number: u64, from: &'static str, to: &'static str, bytes: u64) -> TableShape {
    TableShape {
        number,
        bytes,
        smallest: Bytes::from(from),
        largest: Bytes::from(to),
        entries: bytes,
        removals: 0,
        half_expired_at: None,
        expired_at: None,
        is_misplaced: false,
    }
}

fn picked(zero: Vec<TableShape>, room_bytes: u64) -> (Vec<u64>, Vec<u64>) {
    let mut levels = vec![Vec::new(); 6];
    levels[0] = zero;
    levels[5] = vec![table(1, "a", "m", 10), table(2, "n", "z", 10)];
    let settings = PolicySettings {
        level_zero_tables: 1,
        table_bytes_max: 10,
        room_bytes,
        ..settings()
    };
    let mut picks = picks(&Shape { levels }, &settings, 0);
    let pick = picks.remove(0);
    (pick.inputs, pick.below)
}

/// Regression: on a small disk level 0 was merged with the whole store at once, the copy never
/// fitted, and puts were refused for good.
#[test]
fn no_more_of_level_zero_is_merged_than_there_is_room_for() {
    let zero = || {
        vec![
            table(9, "b", "y", 50),
            table(8, "c", "f", 5),
            table(7, "c", "f", 20),
            table(6, "n", "z", 30),
        ]
    };
    assert_eq!(picked(zero(), u64::MAX), (vec![9, 8, 7, 6], vec![1, 2]));
    // A part takes a table of the output and one of the level below.
    assert_eq!(picked(zero(), 120).0, [8, 7, 6]);
    assert_eq!(picked(zero(), 50), (vec![6], vec![2]));
    // None fits: the smallest of the tables with no older table beneath.
    assert_eq!(picked(zero(), 40), (vec![7], vec![1]));
}

#[test]
fn tables_of_one_flush_count_once() {
    let flush = |number| {
        [
            table(number, "a", "f", 1),
            table(number + 1, "g", "m", 1),
            table(number + 2, "n", "z", 1),
        ]
    };
    let due = |flushes: u64| {
        let mut levels = vec![Vec::new(); 6];
        levels[0] = (0..flushes).rev().flat_map(|it| flush(3 * it)).collect();
        !picks(&Shape { levels }, &settings(), 0).is_empty()
    };
    assert!(!due(3) && due(4));
}

#[test]
fn new_tables_do_not_pass_older_ones_on_a_level_that_is_not_in_use() {
    let mut levels = vec![Vec::new(); 6];
    levels[0] = (0..50).map(|it| table(100 + it, "a", "z", 1)).collect();
    levels[2] = vec![table(3, "a", "z", 10)];
    let picks = picks(&Shape { levels }, &settings(), 0);
    let zero = picks.iter().find(|it| it.level == 0).unwrap();
    assert_eq!((zero.output, &zero.below[..]), (2, &[3][..]));
}

#[test]
fn a_small_part_of_new_entries_is_not_worth_a_merge() {
    let is_worth = |bytes, part| {
        let mut levels = vec![Vec::new(); 6];
        levels[0] = vec![table(2, "a", "z", bytes)];
        levels[5] = vec![table(1, "a", "z", 1000)];
        is_zero_worth_merging(&Shape { levels }, part)
    };
    assert!(!is_worth(20, 32) && is_worth(40, 32) && is_worth(20, 256) && !is_worth(0, 256));
}
