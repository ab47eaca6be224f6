//! The power is cut inside collections of the value log, at every operation, and collecting
//! continues after each cut: no removed key comes back.
//!
//! Records are offered one by one, so that cuts fall between any two copies. After a cut a segment
//! of the log may exist together with some of the copies out of it, and with a checkpoint from
//! before or after.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests stop at any failure, as tests do"
)]

use std::collections::BTreeMap;
use std::path::Path;

use kvorum_disk::{CrashOptions, Disk, MemoryDisk};
use proptest::prelude::*;

use crate::removals::{Kind, Node, expired_write_of, write_of, write_scripts};

const FEW: [u32; 3] = [1, 2, 3];
const SIX: [u32; 6] = [1, 2, 3, 4, 5, 6];

/// All kinds of crashes in turn.
fn crash_of(turn: u64) -> CrashOptions {
    match turn % 3 {
        0 => CrashOptions::nothing_unsynced(),
        1 => CrashOptions::everything(),
        _ => CrashOptions::drawn(turn),
    }
}

/// The number of operations of a collection, after a start on a copy of the disk.
fn operations_of(kind: Kind, before: &MemoryDisk, segment: u32) -> u64 {
    let disk = before.crash_image(CrashOptions::everything());
    let node = Node::open(&disk, kind);
    let opened = disk.operations();
    assert!(node.try_collect(segment, 1).is_ok());
    disk.operations() - opened
}

/// Begins a collection, and cuts the power after this many of its operations. Returns the disk, and
/// true if it was cut before the end.
fn cut_collection(
    kind: Kind,
    before: &MemoryDisk,
    segment: u32,
    at_once: usize,
    cut: u64,
    crash: CrashOptions,
) -> (MemoryDisk, bool) {
    let disk = before.crash_image(CrashOptions::everything());
    let node = Node::open(&disk, kind);
    disk.cut_after(disk.operations() + cut);
    let collected = node.try_collect(segment, at_once);
    (disk.crash_image(crash), collected.is_err())
}

/// A start after a crash shows the expected state. So do the store after all segments are collected
/// in this order and merged, and a start after that.
fn check_and_collect_on(
    kind: Kind,
    disk: &MemoryDisk,
    segments: &[u32],
    is_newest_first: bool,
    expected: &[(String, String)],
) {
    let node = Node::open(disk, kind);
    assert_eq!(node.folded(), expected, "after the cut");
    let mut left = segments.to_vec();
    if is_newest_first {
        left.reverse();
        node.merge_own();
    }
    for segment in left {
        assert!(node.try_collect(segment, usize::MAX).is_ok());
    }
    node.merge_own();
    assert_eq!(node.folded(), expected, "after collecting on");
    assert!(node.store.status().lost.is_empty());
    drop(node);
    disk.crash(CrashOptions::nothing_unsynced());
    let node = Node::open(disk, kind);
    assert_eq!(node.folded(), expected, "after another start");
    assert!(node.store.status().lost.is_empty());
}

/// Cuts one more collection at each of its operations, and continues after each cut. Returns the
/// number of cuts.
fn cut_everywhere(
    kind: Kind,
    before: &MemoryDisk,
    done: &mut Vec<u32>,
    expected: &[(String, String)],
) -> u64 {
    let mut cuts = 0;
    for segment in FEW {
        if done.contains(&segment) {
            continue;
        }
        done.push(segment);
        let operations = operations_of(kind, before, segment);
        for cut in 0..operations {
            let crash = crash_of(cut + done.len() as u64);
            let (disk, _) = cut_collection(kind, before, segment, 1, cut, crash);
            let case = format!("{done:?}, cut {cut} of {operations}, {crash:?}");
            let _on_failure = PrintOnPanic(case);
            check_and_collect_on(kind, &disk, &FEW, cut.is_multiple_of(2), expected);
            cuts += 1;
        }
        let crash = CrashOptions::nothing_unsynced();
        let (disk, was_cut) = cut_collection(kind, before, segment, 1, operations, crash);
        assert!(!was_cut);
        cuts += cut_everywhere(kind, &disk, done, expected);
        done.pop();
    }
    cuts
}

