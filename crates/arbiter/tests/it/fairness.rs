//! Stores are served alike, urgent work comes first, and no owner starves.

use std::collections::BTreeMap;
use std::time::Duration;

use kvorum_arbiter::{Answer, Arbiter, Budgets, Decision, Ended, Event, Looked, Owner, StepResult};
use kvorum_backend::{StepOutcome, Task, TaskKind, Urgency};
use kvorum_runtime::Moment;
use proptest::prelude::*;

use crate::world::{Settings, World};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn stores_with_endless_backlogs_are_served_the_same_bytes() {
    let mut world = World::new(Settings {
        overshoot: 3.0,
        pressing_bytes: u64::MAX,
        ..Settings::default()
    });
    for store in 0..64 {
        world.add_backlog(store, TaskKind::Merge, Urgency::Normal, 1 << 40);
    }
    world.run(SECOND * 20);
    let served = world.stores.iter().map(|it| it.served);
    let (least, most) = (served.clone().min().unwrap(), served.max().unwrap());
    assert!(most < least + least / 5, "{least} to {most}");
}

#[test]
fn a_store_with_a_small_backlog_does_not_wait_behind_one_with_a_large_one() {
    let mut world = World::new(Settings {
        pressing_bytes: u64::MAX,
        ..Settings::default()
    });
    world.add_backlog(0, TaskKind::Merge, Urgency::Normal, 1 << 40);
    world.run(SECOND * 20);
    world.add_backlog(1, TaskKind::Merge, Urgency::Normal, 4 << 20);
    // Queried within ten seconds, and then at every other turn.
    world.run(SECOND * 11);
    assert_eq!(world.stores[1].backlog_bytes(), 0);
    assert!(world.stores[0].backlog_bytes() > 0);
}

#[test]
fn what_presses_goes_before_what_does_not() {
    let mut world = World::new(Settings::default());
    world.add_backlog(0, TaskKind::Scrub, Urgency::Normal, 4_000_000_000);
    world.add_backlog(1, TaskKind::Merge, Urgency::Normal, 4_000_000_000);
    world.add_backlog(2, TaskKind::Merge, Urgency::Pressing, 1_000_000_000);
    world.add_backlog(3, TaskKind::Flush, Urgency::Pressing, 100_000_000);
    let finished = |world: &mut World, store: usize| {
        while world.stores[store].backlog_bytes() > 0 {
            world.run(SECOND / 20);
        }
        world.now
    };
    let flush = finished(&mut world, 3);
    let pressing = finished(&mut world, 2);
    let merge = finished(&mut world, 1);
    let scrub = finished(&mut world, 0);
    assert!(flush < pressing && pressing < merge && merge < scrub);
}

