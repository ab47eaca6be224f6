//! Random scripts against an ordered map: puts, removals of keys and of ranges, upkeep, snapshots,
//! reopening.

use std::collections::BTreeMap;

use bytes::Bytes;
use kvorum_backend::{FoldFilter, Lease, StepBudget};
use kvorum_disk::MemoryDisk;
use kvorum_lsm::{Compression, LsmSettings, LsmSnapshot, Op, ScanStep, TreeEntry, TreeView};
use proptest::prelude::*;

use crate::support::{NOW, do_all, everything, get, key, open, put_op, scanned, settings, write};

const KEYS: usize = 40;

#[derive(Clone, Debug)]
enum Step {
    Put(Vec<(usize, usize)>),
    Remove(usize),
    RemoveRange(usize, usize),
    Maintain(usize, u64),
    MaintainAll,
    Snapshot,
    Reopen,
    Sync,
}

fn step() -> impl Strategy<Value = Step> {
    let number = || 0..KEYS;
    prop_oneof![
        8 => proptest::collection::vec((number(), 0usize..900), 1..4).prop_map(Step::Put),
        2 => number().prop_map(Step::Remove),
        1 => (number(), 0usize..15).prop_map(|(from, len)| Step::RemoveRange(from, from + len)),
        3 => (0usize..5, 1u64..3_000).prop_map(|(pick, bytes)| Step::Maintain(pick, bytes)),
        1 => Just(Step::MaintainAll),
        1 => Just(Step::Snapshot),
        1 => Just(Step::Reopen),
        1 => Just(Step::Sync),
    ]
}

type Map = BTreeMap<Bytes, Bytes>;

fn body(number: usize, len: usize, round: usize) -> Vec<u8> {
    let mut body = format!("{number} {round} ").into_bytes();
    body.resize(body.len().max(len), b'.');
    body
}

fn seen_by(snapshot: &LsmSnapshot) -> Map {
    let mut seen = Map::new();
    let filter = FoldFilter::unexpired(NOW);
    let end = snapshot.scan(&everything(), &filter, &mut |shown| {
        seen.insert(Bytes::copy_from_slice(shown.key()), shown.body().unwrap());
        ScanStep::Next
    });
    end.unwrap();
    seen
}

fn play(steps: &[Step], settings: &LsmSettings) {
    let disk = MemoryDisk::new();
    let mut store = open(&disk, settings.clone());
    let mut model = Map::new();
    let mut snapshots: Vec<(LsmSnapshot, Map)> = Vec::new();
    for (round, step) in steps.iter().enumerate() {
        match step {
            Step::Put(puts) => {
                let ops: Vec<Op> = puts
                    .iter()
                    .map(|(number, len)| put_op(*number, &body(*number, *len, round)))
                    .collect();
                write(&store, &ops);
                for (number, len) in puts {
                    model.insert(key(*number), body(*number, *len, round).into());
                }
            }
            Step::Remove(number) => {
                write(&store, &[Op::Remove { key: key(*number) }]);
                model.remove(&key(*number));
            }
            Step::RemoveRange(from, to) => {
                let (from, to) = (key(*from), key(*to));
                model.retain(|key, _| !(from <= *key && *key < to));
                write(&store, &[Op::RemoveRange { from, to }]);
            }
            Step::Maintain(pick, bytes) => {
                let due = store.maintenance_due(NOW);
                if let Some(task) = due.get(pick % due.len().max(1)) {
                    let budget = StepBudget { bytes: *bytes };
                    store.maintenance_step(task, budget, NOW).unwrap();
                }
            }
            Step::MaintainAll => do_all(&store),
            Step::Snapshot => snapshots.push((store.snapshot(Lease::Unlimited), model.clone())),
            Step::Reopen => {
                snapshots.clear();
                store.close().unwrap();
                drop(store);
                store = open(&disk, settings.clone());
            }
            Step::Sync => {
                store.sync().unwrap();
            }
        }
        for number in (round % 3..KEYS).step_by(3) {
            let expected = model.get(&key(number)).cloned();
            assert_eq!(
                get(&store, number).unwrap(),
                expected,
                "key {number} in round {round}"
            );
        }
    }
    assert!(scanned(&store).into_iter().eq(model));
    for (snapshot, expected) in &snapshots {
        assert_eq!(&seen_by(snapshot), expected);
    }
    assert!(store.status(&everything()).lost.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 100, ..Default::default() })]

    #[test]
    fn a_store_is_the_map_that_its_script_makes(
        steps in proptest::collection::vec(step(), 1..120),
        blobs: bool,
        compressed: bool,
        filters: bool,
    ) {
        let compression = if compressed { Compression::Lz4 } else { Compression::None };
        let settings = LsmSettings {
            filter_bits_per_key: if filters { 10 } else { 0 },
            blob_threshold_bytes: if blobs { 300 } else { usize::MAX },
            compression: vec![compression],
            blob_compression: compression,
            ..settings()
        };
        play(&steps, &settings);
    }
}
