//! Observers of a vnode: each change is shown once, in order and under the key's lock, and nothing else
//! is shown.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};

use kvorum_backend::{Durability, ErrorKind, Reading};
use kvorum_encoding::StorageKey;
use kvorum_object::{Clock, Content, Head, Limits, Object, ObjectTag, Resolution};
use kvorum_ring::Epoch;
use kvorum_vnode::{
    Change, ChangeObserver, Condition, Handled, Operation, ReplicaFailure, ReplicaReply,
    ReplicaRequest, Vnode,
};
use parking_lot::Mutex;

use crate::{
    Bench, NOW, content, coordinate, made_elsewhere, partition, storage_key, store, values,
};

type Version = Option<Clock>;

/// Notes the changes that it is shown, as (key, version before, version after), and the last version of
/// each key.
#[derive(Default)]
struct Noted {
    changes: Mutex<Vec<(StorageKey, Version, Version)>>,
    last: Mutex<BTreeMap<StorageKey, Version>>,
    /// Set for observers that try to write the same key meanwhile.
    vnode: OnceLock<Weak<Vnode>>,
    locked: Mutex<Vec<bool>>,
}

impl ChangeObserver for Noted {
    fn changed(&self, change: &Change<'_>) {
        let before = change.old.map(|head: &Head| head.clock().clone());
        let after = change.new.map(|object: &Object| object.clock().clone());
        let mut last = self.last.lock();
        let known = last.insert(change.key.clone(), after.clone());
        assert_eq!(known.unwrap_or_default(), before, "a change was not shown");
        drop(last);
        let noted = (change.key.clone(), before, after);
        self.changes.lock().push(noted);
        if let Some(vnode) = self.vnode.get().and_then(Weak::upgrade) {
            let operation = coordinate("k", content("within"), &Clock::new(), Condition::Always);
            let handled = vnode.handle(&request(operation), NOW, Reading::CachedOnly);
            let is_locked = matches!(handled, Handled::WouldBlock);
            self.locked.lock().push(is_locked);
        }
    }
}

impl Noted {
    /// The changes since the last call.
    fn take(&self) -> Vec<(Version, Version)> {
        let changes = std::mem::take(&mut *self.changes.lock());
        changes
            .into_iter()
            .map(|(_, old, new)| (old, new))
            .collect()
    }
}

fn request(operation: Operation) -> ReplicaRequest {
    ReplicaRequest {
        partition: partition(),
        epoch: Epoch::new(3),
        operation,
    }
}

fn observed() -> (Bench, Arc<Noted>) {
    observed_with(Limits::default())
}

fn observed_with(limits: Limits) -> (Bench, Arc<Noted>) {
    let noted = Arc::new(Noted::default());
    let mut bench = Bench::with_limits(limits);
    bench.vnode = bench.vnode.observed_by(noted.clone());
    (bench, noted)
}

fn version(object: &Object) -> Version {
    Some(object.clock().clone())
}

#[test]
fn writes_of_clients_are_shown_with_what_they_replace() {
    let (bench, noted) = observed();
    let first = bench.put("k", "a", &Clock::new());
    assert_eq!(noted.take(), [(None, version(&first))]);
    let over = bench.put("k", "b", first.clock());
    assert_eq!(noted.take(), [(version(&first), version(&over))]);
    let siblings = bench.put("k", "c", &Clock::new());
    assert_eq!(values(&siblings), ["b", "c"]);
    assert_eq!(noted.take(), [(version(&over), version(&siblings))]);
    let tombstone = bench.delete("k");
    assert_eq!(noted.take(), [(version(&siblings), version(&tombstone))]);
    let again = bench.put("k", "d", &Clock::new());
    assert_eq!(noted.take(), [(version(&tombstone), version(&again))]);
    bench.get("k");
    assert!(noted.take().is_empty());
}

