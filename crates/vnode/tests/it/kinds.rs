//! Kinds of objects, each through a vnode: the objects read, their stored form, and their index
//! entries.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::{
    Backend as _, Durability, FoldClock, FoldRange, Lease, Lookup, ReadAt, StoredEntry, Tag,
};
use kvorum_encoding::{Bucket, BucketType};
use kvorum_object::{Clock, Head, ObjectTag};
use kvorum_ring::{Epoch, KeyHash, RingSize};
use kvorum_vnode::{
    ClientUpdate, Condition, Detail, IndexPageRequest, IndexScan, Operation, ReplicaReply,
    ScanLimits, ScanRequest, StoredObject, TOMBSTONE_TAG,
};

use crate::{
    Bench, NOW, content, coordinate, made_elsewhere, partition, storage_key, store, values,
};

const TASK: &str = r#"{"kind":"task","title":"Rest"}"#;

fn put(bench: &Bench, key: &str, value: &str, tag: ObjectTag) {
    let Operation::Coordinate { key, update, .. } =
        coordinate(key, content(value), &Clock::new(), Condition::Always)
    else {
        return;
    };
    let update = ClientUpdate {
        tag,
        ..ClientUpdate::clone(&update)
    };
    let reply = bench.done(Operation::Coordinate {
        key,
        update: Arc::new(update),
        durability: Durability::Grouped,
    });
    assert!(matches!(reply, ReplicaReply::Stored { .. }), "{reply:?}");
}

fn stored(bench: &Bench, key: &str) -> StoredEntry {
    let found = bench
        .backend
        .get(&storage_key(key), ReadAt::may_block(NOW))
        .unwrap();
    match found {
        Lookup::Found(entry) => entry,
        other => panic!("{other:?}"),
    }
}

/// The keys that the index of kinds has.
fn indexed(bench: &Bench) -> Vec<String> {
    let request = IndexPageRequest {
        partition: partition(),
        epoch: Epoch::new(3),
        hash: KeyHash::Standard,
        size: RingSize::new(8).unwrap(),
        owners: None,
        bucket_type: BucketType::default_type(),
        bucket: Bucket::from("bucket"),
        scan: IndexScan::Terms {
            field: "kind_bin".into(),
            from: Bound::Unbounded,
            to: Bound::Unbounded,
        },
        pattern: None,
        after: None,
        entries_max: 1_000,
    };
    let clock = FoldClock::stopped_at(NOW);
    let page = bench.vnode.index_page(&request, &clock, Lease::Unlimited);
    let entries = page.unwrap().entries.into_iter();
    entries.map(|it| it.key.to_string()).collect()
}

#[test]
fn an_object_of_any_kind_is_read_scanned_and_deleted() {
    for tag in ObjectTag::all() {
        let bench = Bench::new();
        put(&bench, "k", TASK, tag);
        assert_eq!(stored(&bench, "k").fields.tag, Tag(tag.number()), "{tag:?}");
        let object = bench.get("k").unwrap();
        assert_eq!(values(&object), [TASK]);
        let head = bench.done(Operation::Get {
            key: storage_key("k"),
            detail: Detail::Head,
        });
        match head {
            ReplicaReply::Found(head) => assert_eq!(head.clock(), object.clock()),
            other => panic!("{other:?}"),
        }
        // Replicas are sent the object, and not the form in which it is stored here.
        let request = ScanRequest {
            range: FoldRange::all(),
            clock: FoldClock::stopped_at(NOW),
            lease: Lease::Unlimited,
            limits: ScanLimits::NONE,
        };
        let page = bench.vnode.scan::<StoredObject>(&request, &mut |_| true);
        let sent = page.unwrap().entries.remove(0);
        Head::decode(&sent.head_bytes).unwrap();
        assert_eq!(sent.decode().unwrap(), object);
        bench.delete("k");
        assert_eq!(stored(&bench, "k").fields.tag, TOMBSTONE_TAG);
        assert_eq!(indexed(&bench), [""; 0]);
    }
}

#[test]
fn siblings_of_any_kind_are_merged() {
    for tag in ObjectTag::all() {
        let bench = Bench::new();
        put(&bench, "k", "a", tag);
        let Operation::Store {
            key,
            object,
            resolution,
            durability,
            ..
        } = store("k", &made_elsewhere("b", &Clock::new(), 1))
        else {
            return;
        };
        bench.done(Operation::Store {
            key,
            object,
            resolution,
            tag,
            durability,
        });
        assert_eq!(values(&bench.get("k").unwrap()), ["a", "b"], "{tag:?}");
    }
}

#[test]
fn a_head_only_object_has_no_body_in_the_store() {
    let bench = Bench::new();
    put(&bench, "k", "all of it", ObjectTag::named("h").unwrap());
    assert_eq!(stored(&bench, "k").body, Bytes::new());
    assert_eq!(values(&bench.get("k").unwrap()), ["all of it"]);
}

#[test]
fn documents_are_indexed_by_their_kind_and_others_are_not() {
    let bench = Bench::new();
    put(&bench, "plain", TASK, ObjectTag::default());
    put(&bench, "task", TASK, ObjectTag::named("document").unwrap());
    assert_eq!(indexed(&bench), ["task"]);
}

/// Objects put while a bucket's kind was chosen may be of another kind.
#[test]
fn an_object_is_read_by_the_kind_that_it_was_stored_by() {
    let bench = Bench::new();
    put(&bench, "k", "a", ObjectTag::named("h").unwrap());
    let seen = bench.get("k").unwrap();
    bench.put("k", "b", seen.clock());
    assert_eq!(values(&bench.get("k").unwrap()), ["b"]);
    assert_eq!(stored(&bench, "k").fields.tag, Tag::default());
}