/// Prints the case of a failed assertion.
struct PrintOnPanic(String);

#[expect(clippy::print_stderr, reason = "the story of a failed test")]
impl Drop for PrintOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.0);
        }
    }
}

#[test]
fn r13_no_collection_of_three_log_segments_cut_at_any_operation_brings_a_removed_key_back() {
    cut_three_everywhere(Kind::Bitcask);
}

#[test]
fn r13_no_collection_from_under_leveldb_cut_at_any_operation_brings_a_removed_key_back() {
    cut_three_everywhere(Kind::Leveldb);
}

fn cut_three_everywhere(kind: Kind) {
    let disk = MemoryDisk::new();
    let expected = write_scripts(&disk, kind, 3);
    let cuts = cut_everywhere(kind, &disk, &mut Vec::new(), &expected);
    assert!(cuts > 15 * 10, "{cuts}");
}

/// Counts of a walk over six segments.
#[derive(Default)]
struct Walk {
    collections: u64,
    /// Number of collections that were cut before their end.
    cut: u64,
}

/// Collects one more of the segments in every possible way, `first` at the beginning. Each
/// collection is cut somewhere, and collecting continues after the cut.
fn walk(
    kind: Kind,
    before: &MemoryDisk,
    firsts: &[u32],
    done: &mut Vec<u32>,
    walked: &mut Walk,
    expected: &[(String, String)],
) {
    for segment in firsts.iter().copied() {
        if done.contains(&segment) {
            continue;
        }
        done.push(segment);
        // From no operation to all: a prime, so that every place in the tree is cut at different
        // operations.
        let cut = walked.collections % 19;
        let crash = crash_of(walked.collections);
        let (disk, was_cut) = cut_collection(kind, before, segment, usize::MAX, cut, crash);
        walked.collections += 1;
        walked.cut += u64::from(was_cut);
        let _on_failure = PrintOnPanic(format!("{done:?}, cut {cut}, {crash:?}"));
        let is_last = done.len() == SIX.len();
        if is_last {
            let is_newest_first = walked.collections.is_multiple_of(2);
            check_and_collect_on(kind, &disk, &SIX, is_newest_first, expected);
        } else {
            let image = disk.crash_image(CrashOptions::everything());
            assert_eq!(Node::open(&image, kind).folded(), expected);
        }
        walk(kind, &disk, &SIX, done, walked, expected);
        done.pop();
    }
}

#[test]
fn r13_no_six_log_segments_whose_collections_are_all_cut_somewhere_bring_a_removed_key_back() {
    let kind = Kind::Bitcask;
    let disk = MemoryDisk::new();
    let expected = write_scripts(&disk, kind, 6);
    let walk_half = |firsts: &[u32]| {
        let mut walked = Walk::default();
        walk(kind, &disk, firsts, &mut Vec::new(), &mut walked, &expected);
        walked
    };
    // This is the longest test here: two threads halve its time on two cores.
    let halves = std::thread::scope(|scope| {
        let other = scope.spawn(|| walk_half(&SIX[..3]));
        [walk_half(&SIX[3..]), other.join().unwrap()]
    });
    // Every ordered subset but the empty one.
    let collections: u64 = halves.iter().map(|it| it.collections).sum();
    let cut: u64 = halves.iter().map(|it| it.cut).sum();
    assert_eq!(collections, 1956);
    assert!(cut > 1000, "{cut}");
}

const NAMES: [&str; 3] = ["a", "b", "c"];
/// A batch to each segment of the log, or a few.
const SEGMENT_BYTES: std::ops::Range<u64> = 100..600;
/// More operations than a collection takes.
const UNCUT: u64 = 1 << 20;

