//! Memory and open files that run out: reduced caches, delayed writers, and refused puts.

use std::time::Duration;

use kvorum_arbiter::{
    Answer, Arbiter, Budgets, Decision, DiskRoom, Ended, Event, Looked, Order, Owner, SharedMemory,
    StepResult,
};
use kvorum_backend::{StepOutcome, Task, TaskKind, Urgency};
use kvorum_runtime::Moment;

const MEBIBYTE: u64 = 1 << 20;

struct Node {
    arbiter: Arbiter,
    now: Moment,
}

impl Node {
    fn new() -> Self {
        Self {
            arbiter: Arbiter::new(Budgets {
                memory_bytes_max: Some(1000 * MEBIBYTE),
                open_files_max: Some(1000),
                ..Budgets::default()
            }),
            now: Moment::default(),
        }
    }

    /// A look, an answer of a store with this much memory, and another look.
    fn hold(&mut self, stores_mebibytes: u64, open_files: u64) {
        for _ in 0..2 {
            self.now = self.now.plus(Duration::from_secs(1));
            let memory = SharedMemory {
                caches: 100 * MEBIBYTE,
                caches_max: 200 * MEBIBYTE,
                ..SharedMemory::default()
            };
            let looked = Looked {
                written: vec![(Owner::Store(0), self.now.since(Moment::default()).as_secs())],
                open_files: Some(open_files),
                memory,
                ..Looked::default()
            };
            self.arbiter.step(Event::Looked(looked), self.now);
            let answer = Answer {
                memory_bytes: stores_mebibytes * MEBIBYTE,
                ..Answer::default()
            };
            let owner = Owner::Store(0);
            self.arbiter
                .step(Event::Answered { owner, answer }, self.now);
        }
    }
}

#[test]
fn memory_is_counted_whole() {
    let mut node = Node::new();
    node.hold(500, 5);
    let report = node.arbiter.report(node.now);
    assert_eq!(report.memory_bytes, 600 * MEBIBYTE);
    assert_eq!(report.memory.caches, 100 * MEBIBYTE);
}

#[test]
fn caches_shrink_then_puts_wait_then_they_are_refused_until_there_is_room() {
    let mut node = Node::new();
    node.hold(700, 5);
    assert_eq!(node.arbiter.memory_orders().caches_max, 200 * MEBIBYTE);
    node.hold(880, 5);
    assert_eq!(node.arbiter.memory_orders().caches_max, 120 * MEBIBYTE);
    assert!(node.arbiter.put_delay().is_zero() && !node.arbiter.refuses_puts());
    node.hold(970, 5);
    assert!(!node.arbiter.put_delay().is_zero() && !node.arbiter.refuses_puts());
    node.hold(1100, 5);
    assert!(node.arbiter.refuses_puts());
    assert!(node.arbiter.report(node.now).refuses_puts);
    node.hold(980, 5);
    assert!(node.arbiter.refuses_puts(), "not at once");
    node.hold(900, 5);
    assert!(!node.arbiter.refuses_puts());
    assert_eq!(node.arbiter.memory_orders().caches_max, 100 * MEBIBYTE);
}

#[test]
fn puts_are_refused_while_what_merges_need_is_all_that_is_left_of_the_files() {
    let mut node = Node::new();
    node.hold(1, 970);
    assert!(!node.arbiter.refuses_puts());
    node.hold(1, 985);
    assert!(node.arbiter.refuses_puts());
    node.hold(1, 970);
    assert!(!node.arbiter.refuses_puts());
}

/// Two stores with merges to do, on a disk with this much free space and a reserve of one mebibyte.
struct Merging {
    arbiter: Arbiter,
    now: Moment,
    available: u64,
}

impl Merging {
    fn new(available: u64) -> Self {
        Self {
            arbiter: Arbiter::new(Budgets::default()),
            now: Moment::default(),
            available,
        }
    }

