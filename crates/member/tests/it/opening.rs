//! Members that serve before all of their stores are open.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kvorum_coordinator::{DeleteOptions, GetOptions, PutOptions, RequestError};
use kvorum_disk::{CrashOptions, read_file};
use kvorum_encoding::{Bucket, BucketType};
use kvorum_member::{JoinError, Member, Readiness};
use kvorum_object::Clock;
use kvorum_properties::Quorum;
use kvorum_runtime::{Executor, ProductionOptions, Runtime};

use crate::machines::{
    Machine, address, at, cluster, get_at, name, put_at, simulated, until, values,
};

const KEYS: u32 = 60;

fn keys() -> impl Iterator<Item = String> {
    (0..KEYS).map(|number| format!("key {number}"))
}

/// A machine with a ring of eight, on threads: only threads can be held back.
fn alone() -> (Executor, Machine) {
    let executor = Runtime::production(&ProductionOptions::default()).unwrap();
    let mut machine = Machine::new(1);
    machine.ring_size = 8;
    (executor, machine)
}

async fn open(machine: &Machine, runtime: Runtime) -> Arc<Member> {
    let opened = Member::open(machine.parts(runtime, Vec::new()));
    opened.await.unwrap()
}

async fn stop(member: &Member) {
    member.stop().await;
    member.close_stores().unwrap();
    member.seal().unwrap();
}

async fn until_opening(member: &Member, opening: usize) {
    let mut readiness = member.vnodes().watch_readiness();
    let opened = readiness.until(|it| it.opening == opening);
    opened.await.unwrap();
}

/// The partition of a key that has one replica.
fn partition(member: &Member, key: &str) -> u16 {
    let places = member.coordinator().preference_list(&address(key)).unwrap();
    assert_eq!(places.len(), 1);
    places[0].partition.number()
}

async fn write(member: &Member, key: &str, value: &str) -> Result<(), RequestError> {
    let context = match get_at(member, key).await? {
        Some(object) => object.clock().clone(),
        None => Clock::new(),
    };
    let options = PutOptions::default();
    let written = put_at(member, key, value, context, &options);
    written.await.map(|_| ())
}

async fn check_all(member: &Member, expected: impl Fn(&str) -> &'static str) {
    for key in keys() {
        let got = values(get_at(member, &key).await.unwrap().as_deref());
        assert_eq!(got, [expected(&key)], "{key}");
    }
}

async fn listed(member: &Member) -> Result<usize, RequestError> {
    let (bucket_type, bucket) = (BucketType::default_type(), Bucket::new(b"bucket".to_vec()));
    let timeout = Duration::from_secs(20);
    let mut listing = member
        .coordinator()
        .list_keys(&bucket_type, &bucket, timeout)?;
    let mut count = 0;
    while let Some(keys) = listing.next().await {
        count += keys?.len();
    }
    Ok(count)
}

/// Runs a test of a machine on which every key is written, and one store is then held back.
fn with_one_held<F: Future<Output = ()>>(
    test: impl FnOnce(Machine, Runtime, Arc<Member>, u16) -> F,
) {
    let (executor, machine) = alone();
    let runtime = executor.runtime();
    executor.block_on(async move {
        let member = open(&machine, runtime.clone()).await;
        assert_eq!(member.vnodes().until_opened().await.open, 8);
        for key in keys() {
            write(&member, &key, "old").await.unwrap();
        }
        let held = partition(&member, "key 0");
        stop(&member).await;
        machine.gate.hold([held]);
        let member = open(&machine, runtime.clone()).await;
        until_opening(&member, 1).await;
        test(machine, runtime, member, held).await;
    });
}

/// Regression: the record of the stores was written at every start, so a node did not start on a
/// full disk.
#[test]
fn a_start_that_finds_everything_as_it_was_writes_no_record_of_the_stores() {
    let (executor, machine) = alone();
    let runtime = executor.runtime();
    executor.block_on(async move {
        let record = || read_file(&machine.disk, Path::new("ring/stores"), 1 << 20).unwrap();
        let start_and_stop = async || {
            let member = open(&machine, runtime.clone()).await;
            assert_eq!(member.vnodes().until_opened().await.open, 8);
            stop(&member).await;
        };
        start_and_stop().await;
        let before = record();
        start_and_stop().await;
        assert_eq!(record(), before);
    });
}

