//! Removal of ranges of keys: at once, at little cost, and permanently.

use bytes::Bytes;
use kvorum_backend::{FoldFilter, Lease};
use kvorum_disk::{CrashOptions, MemoryDisk};
use kvorum_lsm::{Op, ScanStep, TreeView};

use crate::repair::{lose_manifests, repair};
use crate::support::{
    NOW, do_all, everything, get, key, open, put, put_op, scanned, settings, write,
};

fn remove_range(from: usize, to: usize) -> Op {
    Op::RemoveRange {
        from: key(from),
        to: key(to),
    }
}

#[test]
fn a_removed_range_stays_away_through_upkeep_and_reopening() {
    let disk = MemoryDisk::new();
    let store = open(&disk, settings());
    for round in 0..3 {
        (0..60).for_each(|number| put(&store, number, format!("{round}").repeat(60).as_bytes()));
        do_all(&store);
    }
    write(&store, &[remove_range(10, 50)]);
    put(&store, 20, b"later");
    let expected = |number: usize| !(10..50).contains(&number) || number == 20;
    let check = |store: &kvorum_lsm::Lsm| {
        for number in 0..60 {
            assert_eq!(
                get(store, number).unwrap().is_some(),
                expected(number),
                "{number}"
            );
        }
        assert_eq!(scanned(store).len(), 21);
    };
    check(&store);
    (60..200).for_each(|number| put(&store, number, &[7; 50]));
    (60..200).for_each(|number| write(&store, &[Op::Remove { key: key(number) }]));
    do_all(&store);
    check(&store);
    store.close().unwrap();
    drop(store);
    check(&open(&disk, settings()));
}

#[test]
fn within_a_batch_the_later_write_wins() {
    let store = open(&MemoryDisk::new(), settings());
    put(&store, 3, b"old");
    write(
        &store,
        &[put_op(1, b"gone"), remove_range(0, 9), put_op(2, b"stays")],
    );
    assert_eq!(get(&store, 1).unwrap(), None);
    assert_eq!(get(&store, 2).unwrap(), Some(Bytes::from_static(b"stays")));
    assert_eq!(get(&store, 3).unwrap(), None);
    write(&store, &[remove_range(9, 0), remove_range(2, 2)]);
    assert_eq!(scanned(&store).len(), 1);
}

/// All writes of a batch have one sequence, so the log does not show their order.
#[test]
fn within_a_batch_the_later_write_wins_after_a_crash_too() {
    for loses_manifests in [false, true] {
        let written = MemoryDisk::new();
        let store = open(&written, settings());
        put(&store, 3, b"old");
        let batch = [put_op(1, b"gone"), remove_range(0, 9), put_op(2, b"stays")];
        write(&store, &batch);
        write(&store, &[remove_range(9, 0), remove_range(2, 2)]);
        let disk = written.crash_image(CrashOptions::everything());
        if loses_manifests {
            lose_manifests(&disk);
            repair(&disk, &settings());
        }
        let store = open(&disk, settings());
        assert_eq!(get(&store, 1).unwrap(), None);
        assert_eq!(get(&store, 2).unwrap(), Some(Bytes::from_static(b"stays")));
        assert_eq!(get(&store, 3).unwrap(), None);
        assert_eq!(scanned(&store).len(), 1);
    }
}

#[test]
fn a_snapshot_from_before_still_sees_the_range() {
    let store = open(&MemoryDisk::new(), settings());
    (0..30).for_each(|number| put(&store, number, &[1; 100]));
    let before = store.snapshot(Lease::Unlimited);
    write(&store, &[remove_range(0, 30)]);
    do_all(&store);
    let mut seen = 0;
    let filter = FoldFilter::unexpired(NOW);
    let end = before.scan(&everything(), &filter, &mut |_| {
        seen += 1;
        ScanStep::Next
    });
    end.unwrap();
    assert_eq!((seen, scanned(&store).len()), (30, 0));
}
