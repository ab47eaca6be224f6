//! The removal of a bucket type: a node reports whether it holds a key of it, and takes no more
//! keys once it has reported that it holds none.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kvorum_backend::{Durability, Flow, FoldClock, FoldRange, Lease, Reading, Timestamp};
use kvorum_cluster::{Command, TypeStatus};
use kvorum_coordinator::{
    Condition, DeleteOptions, HintStore as _, PutKind, PutOptions, PutRequest, RequestError,
};
use kvorum_encoding::{Address, Bucket, BucketType, Key, StorageKey, type_prefix};
use kvorum_member::{Holding, Member, Operation, Outcome};
use kvorum_object::{Clock, Content, Object, ObjectTag, Resolution};
use kvorum_planted_defects::{PlantedDefect, plant};
use kvorum_properties::PropertyOverlay;
use kvorum_ring::{Epoch, Partition};
use kvorum_runtime::World;
use kvorum_vnode::{FoldRequest, Handled, ReplicaFailure, ReplicaReply, ReplicaRequest, Vnode};

use crate::machines::{Machine, cluster, simulated, until};

const TYPE: &str = "maps";

fn maps() -> BucketType {
    BucketType::from(TYPE)
}

fn address() -> Address {
    Address {
        bucket_type: maps(),
        bucket: Bucket::from("users"),
        key: Key::from("key"),
    }
}

async fn put(machine: &Machine) -> Result<Arc<Object>, RequestError> {
    put_at(&machine.member()).await
}

async fn put_at(member: &Member) -> Result<Arc<Object>, RequestError> {
    let request = PutRequest {
        context: Clock::new(),
        condition: Condition::Always,
        content: content(),
        kind: PutKind::Versioned,
    };
    let coordinator = member.coordinator();
    let (options, now) = (PutOptions::default(), coordinator.runtime().now());
    coordinator.put(&address(), request, &options, now).await
}

async fn delete(machine: &Machine) {
    let member = machine.member();
    let coordinator = member.coordinator();
    let (options, now) = (DeleteOptions::default(), coordinator.runtime().now());
    let deleted = coordinator.delete(&address(), None, &options, now).await;
    deleted.unwrap();
}

fn content() -> Content {
    Content {
        value: Bytes::from_static(b"value"),
        ..Content::default()
    }
}

async fn with_type(world: &World) -> Vec<Machine> {
    let machines = cluster(world, 3).await;
    let bucket_type = maps();
    let properties = PropertyOverlay::default();
    let create = Command::CreateType {
        bucket_type: bucket_type.clone(),
        properties,
    };
    machines[0].agree(create).await;
    machines[0]
        .agree(Command::ActivateType { bucket_type })
        .await;
    all_know(world, &machines).await;
    machines
}

async fn all_know(world: &World, machines: &[Machine]) {
    until(world, "all have the same state", || {
        let first = machines[0].state().version();
        machines.iter().all(|it| it.state().version() == first)
    })
    .await;
}

/// Begins a removal; the version at which it began.
async fn begin(machine: &Machine) -> u64 {
    let bucket_type = maps();
    machine
        .agree(Command::BeginTypeRemoval { bucket_type })
        .await;
    match machine.state().bucket_types()[&maps()].status {
        TypeStatus::Leaving { since } => since,
        other => panic!("{other:?}"),
    }
}

/// The answers of all nodes, each asked until it can answer.
async fn holdings(world: &World, machines: &[Machine], since: u64) -> Vec<Holding> {
    let mut holdings = Vec::new();
    for machine in machines {
        let node = machine.member().node();
        loop {
            let operation = Operation::HoldsType {
                bucket_type: TYPE.to_owned(),
                since,
            };
            match machines[0].member().operate(node, operation).await {
                Ok(Outcome::HoldsType(Holding::NotYet { .. })) => {
                    world.runtime().sleep(Duration::from_millis(50)).await;
                }
                Ok(Outcome::HoldsType(holding)) => break holdings.push(holding),
                other => panic!("{other:?}"),
            }
        }
    }
    holdings
}

