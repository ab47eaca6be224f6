//! The table of Riak's names against the figures that are recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::{Reading, Recording, Stats};

const TABLE: &str = include_str!("riak_names.tsv");
const NOW: Duration = Duration::from_secs(1000);

/// Names that Kvorum adds: totals where Riak has only the last minute, and percentiles where Riak
/// has only mean and maximum.
const OURS: [&str; 11] = [
    "clusteraae_fsm_create_error_total",
    "clusteraae_fsm_create_total",
    "index_fsm_complete_total",
    "index_fsm_create_error_total",
    "index_fsm_create_total",
    "worker_vnode_pool_queuetime_95",
    "worker_vnode_pool_queuetime_99",
    "worker_vnode_pool_queuetime_median",
    "worker_vnode_pool_worktime_95",
    "worker_vnode_pool_worktime_99",
    "worker_vnode_pool_worktime_median",
];

/// A line of the table: a name, its fate, and the reason for its absence.
struct Line {
    name: &'static str,
    fate: &'static str,
    reason: Option<&'static str>,
}

fn lines() -> Vec<Line> {
    let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
    let line = |text: &'static str| {
        let mut columns = text.split('\t');
        let (name, fate) = (columns.next().unwrap(), columns.next().unwrap());
        let reason = columns.next();
        assert_eq!(columns.next(), None, "{text}");
        Line { name, fate, reason }
    };
    lines.map(line).collect()
}

/// Names with a fate.
fn with_fate(fate: &str) -> BTreeSet<&'static str> {
    let lines = lines().into_iter();
    lines
        .filter(|line| line.fate == fate)
        .map(|line| line.name)
        .collect()
}

fn values(stats: &Stats) -> BTreeMap<&'static str, i64> {
    stats.riak_values(NOW).into_iter().collect()
}

/// Records one event or value of an entry of the table.
fn record_one(reading: Reading<'_>) {
    match reading {
        Reading::Counter { counter, .. } => counter.count(NOW),
        Reading::Total { total, .. } => total.count(),
        Reading::Gauge { gauge, .. } => gauge.add(1),
        Reading::Histogram { histogram, .. } => histogram.record(NOW, 1),
    }
}

#[test]
fn each_name_stands_once_with_its_fate_and_an_absent_one_with_a_reason_that_is_explained() {
    let mut before = "";
    for Line { name, fate, reason } in lines() {
        assert!(before < name, "{name} comes after {before}");
        before = name;
        match (fate, reason) {
            ("recorded" | "asked", None) => {}
            ("absent", Some(reason)) => {
                let explained = format!("\n# {reason}: ");
                assert!(TABLE.contains(&explained), "{name}: {reason}");
            }
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn at_least_three_hundred_of_riaks_names_are_recorded() {
    let recorded = with_fate("recorded");
    assert!(recorded.len() >= 300, "{}", recorded.len());
}

#[test]
fn the_names_that_are_recorded_are_those_of_the_table_and_ours() {
    let stats = Stats::default();
    let shown: BTreeSet<&str> = values(&stats).into_keys().collect();
    let mut expected = with_fate("recorded");
    expected.extend(OURS);
    let missing: Vec<_> = expected.difference(&shown).collect();
    let unknown: Vec<_> = shown.difference(&expected).collect();
    assert!(missing.is_empty(), "recorded by nothing: {missing:?}");
    assert!(unknown.is_empty(), "not in the table: {unknown:?}");
}

#[test]
fn each_recorded_name_moves_with_its_own_entry_and_with_no_other() {
    let before = values(&Stats::default());
    let mut moved_before = BTreeSet::new();
    let mut entries = 0;
    Stats::default().visit(|_, _| entries += 1);
    for entry in 0..entries {
        let stats = Stats::default();
        let mut number = 0;
        stats.visit(|reading, _| {
            if number == entry {
                record_one(reading);
            }
            number += 1;
        });
        let after = values(&stats);
        let moved: Vec<&str> = after
            .into_iter()
            .filter(|(name, value)| before[name] != *value)
            .map(|(name, _)| name)
            .collect();
        assert!(!moved.is_empty(), "entry {entry} moves nothing");
        for name in moved {
            assert!(moved_before.insert(name), "{name} moves with two entries");
        }
    }
    let all: BTreeSet<&str> = before.into_keys().collect();
    let still: Vec<_> = all.difference(&moved_before).collect();
    assert!(still.is_empty(), "these did not move: {still:?}");
}

#[test]
fn figures_of_a_type_stand_under_riaks_names() {
    let stats = Stats::default();
    let at = Recording::new(NOW);
    stats.map.gets.count_at(&at);
    stats.map.get_time.record_at(&at, 21);
    stats.map.get_objsize.record_at(&at, 22);
    stats.map.get_siblings.record_at(&at, 23);
    stats.set.puts.add(NOW, 2);
    stats.set.put_time.record(NOW, 24);
    stats.counter.updates.add(NOW, 3);
    stats.counter.update_time.record(NOW, 25);
    stats.counter_actor_counts.record(NOW, 26);
    stats.hll.merges.add(NOW, 4);
    stats.hll.merge_time.record(NOW, 27);
    stats.hll.read_repairs.add(NOW, 5);
    stats.hll_bytes_written.add(NOW, 6);
    stats.hll_bytes.record(NOW, 28);
    let values = values(&stats);
    for (name, expected) in [
        ("node_gets_map", 1),
        ("node_gets_map_total", 1),
        ("node_get_fsm_map_time_median", 21),
        ("node_get_fsm_map_objsize_95", 22),
        ("node_get_fsm_map_siblings_99", 23),
        ("node_puts_set_total", 2),
        ("node_put_fsm_set_time_100", 24),
        ("vnode_counter_update_total", 3),
        ("vnode_counter_update_time_mean", 25),
        ("counter_actor_counts_median", 26),
        ("object_hll_merge_total", 4),
        ("object_hll_merge_time_100", 27),
        ("read_repairs_hll_total", 5),
        ("hll_bytes", 6),
        ("hll_bytes_total", 6),
        ("hll_bytes_mean", 28),
        ("node_gets_total", 0),
        ("node_puts_total", 0),
        ("object_merge_total", 0),
    ] {
        assert_eq!(values.get(name), Some(&expected), "{name}");
    }
}
