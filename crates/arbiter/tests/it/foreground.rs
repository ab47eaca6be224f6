//! Slowed requests reduce the work above the need, and no more.

use std::time::Duration;

use kvorum_arbiter::Budgets;
use kvorum_backend::{TaskKind, Urgency};

use crate::world::{Settings, World};

const SECOND: Duration = Duration::from_secs(1);

/// A large old backlog, and requests that it slows.
fn world_with_old_backlog() -> World {
    let mut world = World::new(Settings {
        pressing_bytes: u64::MAX,
        latency: Duration::from_millis(1),
        budgets: Budgets {
            step_time: Duration::from_millis(10),
            ..Budgets::default()
        },
        ..Settings::default()
    });
    world.put_evenly(30e6);
    world.run(SECOND * 60);
    for store in 0..64 {
        world.add_backlog(store, TaskKind::Merge, Urgency::Normal, 1_000_000_000);
    }
    world.run(SECOND * 15);
    world
}

#[test]
fn what_the_backlog_needs_runs_however_slow_requests_are() {
    let mut world = world_with_old_backlog();
    let before = world.background_total;
    world.run(SECOND * 60);
    let rate = (world.background_total - before) / 60.0;
    let needed = world.arbiter.report(world.now).needed_rate;
    // 90 MB/s of new work arise, and 64 GB of backlog must be done within a quarter of an hour.
    assert!(rate > 130e6, "{rate}");
    assert!(rate > needed as f64 * 0.95, "{rate} of {needed}");
}

#[test]
fn above_the_need_upkeep_gives_way_to_requests() {
    let mut world = world_with_old_backlog();
    world.latencies.clear();
    world.run(SECOND * 60);
    world.latencies.sort();
    let slow = world.latencies[world.latencies.len() * 9 / 10];
    // Without a limit, upkeep would use the whole device, and requests would take a hundred times
    // as long.
    assert!(slow < Duration::from_millis(10), "{slow:?}");
    let median = world.latencies[world.latencies.len() / 2];
    assert!(median < Duration::from_millis(5), "{median:?}");
}

/// One byte in sixteen is for the owner that has waited longest: the others must not wait for it.
#[test]
fn what_presses_does_not_wait_for_the_turn_of_what_is_held_back() {
    let mut world = World::new(Settings {
        latency: Duration::from_millis(1),
        ..Settings::default()
    });
    world.put_evenly(1e6);
    world.run(SECOND * 10);
    for store in 0..64 {
        world.add_backlog(store, TaskKind::Merge, Urgency::Normal, 100_000_000);
    }
    for store in 0..4 {
        world.add_backlog(store, TaskKind::Compact, Urgency::Pressing, 2_000_000_000);
    }
    world.run(SECOND * 5);
    let left = |world: &World| -> u64 {
        let stores = world.stores[..4].iter();
        stores.map(|store| store.backlog[&TaskKind::Compact]).sum()
    };
    let before = left(&world);
    world.run(SECOND * 10);
    let rate = (before - left(&world)) as f64 / 10.0;
    assert!(rate > 250e6, "{rate}");
}

#[test]
fn without_requests_upkeep_takes_the_whole_device() {
    let mut world = world_with_old_backlog();
    world.put_evenly(0.0);
    world.run(SECOND * 5);
    let before = world.background_total;
    world.run(SECOND * 10);
    let rate = (world.background_total - before) / 10.0;
    assert!(rate > 350e6, "{rate}");
}

#[test]
fn an_idle_node_is_left_alone() {
    let mut world = World::new(Settings {
        stores: 256,
        ..Settings::default()
    });
    world.run(SECOND * 5);
    let (decisions, asks, looks) = (world.decisions, world.asks, world.looks);
    world.run(SECOND * 100);
    // Two looks a second, and a query of each store every ten seconds.
    assert!(world.looks - looks <= 201, "{}", world.looks - looks);
    assert!(world.asks - asks <= 256 * 11, "{}", world.asks - asks);
    assert!(world.decisions - decisions <= 256 * 11 + 201 * 3 + 100);
}

#[test]
fn a_store_that_is_written_to_is_asked_once_a_second_and_others_are_not() {
    let mut world = World::new(Settings::default());
    world.run(SECOND);
    world.ingest[5] = 1e6;
    let before: Vec<u64> = world.stores.iter().map(|it| it.asked).collect();
    world.run(SECOND * 60);
    assert!((45..=75).contains(&(world.stores[5].asked - before[5])));
    assert!(world.stores[6].asked - before[6] <= 7);
}