#[test]
fn a_scrub_goes_on_below_merges_without_end() {
    let mut world = World::new(Settings {
        pressing_bytes: u64::MAX,
        ..Settings::default()
    });
    for store in 0..63 {
        world.add_backlog(store, TaskKind::Merge, Urgency::Normal, 1 << 40);
    }
    world.add_backlog(63, TaskKind::Scrub, Urgency::Idle, 1 << 40);
    world.run(SECOND * 30);
    let all: u64 = world.stores.iter().map(|it| it.served).sum();
    let scrubbed = world.stores[63].served;
    assert!(
        scrubbed > all / 20 && scrubbed < all / 14,
        "{scrubbed} of {all}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 8,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// With any backlog of all owners, and any new work: each store is served again and again.
    #[test]
    fn no_store_starves(
        seed in any::<u64>(),
        backlogs in prop::collection::vec((0..7usize, 0..3usize), 64),
        is_slow in any::<bool>(),
    ) {
        const KINDS: [TaskKind; 7] = [
            TaskKind::Merge, TaskKind::Compact, TaskKind::Flush, TaskKind::Hint,
            TaskKind::Checkpoint, TaskKind::Expire, TaskKind::Scrub,
        ];
        const URGENCIES: [Urgency; 3] = [Urgency::Idle, Urgency::Normal, Urgency::Pressing];
        let mut world = World::new(Settings {
            bytes_per_second: if is_slow { 40e6 } else { 400e6 },
            pressing_bytes: u64::MAX,
            seed,
            budgets: Budgets {
                step_time: Duration::from_millis(10),
                ..Budgets::default()
            },
            ..Settings::default()
        });
        for (store, (kind, urgency)) in backlogs.iter().enumerate() {
            world.add_backlog(store, KINDS[*kind], URGENCIES[*urgency], 1 << 40);
        }
        world.run(SECOND * 10);
        for _ in 0..2 {
            let before: Vec<u64> = world.stores.iter().map(|it| it.served).collect();
            world.run(SECOND * 20);
            for (store, before) in world.stores.iter().zip(before) {
                prop_assert!(store.served > before, "{store:?}");
            }
        }
    }
}

#[test]
fn steps_last_as_long_as_they_should() {
    for bytes_per_second in [60e6, 400e6, 2e9] {
        let mut world = World::new(Settings {
            bytes_per_second,
            overshoot: 0.0,
            pressing_bytes: u64::MAX,
            budgets: Budgets {
                step_time: Duration::from_millis(3),
                ..Budgets::default()
            },
            ..Settings::default()
        });
        world.add_backlog(0, TaskKind::Merge, Urgency::Normal, 1 << 40);
        world.run(SECOND * 5);
        let late = &world.steps[world.steps.len() - 100..];
        for (_, _, took) in late {
            let millis = took.as_secs_f64() * 1e3;
            assert!(
                (2.7..3.3).contains(&millis),
                "{millis} ms at {bytes_per_second}"
            );
        }
    }
}

fn backlog_of(kind: TaskKind, cost_bytes: u64) -> Answer {
    let task = Task {
        kind,
        subject: 1,
        urgency: Urgency::Normal,
        cost_bytes,
    };
    Answer {
        tasks: (cost_bytes > 0).then_some(task).into_iter().collect(),
        backlog_bytes: cost_bytes,
        ..Answer::default()
    }
}

/// Collected entries of the log are copied to stores, which then have endless merges. The log's
/// backlog comes from the puts to all stores, so it goes before theirs, except for a quarter of the
/// bytes and the turns of the longest waiting.
#[test]
fn the_log_does_not_wait_for_the_turns_of_all_stores() {
    const LOG_BYTES: u64 = 64 << 20;
    let mut arbiter = Arbiter::new(Budgets::default());
    let now = Moment::from_start(Duration::from_secs(1));
    let stores = (0..8).map(Owner::Store);
    let owners: Vec<Owner> = stores.chain([Owner::ValueLog]).collect();
    let written = owners.iter().map(|owner| (*owner, 0)).collect();
    let looked = Looked {
        written,
        ..Looked::default()
    };
    arbiter.step(Event::Looked(looked), now);
    let mut served: BTreeMap<Owner, u64> = owners.iter().map(|owner| (*owner, 0)).collect();
    let backlog = |owner: Owner, served: u64| match owner {
        Owner::ValueLog => backlog_of(TaskKind::Collect, LOG_BYTES.saturating_sub(served)),
        Owner::Store(_) => backlog_of(TaskKind::Merge, 1 << 30),
    };
    let mut by_stores_meanwhile = None;
    for _ in 0..2000 {
        let order = match arbiter.decide(now) {
            Decision::Step(order) => order,
            Decision::Ask(owner) => {
                let answer = backlog(owner, served[&owner]);
                arbiter.step(Event::Answered { owner, answer }, now);
                continue;
            }
            other => unreachable!("nothing is held back: {other:?}"),
        };
        let owner = order.owner;
        *served.entry(owner).or_default() += order.declared_bytes;
        let is_done = owner == Owner::ValueLog && served[&owner] >= LOG_BYTES;
        if is_done {
            by_stores_meanwhile = Some(by_store(&served).sum::<u64>());
        }
        let outcome = StepOutcome {
            cost_bytes: order.declared_bytes,
            is_done,
        };
        let ended = Ended {
            result: StepResult::Done(outcome),
            took: Duration::ZERO,
            cpu: Duration::ZERO,
        };
        arbiter.step(Event::Ended { order, ended }, now);
    }
    let by_stores = by_stores_meanwhile.expect("the log is done");
    let expected = LOG_BYTES / 4..LOG_BYTES / 2;
    assert!(expected.contains(&by_stores), "{by_stores}");
    let (least, most) = (by_store(&served).min(), by_store(&served).max());
    let most_allowed = least.map(|least| least + (2 << 20));
    assert!(most <= most_allowed, "{served:?}");
}

fn by_store(served: &BTreeMap<Owner, u64>) -> impl Iterator<Item = u64> {
    let stores = served
        .iter()
        .filter(|(owner, _)| **owner != Owner::ValueLog);
    stores.map(|(_, bytes)| *bytes)
}

/// The kind of the first step if this share of the budget of open files is used.
fn first_step(used_percent: u64) -> TaskKind {
    let mut arbiter = Arbiter::new(Budgets {
        open_files_max: Some(1000),
        ..Budgets::default()
    });
    let now = Moment::from_start(Duration::from_secs(1));
    let looked = || {
        Event::Looked(Looked {
            written: vec![(Owner::Store(0), 0)],
            open_files: Some(used_percent * 10),
            ..Looked::default()
        })
    };
    arbiter.step(looked(), now);
    let task = |kind, urgency| Task {
        kind,
        subject: 1,
        urgency,
        cost_bytes: 1 << 20,
    };
    let answer = Answer {
        tasks: vec![
            task(TaskKind::Hint, Urgency::Normal),
            task(TaskKind::Merge, Urgency::Idle),
        ],
        ..Answer::default()
    };
    let owner = Owner::Store(0);
    arbiter.step(Event::Answered { owner, answer }, now);
    assert_eq!(arbiter.is_scarce(), (false, used_percent >= 90));
    match arbiter.decide(now) {
        Decision::Step(order) => order.task.kind,
        other => unreachable!("{other:?}"),
    }
}

#[test]
fn with_few_files_left_to_open_merges_come_first() {
    assert_eq!(first_step(50), TaskKind::Hint);
    assert_eq!(first_step(95), TaskKind::Merge);
}