#[derive(Clone, Debug)]
enum Step {
    Put(usize),
    Remove(usize),
    /// A put that has expired.
    Expire(usize),
    /// A collection of the existing segment at this place, cut after this many operations.
    Collect(usize, u64),
    /// A collection that stops after this many records.
    CollectFirst(usize, usize),
    MergeOwn,
    /// One step of each due task of the store, with hints of the log among them.
    Upkeep,
    /// A start after a crash, optionally without the store's checkpoint, as if it was damaged.
    Restart(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..NAMES.len()).prop_map(Step::Put),
        2 => (0..NAMES.len()).prop_map(Step::Remove),
        2 => (0..NAMES.len()).prop_map(Step::Expire),
        4 => (0..12usize).prop_map(|place| Step::Collect(place, UNCUT)),
        2 => (0..12usize, 0..20u64).prop_map(|(place, cut)| Step::Collect(place, cut)),
        1 => (0..12usize, 1..4usize).prop_map(|(place, count)| Step::CollectFirst(place, count)),
        1 => Just(Step::MergeOwn),
        2 => Just(Step::Upkeep),
        2 => any::<bool>().prop_map(Step::Restart),
    ]
}

fn lose_checkpoint(disk: &MemoryDisk) {
    let checkpoint = Path::new("store/checkpoint");
    if disk.info(checkpoint).unwrap().is_some() {
        disk.remove_file(checkpoint).unwrap();
    }
}

/// Plays the steps, each cut followed by a start, and then collects and merges the rest.
fn play(kind: Kind, segment_bytes: u64, steps: &[Step]) {
    let mut disk = MemoryDisk::new();
    let open = |disk: &MemoryDisk| Node::open_with(disk, kind, segment_bytes);
    let mut node = open(&disk);
    let mut model = BTreeMap::new();
    for (number, step) in (0..).zip(steps) {
        match step {
            Step::Put(name) => {
                node.put(vec![write_of(NAMES[*name], Some(number))]);
                model.insert(NAMES[*name].to_owned(), number.to_string());
            }
            Step::Remove(name) => {
                node.put(vec![write_of(NAMES[*name], None)]);
                model.remove(NAMES[*name]);
            }
            Step::Expire(name) => {
                node.put(vec![expired_write_of(NAMES[*name], number)]);
                model.remove(NAMES[*name]);
            }
            Step::MergeOwn => node.merge_own(),
            Step::Upkeep => node.upkeep(),
            Step::CollectFirst(place, count) => {
                let segments = node.closed_segments();
                if let Some(segment) = segments.get(place % segments.len().max(1)) {
                    node.collect_first(*segment, *count).unwrap();
                }
            }
            Step::Collect(place, cut) => {
                let segments = node.closed_segments();
                let Some(segment) = segments.get(place % segments.len().max(1)) else {
                    continue;
                };
                disk.cut_after(disk.operations() + cut);
                let collected = node.try_collect(*segment, 1);
                if collected.is_ok() && !disk.is_cut() {
                    disk.cut_after(u64::MAX);
                    continue;
                }
                drop(node);
                disk = disk.crash_image(crash_of(u64::from(number)));
                node = open(&disk);
                assert!(node.folded().into_iter().eq(model.clone()), "after a cut");
            }
            Step::Restart(loses_checkpoint) => {
                drop(node);
                disk.crash(CrashOptions::nothing_unsynced());
                if *loses_checkpoint {
                    lose_checkpoint(&disk);
                }
                node = open(&disk);
                assert!(node.folded().into_iter().eq(model.clone()), "after a start");
            }
        }
    }
    let closed = node.closed_segments();
    drop(node);
    let expected: Vec<_> = model.into_iter().collect();
    check_and_collect_on(
        kind,
        &disk,
        &closed,
        steps.len().is_multiple_of(2),
        &expected,
    );
    lose_checkpoint(&disk);
    assert_eq!(
        Node::open(&disk, kind).folded(),
        expected,
        "without a checkpoint"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 100, ..Default::default() })]

    #[test]
    fn r13_no_interleaving_of_puts_removals_and_collections_that_are_cut_brings_a_removed_key_back(
        steps in prop::collection::vec(step(), 1..40),
        segment_bytes in SEGMENT_BYTES,
    ) {
        play(Kind::Bitcask, segment_bytes, &steps);
    }

    #[test]
    fn r13_no_interleaving_over_leveldb_brings_a_removed_key_back(
        steps in prop::collection::vec(step(), 1..40),
        segment_bytes in SEGMENT_BYTES,
    ) {
        play(Kind::Leveldb, segment_bytes, &steps);
    }
}

