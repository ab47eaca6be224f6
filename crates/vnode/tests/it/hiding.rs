//! Hidden entries are absent for all that goes by a vnode, until they are removed or shown again.

use kvorum_backend::{Backend as _, FoldClock, FoldRange, Lease};
use kvorum_encoding::StorageKey;
use kvorum_object::Clock;
use kvorum_reaping::{BatchName, Extent};
use kvorum_vnode::{ReplicaFailure, ScanLimits, ScanRequest};

use crate::{Bench, NOW, made_elsewhere, storage_key, store, values};

fn request(entries_max: usize) -> ScanRequest {
    ScanRequest {
        range: FoldRange::all(),
        clock: FoldClock::stopped_at(NOW),
        lease: Lease::Unlimited,
        limits: ScanLimits {
            entries_max,
            ..ScanLimits::NONE
        },
    }
}

/// All that the store has.
fn everything(bench: &Bench) -> Extent {
    Extent::up_to([BatchName {
        store: bench.vnode.store_id().0,
        sequence: bench.backend.durable().0,
    }])
}

fn keys(bench: &Bench) -> Vec<StorageKey> {
    let page = bench.vnode.scan(&request(100), &mut |_| true);
    page.unwrap().entries
}

/// Two keys that are hidden; reads are answered all the same.
fn hiding() -> Bench {
    let bench = Bench::new();
    for key in ["a", "b"] {
        bench.put(key, "old", &Clock::new());
    }
    bench.vnode.hide(everything(&bench));
    assert_eq!(bench.try_get("a"), Err(ReplicaFailure::Incomplete));
    bench.vnode.mark_complete();
    bench
}

#[test]
fn what_is_hidden_is_absent() {
    let bench = hiding();
    assert_eq!(bench.get("a"), None);
    assert!(keys(&bench).is_empty());
    let stored = bench.vnode.stored_object(&storage_key("a"), NOW);
    assert!(stored.unwrap().is_none());
}

#[test]
fn what_comes_in_is_not_merged_with_what_is_hidden() {
    let bench = hiding();
    let put = bench.put("a", "new", &Clock::new());
    assert_eq!(values(&put), ["new"]);
    let other = made_elsewhere("other", &Clock::new(), 1);
    bench.done(store("b", &other));
    assert_eq!(values(&bench.get("b").unwrap()), ["other"]);
    assert_eq!(keys(&bench), [storage_key("a"), storage_key("b")]);
}

#[test]
fn a_write_over_what_is_hidden_has_not_seen_it() {
    let bench = Bench::new();
    let old = bench.put("a", "old", &Clock::new());
    bench.vnode.hide(everything(&bench));
    bench.vnode.mark_complete();
    let new = bench.put("a", "new", &Clock::new());
    assert!(!new.clock().descends(old.clock()));
}

#[test]
fn only_what_is_hidden_is_removed() {
    let bench = hiding();
    bench.put("a", "new", &Clock::new());
    let mut request = request(1);
    while let Some(next) = bench.vnode.remove_hidden_page(&request).unwrap().next {
        request.range = FoldRange::all().resumed_at(&next);
    }
    bench.vnode.show_hidden();
    assert_eq!(values(&bench.get("a").unwrap()), ["new"]);
    assert_eq!(bench.get("b"), None);
    assert_eq!(keys(&bench), [storage_key("a")]);
}

#[test]
fn what_was_not_removed_is_shown_again() {
    let bench = hiding();
    bench.vnode.show_hidden();
    assert_eq!(values(&bench.get("a").unwrap()), ["old"]);
    assert_eq!(keys(&bench).len(), 2);
}
