//! Disks that fail under the log: the cost of a failed append, a failed sync, a torn or misplaced
//! segment and an unreadable sector. Acknowledged writes survive all of them.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests stop at any failure, as tests do"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bytes::Bytes;
use kvorum_backend::{Backend, Batch, Durability, ErrorKind, Fields, Receipt, StepBudget, Write};
use kvorum_disk::{
    CrashOptions, Disk, Fault, FaultyDisk, MemoryDisk, OpenMode, Operation, Rule, read_file,
};
use kvorum_encoding::{StorageKey, checksum, mask_checksum};

use crate::values::{DIRECTORY, Node, SETTINGS, Values, batch};

/// Larger than half a group, so that two values are in two groups.
const LARGE_BYTES: usize = 5 << 20;
const FILE_HEADER_BYTES: usize = 32;

struct Rig {
    memory: MemoryDisk,
    faulty: FaultyDisk,
    drawn: Arc<AtomicU64>,
    node: Node,
}

impl Rig {
    fn new() -> Self {
        let memory = MemoryDisk::new();
        let faulty = FaultyDisk::over_memory(&memory);
        let drawn = Arc::new(AtomicU64::new(1));
        let node = Node::open(&shared(&faulty), &drawn).unwrap();
        Self {
            memory,
            faulty,
            drawn,
            node,
        }
    }

    fn queue(&self, store: usize, batch: &Batch) -> Receipt {
        let receipt = self.node.engines[store].put(batch, Durability::Grouped);
        receipt.unwrap()
    }

    fn put(&self, store: usize, number: usize) -> kvorum_backend::Result<()> {
        let receipt = self.node.engines[store].put(&batch(number), Durability::Grouped)?;
        receipt.wait().map(drop)
    }

    fn fail(&self, kind: kvorum_disk::ErrorKind, operation: Operation) {
        self.faulty
            .add_rule(Rule::new(Fault::Error(kind)).on(operation));
    }

    /// A node after a power cut, with nothing damaged or lost.
    fn after_a_cut(&self) -> Node {
        let image = self.memory.crash_image(CrashOptions::nothing_unsynced());
        opened_whole(&image, &self.drawn)
    }
}

