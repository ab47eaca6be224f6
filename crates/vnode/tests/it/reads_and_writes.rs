//! Gets, puts and merges of one vnode, with and without failures.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use kvorum_backend::{Durability, ErrorKind, Reading};
use kvorum_object::{ActorId, Clock, Content, Dot, Limits, ObjectTag, Resolution, Timestamp};
use kvorum_ring::Epoch;
use kvorum_vnode::{
    ClientUpdate, Condition, Detail, Handled, Operation, ReplicaFailure, ReplicaReply,
};

use crate::{Bench, content, coordinate, made_elsewhere, storage_key, store, values};

#[test]
fn blind_writes_are_siblings_and_a_read_version_is_replaced() {
    let bench = Bench::new();
    bench.put("k", "a", &Clock::new());
    let both = bench.put("k", "b", &Clock::new());
    assert_eq!(values(&both), ["a", "b"]);
    let one = bench.put("k", "c", both.clock());
    assert_eq!(values(&one), ["c"]);
    assert_eq!(bench.get("k"), Some(one));
}

#[test]
fn r03_siblings_are_bounded_by_concurrent_writers() {
    for writers in 1..=5 {
        let bench = Bench::new();
        let mut contexts = vec![(Clock::new(), Vec::new()); writers];
        for round in 0..10 * writers {
            let (context, seen) = &mut contexts[round % writers];
            let object = bench.put("k", &round.to_string(), context);
            let stored = values(&object);
            assert!(stored.len() <= writers, "{stored:?}");
            // The values that its writer had read are replaced.
            assert!(
                !stored.iter().any(|value| seen.contains(value)),
                "{stored:?}"
            );
            assert!(stored.contains(&round.to_string()));
            (*context, *seen) = (object.clock().clone(), stored);
        }
        // A client that has read all of them leaves one.
        let all = bench.get("k").unwrap();
        assert_eq!(values(&bench.put("k", "last", all.clock())), ["last"]);
    }
}

#[test]
fn a_value_that_is_superseded_is_not_read() {
    let bench = Bench::new();
    let object = bench.put("k", "a", &Clock::new());
    bench.put("k", "b", object.clock());
    assert_eq!(bench.backend.gets.load(Ordering::Relaxed), 0);
    bench.put("k", "c", &Clock::new());
    assert_eq!(bench.backend.gets.load(Ordering::Relaxed), 1);
}

#[test]
fn a_request_planned_with_an_older_ring_is_refused() {
    let bench = Bench::new();
    let get = || Operation::Get {
        key: storage_key("k"),
        detail: Detail::Whole,
    };
    let stale = bench.handle_at(Epoch::new(2), get());
    let refusal = ReplicaFailure::StaleEpoch {
        got: Epoch::new(2),
        expected: Epoch::new(3),
    };
    assert!(matches!(stale, Handled::Done(ReplicaReply::Failed(failure)) if failure == refusal));
    bench.vnode.advance_epoch(Epoch::new(5));
    bench.vnode.advance_epoch(Epoch::new(4));
    let stale = bench.handle_at(Epoch::new(4), get());
    assert!(matches!(stale, Handled::Done(ReplicaReply::Failed(_))));
    let newer = bench.handle_at(Epoch::new(6), get());
    assert!(matches!(newer, Handled::Done(ReplicaReply::NotFound)));
}

#[test]
fn conditions_are_about_living_objects() {
    let bench = Bench::new();
    let put = |condition| bench.try_put("k", "x", &Clock::new(), condition);
    let stray = Clock::new();
    assert_eq!(
        put(Condition::Version(stray.clone())),
        Err(ReplicaFailure::ConditionAbsent)
    );
    let first = put(Condition::Absent).unwrap();
    assert_eq!(put(Condition::Absent), Err(ReplicaFailure::ConditionFound));
    assert_eq!(
        put(Condition::Version(stray)),
        Err(ReplicaFailure::ConditionModified)
    );
    let second = put(Condition::Version(first.clock().clone())).unwrap();
    assert_eq!(
        put(Condition::Version(first.clock().clone())),
        Err(ReplicaFailure::ConditionModified)
    );
    bench.delete("k");
    assert_eq!(
        put(Condition::Version(second.clock().clone())),
        Err(ReplicaFailure::ConditionAbsent)
    );
    assert!(put(Condition::Absent).is_ok());
}

