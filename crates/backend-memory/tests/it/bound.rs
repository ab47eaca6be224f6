//! The memory bound: exact, and the entries written first are evicted first.

use bytes::Bytes;
use kvorum_backend::{
    Backend, Batch, Durability, ErrorKind, Fields, Flow, FoldDetail, FoldFilter, FoldRange, Lease,
    Lookup, ReadAt, Reading, StepBudget, Timestamp, Write,
};
use kvorum_backend_memory::{ENTRY_OVERHEAD_BYTES, MemoryBackend, Settings};
use kvorum_encoding::StorageKey;

const NOW: ReadAt = ReadAt {
    reading: Reading::CachedOnly,
    now: Timestamp(5),
};

pub(crate) fn key(name: &str) -> StorageKey {
    StorageKey::from_encoded(Bytes::copy_from_slice(name.as_bytes()))
}

pub(crate) fn put(store: &MemoryBackend, name: &str, body_bytes: usize) {
    let body = Bytes::from(vec![7; body_bytes]);
    let write = Write::put(key(name), Fields::default(), Bytes::new(), body);
    drop(store.put(&Batch::of(write), Durability::Buffered).unwrap());
}

pub(crate) fn has(store: &MemoryBackend, name: &str, at: ReadAt) -> bool {
    matches!(store.get(&key(name), at).unwrap(), Lookup::Found(_))
}

fn bounded(memory_bytes_max: u64) -> MemoryBackend {
    let settings = Settings {
        memory_bytes_max: Some(memory_bytes_max),
        ..Settings::default()
    };
    MemoryBackend::new(settings, || 1)
}

#[test]
fn the_oldest_written_leaves_first_and_only_when_it_must() {
    let store = bounded(3 * (ENTRY_OVERHEAD_BYTES + 1 + 100));
    for name in ["a", "b", "c"] {
        put(&store, name, 100);
    }
    assert_eq!(
        store.status().memory_bytes,
        3 * (ENTRY_OVERHEAD_BYTES + 101)
    );
    put(&store, "a", 100);
    put(&store, "d", 100);
    let left = ["a", "b", "c", "d"].map(|name| has(&store, name, NOW));
    assert_eq!(left, [true, false, true, true]);
    put(&store, "e", 1);
    put(&store, "f", 1);
    let left = ["a", "c", "d", "e", "f"].map(|name| has(&store, name, NOW));
    assert_eq!(left, [false, false, true, true, true]);
}

#[test]
fn a_batch_beyond_the_bound_is_too_large_and_changes_nothing() {
    let store = bounded(1_000);
    put(&store, "a", 100);
    let body = Bytes::from(vec![7; 700]);
    let write = Write::put(key("b"), Fields::default(), Bytes::new(), body);
    let error = store
        .put(&Batch::of(write), Durability::Grouped)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert!(has(&store, "a", NOW));
}

#[test]
fn removing_and_overwriting_give_every_byte_back() {
    let store = bounded(1_000_000);
    for round in 0..50 {
        put(&store, "a", round * 7);
        put(&store, "b", 300 - round);
    }
    for name in ["a", "b"] {
        let batch = Batch::of(Write::remove(key(name)));
        drop(store.put(&batch, Durability::Buffered).unwrap());
    }
    assert_eq!(store.status().memory_bytes, 0);
}

#[test]
fn what_a_snapshot_pins_is_counted_and_given_back_when_its_lease_ends() {
    let store = bounded(1_000_000);
    put(&store, "a", 100);
    let snapshot = store.snapshot(Lease::Until(Timestamp(10))).unwrap();
    put(&store, "a", 200);
    assert_eq!(store.status().pinned_bytes, ENTRY_OVERHEAD_BYTES + 101);
    assert!(store.maintenance_due(Timestamp(9)).is_empty());
    let due = store.maintenance_due(Timestamp(10));
    let budget = StepBudget { bytes: 1 << 20 };
    store
        .maintenance_step(&due[0], budget, Timestamp(10))
        .unwrap();
    assert_eq!(store.status().pinned_bytes, 0);
    // Even a fold with an earlier time shows no wrong entry.
    let filter = FoldFilter::unexpired(Timestamp(9));
    let mut seen = 0;
    let end = snapshot.fold(FoldDetail::Keys, &FoldRange::all(), &filter, &mut |_| {
        seen += 1;
        Flow::Continue
    });
    assert_eq!(seen, 0);
    assert!(matches!(end, Ok(kvorum_backend::FoldEnd::LeaseExpired(_))));
}
