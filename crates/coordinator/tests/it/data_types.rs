//! Data types: every operation counts once, whichever nodes carry it out, and plain requests see Riak's form.

use std::sync::Arc;

use bytes::Bytes;
use kvorum_cluster::Command;
use kvorum_coordinator::{
    Condition, Coordinator, GetOptions, LocalVnodes, PutKind, PutOptions, PutRequest, Repaired,
    RequestError, RequestKind,
};
use kvorum_data_types::{
    DataType, Kind, Operation, SetChange, Value, decode_riak_value, encode_riak_value,
};
use kvorum_encoding::BucketType;
use kvorum_object::{Clock, Content, Metadata, Sibling};
use kvorum_properties::{Datatype, PropertyOverlay, Quorum};
use kvorum_ring::Partition;
use kvorum_vnode::{Detail, ReplicaReply, value_of_type};

use crate::cluster::{Cluster, Setup, carry_out, ring};
use crate::world::{World, address, colocated, siblings, storage_key};

async fn update(
    coordinator: &Coordinator,
    key: &str,
    operation: Operation,
) -> Result<DataType, RequestError> {
    let (now, options) = (coordinator.runtime().now(), PutOptions::default());
    coordinator
        .update_data_type(&address(key), operation, None, &options, now)
        .await
}

async fn fetch(coordinator: &Coordinator, key: &str, kind: Kind, r: u32) -> Option<Value> {
    let options = GetOptions {
        r: Some(Quorum::Number(r)),
        ..GetOptions::default()
    };
    let (now, place) = (coordinator.runtime().now(), address(key));
    let found = coordinator.fetch_data_type(&place, kind, &options, now);
    found.await.unwrap().map(|value| value.value())
}

fn add(member: &str) -> Operation {
    let member = Bytes::copy_from_slice(member.as_bytes());
    Operation::Set(vec![SetChange::Add(member)])
}

impl Cluster {
    fn count(&self, at: u8, by: i128) -> Result<DataType, RequestError> {
        let coordinator: &Coordinator = &self.node(at).coordinator;
        self.run(update(coordinator, "counted", Operation::Counter(by)))
    }

    fn counted(&self, at: u8, r: u32) -> Option<Value> {
        let coordinator: &Coordinator = &self.node(at).coordinator;
        self.run(fetch(coordinator, "counted", Kind::Counter, r))
    }
}

#[test]
fn increments_through_any_node_add_up() {
    for heads_first in [false, true] {
        let cluster = Cluster::new(&Setup {
            heads_first,
            nodes: 5,
            owners: 5,
            ..Setup::default()
        });
        assert_eq!(cluster.counted(1, 2), None);
        for round in 0..4 {
            for at in 1..=5 {
                cluster.count(at, 10_i128.pow(round)).unwrap();
            }
        }
        for at in 1..=5 {
            assert_eq!(cluster.counted(at, 2), Some(Value::Counter(5_555)));
        }
    }
}

/// Replicas that missed each other's operations: a read merges them and repairs the replicas.
#[test]
fn operations_of_replicas_that_do_not_hear_of_each_other_are_merged() {
    let cluster = Cluster::new(&Setup {
        nodes: 3,
        owners: 3,
        ..Setup::default()
    });
    cluster.count(1, 1).unwrap();
    cluster.settle();
    (1..=3).for_each(|number| cluster.cut_off(number, false));
    let options = PutOptions {
        w: Some(Quorum::Number(1)),
        dw: Some(Quorum::Number(1)),
        timeout: Some(std::time::Duration::from_secs(2)),
        ..PutOptions::default()
    };
    for at in 1..=3 {
        let coordinator: &Coordinator = &cluster.node(at).coordinator;
        let (now, by) = (coordinator.runtime().now(), Operation::Counter(10));
        let place = address("counted");
        let counted = coordinator.update_data_type(&place, by, None, &options, now);
        let value = cluster.run(counted).unwrap().value();
        assert_eq!(value, Value::Counter(11));
    }
    (1..=3).for_each(|number| cluster.heal(number));
    assert_eq!(cluster.counted(1, 3), Some(Value::Counter(31)));
    cluster.settle();
    for at in 1..=3 {
        assert_eq!(cluster.counted(at, 1), Some(Value::Counter(31)));
    }
    let repaired = std::mem::take(&mut *cluster.node(1).meter.repaired.lock());
    let is_of_counter = |it: &Repaired| it.kind == Some(Kind::Counter);
    assert!(!repaired.is_empty() && repaired.iter().all(is_of_counter));
    assert_eq!(cluster.count(2, 100).unwrap().value(), Value::Counter(131));
}