#[test]
fn a_type_goes_when_no_node_holds_a_key_of_it() {
    simulated(31, |world| async move {
        let machines = with_type(&world).await;
        put(&machines[1]).await.unwrap();
        world.runtime().sleep(Duration::from_secs(1)).await;
        let since = begin(&machines[0]).await;
        let bucket = "users".to_owned();
        let held = holdings(&world, &machines, since).await;
        assert!(held.contains(&Holding::Keys { bucket }), "{held:?}");
        all_know(&world, &machines).await;
        let hidden = put(&machines[2]).await.unwrap_err();
        assert_eq!(hidden, RequestError::UnknownBucketType);

        // After a cancelled removal, the type has all its keys.
        let bucket_type = maps();
        machines[0]
            .agree(Command::ActivateType { bucket_type })
            .await;
        all_know(&world, &machines).await;
        delete(&machines[2]).await;
        world.runtime().sleep(Duration::from_secs(1)).await;
        let since = begin(&machines[1]).await;
        let held = holdings(&world, &machines, since).await;
        assert_eq!(held, [const { Holding::Nothing }; 3]);
        let bucket_type = maps();
        let finish = Command::FinishTypeRemoval { bucket_type, since };
        machines[1].agree(finish).await;
        assert!(machines[1].state().bucket_types().is_empty());
    });
}

/// A write to a replica, planned by the ring from before the removal.
fn late_write(partition: Partition, epoch: Epoch) -> ReplicaRequest {
    let object = Object::as_is(Clock::new(), content(), kvorum_object::Timestamp::ZERO);
    let operation = kvorum_vnode::Operation::Store {
        key: StorageKey::from_address(&address()),
        object: Arc::new(object),
        resolution: Resolution::KeepSiblings,
        tag: ObjectTag::default(),
        durability: Durability::Grouped,
    };
    ReplicaRequest {
        partition,
        epoch,
        operation,
    }
}

fn is_refused_as_late(handled: &Handled) -> bool {
    let Handled::Done(ReplicaReply::Failed(failure)) = handled else {
        return false;
    };
    matches!(failure, ReplicaFailure::StaleEpoch { .. })
}

#[test]
fn what_was_planned_before_is_refused_by_a_node_that_holds_nothing() {
    simulated(32, |world| async move {
        let machines = with_type(&world).await;
        let before = machines[0].state();
        let since = begin(&machines[0]).await;
        let held = holdings(&world, &machines, since).await;
        assert_eq!(held, [const { Holding::Nothing }; 3]);
        for machine in &machines {
            let member = machine.member();
            for vnode in member.vnodes().all() {
                let partition = vnode.partition();
                let late = late_write(partition, before.ring().epoch(partition));
                let handled = vnode.handle(&late, Timestamp(1), Reading::MayBlock);
                assert!(is_refused_as_late(&handled), "{handled:?}");
                // The store of hints refuses it too, in the place of another node.
                let handled = member
                    .hints()
                    .handle(&late, Timestamp(1), Reading::MayBlock);
                assert!(is_refused_as_late(&handled), "{handled:?}");
            }
        }
        let held = holdings(&world, &machines, since).await;
        assert_eq!(held, [const { Holding::Nothing }; 3]);
    });
}

/// Only the check of epochs keeps late writes out: without it, nodes have to be asked again.
#[test]
fn a_vnode_that_takes_old_epochs_is_found_out() {
    simulated(35, |world| async move {
        let machines = with_type(&world).await;
        let before = machines[0].state();
        let since = begin(&machines[0]).await;
        let held = holdings(&world, &machines, since).await;
        assert_eq!(held, [const { Holding::Nothing }; 3]);
        let vnodes = machines[0].member().vnodes().all();
        let partition = vnodes[0].partition();
        let late = late_write(partition, before.ring().epoch(partition));
        let planted = plant(PlantedDefect::EpochRuleSkippedOnReceiver);
        let handled = vnodes[0].handle(&late, Timestamp(1), Reading::MayBlock);
        drop(planted);
        assert!(!is_refused_as_late(&handled), "{handled:?}");
        let held = holdings(&world, &machines, since).await;
        let bucket = "users".to_owned();
        assert_eq!(held[0], Holding::Keys { bucket });
    });
}

