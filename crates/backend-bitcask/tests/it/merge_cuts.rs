//! The power is cut at every operation of merges, and merging continues after each cut: no removed
//! key comes back.
//!
//! Merges are done record by record, so that cuts fall between any two records. After a cut a file
//! may exist together with a part of its copies, and the next merges have to handle both.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests stop at any failure, as tests do"
)]

use std::collections::BTreeMap;
use std::path::Path;

use kvorum_backend::{Backend, StepBudget, Task, TaskKind, Urgency};
use kvorum_backend_bitcask::{Bitcask, BitcaskSettings};
use kvorum_disk::{CrashOptions, Disk, ErrorKind, Fault, FaultyDisk, MemoryDisk, Operation, Rule};
use proptest::prelude::*;

use crate::merges::{SIX, expected_of_scripted, scripted_files};
use crate::store::{NOW, do_task, folded, one_file_each, open, put, remove};

const FEW: u64 = 4;
const AT_ONCE: StepBudget = StepBudget { bytes: u64::MAX };

/// Merges until the merge is done or the power is cut.
fn merge(store: &Bitcask, file: u64, budget: StepBudget) {
    let task = Task {
        kind: TaskKind::Merge,
        subject: file,
        urgency: Urgency::Normal,
        cost_bytes: 0,
    };
    while store
        .maintenance_step(&task, budget, NOW)
        .is_ok_and(|step| !step.is_done)
    {}
}

/// The number of operations of a file's merge, after a start on a copy of the disk.
fn operations_of(before: &MemoryDisk, file: u64, budget: StepBudget) -> u64 {
    let disk = before.crash_image(CrashOptions::everything());
    let store = open(&disk, BitcaskSettings::default());
    let opened = disk.operations();
    merge(&store, file, budget);
    disk.operations() - opened
}

/// Begins a merge, and cuts the power after this many operations.
fn cut_merge(
    before: &MemoryDisk,
    file: u64,
    budget: StepBudget,
    cut: u64,
    crash: CrashOptions,
) -> MemoryDisk {
    let disk = before.crash_image(CrashOptions::everything());
    let store = open(&disk, BitcaskSettings::default());
    disk.cut_after(disk.operations() + cut);
    merge(&store, file, budget);
    disk.crash_image(crash)
}

/// The kinds of crashes in turn.
fn crash_of(turn: u64) -> CrashOptions {
    match turn % 3 {
        0 => CrashOptions::nothing_unsynced(),
        1 => CrashOptions::everything(),
        _ => CrashOptions::drawn(turn),
    }
}

/// Each file of the store, copies included.
fn files(disk: &MemoryDisk) -> Vec<u64> {
    let names = disk.list(Path::new("store")).unwrap();
    let numbers = names
        .iter()
        .filter_map(|it| kvorum_segment::parse_file_name(&it.name));
    numbers.collect()
}

/// Checks the state after a start that follows a crash, after merging all remaining files in this
/// order, and after another start.
fn check_and_merge_on(disk: &MemoryDisk, is_newest_first: bool, expected: &[(String, String)]) {
    let store = open(disk, BitcaskSettings::default());
    assert_eq!(folded(&store, NOW), expected, "after the cut");
    let mut left = files(disk);
    if is_newest_first {
        left.reverse();
    }
    for file in left {
        merge(&store, file, AT_ONCE);
    }
    assert_eq!(folded(&store, NOW), expected, "after merging on");
    assert!(store.status().lost.is_empty());
    drop(store);
    disk.crash(CrashOptions::nothing_unsynced());
    let store = open(disk, BitcaskSettings::default());
    assert_eq!(folded(&store, NOW), expected, "after another start");
    assert!(store.status().lost.is_empty());
}

/// Cuts one more merge at each of its operations, and continues with uncut merges. Returns the
/// number of cuts.
fn cut_everywhere(
    before: &MemoryDisk,
    merged: &mut Vec<u64>,
    expected: &[(String, String)],
) -> u64 {
    let in_records = StepBudget { bytes: 1 };
    let mut cuts = 0;
    for file in 1..=FEW {
        if merged.contains(&file) {
            continue;
        }
        merged.push(file);
        let operations = operations_of(before, file, in_records);
        for cut in 0..operations {
            let crash = crash_of(cut + merged.len() as u64);
            let disk = cut_merge(before, file, in_records, cut, crash);
            let case = format!("{merged:?}, cut {cut} of {operations}, {crash:?}");
            let _on_failure = PrintOnPanic(case);
            check_and_merge_on(&disk, cut.is_multiple_of(2), expected);
            cuts += 1;
        }
        let crash = CrashOptions::nothing_unsynced();
        let disk = cut_merge(before, file, in_records, operations, crash);
        cuts += cut_everywhere(&disk, merged, expected);
        merged.pop();
    }
    cuts
}

/// Prints the case when an assertion fails.
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
fn r13_no_merge_of_four_files_cut_at_any_operation_in_any_order_brings_a_removed_key_back() {
    let disk = MemoryDisk::new();
    scripted_files(&disk, FEW);
    let cuts = cut_everywhere(&disk, &mut Vec::new(), &expected_of_scripted(FEW));
    assert!(cuts > 64 * 10, "{cuts}");
}

/// Counts of a walk over six files.
#[derive(Default)]
struct Walk {
    merges: u64,
    /// Merges that were cut before their end.
    cut: u64,
}