#[test]
fn nothing_beyond_a_version_lets_a_replica_be_behind() {
    let bench = Bench::new();
    let put =
        |key, seen: &Clock| bench.try_put(key, "x", seen, Condition::NothingBeyond(seen.clone()));
    let here = bench.put("k", "a", &Clock::new());
    let ahead = made_elsewhere("b", here.clock(), 1);
    assert!(put("absent", ahead.clock()).is_ok());
    assert_eq!(
        put("k", &Clock::new()),
        Err(ReplicaFailure::ConditionModified)
    );
    let after = put("k", ahead.clock()).unwrap();
    assert_eq!(values(&after), ["x"]);
    assert_eq!(
        put("k", ahead.clock()),
        Err(ReplicaFailure::ConditionModified)
    );
    bench.delete("k");
    assert_eq!(
        put("k", ahead.clock()),
        Err(ReplicaFailure::ConditionAbsent)
    );
}

#[test]
fn a_refused_condition_uses_up_no_dot() {
    let bench = Bench::new();
    bench.put("k", "a", &Clock::new());
    let before = bench.vnode.status().counter;
    let refused = bench.try_put("k", "b", &Clock::new(), Condition::Absent);
    assert!(refused.is_err());
    assert_eq!(bench.vnode.status().counter, before);
}

#[test]
fn what_would_wait_is_not_done_and_comes_again() {
    let mut bench = Bench::new();
    bench.put("k", "a", &Clock::new());
    bench.backend.would_block.store(true, Ordering::Relaxed);
    let puts = bench.backend.puts.load(Ordering::Relaxed);
    let update = || coordinate("k", content("b"), &Clock::new(), Condition::Always);
    assert!(matches!(bench.handle(update()), Handled::WouldBlock));
    let object = made_elsewhere("c", &Clock::new(), 1);
    assert!(matches!(
        bench.handle(store("k", &object)),
        Handled::WouldBlock
    ));
    assert_eq!(bench.backend.puts.load(Ordering::Relaxed), puts);
    bench.reading = Reading::MayBlock;
    bench.done(update());
    bench.done(store("k", &object));
    assert_eq!(values(&bench.get("k").unwrap()), ["a", "b", "c"]);
}

#[test]
fn a_merge_is_written_once() {
    let bench = Bench::new();
    let object = made_elsewhere("a", &Clock::new(), 1);
    let received = |reply| assert!(matches!(reply, ReplicaReply::Received { .. }), "{reply:?}");
    received(bench.done(store("k", &object)));
    assert_eq!(bench.get("k").as_deref(), Some(&object));
    let keys = bench.backend.puts.load(Ordering::Relaxed);
    received(bench.done(store("k", &object)));
    // The empty batch takes a place behind the stored object, for durability.
    assert_eq!(bench.backend.puts.load(Ordering::Relaxed), keys + 1);
    assert_eq!(bench.vnode.status().puts, 1);
    assert_eq!(bench.get("k").as_deref(), Some(&object));
}

#[test]
fn an_older_version_never_comes_back_by_a_merge() {
    let bench = Bench::new();
    let old = bench.put("k", "a", &Clock::new());
    bench.delete("k");
    bench.done(store("k", &old));
    assert!(bench.get("k").unwrap().is_tombstone());
    let again = bench.put("k", "b", &Clock::new());
    bench.done(store("k", &old));
    assert_eq!(bench.get("k"), Some(again));
}

#[test]
fn without_siblings_the_newest_version_stands_whatever_the_order() {
    let merged = |order: [usize; 3]| {
        let bench = Bench::new();
        let versions = [("a", 1), ("b", 2), ("c", 3)];
        for at in order {
            let (value, counter) = versions[at];
            let Operation::Store {
                key,
                object,
                durability,
                ..
            } = store("k", &made_elsewhere(value, &Clock::new(), counter))
            else {
                return Vec::new();
            };
            bench.done(Operation::Store {
                key,
                object,
                durability,
                resolution: Resolution::NewestWins,
                tag: ObjectTag::default(),
            });
        }
        values(&bench.get("k").unwrap())
    };
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [2, 0, 1]] {
        assert_eq!(merged(order), ["c"], "{order:?}");
    }
}

