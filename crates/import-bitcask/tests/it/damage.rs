//! Damaged files: intact records are imported, and the rest is reported.

use proptest::prelude::*;

use crate::basho::{CaskFile, key};
use crate::riak_objects::{object_v1, plain};
use crate::world::World;

const KEYS: u32 = 12;

fn name(number: u32) -> String {
    format!("key{number:02}")
}

/// A file of some keys, and the offsets of their records.
fn file() -> (CaskFile, Vec<usize>) {
    let mut file = CaskFile::default();
    let starts = (0..KEYS).map(|number| {
        let object = object_v1(&[("a", 1)], &[plain(&"v".repeat(number as usize * 20))]);
        usize::try_from(file.put(&key("b", &name(number)), &object)).unwrap()
    });
    let starts = starts.collect();
    (file, starts)
}

/// Number of imported keys.
fn arrived(world: &World) -> u32 {
    let values = (0..KEYS).map(|number| world.values("b", &name(number)));
    u32::try_from(values.filter(|values| values.len() == 1).count()).unwrap()
}

#[test]
fn a_flipped_byte_costs_its_record_and_no_other_whatever_it_hits() {
    let (whole, starts) = file();
    let (from, to) = (starts[4], starts[5]);
    for at in from..to {
        let world = World::new();
        let mut damaged = whole.clone();
        damaged.data[at] ^= 0x40;
        world.data(0, 1, &damaged);
        let summary = world.import().unwrap();
        assert_eq!(arrived(&world), KEYS - 1, "byte {}", at - from);
        assert!(world.values("b", &name(4)).is_empty());
        assert_eq!(summary.counts.unreadable, 1);
        let finding = &summary.first_findings[0];
        assert_eq!(finding.offset, from as u64);
        assert_eq!(finding.len, Some((to - from) as u64));
    }
}

#[test]
fn a_torn_tail_costs_the_last_record_and_counts_as_no_loss() {
    let (whole, starts) = file();
    let last = *starts.last().unwrap();
    for len in last + 1..whole.data.len() {
        let world = World::new();
        let mut torn = whole.clone();
        torn.data.truncate(len);
        world.data(0, 1, &torn);
        let summary = world.import().unwrap();
        assert_eq!(arrived(&world), KEYS - 1);
        assert_eq!(
            (summary.counts.torn_tails, summary.counts.unreadable),
            (1, 0)
        );
        assert!(summary.is_whole());
    }
}

#[test]
fn junk_between_records_and_a_run_of_zeros_are_passed_over() {
    let (whole, starts) = file();
    for junk in [
        vec![0; 5000],
        vec![2; 300],
        vec![0xff; 40],
        b"\x02\0\x01b".repeat(50),
    ] {
        let world = World::new();
        let mut damaged = whole.clone();
        damaged.data.splice(starts[6]..starts[6], junk);
        world.data(0, 1, &damaged);
        let summary = world.import().unwrap();
        assert_eq!(arrived(&world), KEYS);
        assert_eq!(summary.counts.unreadable, 1);
    }
}

#[test]
fn wrong_hint_files_are_not_believed_and_cost_nothing() {
    let (whole, _) = file();
    let right = whole.hint();
    let mut without_first = CaskFile::default();
    without_first.data.clone_from(&whole.data);
    let shorter = [&right[..], &right[..18]].concat();
    let mut wrong = vec![Vec::new(), right[..right.len() - 18].to_vec(), shorter];
    for at in (0..right.len()).step_by(7) {
        let mut flipped = right.clone();
        flipped[at] ^= 1;
        wrong.push(flipped);
    }
    // The hints of another file, with a matching checksum.
    let mut other = CaskFile::default();
    for _ in 0..KEYS {
        other.put(&key("b", "elsewhere"), &[7; 9000]);
    }
    wrong.push(other.hint());
    // Hints without the first record.
    let first = 18 + key("b", &name(0)).len();
    let mut gap = right[first..right.len() - 18].to_vec();
    let sum = crate::basho::crc32(&gap);
    gap.extend([0; 6]);
    gap.extend(sum.to_be_bytes());
    gap.extend((u64::MAX >> 1).to_be_bytes());
    wrong.push(gap);
    for hint in wrong {
        let world = World::new();
        world.data(0, 1, &whole);
        world.write("riak/0/1.bitcask.hint", &hint);
        let summary = world.import().unwrap();
        assert_eq!(arrived(&world), KEYS);
        assert_eq!(
            (summary.counts.hints_used, summary.counts.hints_doubted),
            (0, 1)
        );
        assert!(summary.is_whole());
    }
}

#[test]
fn keys_that_nobody_writes_are_named() {
    let world = World::new();
    let mut file = CaskFile::default();
    let object = object_v1(&[("a", 1)], &[plain("v")]);
    for bad in [
        &b"\x02\xff\xffb"[..],
        b"\x03\0\x01",
        b"\x83\x68",
        b"x",
        b"\x02\0\x01b",
    ] {
        file.put(bad, &object);
    }
    file.put(&key("b", "good"), &object);
    world.closed(0, 1, &file);
    let summary = world.import().unwrap();
    assert_eq!(summary.counts.unreadable, 5);
    assert_eq!(world.values("b", "good"), ["v"]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_damaged_the_import_ends_and_stores_no_wrong_value(
        flips in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..20),
        cut in any::<proptest::sample::Index>(),
        has_hint in any::<bool>(),
        damages_hint in any::<bool>(),
    ) {
        let (mut damaged, _) = file();
        let mut hint = damaged.hint();
        let bytes = if damages_hint { &mut hint } else { &mut damaged.data };
        for (at, flip) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
        }
        bytes.truncate(bytes.len() - cut.index(bytes.len()) / 4);
        let world = World::new();
        world.data(0, 1, &damaged);
        if has_hint {
            world.write("riak/0/1.bitcask.hint", &hint);
        }
        world.import().unwrap();
        for number in 0..KEYS {
            let values = world.values("b", &name(number));
            let right = vec!["v".repeat(number as usize * 20)];
            prop_assert!(values.is_empty() || values == right);
        }
    }
}