/// Merges one more of the files in every possible way; each merge is cut somewhere, and merging
/// continues after the cut.
fn walk(
    before: &MemoryDisk,
    merged: &mut Vec<u64>,
    walked: &mut Walk,
    expected: &[(String, String)],
) {
    for file in 1..=SIX {
        if merged.contains(&file) {
            continue;
        }
        merged.push(file);
        let disk = before.crash_image(CrashOptions::everything());
        let store = open(&disk, one_file_each());
        assert_eq!(folded(&store, NOW), expected, "{merged:?}");
        assert!(store.status().lost.is_empty());
        // Cuts from before the first operation to after the last. The number is prime, so that the
        // same place in the tree gets different cuts.
        let cut = walked.merges % 23;
        disk.cut_after(disk.operations() + cut);
        merge(&store, file, AT_ONCE);
        walked.merges += 1;
        walked.cut += u64::from(disk.is_cut());
        drop(store);
        let crash = crash_of(walked.merges);
        let left = disk.crash_image(crash);
        if merged.len() as u64 == SIX {
            let _on_failure = PrintOnPanic(format!("{merged:?}, cut {cut}, {crash:?}"));
            check_and_merge_on(&left, walked.merges.is_multiple_of(2), expected);
        }
        walk(&left, merged, walked, expected);
        merged.pop();
    }
}

#[test]
fn r13_no_six_files_whose_merges_are_all_cut_somewhere_bring_a_removed_key_back() {
    let disk = MemoryDisk::new();
    scripted_files(&disk, SIX);
    let mut walked = Walk::default();
    walk(
        &disk,
        &mut Vec::new(),
        &mut walked,
        &expected_of_scripted(SIX),
    );
    // Every ordered subset but the empty one.
    assert_eq!(walked.merges, 1956);
    assert!(walked.cut > 1000, "{}", walked.cut);
}

/// A file that cannot be unlinked is back at the next start, when the removals that hid its entries
/// may be gone.
#[test]
fn r13_a_merged_file_whose_unlinking_failed_brings_no_removed_key_back() {
    let memory = MemoryDisk::new();
    scripted_files(&memory, FEW);
    let expected = expected_of_scripted(FEW);
    for order in [[1, 2, 3, 4], [2, 1, 4, 3], [4, 3, 2, 1]] {
        let memory = memory.crash_image(CrashOptions::everything());
        let disk = FaultyDisk::over_memory(&memory);
        let store = open(&disk, one_file_each());
        let name = kvorum_segment::file_name(order[0]);
        let fails = Rule::new(Fault::Error(ErrorKind::Device));
        disk.add_rule(fails.on(Operation::Remove).path_ends_with(&name));
        for file in order {
            merge(&store, file, AT_ONCE);
        }
        assert_eq!(folded(&store, NOW), expected);
        assert_eq!(files(&memory)[0], order[0]);
        drop(store);
        memory.crash(CrashOptions::everything());
        check_and_merge_on(&memory, true, &expected);
    }
}

/// Files so small that merges copy to files that are newer than the active one.
fn few_records_each() -> BitcaskSettings {
    BitcaskSettings {
        file_bytes_max: 600,
        ..BitcaskSettings::default()
    }
}

const NAMES: [&str; 3] = ["a", "b", "c"];

/// More operations than any merge has.
const UNCUT: u64 = 1 << 20;

#[derive(Clone, Debug)]
enum Step {
    Put(usize),
    Remove(usize),
    /// A merge of the existing file at this index, cut after this many operations.
    Merge(usize, u64),
    /// A start after a crash, without the checkpoint if this is true.
    Restart(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..NAMES.len()).prop_map(Step::Put),
        3 => (0..NAMES.len()).prop_map(Step::Remove),
        4 => (0..12usize).prop_map(|place| Step::Merge(place, UNCUT)),
        2 => (0..12usize, 0..40u64).prop_map(|(place, cut)| Step::Merge(place, cut)),
        2 => any::<bool>().prop_map(Step::Restart),
    ]
}

/// Runs the steps, with a start after each cut, and then merges the rest.
fn play(steps: &[Step]) {
    let mut disk = MemoryDisk::new();
    let mut store = open(&disk, few_records_each());
    let mut model = BTreeMap::new();
    for (number, step) in steps.iter().enumerate() {
        match step {
            Step::Put(name) => {
                let body = format!("value {number}");
                put(&store, NAMES[*name], &body);
                model.insert(NAMES[*name].to_owned(), body);
            }
            Step::Remove(name) => {
                remove(&store, NAMES[*name]);
                model.remove(NAMES[*name]);
            }
            Step::Merge(place, cut) => {
                let files = files(&disk);
                let Some(file) = files.get(place % files.len().max(1)) else {
                    continue;
                };
                // This task seals the file.
                do_task(&store, TaskKind::Hint, *file, NOW);
                disk.cut_after(disk.operations() + cut);
                merge(&store, *file, StepBudget { bytes: 1 });
                if !disk.is_cut() {
                    disk.cut_after(u64::MAX);
                    continue;
                }
                drop(store);
                disk = disk.crash_image(crash_of(number as u64));
                store = open(&disk, few_records_each());
            }
            Step::Restart(loses_checkpoint) => {
                drop(store);
                disk.crash(CrashOptions::nothing_unsynced());
                let checkpoint = Path::new("store/checkpoint");
                if *loses_checkpoint && disk.info(checkpoint).unwrap().is_some() {
                    disk.remove_file(checkpoint).unwrap();
                }
                store = open(&disk, few_records_each());
            }
        }
    }
    drop(store);
    let expected: Vec<_> = model.into_iter().collect();
    check_and_merge_on(&disk, steps.len().is_multiple_of(2), &expected);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 400, ..Default::default() })]

    #[test]
    fn r13_no_interleaving_of_puts_removals_and_merges_that_are_cut_brings_a_removed_key_back(
        steps in prop::collection::vec(step(), 1..60)
    ) {
        play(&steps);
    }
}