    fn next(&mut self) -> Order {
        loop {
            match self.arbiter.decide(self.now) {
                Decision::Look => {
                    let looked = Looked {
                        written: [0, 1].map(|store| (Owner::Store(store), 1)).into(),
                        disk: Some(DiskRoom {
                            available_bytes: self.available,
                            reserve_bytes: MEBIBYTE,
                        }),
                        ..Looked::default()
                    };
                    self.arbiter.step(Event::Looked(looked), self.now);
                }
                Decision::Ask(owner) => {
                    let answer = Answer {
                        tasks: vec![Task {
                            kind: TaskKind::Merge,
                            subject: 7,
                            urgency: Urgency::Normal,
                            cost_bytes: 1000 * MEBIBYTE,
                        }],
                        ..Answer::default()
                    };
                    self.arbiter
                        .step(Event::Answered { owner, answer }, self.now);
                }
                Decision::Step(order) => return order,
                Decision::Syncs(_) => unreachable!("nothing is to be synced"),
                Decision::Rest(rest) => self.now = self.now.plus(rest),
            }
        }
    }

    fn end(&mut self, order: Order, result: StepResult) {
        let took = Duration::from_millis(1);
        self.now = self.now.plus(took);
        let cpu = Duration::ZERO;
        let ended = Ended { result, took, cpu };
        self.arbiter.step(Event::Ended { order, ended }, self.now);
    }

    /// The owners of the steps in this many turns. No step ends a merge.
    fn owners(&mut self, turns: usize) -> Vec<Owner> {
        let mut owners = Vec::new();
        for _ in 0..turns {
            let order = self.next();
            owners.push(order.owner);
            let outcome = StepOutcome {
                cost_bytes: order.budget.bytes,
                is_done: false,
            };
            self.end(order, StepResult::Done(outcome));
        }
        owners.dedup();
        owners
    }
}

/// Regression: each of 16 stores had begun a merge, and none could end one: together their copies
/// took the whole reserve, which is enough for one.
#[test]
fn where_space_is_scarce_one_merge_is_done_after_the_other() {
    assert!(Merging::new(1002 * MEBIBYTE).owners(20).len() > 5);
    let mut scarce = Merging::new(MEBIBYTE);
    let first = scarce.owners(20);
    assert_eq!(first.len(), 1);
    assert!(scarce.arbiter.is_disk_scarce());
    let order = scarce.next();
    assert!(scarce.arbiter.report(scarce.now).pressing_bytes > 0);
    let outcome = StepOutcome {
        cost_bytes: 1,
        is_done: true,
    };
    scarce.end(order, StepResult::Done(outcome));
    assert_ne!(scarce.owners(20), first);
}

/// Regression: stores began merges at the same time, when there was room for each alone, and the
/// space ran out halfway.
#[test]
fn a_merge_begins_when_there_is_room_for_it_beside_those_that_were_begun() {
    // Each writes 500 MiB.
    let mut merging = Merging::new(1000 * MEBIBYTE);
    let first = merging.owners(20);
    assert_eq!(first.len(), 1);
    assert!(!merging.arbiter.is_disk_scarce());
    let order = merging.next();
    let outcome = StepOutcome {
        cost_bytes: 1,
        is_done: true,
    };
    merging.end(order, StepResult::Done(outcome));
    assert_ne!(merging.owners(20), first);
}

#[test]
fn a_merge_that_has_no_space_does_not_keep_others_from_theirs_and_goes_on_when_there_is_some() {
    let mut merging = Merging::new(MEBIBYTE);
    let first = merging.owners(3);
    let order = merging.next();
    merging.end(order, StepResult::NoSpace);
    assert_ne!(merging.next().owner, first[0]);
    let report = merging.arbiter.report(merging.now);
    assert!(report.due.iter().any(|it| it.held_for.is_some()));
    merging.available = 1002 * MEBIBYTE;
    merging.now = merging.now.plus(Duration::from_millis(300));
    merging.next();
    let report = merging.arbiter.report(merging.now);
    assert!(report.due.iter().all(|it| it.held_for.is_none()));
}
