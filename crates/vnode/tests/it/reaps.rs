//! Removal of tombstones, a page at a time: only those whose batch is admitted.

use kvorum_backend::{FoldClock, FoldRange, Lease, Sequence};
use kvorum_encoding::StorageKey;
use kvorum_object::Clock;
use kvorum_ring::Epoch;
use kvorum_vnode::{PageFailure, ReapPage, ReapRequest, ReplicaFailure};

use crate::{Bench, NOW, values};

fn request(entries_max: usize) -> ReapRequest {
    ReapRequest {
        epoch: Epoch::new(3),
        range: FoldRange::all(),
        clock: FoldClock::stopped_at(NOW),
        lease: Lease::Unlimited,
        entries_max,
    }
}

fn reap(
    bench: &Bench,
    request: &ReapRequest,
    mut may_go: impl FnMut(&StorageKey, Sequence) -> bool,
) -> ReapPage {
    bench.vnode.reap_page(request, &mut may_go).unwrap()
}

/// Four keys, of which "b" and "d" are deleted, in this order.
fn with_two_tombstones() -> Bench {
    let bench = Bench::new();
    for key in ["a", "b", "c", "d"] {
        bench.put(key, "value", &Clock::new());
    }
    bench.delete("b");
    bench.delete("d");
    bench
}

#[test]
fn tombstones_that_may_go_go_and_nothing_else_does() {
    let bench = with_two_tombstones();
    let page = reap(&bench, &request(100), |_, _| true);
    let expected = ReapPage {
        entries: 4,
        tombstones: 2,
        reaped: 2,
        next: None,
    };
    assert_eq!(page, expected);
    assert_eq!(bench.get("b"), None);
    assert_eq!(bench.get("d"), None);
    for key in ["a", "c"] {
        assert_eq!(values(&bench.get(key).unwrap()), ["value"]);
    }
    let page = reap(&bench, &request(100), |_, _| true);
    assert_eq!((page.entries, page.tombstones), (2, 0));
}

#[test]
fn the_batch_that_wrote_a_tombstone_decides() {
    let bench = with_two_tombstones();
    let mut written_by = Vec::new();
    let page = reap(&bench, &request(100), |_, sequence| {
        written_by.push(sequence);
        false
    });
    assert_eq!((page.tombstones, page.reaped), (2, 0));
    assert!(written_by[0] < written_by[1], "b was deleted first");
    let last = written_by[0];
    let page = reap(&bench, &request(100), |_, sequence| sequence <= last);
    assert_eq!(page.reaped, 1);
    assert_eq!(bench.get("b"), None);
    assert!(bench.get("d").unwrap().is_tombstone());
}

#[test]
fn pages_follow_each_other() {
    let bench = with_two_tombstones();
    let (mut request, mut reaped, mut pages) = (request(1), 0, 0);
    loop {
        let page = reap(&bench, &request, |_, _| true);
        assert!(page.entries <= 1);
        reaped += page.reaped;
        pages += 1;
        let Some(next) = page.next else {
            break;
        };
        request.range = FoldRange::all().resumed_at(&next);
    }
    assert_eq!(reaped, 2);
    assert!(pages >= 4, "{pages}");
}

#[test]
fn what_is_written_while_a_page_is_reaped_stays() {
    let bench = with_two_tombstones();
    let page = reap(&bench, &request(100), |key, _| {
        let name = key.decode().unwrap().key.to_string();
        let tombstone = bench.get(&name).unwrap();
        bench.put(&name, "again", tombstone.clock());
        true
    });
    assert_eq!((page.tombstones, page.reaped), (2, 0));
    for key in ["b", "d"] {
        assert_eq!(values(&bench.get(key).unwrap()), ["again"]);
    }
}

#[test]
fn nothing_goes_while_tombstones_are_kept() {
    let bench = with_two_tombstones();
    let kept = bench.vnode.keep_tombstones();
    let page = reap(&bench, &request(100), |_, _| true);
    assert_eq!((page.tombstones, page.reaped), (2, 0));
    drop(kept);
    let page = reap(&bench, &request(100), |_, _| true);
    assert_eq!(page.reaped, 2);
}

#[test]
fn a_request_of_an_older_ring_is_refused() {
    let bench = with_two_tombstones();
    let older = ReapRequest {
        epoch: Epoch::new(2),
        ..request(100)
    };
    let refused = bench.vnode.reap_page(&older, &mut |_, _| true);
    let expected = ReplicaFailure::StaleEpoch {
        got: Epoch::new(2),
        expected: Epoch::new(3),
    };
    assert_eq!(refused, Err(PageFailure::Failed(expected)));
}
