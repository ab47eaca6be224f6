//! Batches in a damaged or missing part of the log: exactly the stores that lost some are reported,
//! and each loss is reported until it is noted.
//!
//! Regression: after a crash one flipped bit made the log serve an older value, or brought a
//! deleted key back. A missing newest segment did so for hundreds of keys. The log reported the
//! damaged bytes, but not the stores that had lost writes.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests stop at any failure, as tests do"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use kvorum_backend::{Backend, Durability, Sequence, StoreId};
use kvorum_disk::{CrashOptions, Disk, MemoryDisk, OpenMode};
use kvorum_segment::file_name;

use kvorum_value_log::LoggedRecord;

use crate::removals::records_of;
use crate::values::{DIRECTORY, Node, batch};

/// Number of a segment, and offset in it.
type Place = (u64, u64);

fn behind((number, at): Place, bytes: u64) -> Place {
    (number, at + bytes)
}

fn before((number, at): Place, bytes: u64) -> Place {
    (number, at - bytes)
}

/// A killed node, and its state before.
struct Killed {
    disk: MemoryDisk,
    drawn: Arc<AtomicU64>,
    stores: Vec<StoreId>,
    log_id: u64,
}

impl Killed {
    /// The state after one put to each of these stores in turn.
    fn after(puts: &[usize]) -> Self {
        Self::after_rolls(puts, &[])
    }

    /// The same, with a segment closed before the puts in `rolls`.
    fn after_rolls(puts: &[usize], rolls: &[usize]) -> Self {
        let disk = MemoryDisk::new();
        let drawn = Arc::new(AtomicU64::new(1));
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let node = Node::open(&shared, &drawn).unwrap();
        for (number, store) in puts.iter().enumerate() {
            if rolls.contains(&number) {
                node.log.roll().unwrap();
            }
            put(&node, *store, number);
        }
        // Later records prove that the last puts were durable.
        for _ in 0..2 {
            while node.log.chore_step().unwrap() {}
        }
        let stores = node.engines.iter().map(|it| it.identity()).collect();
        let log_id = node.log.log_id();
        drop(node);
        Self {
            disk: disk.crash_image(CrashOptions::everything()),
            drawn,
            stores,
            log_id,
        }
    }

    fn open(&self) -> Node {
        let shared: Arc<dyn Disk> = Arc::new(self.disk.clone());
        Node::open(&shared, &self.drawn).unwrap()
    }

    /// A store's record of this sequence: its beginning, the end of its front, and its end.
    fn record(&self, store: usize, sequence: u64) -> [Place; 3] {
        let mut records = (1..4).flat_map(|number| {
            let path = segment(number);
            let is_there = self.disk.info(&path).unwrap().is_some();
            let id = u32::try_from(number).unwrap();
            let records = is_there.then(|| records_of(&self.disk, self.log_id, id, &path));
            records.unwrap_or_default()
        });
        let store = self.stores[store];
        let is_it = |it: &LoggedRecord| it.store == store && it.stored.head.sequence == sequence;
        let place = records.find(is_it).unwrap().place();
        let (number, at) = (u64::from(place.segment), place.record);
        [at.offset, at.offset + at.front_end, at.offset + at.len].map(|it| (number, it))
    }

    fn flip(&self, (number, at): Place) {
        let file = self
            .disk
            .open(&segment(number), OpenMode::ReadWrite)
            .unwrap();
        let mut byte = [0];
        file.read_at(&mut byte, at, kvorum_disk::Reading::MayBlock)
            .unwrap();
        file.write_at(&[byte[0] ^ 0x20], at).unwrap();
        file.sync().unwrap();
    }

    /// The lost stores by their numbers, with their last lost sequences.
    fn lost(&self, node: &Node) -> Vec<(usize, u64)> {
        let lost = node.lost.iter().map(|(store, lost_to)| {
            let number = self.stores.iter().position(|it| it == store);
            (number.unwrap(), lost_to.0)
        });
        lost.collect()
    }
}