#[test]
fn r04_limits_hold_for_clients_and_not_for_replicas() {
    let limits = Limits {
        siblings_max: 2,
        siblings_warning: 1,
        size_max_bytes: 400,
        size_warning_bytes: 300,
    };
    let bench = Bench::with_limits(limits);
    bench.put("k", "a", &Clock::new());
    bench.put("k", "b", &Clock::new());
    let refused = bench.try_put("k", "c", &Clock::new(), Condition::Always);
    let siblings_max = 2;
    let siblings = 3;
    assert_eq!(
        refused,
        Err(ReplicaFailure::TooManySiblings {
            siblings,
            siblings_max
        })
    );
    bench.done(store("k", &made_elsewhere("d", &Clock::new(), 1)));
    let crowded = bench.get("k").unwrap();
    assert_eq!(values(&crowded), ["a", "b", "d"]);
    // A write that resolves siblings is always allowed.
    let resolved = bench.put("k", "e", crowded.clock());
    assert_eq!(values(&resolved), ["e"]);
    let large = "x".repeat(500);
    let refused = bench.try_put("k", &large, &Clock::new(), Condition::Always);
    assert!(matches!(
        refused,
        Err(ReplicaFailure::ObjectTooLarge { bytes_max: 400, .. })
    ));
    assert_eq!(values(&bench.get("k").unwrap()), ["e"]);
    assert!(bench.vnode.status().sibling_warnings >= 2);
    assert_eq!(bench.vnode.status().size_warnings, 1);
}

#[test]
fn a_blind_write_goes_over_damage_and_a_condition_does_not() {
    for damages_head in [true, false] {
        let bench = Bench::new();
        let before = bench.put("k", "a", &Clock::new());
        match damages_head {
            true => bench.backend.damage_head(&storage_key("k")),
            false => bench.backend.damage_body(&storage_key("k")),
        }
        let is_damaged = |failure| matches!(failure, ReplicaFailure::Damaged(_));
        assert!(is_damaged(bench.try_get("k").unwrap_err()));
        let version = Condition::Version(before.clock().clone());
        let blind = bench.try_put("k", "b", &Clock::new(), version);
        assert!(is_damaged(blind.unwrap_err()));
        let after = bench.put("k", "b", &Clock::new());
        assert_eq!(values(&after), ["b"]);
        // The write does not cover an unreadable value either: a replica that has it whole keeps it.
        let dot = before.siblings()[0].dot;
        assert!(!after.clock().contains(dot));
        bench.done(store("k", &before));
        assert_eq!(values(&bench.get("k").unwrap()), ["a", "b"]);
        assert!(bench.vnode.status().damaged_reads >= 2);
    }
}

#[test]
fn a_write_that_supersedes_a_damaged_value_covers_it() {
    let bench = Bench::new();
    let before = bench.put("k", "a", &Clock::new());
    bench.backend.damage_body(&storage_key("k"));
    let after = bench.put("k", "b", before.clock());
    assert!(after.clock().dominates(before.clock()));
    assert_eq!(values(&bench.get("k").unwrap()), ["b"]);
}

#[test]
fn mending_replaces_what_is_damaged_and_merges_what_is_not() {
    let mend = |object: &kvorum_object::Object| Operation::Mend {
        key: storage_key("k"),
        object: std::sync::Arc::new(object.clone()),
        resolution: Resolution::KeepSiblings,
        tag: ObjectTag::default(),
    };
    let bench = Bench::new();
    let object = made_elsewhere("a", &Clock::new(), 1);
    bench.done(store("k", &object));
    // The head is intact, so a plain store request changes nothing.
    bench.backend.damage_body(&storage_key("k"));
    bench.done(store("k", &object));
    assert!(bench.try_get("k").is_err());
    bench.done(mend(&object));
    assert_eq!(bench.get("k").as_deref(), Some(&object));

    bench.put("k", "b", &Clock::new());
    bench.done(mend(&object));
    assert_eq!(values(&bench.get("k").unwrap()), ["a", "b"]);
}