#[test]
fn what_is_open_answers_while_a_store_is_held_back_and_that_one_refuses() {
    with_one_held(|machine, _, member, held| async move {
        let readiness = member.vnodes().readiness();
        assert_eq!((readiness.open, readiness.failed), (7, 0));
        // A stopping node does this too: otherwise each request would wait until its timeout.
        member.coordinator().stop_waiting();
        let mut refused = 0;
        for key in keys() {
            let got = get_at(&member, &key).await;
            let written = write(&member, &key, "new").await;
            if partition(&member, &key) == held {
                refused += 1;
                assert_eq!(got, Err(RequestError::VnodeOpening), "{key}");
                assert_eq!(written, Err(RequestError::VnodeOpening), "{key}");
            } else {
                assert_eq!(values(got.unwrap().as_deref()), ["old"], "{key}");
                written.unwrap();
            }
        }
        assert!(refused > 0);
        assert_eq!(listed(&member).await, Err(RequestError::VnodeOpening));
        machine.gate.open();
        let readiness = member.vnodes().until_opened().await;
        assert!(readiness.is_complete() && readiness.open == 8);
        let is_held = |key: &str| partition(&member, key) == held;
        check_all(&member, |key| if is_held(key) { "old" } else { "new" }).await;
        assert_eq!(listed(&member).await.unwrap(), KEYS as usize);
        stop(&member).await;
    });
}

/// Regression: 68 of a hundred puts sent when the port opened were refused, because their stores
/// were opened some milliseconds later.
#[test]
fn a_request_that_meets_a_store_that_is_being_opened_waits_for_it() {
    with_one_held(|machine, runtime, member, held| async move {
        let of_held: Vec<String> = keys().filter(|it| partition(&member, it) == held).collect();
        let mut waiting = Vec::new();
        for key in of_held.clone() {
            let member = member.clone();
            waiting.push(runtime.spawn("waiting write", async move {
                write(&member, &key, "new").await
            }));
        }
        let lister = member.clone();
        let listing = runtime.spawn("waiting listing", async move {
            lister.coordinator().until_opened(None).await;
            listed(&lister).await
        });
        // Requests with enough time wait, and then succeed.
        let options = GetOptions {
            timeout: Some(Duration::from_millis(20)),
            ..GetOptions::default()
        };
        let coordinator = member.coordinator();
        let now = coordinator.runtime().now();
        let impatient = coordinator.get(&address(&of_held[0]), &options, now).await;
        assert_eq!(impatient, Err(RequestError::VnodeOpening));
        assert_eq!(member.vnodes().readiness().opening, 1);
        machine.gate.open();
        for written in waiting {
            assert_eq!(written.await.unwrap(), Ok(()));
        }
        assert_eq!(listing.await.unwrap(), Ok(KEYS as usize));
        for key in of_held {
            let got = values(get_at(&member, &key).await.unwrap().as_deref());
            assert_eq!(got, ["new"], "{key}: one write is one value");
        }
        stop(&member).await;
    });
}

#[test]
fn health_says_which_stores_are_not_open_and_which_partitions_nobody_serves() {
    with_one_held(|machine, _, member, held| async move {
        let health = member.health();
        assert_eq!((health.open, health.opening), (7, 1));
        assert_eq!(health.status(), "opening");
        assert!(!health.is_ready());
        assert_eq!(health.unserved, [held]);
        machine.gate.open();
        member.vnodes().until_opened().await;
        let health = member.health();
        assert_eq!(
            (health.status(), health.text()),
            ("ready", "ready\n".to_owned())
        );
        stop(&member).await;
    });
}

/// Regression: a node on a full disk reported that it was ready, from its start to the first
/// refused put, and again after a deletion. Deletions may use the room held back.
#[test]
fn health_counts_the_disk_as_full_before_puts_are_refused_and_until_one_is_committed() {
    let (executor, machine) = alone();
    let runtime = executor.runtime();
    executor.block_on(async move {
        machine.gate.set_room(100);
        let member = open(&machine, runtime).await;
        member.vnodes().until_opened().await;
        let full = ("disk_full", false);
        let said = || (member.health().status(), member.health().is_ready());
        assert_eq!(said(), full, "nothing was put yet");
        machine.gate.set_room(1 << 30);
        assert_eq!(said(), ("ready", true));
        write(&member, "key 0", "old").await.unwrap();
        write(&member, "key 1", "old").await.unwrap();

        let vnodes = member.vnodes().all();
        vnodes[0].note_disk_full();
        assert_eq!(said(), full, "a put was refused");
        let (coordinator, deleted) = (member.coordinator(), address("key 0"));
        let (now, options) = (coordinator.runtime().now(), DeleteOptions::default());
        let deletion = coordinator.delete(&deleted, None, &options, now);
        deletion.await.unwrap();
        assert_eq!(said(), full, "a deletion says nothing of puts");
        write(&member, "key 1", "new").await.unwrap();
        assert_eq!(said(), ("ready", true));
        stop(&member).await;
    });
}