#[test]
fn objects_of_other_replicas_are_shown_where_they_change_something() {
    let (bench, noted) = observed();
    let older = made_elsewhere("a", &Clock::new(), 1);
    let newer = made_elsewhere("b", older.clock(), 2);
    bench.done(store("k", &older));
    bench.done(store("k", &newer));
    let expected = [(None, version(&older)), (version(&older), version(&newer))];
    assert_eq!(noted.take(), expected);
    // A known object is not written again.
    bench.done(store("k", &newer));
    bench.done(store("k", &older));
    assert!(noted.take().is_empty());
    let merged = bench.put("k", "c", &Clock::new());
    assert_eq!(noted.take(), [(version(&newer), version(&merged))]);
}

#[test]
fn a_mend_is_shown_with_the_head_that_is_still_readable() {
    let (bench, noted) = observed();
    let here = bench.put("k", "a", &Clock::new());
    noted.take();
    bench.backend.damage_body(&storage_key("k"));
    let elsewhere = made_elsewhere("b", here.clock(), 1);
    let mend = |object: &Object| Operation::Mend {
        key: storage_key("k"),
        object: Arc::new(object.clone()),
        resolution: Resolution::KeepSiblings,
        tag: ObjectTag::default(),
    };
    bench.done(mend(&elsewhere));
    assert_eq!(noted.take(), [(version(&here), version(&elsewhere))]);
    bench.done(mend(&elsewhere));
    assert!(noted.take().is_empty());
}

#[test]
fn removals_are_shown_and_what_stays_is_not() {
    let (bench, noted) = observed();
    let living = bench.put("k", "a", &Clock::new());
    let reap = |clock: &Clock| {
        let (key, clock) = (storage_key("k"), clock.clone());
        bench.done(Operation::Reap { key, clock });
    };
    reap(living.clock());
    let tombstone = bench.delete("k");
    noted.take();
    reap(living.clock());
    let kept = bench.vnode.keep_tombstones();
    reap(tombstone.clock());
    drop(kept);
    assert!(noted.take().is_empty());
    reap(tombstone.clock());
    assert_eq!(noted.take(), [(version(&tombstone), None)]);
    reap(tombstone.clock());
    assert!(noted.take().is_empty());

    let hint = bench.put("k", "b", &Clock::new());
    noted.take();
    let forget = |clock: &Clock| {
        let durability = Durability::Buffered;
        bench
            .vnode
            .forget(&storage_key("k"), clock, durability, NOW)
    };
    assert_eq!(forget(living.clock()), Ok(false));
    assert!(noted.take().is_empty());
    assert_eq!(forget(hint.clock()), Ok(true));
    assert_eq!(noted.take(), [(version(&hint), None)]);
    assert_eq!(forget(hint.clock()), Ok(true));
    assert!(noted.take().is_empty());
}

#[test]
fn nothing_is_shown_of_what_is_refused_or_fails() {
    let limits = Limits {
        size_max_bytes: 1_000,
        ..Limits::default()
    };
    let (bench, noted) = observed_with(limits);
    let here = bench.put("k", "a", &Clock::new());
    noted.take();
    let put = |value: &str, condition| bench.try_put("k", value, here.clock(), condition);
    let refused = [
        put("b", Condition::Absent),
        put("b", Condition::Version(Clock::new())),
        put(&"large".repeat(1_000), Condition::Always),
    ];
    assert!(refused.iter().all(Result::is_err), "{refused:?}");
    let stale = bench.handle_at(
        Epoch::new(2),
        store("k", &made_elsewhere("b", &Clock::new(), 1)),
    );
    assert!(matches!(stale, Handled::Done(ReplicaReply::Failed(_))));
    bench.backend.would_block.store(true, Ordering::Relaxed);
    let update = coordinate("k", content("b"), here.clock(), Condition::Always);
    assert!(matches!(bench.handle(update), Handled::WouldBlock));
    bench.backend.would_block.store(false, Ordering::Relaxed);
    for kind in [ErrorKind::Full, ErrorKind::Failed] {
        bench.backend.refuse_puts(Some(kind));
        assert!(put("b", Condition::Always).is_err());
        let elsewhere = made_elsewhere("c", &Clock::new(), 1);
        let reply = bench.done(store("k", &elsewhere));
        assert!(matches!(reply, ReplicaReply::Failed(_)));
        let durability = Durability::Buffered;
        let forgotten = bench
            .vnode
            .forget(&storage_key("k"), here.clock(), durability, NOW);
        assert!(forgotten.is_err());
    }
    assert!(matches!(
        put("b", Condition::Always),
        Err(ReplicaFailure::Unwritable(_))
    ));
    assert!(noted.take().is_empty());
    assert_eq!(bench.vnode.status().puts, 1);
}