fn world_of_sets() -> World {
    let world = World::new(&colocated());
    let bucket_type = BucketType::from("sets");
    world.propose(Command::CreateType {
        bucket_type: bucket_type.clone(),
        properties: PropertyOverlay {
            datatype: Some(Datatype::Set),
            ..PropertyOverlay::default()
        },
    });
    world.propose(Command::ActivateType { bucket_type });
    world
}

#[test]
fn fetches_and_operations_are_metered_with_their_type() {
    let world = world_of_sets();
    let coordinator: &Coordinator = &world.coordinator;
    let finished = || std::mem::take(&mut *world.meter.finished.lock());
    let added = world.run(update(coordinator, "sets/b/k", add("a")));
    assert!(added.is_ok());
    assert_eq!(finished(), [(RequestKind::Update(Kind::Set), None)]);
    let found = world.run(fetch(coordinator, "sets/b/k", Kind::Set, 1));
    assert!(found.is_some());
    assert_eq!(finished(), [(RequestKind::Fetch(Kind::Set), None)]);
    assert!(world.get("sets/b/k").is_some());
    assert_eq!(finished(), [(RequestKind::Get, None)]);
}

#[test]
fn a_plain_read_shows_riaks_form_and_a_plain_write_takes_it() {
    let world = world_of_sets();
    let coordinator: &Coordinator = &world.coordinator;
    for member in ["a", "b"] {
        world
            .run(update(coordinator, "sets/b/k", add(member)))
            .unwrap();
    }
    let object = world.get("sets/b/k").unwrap();
    let [only] = object.siblings() else {
        panic!("{object:?}");
    };
    assert_eq!(only.metadata.content_type, "application/riak_set");
    let read = decode_riak_value(&only.value).unwrap().value;
    let both = ["a", "b"]
        .map(|it| Bytes::from_static(it.as_bytes()))
        .to_vec();
    assert_eq!(read.value(), Value::Set(both.clone()));
    let request = PutRequest {
        context: Clock::new(),
        condition: Condition::Always,
        content: Content {
            metadata: Metadata {
                content_type: Bytes::from_static(b"application/riak_set"),
                ..Metadata::default()
            },
            value: encode_riak_value(&read),
        },
        kind: PutKind::Versioned,
    };
    let copied = world.try_put("sets/b/copy", request, &PutOptions::default());
    let shown = |sibling: &Sibling| decode_riak_value(&sibling.value).unwrap().value.value();
    assert_eq!(shown(&copied.unwrap().siblings()[0]), Value::Set(both));
    world
        .run(update(coordinator, "sets/b/copy", add("c")))
        .unwrap();
    let members = world.run(fetch(coordinator, "sets/b/copy", Kind::Set, 2));
    let expected = ["a", "b", "c"].map(|it| Bytes::from_static(it.as_bytes()));
    assert_eq!(members, Some(Value::Set(expected.to_vec())));
}

#[test]
fn a_plain_value_stands_beside_and_counts_as_an_empty_one() {
    let world = world_of_sets();
    let coordinator: &Coordinator = &world.coordinator;
    world.put("sets/b/k", "plain", &Clock::new());
    let empty = Some(Value::Set(Vec::new()));
    assert_eq!(
        world.run(fetch(coordinator, "sets/b/k", Kind::Set, 2)),
        empty
    );
    world
        .run(update(coordinator, "sets/b/k", add("a")))
        .unwrap();
    assert_eq!(world.get("sets/b/k").unwrap().siblings().len(), 2);
}