#[test]
fn failures_of_the_store_say_what_can_be_done() {
    let bench = Bench::new();
    let failure_of = |kind| {
        bench.backend.refuse_puts(Some(kind));
        bench
            .try_put("k", "a", &Clock::new(), Condition::Always)
            .unwrap_err()
    };
    assert!(matches!(
        failure_of(ErrorKind::Full),
        ReplicaFailure::Full(_)
    ));
    assert!(matches!(
        failure_of(ErrorKind::Misuse),
        ReplicaFailure::Internal(_)
    ));
    assert_eq!(bench.vnode.status().puts, 0);
    bench.backend.refuse_puts(None);
    bench.put("k", "a", &Clock::new());
    assert!(matches!(
        failure_of(ErrorKind::Failed),
        ReplicaFailure::Storage(_)
    ));
}

#[test]
fn a_store_that_failed_is_not_asked_to_coordinate_again() {
    let bench = Bench::new();
    // The device did not return one key's entry, or the system had no file handle left: the
    // store itself has not failed.
    for kind in [ErrorKind::Unread, ErrorKind::Exhausted] {
        bench.backend.refuse_puts(Some(kind));
        let refused = bench.try_put("k", "a", &Clock::new(), Condition::Always);
        assert!(matches!(refused, Err(ReplicaFailure::Storage(_))));
        assert!(bench.vnode.unwritable().is_none());
    }
    bench.backend.refuse_puts(None);
    let object = bench.put("k", "a", &Clock::new());
    bench.backend.refuse_puts(Some(ErrorKind::Failed));
    let try_put = || {
        let put = bench.try_put("k", "b", &Clock::new(), Condition::Always);
        put.unwrap_err()
    };
    // The first put may have been carried out in part.
    assert!(matches!(try_put(), ReplicaFailure::Storage(_)));
    assert!(bench.vnode.unwritable().is_some());
    let counter = bench.vnode.status().counter;
    assert!(matches!(try_put(), ReplicaFailure::Unwritable(_)));
    assert_eq!(bench.vnode.status().counter, counter, "no dot was given");
    assert_eq!(bench.get("k").unwrap().clock(), object.clock());
}

#[test]
fn an_overtaken_actor_is_left_on_every_path() {
    let bench = Bench::new();
    let overtake = |bench: &Bench| {
        let mut clock = Clock::new();
        let status = bench.vnode.status();
        let dot = Dot {
            actor: status.actor,
            counter: status.counter + 1,
        };
        clock.observe(dot, Timestamp::from_micros(1));
        clock
    };

    // A client has seen a write that this vnode has no record of.
    let seen = overtake(&bench);
    let before = bench.vnode.status().actor;
    bench.put("k", "a", &seen);
    let after = bench.vnode.status().actor;
    assert_ne!(after, before);

    // Another replica has seen such a write.
    let object = made_elsewhere("b", &overtake(&bench), 1);
    bench.done(store("k", &object));
    assert_ne!(bench.vnode.status().actor, after);

    // The store itself has such a write.
    let after = bench.vnode.status().actor;
    let clock = overtake(&bench);
    let planted = made_elsewhere("c", &clock, 2);
    let encoded = planted.encode();
    let write = kvorum_backend::Write::put(
        storage_key("planted"),
        kvorum_backend::Fields::default(),
        encoded.head,
        encoded.body,
    );
    let batch = kvorum_backend::Batch::of(write);
    let backend: &dyn kvorum_backend::Backend = &*bench.backend;
    let _receipt = backend
        .put(&batch, kvorum_backend::Durability::Buffered)
        .unwrap();
    let object = bench.put("planted", "d", &Clock::new());
    assert_ne!(bench.vnode.status().actor, after);
    assert_eq!(values(&object), ["c", "d"]);
}