#[test]
fn the_key_is_locked_while_its_change_is_shown() {
    let (bench, noted) = observed();
    let vnode = Arc::new(bench.vnode);
    noted.vnode.set(Arc::downgrade(&vnode)).unwrap();
    let elsewhere = made_elsewhere("b", &Clock::new(), 1);
    let update = coordinate("k", content("a"), &Clock::new(), Condition::Always);
    for operation in [update, store("k", &elsewhere)] {
        let handled = vnode.handle(&request(operation), NOW, Reading::MayBlock);
        assert!(matches!(handled, Handled::Done(_)));
    }
    assert_eq!(*noted.locked.lock(), [true, true]);
}

/// The observer itself asserts that no change was left out and none came out of order.
#[test]
fn writers_of_one_key_are_shown_one_after_the_other() {
    let (mut bench, noted) = observed();
    bench.reading = Reading::MayBlock;
    let second = Arc::new(Noted::default());
    bench.vnode = bench.vnode.observed_by(second.clone());
    const WRITERS: usize = 4;
    const WRITES: usize = 200;
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let bench = &bench;
            scope.spawn(move || {
                for write in 0..WRITES {
                    let key = ["k", "l"][write % 2];
                    match writer {
                        0 if write % 8 == 0 => {
                            let tombstone = Content::tombstone();
                            let seen = bench
                                .get(key)
                                .map_or_else(Clock::new, |it| it.clock().clone());
                            bench.done(coordinate(key, tombstone, &seen, Condition::Always));
                        }
                        1 => {
                            let count = u64::try_from(write).unwrap() + 1;
                            bench.done(store(key, &made_elsewhere("e", &Clock::new(), count)));
                        }
                        _ => {
                            let seen = bench
                                .get(key)
                                .map_or_else(Clock::new, |it| it.clock().clone());
                            bench.put(key, "v", &seen);
                        }
                    }
                }
            });
        }
    });
    let (first, second) = (noted.take(), second.take());
    assert_eq!(first.len() as u64, bench.vnode.status().puts);
    assert_eq!(first.len(), second.len());
    for key in ["k", "l"] {
        let stored = bench.get(key).unwrap();
        let last = noted.last.lock()[&storage_key(key)].clone();
        assert_eq!(last, version(&stored));
    }
}

/// Even for a write that needs no read, the replaced object is read for the observers.
#[test]
fn what_is_written_once_is_shown_with_what_it_replaces() {
    let (bench, noted) = observed();
    let (mut before, mut expected) = (None, Vec::new());
    for (value, counter) in [("a", 1), ("b", 2)] {
        let object = made_elsewhere(value, &Clock::new(), counter);
        let operation = Operation::Store {
            key: storage_key("k"),
            object: Arc::new(object.clone()),
            resolution: Resolution::WrittenOnce,
            tag: ObjectTag::default(),
            durability: Durability::Grouped,
        };
        let reply = bench.done(operation);
        assert!(matches!(reply, ReplicaReply::Received { .. }), "{reply:?}");
        expected.push((before, version(&object)));
        before = version(&object);
    }
    assert_eq!(noted.take(), expected);
}
