//! Requests that wait: for syncs, for room, and in vain.

use std::sync::Arc;
use std::time::Duration;

use kvorum_backend::ErrorKind;
use kvorum_coordinator::{Condition, GetOptions, PutOptions, RequestError, RequestKind};
use kvorum_object::{Clock, Object};
use kvorum_properties::Quorum;
use kvorum_runtime::TaskHandle;

use crate::world::{Setup, World, address, colocated, request};

type PutTask = TaskHandle<Result<Arc<Object>, RequestError>>;

fn late() -> Setup {
    Setup {
        syncs_late: true,
        ..Setup::default()
    }
}

fn late_colocated() -> Setup {
    Setup {
        syncs_late: true,
        ..colocated()
    }
}

fn start_put(world: &World, key: &str, options: PutOptions) -> PutTask {
    let (coordinator, address) = (world.coordinator.clone(), address(key));
    let put = request("a", &Clock::new(), Condition::Always);
    let now = world.runtime.now();
    let task = world.runtime.spawn("put", async move {
        coordinator.put(&address, put, &options, now).await
    });
    world.run(world.runtime.sleep(Duration::from_millis(10)));
    task
}

#[test]
fn a_put_is_acknowledged_when_it_is_durable_and_readable_before() {
    let world = World::new(&late());
    let put = start_put(&world, "k", PutOptions::default());
    assert!(!put.is_finished());
    assert!(world.get("k").is_some());
    world.syncs.release(1);
    let written = world.run(put).unwrap().unwrap();
    assert_eq!(world.get("k"), Some(written));
}

#[test]
fn dw_says_how_many_syncs_are_waited_for() {
    for (dw, needed) in [(1, 1), (2, 2), (3, 3)] {
        let world = World::new(&late_colocated());
        let options = PutOptions {
            dw: Some(Quorum::Number(dw)),
            ..PutOptions::default()
        };
        let put = start_put(&world, "k", options);
        assert_eq!(world.syncs.given(), 3);
        world.syncs.release(needed - 1);
        world.run(world.runtime.sleep(Duration::from_millis(10)));
        assert!(!put.is_finished(), "dw {dw}");
        world.syncs.release(needed);
        world.run(world.runtime.sleep(Duration::from_millis(10)));
        assert!(put.is_finished(), "dw {dw}");
        world.run(put).unwrap().unwrap();
    }
}

#[test]
fn a_sync_that_fails_is_no_acknowledgement() {
    for (kind, setup) in [
        (ErrorKind::Failed, late()),
        (ErrorKind::Full, late()),
        (ErrorKind::Failed, late_colocated()),
    ] {
        let is_alone = !setup.colocated;
        let world = World::new(&setup);
        let put = start_put(&world, "k", PutOptions::default());
        world.syncs.fail(kind);
        let failed = world.run(put).unwrap().unwrap_err();
        match (is_alone, kind) {
            (true, ErrorKind::Full) => assert!(matches!(failed, RequestError::DiskFull(_))),
            (true, _) => assert!(matches!(failed, RequestError::Storage(_))),
            (false, _) => {
                let (wanted, got) = (2, 0);
                assert_eq!(
                    failed,
                    RequestError::DurableWritesUnsatisfied { wanted, got }
                );
            }
        }
    }
}

#[test]
fn a_put_that_waits_in_vain_ends_at_its_timeout() {
    let world = World::new(&late_colocated());
    let options = PutOptions {
        timeout: Some(Duration::from_millis(250)),
        ..PutOptions::default()
    };
    let began = world.runtime.now();
    let put = request("a", &Clock::new(), Condition::Always);
    let outcome = world.try_put("k", put.clone(), &options);
    assert_eq!(outcome, Err(RequestError::Timeout));
    let took = world.runtime.now().since(began);
    assert!((250..260).contains(&took.as_millis()), "{took:?}");
    // The write may have been applied, and here it was.
    assert!(world.get("k").is_some());

    let began = world.runtime.now();
    let outcome = world.try_put("k", put, &PutOptions::default());
    assert_eq!(outcome, Err(RequestError::Timeout));
    assert_eq!(world.runtime.now().since(began).as_secs(), 60);
}

#[test]
fn a_request_that_is_late_already_does_nothing() {
    let world = World::new(&Setup::default());
    let arrived = world.runtime.now();
    world.run(world.runtime.sleep(Duration::from_secs(61)));
    let put = request("a", &Clock::new(), Condition::Always);
    let options = PutOptions::default();
    let address = address("k");
    let outcome = world.run(world.coordinator.put(&address, put, &options, arrived));
    assert_eq!(outcome, Err(RequestError::Timeout));
    assert_eq!(world.get("k"), None);
    assert_eq!(
        world.meter.finished.lock()[0],
        (RequestKind::Put, Some(RequestError::Timeout))
    );
}

#[test]
fn r36_too_many_requests_are_refused_until_one_ends() {
    let world = World::new(&Setup {
        requests_max: 2,
        ..late()
    });
    let puts = [start_put(&world, "k", PutOptions::default()), {
        start_put(&world, "l", PutOptions::default())
    }];
    assert_eq!(world.coordinator.requests_in_progress(), 2);
    let refused = world.try_get("k", &GetOptions::default());
    assert_eq!(refused, Err(RequestError::Overload));
    let refused = (RequestKind::Get, Some(RequestError::Overload));
    assert_eq!(*world.meter.finished.lock(), [refused]);
    world.syncs.release(2);
    for put in puts {
        world.run(put).unwrap().unwrap();
    }
    assert_eq!(world.coordinator.requests_in_progress(), 0);
    assert!(world.get("k").is_some());
}

#[test]
fn a_client_that_leaves_takes_its_request_along() {
    let world = World::new(&Setup {
        requests_max: 1,
        ..late()
    });
    let put = start_put(&world, "k", PutOptions::default());
    put.abort();
    let _aborted = world.run(put);
    assert_eq!(world.coordinator.requests_in_progress(), 0);
    assert!(world.get("k").is_some());
}

#[test]
fn writes_are_held_back_as_far_as_background_work_asks_for_and_reads_are_not() {
    for (delay_us, writes, expected_ms) in [(20_000, 10, 200..=210), (300, 1_000, 200..=400)] {
        let world = World::new(&Setup {
            put_delay: Duration::from_micros(delay_us),
            ..Setup::default()
        });
        let begun = world.runtime.now();
        for _ in 0..writes {
            world.put("k", "v", &Clock::new());
        }
        let took = world.runtime.now().since(begun).as_millis();
        assert!(
            expected_ms.contains(&took),
            "{writes} of {delay_us} us: {took} ms"
        );
        let begun = world.runtime.now();
        assert!(world.get("k").is_some());
        assert_eq!(world.runtime.now(), begun);
    }
}

#[test]
fn no_request_is_held_back_beyond_its_own_timeout() {
    let world = World::new(&Setup {
        put_delay: Duration::from_secs(3_600),
        ..Setup::default()
    });
    let options = PutOptions {
        timeout: Some(Duration::from_millis(5)),
        ..PutOptions::default()
    };
    let put = start_put(&world, "k", options);
    assert!(put.is_finished());
}

#[test]
fn without_room_puts_are_refused_at_once_and_deletions_are_not() {
    let world = World::new(&Setup {
        is_full: true,
        ..Setup::default()
    });
    let refused = world.put_if("k", "v", Condition::Always);
    assert_eq!(refused.map(|_| ()), Err(RequestError::Overload));
    assert_eq!(world.coordinator.requests_in_progress(), 0);
    world.delete("k");
    assert!(world.get("k").is_none());
}
