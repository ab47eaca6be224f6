//! Damaged files: intact records are imported, and the rest is reported.

use std::path::Path;

use kvorum_import::Summary;
use proptest::prelude::*;

use crate::journal::{Journal, key};
use crate::riak_objects::{object_v1, plain};
use crate::world::World;

const KEYS: u32 = 12;
const FRONT_BYTES: usize = 2048;

fn name(number: u32) -> String {
    format!("key{number:02}")
}

fn journal() -> Journal {
    let mut journal = Journal::default();
    for number in 0..KEYS {
        let object = object_v1(&[("a", 1)], &[plain(&"v".repeat(number as usize * 20))]);
        journal.put(number + 1, &key("b", &name(number)), &object);
    }
    journal
}

/// Imports one file, and returns the number of imported keys.
fn import(file: &str, bytes: &[u8]) -> (World, Summary, u32) {
    let world = World::new();
    world.journal(0, file, bytes);
    let summary = world.import().unwrap();
    let values = (0..KEYS).map(|number| world.values("b", &name(number)));
    let arrived = values.filter(|values| values.len() == 1).count();
    (world, summary, u32::try_from(arrived).unwrap())
}

#[test]
fn a_flipped_byte_costs_its_record_and_no_other_whatever_it_hits() {
    let journal = journal();
    let (from, to) = (journal.starts()[4], journal.starts()[5]);
    for (file, whole) in [
        ("0_x.cdb", journal.completed()),
        ("0_x.pnd", journal.bytes.clone()),
    ] {
        for at in from..to {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x40;
            let (world, summary, arrived) = import(file, &damaged);
            assert_eq!(arrived, KEYS - 1, "{file}, byte {}", at - from);
            assert!(world.values("b", &name(4)).is_empty());
            assert_eq!(summary.counts.unreadable, 1);
            let finding = &summary.first_findings[0];
            assert_eq!(finding.file.file_name().unwrap(), file);
            assert_eq!(finding.offset, from as u64);
            assert_eq!(finding.len, Some((to - from) as u64));
        }
    }
}

#[test]
fn a_flipped_byte_of_the_hash_tables_or_of_their_places_costs_nothing() {
    let journal = journal();
    let whole = journal.completed();
    for at in (0..FRONT_BYTES).chain(journal.bytes.len()..whole.len()) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x11;
        let (_, summary, arrived) = import("0_x.cdb", &damaged);
        assert_eq!(arrived, KEYS, "byte {at}");
        assert!(
            summary.is_whole() && summary.first_findings.is_empty(),
            "byte {at}: {summary}"
        );
    }
}

/// A power cut after leveled has completed a file: the name is durable, but the tables are missing
/// or cut.
#[test]
fn a_completed_file_whose_tables_were_not_written_has_all_its_objects() {
    let journal = journal();
    let (end, whole) = (journal.bytes.len(), journal.completed());
    for front in [vec![0; FRONT_BYTES], vec![0xa5; FRONT_BYTES]] {
        for tables in [
            whole[end..].to_vec(),
            vec![0; whole.len() - end],
            Vec::new(),
            whole[end..whole.len() - 24].to_vec(),
        ] {
            let bytes = [&front[..], &whole[FRONT_BYTES..end], &tables].concat();
            for file in ["0_x.cdb", "0_x.pnd"] {
                let (_, summary, arrived) = import(file, &bytes);
                assert_eq!(arrived, KEYS);
                assert!(summary.is_whole(), "{file}: {summary}");
            }
        }
    }
    // The tables are no records, and damage after the last record is no table.
    let last = *journal.starts().last().unwrap();
    let mut damaged = whole;
    damaged[..FRONT_BYTES].fill(0);
    damaged[last + 60] ^= 1;
    let (_, summary, arrived) = import("0_x.cdb", &damaged);
    assert_eq!((arrived, summary.counts.unreadable), (KEYS - 1, 1));
    assert_eq!(summary.first_findings[0].offset, last as u64);
}

#[test]
fn a_torn_tail_costs_the_last_record_and_counts_as_no_loss() {
    let whole = journal();
    let last = *whole.starts().last().unwrap();
    for len in last + 1..whole.bytes.len() {
        let (_, summary, arrived) = import("0_x.pnd", &whole.bytes[..len]);
        assert_eq!(arrived, KEYS - 1);
        let counts = summary.counts;
        assert_eq!((counts.torn_tails, counts.unreadable), (1, 0));
        assert!(summary.is_whole());
    }
    // Allocated space that was not written.
    let zeros = [&whole.bytes[..last], &[0; 5000]].concat();
    let (_, summary, arrived) = import("0_x.pnd", &zeros);
    assert_eq!((arrived, summary.counts.torn_tails), (KEYS - 1, 1));
    for len in [0, 1, FRONT_BYTES] {
        let (_, summary, _) = import("0_x.pnd", &whole.bytes[..len]);
        assert!(summary.is_whole());
        assert_eq!(summary.counts.torn_tails, u64::from(len == 1));
    }
}

#[test]
fn a_completed_file_that_is_cut_off_is_a_loss() {
    let whole = journal();
    let starts = whole.starts();
    let completed = whole.completed();
    for cut in [starts[6] + 5, starts[11] + 100, 1000, 0] {
        let (_, summary, arrived) = import("0_x.cdb", &completed[..cut]);
        let before = starts.iter().filter(|start| **start < cut).count();
        assert_eq!(arrived as usize, before.saturating_sub(1), "{cut}");
        assert_eq!(summary.counts.unreadable, 1);
        assert!(!summary.is_whole());
    }
}

/// leveled cuts the active file at the junk, and loses the objects after it.
#[test]
fn records_behind_junk_and_behind_a_damaged_end_are_found() {
    let whole = journal();
    let start = whole.starts()[6];
    for junk in [
        vec![0; 5000],
        vec![2; 300],
        vec![0xff; 40],
        b"\x40\0\0\0\x40\0\0\0\x83h\x03".repeat(50),
    ] {
        let mut damaged = whole.bytes.clone();
        damaged.splice(start..start, junk.clone());
        let (_, summary, arrived) = import("0_x.pnd", &damaged);
        assert_eq!((arrived, summary.counts.unreadable), (KEYS, 1));
        let finding = &summary.first_findings[0];
        assert_eq!(finding.offset, start as u64);
        assert_eq!(finding.len, Some(junk.len() as u64));
        assert!(finding.file.starts_with(Path::new("riak/0/journal")));
    }
    // A complete record with a wrong checksum at the end of the active file is damage, not a torn
    // end.
    let mut damaged = whole.bytes.clone();
    *damaged.last_mut().unwrap() ^= 1;
    let (_, summary, arrived) = import("0_x.pnd", &damaged);
    assert_eq!((arrived, summary.counts.unreadable), (KEYS - 1, 1));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_damaged_the_import_ends_and_stores_no_wrong_value(
        flips in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..20),
        cut in any::<proptest::sample::Index>(),
        is_completed in any::<bool>(),
    ) {
        let whole = journal();
        let mut bytes = if is_completed { whole.completed() } else { whole.bytes };
        for (at, flip) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
        }
        bytes.truncate(bytes.len() - cut.index(bytes.len()) / 4);
        let file = if is_completed { "0_x.cdb" } else { "0_x.pnd" };
        let (world, _, _) = import(file, &bytes);
        for number in 0..KEYS {
            let values = world.values("b", &name(number));
            let right = vec!["v".repeat(number as usize * 20)];
            prop_assert!(values.is_empty() || values == right);
        }
    }
}
