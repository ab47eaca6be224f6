//! The store-wide time to live, counted from the last modification.

use std::time::Duration;

use bytes::Bytes;
use kvorum_backend::{
    Backend, Batch, Durability, Fields, ReadAt, Reading, StepBudget, TaskKind, Timestamp, Write,
};
use kvorum_backend_memory::{MemoryBackend, Settings};

use crate::bound::{has, key};

fn at(micros: u64) -> ReadAt {
    ReadAt {
        reading: Reading::CachedOnly,
        now: Timestamp(micros),
    }
}

fn put(store: &MemoryBackend, name: &str, last_modified: u64, expiry: Option<u64>) {
    let fields = Fields {
        last_modified: Timestamp(last_modified),
        expiry: expiry.map(Timestamp),
        ..Fields::default()
    };
    let write = Write::put(key(name), fields, Bytes::new(), Bytes::new());
    drop(store.put(&Batch::of(write), Durability::Buffered).unwrap());
}

#[test]
fn the_earlier_of_ttl_and_expiry_ends_an_entry_and_upkeep_collects_it() {
    let settings = Settings {
        ttl: Some(Duration::from_micros(100)),
        ..Settings::default()
    };
    let store = MemoryBackend::new(settings, || 1);
    put(&store, "by ttl", 50, None);
    put(&store, "by expiry", 50, Some(120));
    put(&store, "later than ttl", 50, Some(900));
    assert!(has(&store, "by expiry", at(119)));
    assert!(!has(&store, "by expiry", at(120)));
    assert!(has(&store, "by ttl", at(149)));
    assert!(!has(&store, "by ttl", at(150)));
    assert!(!has(&store, "later than ttl", at(150)));
    assert!(store.is_empty(Timestamp(150)).unwrap());
    assert_eq!(store.status().keys, 3);
    let due = store.maintenance_due(Timestamp(150));
    assert_eq!(due[0].kind, TaskKind::Expire);
    let budget = StepBudget { bytes: 1 };
    let first = store
        .maintenance_step(&due[0], budget, Timestamp(150))
        .unwrap();
    assert!(!first.is_done);
    assert_eq!(store.status().keys, 2);
    let budget = StepBudget { bytes: 1 << 20 };
    let rest = store
        .maintenance_step(&due[0], budget, Timestamp(150))
        .unwrap();
    assert!(rest.is_done);
    assert_eq!((store.status().keys, store.status().memory_bytes), (0, 0));
}
