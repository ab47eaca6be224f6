//! Time, randomness, tasks, the blocking pool and threads.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kvorum_runtime::{
    Executor, Moment, ProductionOptions, Runtime, RuntimeError, TaskError, TimedOut,
};

pub(crate) fn each_runtime() -> [Executor; 2] {
    let options = ProductionOptions {
        workers: 2.try_into().ok(),
        ..ProductionOptions::default()
    };
    [
        Runtime::production(&options).unwrap(),
        Runtime::simulated(7).unwrap(),
    ]
}

#[test]
fn simulated_time_passes_without_waiting() {
    let executor = Runtime::simulated(1).unwrap();
    let runtime = executor.runtime();
    let really = Instant::now();
    let (start, wall_start) = (runtime.now(), runtime.wall_time());
    executor.block_on(async {
        runtime.sleep(Duration::from_secs(3600)).await;
        assert_eq!(runtime.now().since(start), Duration::from_secs(3600));
        runtime
            .sleep_until(Moment::from_start(Duration::from_secs(7200)))
            .await;
        let never = runtime.timeout(Duration::from_secs(60), std::future::pending::<()>());
        assert_eq!(never.await, Err(TimedOut));
    });
    assert_eq!(runtime.now().since(start), Duration::from_secs(7260));
    assert_eq!(
        runtime.wall_time().since(wall_start),
        Duration::from_secs(7260)
    );
    assert!(really.elapsed() < Duration::from_secs(3600));
}

#[test]
fn simulated_time_stands_still_while_nobody_waits() {
    let executor = Runtime::simulated(1).unwrap();
    let runtime = executor.runtime();
    let before = (runtime.now(), runtime.wall_time());
    assert_eq!(before.0, Moment::default());
    let really = Instant::now();
    while really.elapsed() < Duration::from_millis(1) {}
    assert_eq!((runtime.now(), runtime.wall_time()), before);
}

#[test]
fn one_seed_gives_one_course_of_events() {
    let course = |seed| {
        let executor = Runtime::simulated(seed).unwrap();
        let runtime = executor.runtime();
        let events = Arc::new(Mutex::new(Vec::new()));
        executor.block_on(async {
            let tasks: Vec<_> = (0..10)
                .map(|number| {
                    let (runtime, events) = (runtime.clone(), Arc::clone(&events));
                    runtime.clone().spawn("racer", async move {
                        for _ in 0..10 {
                            let wait = Duration::from_millis(runtime.random_u64() % 100);
                            runtime.sleep(wait).await;
                            runtime.blocking(|| ()).await;
                            events.lock().unwrap().push((number, runtime.now()));
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
        let events = events.lock().unwrap().clone();
        assert_eq!(events.len(), 100);
        events
    };
    assert_eq!(course(5), course(5));
    assert_ne!(course(5), course(6));
}

#[test]
fn the_clock_of_production_grows() {
    let [executor, _] = each_runtime();
    let runtime = executor.runtime();
    let before = runtime.now();
    executor.block_on(runtime.sleep_until(before.plus(Duration::from_millis(20))));
    assert!(runtime.now().since(before) >= Duration::from_millis(20));
    assert!(runtime.wall_time().seconds() > 1_700_000_000);
    executor.block_on(runtime.sleep_until(before));
}

#[test]
fn tasks_give_their_result_or_say_why_not() {
    for executor in each_runtime() {
        let runtime = executor.runtime();
        executor.block_on(async {
            assert_eq!(runtime.spawn("adder", async { 1 + 1 }).await, Ok(2));
            let stuck = runtime.spawn("stuck", std::future::pending::<()>());
            stuck.abort();
            assert_eq!(
                stuck.await,
                Err(TaskError::Aborted {
                    name: "stuck".to_owned()
                })
            );
            let panics = runtime.spawn("wrong", async { panic!("on purpose") });
            let expected = TaskError::Panicked {
                name: "wrong".to_owned(),
                message: "on purpose".to_owned(),
            };
            assert_eq!(panics.await, Err::<(), _>(expected));
        });
    }
}

#[test]
fn a_dropped_guard_ends_its_task() {
    for executor in each_runtime() {
        let runtime = executor.runtime();
        let held = Arc::new(());
        let inside = Arc::clone(&held);
        executor.block_on(async {
            let guard = runtime.spawn("holder", async move {
                std::future::pending::<()>().await;
                drop(inside);
            });
            drop(guard.abort_on_drop());
            while Arc::strong_count(&held) > 1 {
                runtime.yield_now().await;
            }
        });
    }
}

#[test]
fn blocking_work_returns_its_result_and_its_panics() {
    for executor in each_runtime() {
        let runtime = executor.runtime();
        let inner = runtime.clone();
        executor.block_on(async {
            assert_eq!(runtime.blocking(|| 42).await, 42);
            let task = runtime.spawn("caller", async move {
                inner.blocking(|| panic!("on purpose")).await;
            });
            assert!(matches!(
                task.await,
                Err::<(), _>(TaskError::Panicked { .. })
            ));
        });
    }
}

#[test]
fn threads_run_in_production_and_are_refused_in_a_simulation() {
    let [production, simulated] = each_runtime();
    let thread = production.runtime().thread("own", || 42).unwrap();
    assert_eq!(thread.join(), Ok(42));
    let refused = simulated.runtime().thread("own", || 42).unwrap_err();
    assert!(
        matches!(refused, RuntimeError::NoThreads { .. }),
        "{refused}"
    );
    production.shut_down(Duration::from_secs(1));
}

#[test]
fn nodes_on_one_machine_share_its_cores_and_none_is_without() {
    let of_each = |cores, nodes| ProductionOptions::workers_of_each(cores, nodes).get();
    assert_eq!([of_each(64, 5), of_each(15, 5), of_each(14, 5)], [12, 3, 2]);
    assert_eq!([of_each(2, 5), of_each(0, 5), of_each(8, 0)], [1, 1, 1]);
}