#[test]
fn nothing_is_written_before_the_lease_is_taken_back() {
    let first = Bench::new();
    first.leases.seal([&first.vnode]).unwrap();
    let mut bench = Bench::on(first.disk.clone(), Limits::default(), 2);
    assert_eq!(bench.vnode.status().actor, first.vnode.status().actor);
    let update = || coordinate("k", content("a"), &Clock::new(), Condition::Always);
    let object = made_elsewhere("b", &Clock::new(), 1);
    assert!(matches!(bench.handle(update()), Handled::WouldBlock));
    assert!(matches!(
        bench.handle(store("k", &object)),
        Handled::WouldBlock
    ));
    bench.reading = Reading::MayBlock;
    bench.disk.cut_after(bench.disk.operations());
    for operation in [update(), store("k", &object)] {
        let refused = bench.done(operation);
        let failure = "it has to be a failure of the store";
        assert!(
            matches!(refused, ReplicaReply::Failed(ReplicaFailure::Storage(_))),
            "{failure}: {refused:?}"
        );
    }
    assert_eq!(bench.get("k"), None);
    bench.disk.cut_after(u64::MAX);
    bench.done(update());
    bench.reading = Reading::CachedOnly;
    bench.done(store("k", &object));
    assert_eq!(values(&bench.get("k").unwrap()), ["a", "b"]);
}

#[test]
fn an_erased_store_gets_a_fresh_actor() {
    let bench = Bench::new();
    let before = bench.put("k", "a", &Clock::new());
    let elsewhere = before.clone();
    kvorum_backend::Backend::erase(&*bench.backend).unwrap();
    bench.put("k", "b", &Clock::new());
    // A replica still has the object that was erased here, and the new write has not seen it.
    bench.done(store("k", &elsewhere));
    assert_eq!(values(&bench.get("k").unwrap()), ["a", "b"]);
}

#[test]
fn only_the_tombstone_that_was_meant_is_reaped() {
    let bench = Bench::new();
    bench.put("k", "a", &Clock::new());
    let reap = |clock: &Clock| {
        let (key, clock) = (storage_key("k"), clock.clone());
        let reply = bench.done(Operation::Reap { key, clock });
        assert!(matches!(reply, ReplicaReply::Reaped), "{reply:?}");
    };
    let living = bench.get("k").unwrap();
    reap(living.clock());
    assert!(bench.get("k").is_some());
    let tombstone = bench.delete("k");
    reap(living.clock());
    assert!(bench.get("k").is_some());
    let again = bench.put("k", "b", &Clock::new());
    reap(tombstone.clock());
    assert_eq!(bench.get("k"), Some(again));
    let tombstone = bench.delete("k");
    let (kept, kept_too) = (bench.vnode.keep_tombstones(), bench.vnode.keep_tombstones());
    for keeper in [kept, kept_too] {
        reap(tombstone.clock());
        assert!(bench.get("k").is_some());
        drop(keeper);
    }
    reap(tombstone.clock());
    assert_eq!(bench.get("k"), None);
    // The next write is never taken for something older than the reaped object.
    let object = bench.put("k", "c", &Clock::new());
    assert!(object.siblings()[0].dot.counter > tombstone.siblings()[0].dot.counter);
}

#[test]
fn a_head_has_everything_but_values() {
    let bench = Bench::new();
    let mut written = content("value");
    written.metadata.content_type = "text/plain".into();
    bench.done(coordinate("k", written, &Clock::new(), Condition::Always));
    let key = storage_key("k");
    let detail = Detail::Head;
    let ReplicaReply::Found(head) = bench.done(Operation::Get { key, detail }) else {
        panic!("no head");
    };
    assert_eq!(head.clock(), bench.get("k").unwrap().clock());
    assert_eq!(head.siblings()[0].metadata.content_type, "text/plain");
    assert!(head.siblings()[0].value.is_empty());
}

#[test]
fn an_expired_object_is_absent() {
    let bench = Bench::new();
    let mut written = Content::default();
    written.metadata.expires_at = Some(Timestamp::from_micros(crate::NOW.0));
    bench.done(coordinate("k", written, &Clock::new(), Condition::Always));
    assert_eq!(bench.get("k"), None);
    assert!(
        bench
            .try_put("k", "a", &Clock::new(), Condition::Absent)
            .is_ok()
    );
}

