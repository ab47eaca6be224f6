//! Waits of transfers under the arbiter, on the test's own clock.

use kvorum_arbiter::{Budgets, Event, Latency, Looked};
use kvorum_runtime::Executor;

use super::*;

const PAGE: u64 = 1 << 20;
const MB: u64 = 1_000_000;

struct Bench {
    executor: Executor,
    budget: TransferBudget,
}

impl Bench {
    fn new(budgets: Budgets) -> Self {
        let executor = Runtime::simulated(1).unwrap();
        let budget = TransferBudget {
            runtime: executor.runtime(),
            arbiter: Arc::new(Mutex::new(Arbiter::new(budgets))),
        };
        let bench = Self { executor, budget };
        // A clock starts without saved credit.
        bench.sleep(Duration::from_secs(1));
        bench
    }

    fn sleep(&self, wait: Duration) {
        let runtime = self.budget.runtime.clone();
        self.executor.block_on(async { runtime.sleep(wait).await });
    }

    /// Sends pages like a transfer for this many seconds; returns their bytes.
    fn send_for(&self, seconds: u64) -> u64 {
        let until = self.budget.runtime.now().plus(Duration::from_secs(seconds));
        let mut sent = 0;
        while self.budget.runtime.now() < until {
            let wait = self.budget.ask(PAGE);
            assert!(wait <= WAIT_MAX, "{wait:?}");
            if wait.is_zero() {
                sent += PAGE;
            }
            self.sleep(wait.max(Duration::from_millis(1)));
        }
        sent
    }

    /// The driver's figures of requests between two of its looks.
    fn look(&self, p99: Duration) {
        let reads = Latency {
            count: 1_000,
            mean: p99 / 4,
            p99,
        };
        let looked = Looked {
            reads,
            ..Looked::default()
        };
        let now = self.budget.runtime.now();
        self.budget.arbiter.lock().step(Event::Looked(looked), now);
    }

    fn look_for(&self, looks: usize, p99: Duration) {
        for _ in 0..looks {
            self.look(p99);
            // Transfers use their whole rate and would use more: only then does the share rise.
            let passes = |_: &u32| self.budget.ask(PAGE).is_zero();
            let _passed = (0..1_000).take_while(passes).count();
            self.sleep(Duration::from_millis(250));
        }
    }
}

#[test]
fn a_page_waits_while_the_budget_is_spent() {
    let bench = Bench::new(Budgets {
        io_bytes_per_second_max: Some(5 * MB),
        ..Budgets::default()
    });
    assert_eq!(bench.budget.ask(10 * MB), Duration::ZERO);
    // Two seconds in all: the next query comes earlier, since the arbiter's rate may have risen.
    assert_eq!(bench.budget.ask(PAGE), WAIT_MAX);
    bench.sleep(Duration::from_millis(1_500));
    assert_eq!(bench.budget.ask(PAGE), WAIT_MAX);
    bench.sleep(Duration::from_millis(600));
    assert_eq!(bench.budget.ask(PAGE), Duration::ZERO);
    bench.sleep(Duration::from_secs(1));
    let sent = bench.send_for(20);
    assert!((98 * MB..103 * MB).contains(&sent), "{sent}");
}

#[test]
fn pages_wait_while_requests_suffer_and_pass_freely_when_they_do_not() {
    let bench = Bench::new(Budgets::default());
    let (quick, slow) = (Duration::from_millis(1), Duration::from_millis(50));
    bench.look(quick);
    let free = bench.send_for(1);
    assert!(free > 500 * PAGE, "{free}");
    bench.look_for(9, slow);
    let held = bench.send_for(10);
    // Even with slow requests, a node that is added to a busy cluster is filled in the end.
    assert!((39 * PAGE..45 * PAGE).contains(&held), "{held}");
    bench.look_for(200, quick);
    let free = bench.send_for(1);
    assert!(free > 500 * PAGE, "{free}");
}
