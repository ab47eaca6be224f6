//! Scans of one vnode: all entries, in pages within limits, and the beginning of the next page.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kvorum_backend::{FoldClock, FoldRange, Lease, Timestamp};
use kvorum_encoding::StorageKey;
use kvorum_object::{Clock, Head};
use kvorum_vnode::{PageFailure, ScanLimits, ScanPage, ScanRequest, Scanned, StoredObject};

use crate::{Bench, NOW, storage_key, values};

fn request(range: FoldRange, limits: ScanLimits) -> ScanRequest {
    ScanRequest {
        range,
        clock: FoldClock::stopped_at(NOW),
        lease: Lease::Unlimited,
        limits,
    }
}

fn page<T: Scanned>(bench: &Bench, range: FoldRange, limits: ScanLimits) -> ScanPage<T> {
    let request = request(range, limits);
    bench.vnode.scan(&request, &mut |_| true).unwrap()
}

fn name(key: &StorageKey) -> String {
    key.decode().unwrap().key.to_string()
}

/// The keys of all pages, a word for each page.
fn all_pages(bench: &Bench, limits: ScanLimits, goes_on_behind: bool) -> String {
    let (mut range, mut pages) = (FoldRange::all(), Vec::new());
    loop {
        let page: ScanPage<StoredObject> = page(bench, range, limits);
        let names: Vec<_> = page.entries.iter().map(|it| name(&it.key)).collect();
        pages.push(names.concat());
        let Some(next) = page.next else {
            return pages.join(" ");
        };
        range = FoldRange::all().resumed_at(&next);
        if goes_on_behind {
            let through = page.through.unwrap();
            range.from = std::ops::Bound::Excluded(through.to_bytes());
        }
    }
}

/// Five objects in the order of their keys; the third is larger.
fn filled() -> Bench {
    let bench = Bench::new();
    for key in ["d", "a", "b", "e"] {
        bench.put(key, "small", &Clock::new());
    }
    bench.put("c", &"large".repeat(100), &Clock::new());
    bench
}

#[test]
fn every_kind_of_page_shows_tombstones() {
    let bench = filled();
    let tombstone = bench.delete("b");
    let keys: ScanPage<StorageKey> = page(&bench, FoldRange::all(), ScanLimits::NONE);
    assert_eq!(keys.entries.iter().map(name).collect::<String>(), "abcde");
    assert_eq!(keys.next, None);
    let heads: ScanPage<(StorageKey, Head)> = page(&bench, FoldRange::all(), ScanLimits::NONE);
    let graves = heads.entries.iter().filter(|(_, head)| head.is_tombstone());
    assert_eq!(graves.map(|(key, _)| name(key)).collect::<String>(), "b");
    assert!(heads.entries[1].1.clock() == tombstone.clock());
    let objects: ScanPage<StoredObject> = page(&bench, FoldRange::all(), ScanLimits::NONE);
    let shown: Vec<_> = objects
        .entries
        .iter()
        .map(|it| it.decode().unwrap())
        .collect();
    assert_eq!(values(&shown[0]), ["small"]);
    assert_eq!(Some(shown[2].clone()), bench.get("c"));
    assert!(keys.bytes < heads.bytes && heads.bytes < objects.bytes);
}

#[test]
fn pages_end_at_their_limits_and_the_next_one_goes_on() {
    let bench = filled();
    let entries_max = |entries_max| ScanLimits {
        entries_max,
        ..ScanLimits::NONE
    };
    let a: ScanPage<StoredObject> = page(&bench, FoldRange::all(), entries_max(1));
    for goes_on_behind in [false, true] {
        let pages = |limits| all_pages(&bench, limits, goes_on_behind);
        assert_eq!(pages(ScanLimits::NONE), "abcde");
        assert_eq!(pages(entries_max(2)).trim_end(), "ab cd e");
        // Room for two small ones and a bit: the large one begins a page, and fills it.
        let by_bytes = ScanLimits {
            bytes_max: a.bytes * 2 + 1,
            ..ScanLimits::NONE
        };
        assert_eq!(pages(by_bytes).trim_end(), "ab c de");
        // One entry is always taken.
        let least = ScanLimits {
            bytes_max: 1,
            ..ScanLimits::NONE
        };
        assert_eq!(pages(least).trim_end(), "a b c d e");
        let alone = ScanLimits {
            shared_body_bytes_max: 100,
            ..ScanLimits::NONE
        };
        assert_eq!(pages(alone), "ab c de");
    }
}

#[test]
fn a_page_ends_after_so_much_that_nobody_wants() {
    let bench = filled();
    let whole: ScanPage<StoredObject> = page(&bench, FoldRange::all(), ScanLimits::NONE);
    let limits = ScanLimits {
        passed_over_bytes_max: whole.bytes / 2,
        ..ScanLimits::NONE
    };
    let mut asked = Vec::new();
    let is_wanted = &mut |key: &StorageKey| {
        asked.push(name(key));
        name(key) == "b"
    };
    let request = request(FoldRange::all(), limits);
    let page: ScanPage<StoredObject> = bench.vnode.scan(&request, is_wanted).unwrap();
    assert_eq!(asked, ["a", "b", "c"]);
    assert_eq!(page.entries.len(), 1);
    assert_eq!(page.through, Some(storage_key("c")));
    assert!(page.next.is_some());
    assert!(page.passed_over_bytes >= limits.passed_over_bytes_max);
}

#[test]
fn a_lease_ends_a_page_and_without_a_key_the_scan() {
    let bench = Bench::new();
    for number in 0..1_000 {
        bench.put(&format!("{number:04}"), "v", &Clock::new());
    }
    // Each reading of the clock advances it.
    let ends_after = |looks: u64| {
        let time = Arc::new(AtomicU64::new(0));
        ScanRequest {
            clock: FoldClock::new(move || Timestamp(time.fetch_add(1, Ordering::Relaxed))),
            lease: Lease::Until(Timestamp(looks)),
            ..request(FoldRange::all(), ScanLimits::NONE)
        }
    };
    let scan = |request: &ScanRequest| bench.vnode.scan::<StorageKey>(request, &mut |_| true);
    let part = scan(&ends_after(4)).unwrap();
    assert!(part.next.is_some());
    assert!((1..1_000).contains(&part.entries.len()));
    assert_eq!(part.through.as_ref(), part.entries.last());
    let rest = request(
        FoldRange::all().resumed_at(&part.next.unwrap()),
        ScanLimits::NONE,
    );
    assert_eq!(
        scan(&rest).unwrap().entries.len() + part.entries.len(),
        1_000
    );
    let none = scan(&ends_after(0));
    assert!(matches!(none, Err(PageFailure::OutOfTime)));
}

#[test]
fn a_store_that_cannot_be_read_fails_a_scan_and_a_damaged_object_is_absent() {
    let bench = filled();
    bench.backend.damage_body(&storage_key("a"));
    let stored = |key| bench.vnode.stored_object(&storage_key(key), NOW);
    assert!(stored("a").unwrap().is_none());
    assert!(stored("nothing").unwrap().is_none());
    assert!(stored("b").unwrap().is_some());
    bench
        .backend
        .refuse_reads(Some(kvorum_backend::ErrorKind::Failed));
    assert!(stored("b").is_err());
}