#[test]
fn a_stop_in_the_middle_of_opening_loses_nothing() {
    with_one_held(|machine, runtime, member, held| async move {
        for key in keys().filter(|key| partition(&member, key) != held) {
            write(&member, &key, "new").await.unwrap();
        }
        stop(&member).await;
        machine.gate.open();
        // The stores that were held back come too late to serve.
        assert_eq!(member.vnodes().all().len(), 7);
        let member = open(&machine, runtime).await;
        // The former run may still hold the store's lock, as another process would not; the store
        // is tried again.
        let mut readiness = member.vnodes().watch_readiness();
        readiness.until(|it| it.open == 8).await.unwrap();
        let is_held = |key: &str| partition(&member, key) == held;
        check_all(&member, |key| if is_held(key) { "old" } else { "new" }).await;
        stop(&member).await;
    });
}

#[test]
fn a_crash_in_the_middle_of_opening_loses_nothing() {
    with_one_held(|machine, runtime, member, held| async move {
        for key in keys().filter(|key| partition(&member, key) != held) {
            write(&member, &key, "new").await.unwrap();
        }
        let mut after = Machine::new(1);
        after.ring_size = 8;
        after.disk = machine.disk.crash_image(CrashOptions::drawn(5));
        // Ends the run that counts as crashed.
        machine.gate.open();
        stop(&member).await;
        let member = open(&after, runtime).await;
        assert!(member.vnodes().until_opened().await.is_complete());
        let is_held = |key: &str| partition(&member, key) == held;
        check_all(&member, |key| if is_held(key) { "old" } else { "new" }).await;
        stop(&member).await;
    });
}

#[test]
fn a_store_that_cannot_be_opened_keeps_no_other_from_serving_and_is_tried_again() {
    simulated(1, |world| async move {
        let machine = Machine::new(1);
        machine.start(&world).await;
        for key in keys() {
            machine.put(&key, "value").await;
        }
        let failing = partition(&machine.member(), "key 0");
        machine.lose_power(&world).await;
        machine.gate.refuse([failing]);
        machine.start(&world).await;
        let member = machine.member();
        let expected = Readiness {
            open: 15,
            opening: 0,
            failed: 1,
        };
        assert_eq!(member.vnodes().readiness(), expected);
        let health = member.health();
        assert_eq!(
            (health.status(), &health.failed),
            ("degraded", &vec![failing])
        );
        assert!(
            health.is_ready() && health.unserved == [failing],
            "{health:?}"
        );
        world.runtime().sleep(Duration::from_secs(12)).await;
        for key in keys() {
            let got = machine.try_get(&key).await;
            if partition(&member, &key) == failing {
                assert_eq!(got, Err(RequestError::VnodeFailed), "{key}");
            } else {
                assert_eq!(values(got.unwrap().as_deref()), ["value"], "{key}");
            }
        }
        assert_eq!(listed(&member).await, Err(RequestError::VnodeFailed));
        let joined = member.join(at(2), Some(&name(2))).await;
        assert!(
            matches!(
                joined,
                Err(JoinError::NotOpen {
                    opening: 0,
                    failed: 1
                })
            ),
            "{joined:?}"
        );
        machine.gate.open();
        until(&world, "the store is opened", || {
            member.vnodes().readiness().is_complete()
        })
        .await;
        check_all(&member, |_| "value").await;
        machine.stop(&world).await;
    });
}

#[test]
fn others_stand_in_for_vnodes_that_are_not_open() {
    simulated(1, |world| async move {
        let machines = cluster(&world, 5).await;
        machines[1].stop(&world).await;
        machines[1].gate.refuse(0..16);
        machines[1].start(&world).await;
        let failed = machines[1].member().vnodes().readiness().failed;
        assert!(failed > 0);
        until(&world, "all see one another", || {
            let up = |machine: &Machine| machine.member().liveness().up().len();
            machines.iter().all(|machine| up(machine) == 5)
        })
        .await;
        let all = PutOptions {
            w: Some(Quorum::All),
            ..PutOptions::default()
        };
        for writer in [0, 1, 2] {
            let member = machines[writer].member();
            for key in keys() {
                let key = format!("{key} of {writer}");
                let put = put_at(&member, &key, "value", Clock::new(), &all).await;
                put.unwrap();
                assert_eq!(machines[1].get(&key).await, ["value"], "{key}");
            }
        }
        // Every turn draws the vnodes to ask anew.
        for turn in 0..40 {
            let lister = machines[turn % machines.len()].member();
            let count = listed(&lister).await;
            assert_eq!(count, Ok(3 * KEYS as usize), "turn {turn}");
        }
        let kept = |machine: &Machine| machine.member().hints().vnode().store_status().keys;
        assert!(machines.iter().map(kept).sum::<u64>() > 0);
        machines[1].gate.open();
        until(&world, "all nodes have what is theirs", || {
            machines.iter().map(kept).sum::<u64>() == 0
        })
        .await;
        let readiness = machines[1].member().vnodes().readiness();
        assert!(readiness.is_complete() && readiness.open == failed);
    });
}