#[test]
fn the_reserved_actor_of_a_given_clock_overtakes_nobody() {
    let bench = Bench::new();
    let mut clock = Clock::new();
    let dot = Dot {
        actor: ActorId(5),
        counter: u64::MAX,
    };
    clock.observe(dot, Timestamp::from_micros(1));
    let actor = bench.vnode.status().actor;
    bench.put("k", "a", &clock);
    assert_eq!(bench.vnode.status().actor, actor);
}

/// A client's write of a value that is written once.
fn coordinate_once(value: &str) -> Operation {
    let plain = coordinate("k", content(value), &Clock::new(), Condition::Always);
    let Operation::Coordinate {
        key,
        update,
        durability,
    } = plain
    else {
        panic!("{plain:?}");
    };
    let update = ClientUpdate {
        resolution: Resolution::WrittenOnce,
        ..ClientUpdate::clone(&update)
    };
    Operation::Coordinate {
        key,
        update: Arc::new(update),
        durability,
    }
}

#[test]
fn what_is_written_once_is_stored_without_a_read() {
    let bench = Bench::new();
    bench.backend.refuse_reads(Some(ErrorKind::Failed));
    let plain = bench.try_put("k", "a", &Clock::new(), Condition::Always);
    assert!(plain.is_err(), "a plain write has to look");
    for value in ["a", "b"] {
        let reply = bench.done(coordinate_once(value));
        let ReplicaReply::Stored { object, .. } = reply else {
            panic!("{reply:?}");
        };
        assert_eq!(values(&object), [value]);
        assert_eq!(object.clock().entries().len(), 1);
    }
    bench.backend.refuse_reads(None);
    assert_eq!(values(&bench.get("k").unwrap()), ["b"]);
}

#[test]
fn an_object_that_is_written_once_is_taken_in_without_a_read() {
    let bench = Bench::new();
    bench.backend.refuse_reads(Some(ErrorKind::Failed));
    for (value, counter) in [("a", 1), ("b", 2)] {
        let object = made_elsewhere(value, &Clock::new(), counter);
        let operation = Operation::Store {
            key: storage_key("k"),
            object: Arc::new(object),
            resolution: Resolution::WrittenOnce,
            tag: ObjectTag::default(),
            durability: Durability::Grouped,
        };
        let reply = bench.done(operation);
        assert!(matches!(reply, ReplicaReply::Received { .. }), "{reply:?}");
    }
    bench.backend.refuse_reads(None);
    assert_eq!(values(&bench.get("k").unwrap()), ["b"]);
}

/// Replicas that were written in different orders become equal when they are merged.
#[test]
fn of_values_that_are_written_once_the_merge_keeps_the_newest() {
    let older = made_elsewhere("a", &Clock::new(), 1);
    let bench = Bench::seeded(9);
    let reply = bench.done(coordinate_once("b"));
    let ReplicaReply::Stored { object: newer, .. } = reply else {
        panic!("{reply:?}");
    };
    let newer = newer.as_ref();
    let merged = kvorum_object::merge(older.clone(), newer.clone(), Resolution::NewestWins);
    let other_way = kvorum_object::merge(newer.clone(), older, Resolution::NewestWins);
    assert_eq!(merged, other_way);
    assert_eq!(merged.siblings().len(), 1);
    let once = kvorum_object::merge(merged.clone(), newer.clone(), Resolution::WrittenOnce);
    assert_eq!(once, merged);
}

#[test]
fn what_is_written_once_has_the_limits_of_every_object() {
    let limits = Limits {
        size_max_bytes: 100,
        size_warning_bytes: 50,
        ..Limits::default()
    };
    let bench = Bench::with_limits(limits);
    let reply = bench.done(coordinate_once(&"x".repeat(200)));
    let is_refused = matches!(
        reply,
        ReplicaReply::Failed(ReplicaFailure::ObjectTooLarge { .. })
    );
    assert!(is_refused, "{reply:?}");
    assert_eq!(bench.get("k"), None);
}