#[test]
fn operations_are_for_buckets_of_their_type() {
    let world = world_of_sets();
    let coordinator: &Coordinator = &world.coordinator;
    let count = |key| world.run(update(coordinator, key, Operation::Counter(1)));
    assert!(matches!(
        count("sets/b/k"),
        Err(RequestError::OperationRefused(_))
    ));
    assert_eq!(count("k"), Err(RequestError::CountersNeedSiblings));
    world.set_bucket("bucket", siblings());
    assert_eq!(count("k").unwrap().value(), Value::Counter(1));
    let set = world.run(update(coordinator, "k", add("a")));
    assert!(matches!(set, Err(RequestError::OperationRefused(_))));
    assert_eq!(count("none/b/k"), Err(RequestError::UnknownBucketType));
    let object: Arc<_> = world.get("k").unwrap();
    assert!(
        decode_riak_value(&object.siblings()[0].value)
            .unwrap()
            .is_legacy
    );
}

/// The agreed state of a cluster of three, with a type of sets.
fn learn_of_sets(cluster: &Cluster) {
    let bucket_type = BucketType::from("sets");
    let properties = PropertyOverlay {
        datatype: Some(Datatype::Set),
        ..PropertyOverlay::default()
    };
    let create = Command::CreateType {
        bucket_type: bucket_type.clone(),
        properties,
    };
    let state = cluster.state(ring(3));
    let state = kvorum_cluster::apply(&state, create).unwrap();
    let state = kvorum_cluster::apply(&state, Command::ActivateType { bucket_type }).unwrap();
    cluster.learn(&Arc::new(state));
}

impl Cluster {
    fn add(&self, at: u8, member: &str) {
        let options = PutOptions {
            w: Some(Quorum::Number(1)),
            dw: Some(Quorum::Number(1)),
            ..PutOptions::default()
        };
        let coordinator: &Coordinator = &self.node(at).coordinator;
        let (now, place) = (coordinator.runtime().now(), address("sets/b/k"));
        let added = coordinator.change_data_type(&place, add(member), None, &options, now);
        self.run(added).unwrap();
        self.settle();
    }

    /// The number of members in a node's own replica.
    fn members_at(&self, partitions: &[Partition], at: u8) -> usize {
        let (key, node) = (storage_key("sets/b/k"), self.node(at));
        let vnode = partitions.iter().find_map(|it| node.vnodes.vnode(*it));
        let detail = Detail::Whole;
        let get = kvorum_vnode::Operation::Get { key, detail };
        let ReplicaReply::Found(object) = carry_out(&vnode.unwrap(), get) else {
            return 0;
        };
        match value_of_type(&object, Kind::Set, 14).value() {
            Value::Set(members) => members.len(),
            _ => 0,
        }
    }
}

/// A large set goes to replicas update by update, and whole to replicas that missed one.
#[test]
fn replicas_follow_the_updates_of_a_large_set() {
    let cluster = Cluster::new(&Setup {
        nodes: 3,
        owners: 3,
        ..Setup::default()
    });
    learn_of_sets(&cluster);
    let partitions = cluster.partitions("sets/b/k");
    for number in 0..60 {
        cluster.add(number % 3 + 1, &format!("member-{number:0100}"));
    }
    for at in 1..=3 {
        assert_eq!(cluster.members_at(&partitions, at), 60);
    }
    // The cut is unnoticed once, and noticed once.
    for is_noticed in [false, true] {
        let before = cluster.members_at(&partitions, 1);
        cluster.cut_off(3, is_noticed);
        cluster.add(1, &format!("missed-{is_noticed}"));
        assert_eq!(cluster.members_at(&partitions, 2), before + 1);
        assert_eq!(cluster.members_at(&partitions, 3), before);
        cluster.heal(3);
        cluster.add(2, &format!("next-{is_noticed}"));
        for at in 1..=3 {
            assert_eq!(cluster.members_at(&partitions, at), before + 2, "node {at}");
        }
    }
    // A client's read gets the whole value.
    let coordinator: &Coordinator = &cluster.node(1).coordinator;
    let value = cluster.run(update(coordinator, "sets/b/k", add("last")));
    match value.unwrap().value() {
        Value::Set(members) => assert_eq!(members.len(), 65),
        other => panic!("{other:?}"),
    }
}
