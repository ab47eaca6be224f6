//! Keys with one fingerprint are distinguished by the keys on disk.

use kvorum_backend::{Backend, TaskKind};
use kvorum_backend_bitcask::BitcaskSettings;
use kvorum_disk::MemoryDisk;
use proptest::prelude::*;

use crate::store::{NOW, body_of, do_task, folded, open, put, remove};

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

fn colliding() -> BitcaskSettings {
    BitcaskSettings {
        fingerprint: Some(|_| 42),
        file_bytes_max: 500,
        ..BitcaskSettings::default()
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put(usize, u8),
    Remove(usize),
    Merge(u64),
    Reopen(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..NAMES.len(), any::<u8>()).prop_map(|(name, body)| Step::Put(name, body)),
        2 => (0..NAMES.len()).prop_map(Step::Remove),
        2 => (1u64..8).prop_map(Step::Merge),
        1 => any::<bool>().prop_map(Step::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 60, ..Default::default() })]

    #[test]
    fn every_key_keeps_its_own_value(steps in proptest::collection::vec(step(), 1..40)) {
        let disk = MemoryDisk::new();
        let mut store = open(&disk, colliding());
        let mut expected = std::collections::BTreeMap::new();
        for step in steps {
            match step {
                Step::Put(name, body) => {
                    let body = body.to_string().repeat(30);
                    put(&store, NAMES[name], &body);
                    expected.insert(NAMES[name].to_owned(), body);
                }
                Step::Remove(name) => {
                    remove(&store, NAMES[name]);
                    expected.remove(NAMES[name]);
                }
                Step::Merge(file) => {
                    do_task(&store, TaskKind::Hint, file, NOW);
                    do_task(&store, TaskKind::Merge, file, NOW);
                }
                Step::Reopen(is_closed) => {
                    if is_closed {
                        store.close().unwrap();
                    }
                    drop(store);
                    store = open(&disk, colliding());
                }
            }
            for name in NAMES {
                let found = body_of(&store, name);
                prop_assert_eq!(found.as_ref(), expected.get(name));
            }
            prop_assert_eq!(store.status().keys, expected.len() as u64);
        }
        let shown = folded(&store, NOW);
        prop_assert_eq!(shown, expected.into_iter().collect::<Vec<_>>());
    }
}
