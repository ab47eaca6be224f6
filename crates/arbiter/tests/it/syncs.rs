//! Syncs of many stores are done in few rounds.

use std::time::Duration;

use kvorum_arbiter::{
    Answer, Arbiter, Budgets, Decision, Ended, Event, Looked, Order, Owner, StepResult,
};
use kvorum_backend::{StepOutcome, Task, TaskKind, Urgency};
use kvorum_runtime::Moment;

use crate::world::{Settings, World};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn stores_that_want_a_sync_at_the_same_time_share_rounds() {
    let mut world = World::new(Settings::default());
    world.run(SECOND);
    for store in &mut world.stores {
        store.wants_sync = true;
    }
    world.run(SECOND * 11);
    assert!(world.stores.iter().all(|store| store.synced == 1));
    assert_eq!(world.rounds.iter().sum::<usize>(), 64);
    assert!(world.rounds.len() <= 5, "{:?}", world.rounds);
}

/// An arbiter of a value log and stores, all with puts.
struct LogWorld {
    arbiter: Arbiter,
    now: Moment,
    urgency: Urgency,
    stores: u16,
    /// All of them have puts between any two looks.
    writes_go_on: bool,
    looks: u64,
}

impl LogWorld {
    fn new(urgency: Urgency) -> Self {
        Self {
            arbiter: Arbiter::new(Budgets::default()),
            now: Moment::default(),
            urgency,
            stores: 4,
            writes_go_on: false,
            looks: 0,
        }
    }

    /// Continues until a sync is due, with a log that always has a segment to free.
    fn next_sync(&mut self) -> Decision {
        loop {
            match self.arbiter.decide(self.now) {
                Decision::Look => {
                    self.looks += 1;
                    let written = if self.writes_go_on { self.looks } else { 5 };
                    let stores = (0..self.stores).map(|store| (Owner::Store(store), written));
                    let looked = Looked {
                        written: stores.chain([(Owner::ValueLog, 9)]).collect(),
                        ..Looked::default()
                    };
                    self.arbiter.step(Event::Looked(looked), self.now);
                }
                Decision::Ask(owner) => {
                    let task = Task {
                        kind: TaskKind::Sync,
                        subject: 0,
                        urgency: self.urgency,
                        cost_bytes: 0,
                    };
                    let is_log = owner == Owner::ValueLog;
                    let answer = Answer {
                        tasks: is_log.then_some(task).into_iter().collect(),
                        ..Answer::default()
                    };
                    self.arbiter
                        .step(Event::Answered { owner, answer }, self.now);
                }
                Decision::Rest(rest) => self.now = self.now.plus(rest),
                syncs => return syncs,
            }
        }
    }

    fn end(&mut self, order: Order, cost_bytes: u64, took: Duration) {
        self.now = self.now.plus(took);
        let outcome = StepOutcome {
            cost_bytes,
            is_done: false,
        };
        let ended = Ended {
            result: StepResult::Done(outcome),
            took,
            cpu: Duration::ZERO,
        };
        self.arbiter.step(Event::Ended { order, ended }, self.now);
    }

    fn log_step(&mut self) -> Order {
        match self.next_sync() {
            Decision::Step(order) if order.owner == Owner::ValueLog => order,
            other => unreachable!("{other:?} in place of a step of the log"),
        }
    }
}

/// Each step of the log is for one store, or frees a file.
#[test]
fn a_log_that_is_cut_short_in_time_has_no_store_synced_that_it_does_not_name() {
    let mut world = LogWorld::new(Urgency::Normal);
    for (cost_bytes, rest_millis) in [(0, 0), (1 << 20, 20), (1 << 20, 20), (0, 0), (0, 0)] {
        let order = world.log_step();
        world.end(order, cost_bytes, Duration::from_millis(20));
        let ended = world.now;
        let order = world.log_step();
        // After a sync, the device rests for as long as the sync took.
        let rest = Duration::from_millis(rest_millis);
        assert_eq!(world.now.since(ended), rest);
        world.end(order, 0, Duration::from_millis(1));
    }
}

#[test]
fn a_log_that_presses_has_all_stores_synced_in_one_round_and_waits_for_nothing() {
    let mut world = LogWorld::new(Urgency::Pressing);
    // Making a spare segment costs nothing; cutting does.
    let order = world.log_step();
    world.end(order, 0, Duration::from_millis(1));
    let order = world.log_step();
    world.end(order, 1 << 20, Duration::from_millis(20));
    let ended = world.now;
    let Decision::Syncs(round) = world.next_sync() else {
        panic!("stores are to be synced");
    };
    assert_eq!(world.now, ended);
    let owners: Vec<Owner> = round.iter().map(|order| order.owner).collect();
    assert_eq!(owners, (0..4).map(Owner::Store).collect::<Vec<_>>());
    for order in round {
        world.end(order, 0, Duration::from_millis(2));
    }
    // There were no puts since, so the log continues without another round.
    let order = world.log_step();
    world.end(order, 1 << 20, Duration::from_millis(1));
    world.log_step();
}

/// Rounds that take longer than the time between puts to the stores.
#[test]
fn a_log_that_presses_gets_on_however_much_is_written_meanwhile() {
    let mut world = LogWorld::new(Urgency::Pressing);
    (world.stores, world.writes_go_on) = (64, true);
    let (mut synced, mut log_steps) = (vec![0; 64], 0);
    while world.now < Moment::from_start(SECOND * 60) {
        match world.next_sync() {
            Decision::Syncs(round) => {
                for order in round {
                    let Owner::Store(store) = order.owner else {
                        panic!("{order:?} in a round of stores");
                    };
                    synced[usize::from(store)] += 1;
                    world.end(order, 0, Duration::from_millis(100));
                }
            }
            Decision::Step(order) => {
                log_steps += 1;
                world.end(order, 1 << 20, Duration::from_millis(100));
            }
            other => panic!("{other:?}"),
        }
    }
    // 65 of them take six and a half seconds.
    assert!(synced.iter().all(|count| *count >= 8), "{synced:?}");
    assert!(log_steps >= 9, "{log_steps}");
}