fn shared(disk: &(impl Disk + Clone + 'static)) -> Arc<dyn Disk> {
    Arc::new(disk.clone())
}

fn opened_whole(disk: &(impl Disk + Clone + 'static), drawn: &Arc<AtomicU64>) -> Node {
    let node = Node::open(&shared(disk), drawn).unwrap();
    assert_eq!(node.opening.damage, Vec::<String>::new());
    assert_eq!(node.damage, Vec::<String>::new());
    assert_eq!(node.lost, []);
    node
}

fn large_batch(number: u8) -> Batch {
    let key = StorageKey::from_encoded(vec![number]);
    let body = vec![number; LARGE_BYTES].into();
    Batch::of(Write::put(key, Fields::default(), Bytes::new(), body))
}

fn kind(outcome: kvorum_backend::Result<impl Sized>) -> Option<ErrorKind> {
    outcome.err().map(|error| error.kind())
}

fn segments(disk: &dyn Disk) -> Vec<PathBuf> {
    let numbers = kvorum_segment::list_segments(disk, Path::new(DIRECTORY)).unwrap();
    let name = |number| Path::new(DIRECTORY).join(kvorum_segment::file_name(number));
    numbers.into_iter().map(name).collect()
}

fn content(disk: &MemoryDisk, path: &Path) -> Vec<u8> {
    read_file(disk, path, 1 << 20).unwrap()
}

fn overwrite(disk: &MemoryDisk, path: &Path, bytes: &[u8]) {
    let file = disk.open(path, OpenMode::Create).unwrap();
    file.truncate(0).unwrap();
    file.write_at(bytes, 0).unwrap();
    file.sync().unwrap();
}

/// Each batch is in a group of its own. Otherwise a later one would be acknowledged over a gap in
/// its store's numbers.
#[test]
fn what_is_queued_behind_a_failed_append_is_not_acknowledged_before_it_is_written() {
    let rig = Rig::new();
    rig.put(0, 1).unwrap();
    let queued = [1, 2, 3].map(|number| rig.queue(0, &large_batch(number)));
    rig.fail(kvorum_disk::ErrorKind::NoSpace, Operation::Write);
    let [first, second, third] = queued;
    assert_eq!(kind(first.wait()), Some(ErrorKind::Full));
    assert_eq!(kind(second.wait()), Some(ErrorKind::Full));
    rig.faulty.heal();
    third.wait().unwrap();
    // The batches before it were visible, and were written with it.
    let node = rig.after_a_cut();
    let values = &node.values()[0];
    let has_all = [1, 2, 3].map(|number: u8| values.contains_key(&vec![number]));
    assert_eq!((has_all, values.len()), ([true; 3], 4));
    assert_eq!(node.engines[0].last(), 4);
}

#[test]
fn a_torn_append_leaves_nothing_in_the_way() {
    for bytes in [0, 1, 50, 100, 140] {
        let rig = Rig::new();
        rig.put(0, 1).unwrap();
        let torn = Rule::new(Fault::TornWrite { bytes }).path_contains(DIRECTORY);
        let torn = rig.faulty.add_rule(torn.nth(1));
        assert!(rig.put(0, 2).is_err());
        assert_eq!(rig.faulty.fired(torn), 1);
        rig.put(0, 3).unwrap();
        let node = rig.after_a_cut();
        assert_eq!(node.values(), rig.node.values(), "{bytes} bytes");
        assert_eq!((node.values()[0].len(), node.engines[0].last()), (3, 3));
    }
}

/// One sync fails, once: that of the segment with the last group but one. The records behind it, in
/// the next segment, would be synced without an error.
#[test]
fn a_failed_sync_is_not_escaped_into_the_next_segment() {
    let rig = Rig::new();
    rig.put(0, 1).unwrap();
    let first = segments(&rig.memory).remove(0);
    let unsynced = rig.queue(0, &batch(2));
    let device = Fault::Error(kvorum_disk::ErrorKind::Device);
    let failed = Rule::new(device).on(Operation::Sync).path(&first);
    let failed = rig.faulty.add_rule(failed.nth(1));
    let newest = rig.node.log.newest_segment();
    let next = rig.queue(1, &large_batch(2));
    assert!(rig.node.log.newest_segment() > newest);
    assert_eq!(kind(next.wait()), Some(ErrorKind::Failed));
    assert_eq!(kind(unsynced.wait()), Some(ErrorKind::Failed));
    assert_eq!(rig.faulty.fired(failed), 1);
    for store in 0..3 {
        assert_eq!(kind(rig.put(store, 3)), Some(ErrorKind::Failed));
    }
    assert!(rig.node.log.failure().is_some());
    let node = rig.after_a_cut();
    assert!(!node.values()[0].is_empty());
}

#[test]
fn a_failed_sync_fails_what_is_queued_behind_it() {
    let rig = Rig::new();
    rig.put(0, 1).unwrap();
    let queued = [1, 2, 3].map(|number| rig.queue(usize::from(number) - 1, &large_batch(number)));
    rig.fail(kvorum_disk::ErrorKind::Device, Operation::Sync);
    let [first, second, third] = queued;
    assert_eq!(kind(first.wait()), Some(ErrorKind::Failed));
    rig.faulty.heal();
    assert_eq!(kind(second.wait()), Some(ErrorKind::Failed));
    assert_eq!(kind(third.wait()), Some(ErrorKind::Failed));
}

/// On a full disk no spare segment can be made, and only dropping segments makes room.
#[test]
fn a_log_without_room_for_a_spare_segment_lets_segments_go() {
    let rig = Rig::new();
    let number_of_segments = || rig.node.log.status().segments;
    let mut puts = 0;
    while number_of_segments() < 6 {
        rig.put(0, 4 * puts).unwrap();
        puts += 1;
    }
    rig.node.engines[0].cover().unwrap();
    let no_space = Fault::Error(kvorum_disk::ErrorKind::NoSpace);
    let created = Rule::new(no_space).on(Operation::Open);
    rig.faulty.add_rule(created.path_ends_with(".segment"));
    let budget = StepBudget { bytes: 300 };
    for _ in 0..100 {
        let _done_or_full = rig.node.log.upkeep_step(budget);
    }
    assert!(number_of_segments() < 3, "{:?}", rig.node.log.status());
    rig.faulty.heal();
    rig.node.do_upkeep().unwrap();
    rig.put(0, 4 * puts).unwrap();
    assert_eq!(rig.after_a_cut().values(), rig.node.values());
}

/// A store whose own files cannot be written keeps the segments that it needs. The note of a store
/// that was erased meanwhile stays as long as a segment has any of its records; without it the log
/// would wait for that store for ever.
#[test]
fn the_record_of_an_erasure_stays_with_what_it_speaks_of() {
    let rig = Rig::new();
    rig.put(0, 1).unwrap();
    (0..30).for_each(|number| rig.put(1, number).unwrap());
    let device = Fault::Error(kvorum_disk::ErrorKind::Device);
    let own_files = Rule::new(device).path_contains("node/stores/0");
    rig.faulty.add_rule(own_files);
    rig.node.engines[1].erase().unwrap();
    let budget = StepBudget { bytes: 300 };
    for number in 0..120 {
        rig.put(2, number).unwrap();
        for _ in 0..10 {
            let _done_or_failed = rig.node.log.upkeep_step(budget);
        }
    }
    let status = rig.node.log.status();
    assert!(status.bytes < 8 * SETTINGS.segment_bytes, "{status:?}");
    assert!(rig.node.log.segment(1).is_some());
    let node = rig.after_a_cut();
    let lens: Vec<usize> = node.values().iter().map(BTreeMap::len).collect();
    assert_eq!(lens, [1, 0, 4]);
    node.do_upkeep().unwrap();
    assert_eq!(node.log.status().waiting_bytes, 0);
    assert!(!node.log.holders().contains(&rig.node.engines[1].identity()));
    node.engines[0].cover().unwrap();
    (0..30).for_each(|number| {
        let receipt = node.engines[2].put(&batch(number), Durability::Grouped);
        receipt.unwrap().wait().unwrap();
        node.do_upkeep().unwrap();
    });
    assert!(node.log.segment(1).is_none());
}

/// Nine batches of each of two stores, killed.
fn killed() -> (MemoryDisk, Arc<AtomicU64>, Vec<Values>) {
    let rig = Rig::new();
    for number in 0..18 {
        rig.put(number % 2, number).unwrap();
    }
    let values = rig.node.values();
    let image = rig.memory.crash_image(CrashOptions::nothing_unsynced());
    assert!(segments(&image).len() > 3);
    (image, rig.drawn, values)
}

/// The end of the records of a segment: zeros follow.
fn used(bytes: &[u8]) -> usize {
    let zeros = bytes.iter().rev().take_while(|byte| **byte == 0).count();
    (bytes.len() - zeros).next_multiple_of(8)
}

fn newest_with_records(disk: &MemoryDisk) -> PathBuf {
    let all = segments(disk).into_iter().rev();
    let mut with_records = all.filter(|path| used(&content(disk, path)) > FILE_HEADER_BYTES);
    with_records.next().unwrap()
}

/// The power failed while a group was written. No batch of it was acknowledged, so no store has
/// lost anything.
#[test]
fn what_a_crash_tore_is_counted_and_makes_no_store_incomplete() {
    let (disk, drawn, values) = killed();
    let newest = newest_with_records(&disk);
    let mut bytes = content(&disk, &newest);
    bytes.truncate(used(&bytes));
    bytes.extend([7; 50]);
    overwrite(&disk, &newest, &bytes);
    let node = opened_whole(&disk, &drawn);
    assert_eq!(node.opening.torn_bytes, 50);
    assert_eq!(node.values(), values);
    drop(node);
    assert_eq!(opened_whole(&disk, &drawn).opening.torn_bytes, 0);
}

#[test]
fn a_segment_under_another_number_is_set_aside() {
    let (disk, drawn, values) = killed();
    let first = &segments(&disk)[0];
    let stray = Path::new(DIRECTORY).join(kvorum_segment::file_name(99));
    overwrite(&disk, &stray, &content(&disk, first));
    let node = Node::open(&shared(&disk), &drawn).unwrap();
    let (damage, lost) = (node.opening.damage.clone(), node.lost.clone());
    assert_eq!((damage.len(), lost), (1, vec![]), "{damage:?}");
    assert_eq!(node.values(), values);
    drop(node);
    let aside = Path::new(DIRECTORY).join("lost");
    assert_eq!(disk.list(&aside).unwrap().len(), 1);
    assert_eq!(opened_whole(&disk, &drawn).values(), values);
}

#[test]
fn a_segment_of_a_newer_version_is_left_as_it_is() {
    let (disk, drawn, values) = killed();
    let first = &segments(&disk)[0];
    let old = content(&disk, first);
    let mut newer = old.clone();
    newer[8] += 1;
    let check = mask_checksum(checksum(&newer[..FILE_HEADER_BYTES - 4]));
    newer[FILE_HEADER_BYTES - 4..FILE_HEADER_BYTES].copy_from_slice(&check.to_le_bytes());
    overwrite(&disk, first, &newer);
    let refused = Node::open(&shared(&disk), &drawn);
    assert_eq!(kind(refused), Some(ErrorKind::NewerFormat));
    assert_eq!(content(&disk, first), newer);
    overwrite(&disk, first, &old);
    assert_eq!(opened_whole(&disk, &drawn).values(), values);
}

/// Whichever read fails, the opening fails, and the next opening finds all data.
#[test]
fn bad_sectors_end_an_opening_and_lose_nothing() {
    let (disk, drawn, values) = killed();
    let mut refused = 0;
    for nth in 1..1_000 {
        let image = disk.crash_image(CrashOptions::everything());
        let faulty = FaultyDisk::over_memory(&image);
        let device = Fault::Error(kvorum_disk::ErrorKind::Device);
        let bad = Rule::new(device).on(Operation::Read);
        let bad = faulty.add_rule(bad.path_ends_with(".segment").nth(nth));
        let opened = Node::open(&shared(&faulty), &drawn);
        if faulty.fired(bad) == 0 {
            assert!(refused > 8, "{refused} openings met a bad sector");
            return;
        }
        refused += usize::from(kind(opened) == Some(ErrorKind::Failed));
        faulty.heal();
        assert_eq!(opened_whole(&faulty, &drawn).values(), values, "read {nth}");
    }
    unreachable!("an opening has fewer reads");
}