/// An expired entry of the log becomes a removal in a file of the store's own. Until the removal is
/// durable the log keeps the entry: after a crash the older entries that it hides would come back.
#[test]
fn the_log_keeps_what_expired_until_its_removal_is_durable() {
    let steps = [
        Step::Put(0),
        Step::Put(1),
        Step::Collect(0, UNCUT),
        Step::Expire(0),
        Step::Put(2),
        Step::Put(1),
        // A checkpoint covers the expired entry from here on.
        Step::Collect(2, UNCUT),
        Step::CollectFirst(1, 1),
        Step::Restart(false),
    ];
    play(Kind::Bitcask, SEGMENT_BYTES.start, &steps);
}

/// An entry that a collection finds expired hides older entries of its segment until the segment is
/// gone. Only log hints may name the older entries.
#[test]
fn what_expired_hides_what_is_older_in_its_segment_until_that_is_gone() {
    let steps = [
        Step::Put(0),
        Step::Restart(false),
        Step::Put(0),
        Step::Upkeep,
        Step::Collect(0, UNCUT),
        Step::Put(1),
        Step::Expire(0),
        Step::Restart(false),
        Step::Collect(2, 11),
    ];
    play(Kind::Bitcask, 304, &steps);
}

/// A checkpoint that could not be read once can be read later, as after an error of the device, and
/// covers the state of its time. By then the log had dropped all records that bound the sequences.
#[test]
fn a_checkpoint_that_is_back_covers_nothing_that_was_put_without_it() {
    let kind = Kind::Bitcask;
    let disk = MemoryDisk::new();
    let node = Node::open(&disk, kind);
    node.put(vec![write_of("a", Some(0))]);
    node.put(vec![write_of("a", None)]);
    assert!(node.try_collect(1, 1).is_ok());
    drop(node);
    let node = Node::open(&disk, kind);
    node.closed_segments()
        .into_iter()
        .for_each(|it| node.try_collect(it, 1).unwrap());
    drop(node);
    let (checkpoint, away) = (Path::new("store/checkpoint"), Path::new("away"));
    disk.rename(checkpoint, away).unwrap();
    let node = Node::open(&disk, kind);
    node.put(vec![write_of("a", Some(6))]);
    drop(node);
    disk.rename(away, checkpoint).unwrap();
    let found = Node::open(&disk, kind).folded();
    assert_eq!(found, [("a".to_owned(), "6".to_owned())]);
}

/// The same with the checkpoint missing twice: the checkpoint that is back covers puts made after
/// the first time.
#[test]
fn checkpoints_that_are_lost_twice_cover_nothing_that_was_put_without_them() {
    play(
        Kind::Bitcask,
        SEGMENT_BYTES.start,
        &[
            Step::Put(1),
            Step::Put(2),
            // The cut is behind the note that there is a log, and before the first checkpoint.
            Step::Collect(0, 12),
            Step::Remove(2),
            Step::Collect(0, UNCUT),
            Step::Collect(0, UNCUT),
            Step::Restart(false),
            Step::Collect(0, UNCUT),
            // The removal is not durable: a power cut undoes it.
            Step::Restart(true),
            Step::Put(0),
        ],
    );
}
