//! Memory and open files that run out: who gives way, who is held back, and who is refused.

use std::time::Duration;

use kvorum_arbiter::{Arbiter, Budgets, Event, Looked, Owner, SharedMemory, Told};
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

    /// A look, a store that says so much, and another look.
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
            let told = Told {
                memory_bytes: stores_mebibytes * MEBIBYTE,
                ..Told::default()
            };
            let owner = Owner::Store(0);
            self.arbiter.step(Event::Told { owner, told }, self.now);
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