#[test]
fn a_node_that_keeps_a_key_for_another_says_so() {
    simulated(33, |world| async move {
        let machines = with_type(&world).await;
        let state = machines[0].state();
        let partition = state.ring().owned_by(machines[1].member().node()).next();
        let partition = partition.unwrap();
        let hint = late_write(partition, state.ring().epoch(partition));
        let hints = machines[0].member().hints().clone();
        let handled = hints.handle(&hint, Timestamp(1), Reading::MayBlock);
        assert!(!is_refused_as_late(&handled), "{handled:?}");
        let since = begin(&machines[0]).await;
        let held = holdings(&world, &machines, since).await;
        let nothing = Holding::Nothing;
        assert_eq!(held, [Holding::Hints, nothing.clone(), nothing]);
    });
}

#[test]
fn an_answer_to_a_removal_that_was_taken_back_is_none() {
    simulated(34, |world| async move {
        let machines = with_type(&world).await;
        let since = begin(&machines[0]).await;
        let bucket_type = maps();
        machines[0]
            .agree(Command::ActivateType { bucket_type })
            .await;
        let ask = |since| {
            let bucket_type = TYPE.to_owned();
            let member = machines[0].member();
            async move {
                let operation = Operation::HoldsType { bucket_type, since };
                member.operate(member.node(), operation).await
            }
        };
        assert!(matches!(ask(since).await, Ok(Outcome::Refused(_))));
        // This node's state is older than that.
        let early = ask(since + 100).await;
        let is_not_yet = matches!(early, Ok(Outcome::HoldsType(Holding::NotYet { .. })));
        assert!(is_not_yet, "{early:?}");
    });
}

/// True for a write that was acknowledged.
async fn is_written_after(member: Arc<Member>, delay: Duration) -> bool {
    member.coordinator().runtime().sleep(delay).await;
    put_at(&member).await.is_ok()
}

fn now() -> FoldClock {
    FoldClock::stopped_at(Timestamp(1))
}

fn holds_any(vnode: &Vnode) -> bool {
    let request = FoldRequest {
        epoch: vnode.status().epoch,
        range: FoldRange::prefix(&type_prefix(&maps())),
        clock: now(),
        lease: Lease::Unlimited,
    };
    let mut is_any = false;
    let visitor = &mut |_: &StorageKey| {
        is_any = true;
        Flow::Stop
    };
    vnode.fold_keys(&request, visitor).unwrap();
    is_any
}

/// Writers through all nodes, at random times around a removal.
async fn race(world: World) {
    let machines = with_type(&world).await;
    let runtime = world.runtime();
    let within = |micros| Duration::from_micros(runtime.random_u64() % micros);
    let writers: Vec<_> = (0..9)
        .map(|number| {
            let member = machines[number % 3].member();
            let write = is_written_after(member, within(30_000));
            runtime.spawn("writer", write)
        })
        .collect();
    runtime.sleep(within(15_000)).await;
    let since = begin(&machines[0]).await;
    let held = holdings(&world, &machines, since).await;
    let is_empty = held.iter().all(|it| *it == Holding::Nothing);
    if is_empty {
        let bucket_type = maps();
        let finish = Command::FinishTypeRemoval { bucket_type, since };
        machines[0].agree(finish).await;
    }
    let mut is_written = false;
    for writer in writers {
        is_written |= writer.await.unwrap();
    }
    runtime.sleep(Duration::from_secs(1)).await;
    assert!(!is_empty || !is_written, "an acknowledged write is gone");
    for machine in machines.iter().filter(|_| is_empty) {
        let member = machine.member();
        let vnodes = member.vnodes().all();
        assert!(!vnodes.iter().any(|vnode| holds_any(vnode)));
        let (size, clock) = (machine.state().ring().size(), now());
        let hints = member.hints().holds_any_of(&maps(), size, &clock);
        assert_eq!(hints, Ok(false));
    }
}

#[test]
fn no_write_comes_in_between() {
    for seed in 40..52 {
        simulated(seed, race);
    }
}