fn segment(number: u64) -> PathBuf {
    Path::new(DIRECTORY).join(file_name(number))
}

fn put(node: &Node, store: usize, number: usize) {
    let receipt = node.engines[store].put(&batch(number), Durability::Grouped);
    receipt.unwrap().wait().unwrap();
}

#[test]
fn a_batch_that_is_missing_between_two_others_is_lost_to_its_store_alone() {
    let killed = Killed::after(&[0, 1, 2, 0, 1, 2, 0, 1, 2]);
    let [begin, front_end, _] = killed.record(1, 2);
    // In the header, and in the front.
    for at in [behind(begin, 9), before(front_end, 1)] {
        killed.flip(at);
        let node = killed.open();
        assert_eq!(killed.lost(&node), [(1, 2)]);
        assert!(!node.opening.damage.is_empty() || !node.damage.is_empty());
        drop(node);
        killed.flip(at);
        assert_eq!(killed.lost(&killed.open()), []);
    }
}

#[test]
fn a_damaged_back_costs_its_key_and_no_store_its_completeness() {
    let killed = Killed::after(&[0, 1, 2, 0, 1, 2]);
    let [_, _, end] = killed.record(1, 2);
    killed.flip(before(end, 3));
    let node = killed.open();
    assert_eq!(killed.lost(&node), []);
    assert!(!node.opening.damage.is_empty() || !node.damage.is_empty());
    // Two keys were put; the damaged one is neither absent nor at its previous value.
    assert_eq!(
        node.engines[1]
            .values(kvorum_backend::Reading::MayBlock)
            .unwrap()
            .len(),
        1
    );
    assert_eq!(node.engines[1].last(), 2);
}

#[test]
fn the_last_batch_of_a_store_is_lost_to_the_store_whose_next_one_it_was() {
    let killed = Killed::after(&[0, 0, 0, 1, 2, 1, 0]);
    // The second batch of store 1 is its last; behind it are the fourth of store 0 and none of
    // store 2, which has one batch.
    let [begin, front_end, _] = killed.record(1, 2);
    killed.flip(before(front_end, 1));
    // By its sequence it may also be the next batch of store 2.
    assert_eq!(killed.lost(&killed.open()), [(1, 2), (2, 2)]);
    killed.flip(before(front_end, 1));
    killed.flip(behind(begin, 9));
    // Without a header the lost records are unknown, but store 0 continues behind them.
    let lost = killed.lost(&killed.open());
    assert_eq!(lost.iter().map(|it| it.0).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn a_missing_newest_segment_is_lost_to_all_stores_that_it_may_have_held_something_of() {
    let killed = Killed::after_rolls(&[0, 1, 2, 0, 1], &[3]);
    killed.disk.remove_file(&segment(2)).unwrap();
    killed.disk.sync_directory(Path::new(DIRECTORY)).unwrap();
    let lost = killed.lost(&killed.open());
    assert_eq!(lost.iter().map(|it| it.0).collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
fn a_loss_is_reported_until_it_is_noted_and_its_sequences_are_not_given_out_again() {
    let killed = Killed::after(&[0, 1, 2, 0, 1, 2, 0, 1, 2]);
    let [_, front_end, _] = killed.record(1, 3);
    killed.flip(before(front_end, 1));
    for _ in 0..2 {
        assert!(killed.lost(&killed.open()).contains(&(1, 3)));
    }
    let node = killed.open();
    for (store, lost_to) in &node.lost {
        node.log.note_loss(*store, *lost_to).unwrap();
    }
    let receipt = node.engines[1]
        .put(&batch(20), Durability::Grouped)
        .unwrap();
    assert_eq!(receipt.sequence, Sequence(4));
    receipt.wait().unwrap();
    drop(node);
    let node = killed.open();
    assert_eq!(killed.lost(&node), []);
    assert_eq!(node.engines[1].last(), 4);
    // Once its own files cover the loss, it no longer matters.
    node.engines[1].cover().unwrap();
    drop(node);
    assert_eq!(killed.lost(&killed.open()), []);
}
