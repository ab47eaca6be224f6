//! Failed tasks are held back for increasing times, without an effect on other owners.

use std::time::Duration;

use kvorum_backend::{TaskKind, Urgency};

use crate::world::{Settings, World};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_failing_task_is_tried_less_and_less_often_while_others_go_on() {
    let mut world = World::new(Settings::default());
    world.add_backlog(0, TaskKind::Merge, Urgency::Pressing, 1_000_000_000);
    world.add_backlog(1, TaskKind::Merge, Urgency::Normal, 1_000_000_000);
    world.stores[0].is_broken = true;
    world.run(SECOND * 60);
    // After 1, 2, 4, 8, 16 and 32 seconds.
    assert!(
        (5..=7).contains(&world.stores[0].steps),
        "{}",
        world.stores[0].steps
    );
    assert_eq!(world.stores[1].backlog_bytes(), 0);
    let report = world.arbiter.report(world.now);
    assert_eq!(report.all_steps().failures, world.stores[0].steps);
    assert!(report.due[0].held_for.is_some_and(|held| held > SECOND));
}

#[test]
fn it_is_done_once_it_can_be() {
    let mut world = World::new(Settings::default());
    world.add_backlog(0, TaskKind::Merge, Urgency::Normal, 1_000_000);
    world.stores[0].is_broken = true;
    world.run(SECOND * 20);
    world.stores[0].is_broken = false;
    world.run(SECOND * 20);
    assert_eq!(world.stores[0].backlog_bytes(), 0);
}
