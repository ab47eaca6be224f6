//! Operations on data types: exactly once at the replica that coordinates them, merged everywhere.

use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::Durability;
use kvorum_data_types::{DataType, Kind, SetChange, Value};
use kvorum_object::{Clock, Object, ObjectTag};
use kvorum_vnode::{
    Condition, DataTypeUpdate, Handled, Operation, ReplicaFailure, ReplicaReply, value_of_type,
};

use crate::{Bench, content, coordinate, storage_key, store, values};

pub(crate) fn apply(
    key: &str,
    operation: kvorum_data_types::Operation,
    context: Option<kvorum_data_types::Clock>,
) -> Operation {
    Operation::Apply {
        key: storage_key(key),
        update: Arc::new(DataTypeUpdate {
            operation,
            context,
            precision: 14,
            tag: ObjectTag::default(),
        }),
        durability: Durability::Grouped,
    }
}

pub(crate) fn add(member: &'static str) -> kvorum_data_types::Operation {
    kvorum_data_types::Operation::Set(vec![SetChange::Add(Bytes::from_static(member.as_bytes()))])
}

fn remove(member: &'static str) -> kvorum_data_types::Operation {
    let member = Bytes::from_static(member.as_bytes());
    kvorum_data_types::Operation::Set(vec![SetChange::Remove(member)])
}

impl Bench {
    fn update(&self, operation: Operation) -> Result<Arc<Object>, ReplicaFailure> {
        match self.done(operation) {
            ReplicaReply::Stored { object, .. } => Ok(object),
            ReplicaReply::Failed(failure) => Err(failure),
            other => panic!("{other:?}"),
        }
    }

    fn count(&self, by: i128) -> Arc<Object> {
        let operation = kvorum_data_types::Operation::Counter(by);
        self.update(apply("k", operation, None)).unwrap()
    }
}

fn counted(object: &Object) -> Value {
    value_of_type(object, Kind::Counter, 14).value()
}

fn members(object: &Object) -> Vec<Bytes> {
    match value_of_type(object, Kind::Set, 14).value() {
        Value::Set(members) => members,
        other => panic!("{other:?}"),
    }
}

#[test]
fn increments_add_up_in_one_value() {
    let bench = Bench::new();
    for _ in 0..10 {
        bench.count(3);
    }
    let object = bench.count(-5);
    assert_eq!(counted(&object), Value::Counter(25));
    assert_eq!(object.siblings().len(), 1);
    assert_eq!(bench.get("k"), Some(object));
}

#[test]
fn an_increment_that_has_to_wait_for_a_device_is_counted_once() {
    let mut bench = Bench::new();
    bench.count(1);
    bench
        .backend
        .would_block
        .store(true, std::sync::atomic::Ordering::Relaxed);
    let operation = || apply("k", kvorum_data_types::Operation::Counter(1), None);
    assert!(matches!(bench.handle(operation()), Handled::WouldBlock));
    bench.reading = kvorum_backend::Reading::MayBlock;
    let object = bench.update(operation()).unwrap();
    assert_eq!(counted(&object), Value::Counter(2));
}

#[test]
fn increments_at_two_replicas_add_up_at_both() {
    let (one, other) = (Bench::new(), Bench::seeded(2));
    one.count(1);
    let shared = one.count(10);
    other.done(store("k", &shared));
    let (ours, theirs) = (one.count(100), other.count(1000));
    one.done(store("k", &theirs));
    other.done(store("k", &ours));
    let (ours, theirs) = (one.get("k").unwrap(), other.get("k").unwrap());
    assert!(ours.is_same_as(&theirs));
    assert_eq!(counted(&ours), Value::Counter(1111));
    // A write that comes twice changes nothing, and the next operation leaves one value.
    other.done(store("k", &shared));
    let object = other.count(10_000);
    assert_eq!(counted(&object), Value::Counter(11_111));
    assert_eq!(object.siblings().len(), 1);
    one.done(store("k", &object));
    assert_eq!(counted(&one.get("k").unwrap()), Value::Counter(11_111));
}

#[test]
fn a_remove_takes_what_was_seen() {
    let (one, other) = (Bench::new(), Bench::seeded(2));
    let first = one.update(apply("k", add("a"), None)).unwrap();
    let seen = value_of_type(&first, Kind::Set, 14).context();
    other.done(store("k", &first));
    let again = other.update(apply("k", add("a"), None)).unwrap();
    let removed = one.update(apply("k", remove("a"), seen)).unwrap();
    assert_eq!(members(&removed), Vec::<Bytes>::new());
    one.done(store("k", &again));
    assert_eq!(members(&one.get("k").unwrap()), ["a"]);
}

#[test]
fn a_remove_of_what_is_not_there_changes_nothing() {
    let bench = Bench::new();
    bench.update(apply("k", add("a"), None)).unwrap();
    let before = bench.get("k");
    let refused = bench.update(apply("k", remove("b"), None)).unwrap_err();
    let term = "{precondition,{not_present,<<\"b\">>}}".to_owned();
    assert_eq!(refused, ReplicaFailure::NotPresent(term));
    assert!(!refused.may_have_written());
    assert_eq!(bench.get("k"), before);
    assert!(bench.update(apply("new", remove("b"), None)).is_err());
    assert_eq!(bench.get("new"), None);
}

#[test]
fn a_plain_sibling_stays_beside_the_value() {
    let bench = Bench::new();
    bench.put("k", "plain", &Clock::new());
    let object = bench.count(7);
    assert_eq!(object.siblings().len(), 2);
    assert_eq!(counted(&object), Value::Counter(7));
    let object = bench.count(1);
    assert_eq!(counted(&object), Value::Counter(8));
    assert!(values(&object).contains(&"plain".to_owned()));
    assert_eq!(members(&object), Vec::<Bytes>::new());
}

#[test]
fn a_value_that_was_deleted_begins_again() {
    let bench = Bench::new();
    bench.count(7);
    let context = bench.get("k").unwrap().clock().clone();
    let tombstone = kvorum_object::Content::tombstone();
    bench.done(coordinate("k", tombstone, &context, Condition::Always));
    let object = bench.count(2);
    assert_eq!(counted(&object), Value::Counter(2));
    assert_eq!(object.siblings().len(), 1);
}

#[test]
fn what_clients_gave_a_value_besides_stays() {
    let bench = Bench::new();
    let object = bench.count(7);
    let mut given = content("");
    given.value = object.siblings()[0].value.clone();
    given.metadata = object.siblings()[0].metadata.clone();
    given.metadata.charset = Bytes::from_static(b"utf-8");
    bench.done(coordinate("k", given, object.clock(), Condition::Always));
    let object = bench.count(1);
    assert_eq!(counted(&object), Value::Counter(8));
    assert_eq!(object.siblings()[0].metadata.charset, "utf-8");
    assert_eq!(
        DataType::in_content(b"application/riak_counter", &object.siblings()[0].value),
        Some(value_of_type(&object, Kind::Counter, 14))
    );
}
