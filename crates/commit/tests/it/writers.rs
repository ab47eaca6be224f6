//! Writers that block, writers that await, a driver that comes and goes: every ticket resolves, and
//! what was acknowledged is in the log.

use std::collections::BTreeMap;
use std::future::Future;
use std::num::NonZeroUsize;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use kvorum_backend::{Backend, Batch, Durability, Durable, ErrorKind, Fields, Write};
use kvorum_commit::{CommitLog, CommitLogSettings, Committed, recover};
use kvorum_disk::{Disk, MemoryDisk, RealDisk};
use kvorum_encoding::StorageKey;
use kvorum_runtime::{Executor, ProductionOptions, Runtime};
use parking_lot::Mutex;

use crate::history_engine::{HistoryEngine, Kept};

const SETTINGS: CommitLogSettings = CommitLogSettings {
    segment_bytes: 64 << 10,
    bytes_max: 256 << 10,
};

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        thread::park();
    }
}

fn batch(writer: usize, number: usize) -> Batch {
    let key = StorageKey::from_encoded(format!("{writer}/{number}").into_bytes());
    Batch::of(Write::put(
        key,
        Fields::default(),
        Bytes::new(),
        vec![7; 300].into(),
    ))
}

fn engines(count: u64) -> Vec<Arc<HistoryEngine>> {
    let kept = |identity| Kept {
        identity,
        batches: Vec::new(),
    };
    (0..count)
        .map(|identity| HistoryEngine::open(&kept(identity), &MemoryDisk::new()))
        .collect()
}

/// A driver, with a task that calls it or without.
fn start_driver<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    log: &CommitLog,
    is_called: bool,
) {
    let driver = log.clone();
    scope.spawn(move || driver.drive());
    if is_called {
        let caller = log.clone();
        scope.spawn(move || {
            let executor = executor();
            block_on(caller.call_driver(&executor.runtime()));
        });
    }
}

/// An executor with one thread for tasks.
#[expect(
    clippy::unwrap_used,
    reason = "a failed step of a test is a failed test"
)]
fn executor() -> Executor {
    let options = ProductionOptions {
        workers: Some(NonZeroUsize::MIN),
        ..ProductionOptions::default()
    };
    Runtime::production(&options).unwrap()
}

#[test]
fn what_the_tasks_that_are_ready_write_is_one_group() {
    const ROUNDS: usize = 50;
    let log =
        CommitLog::create(Arc::new(MemoryDisk::new()), Path::new("log"), 1, SETTINGS).unwrap();
    let store = Arc::new(Committed::new(
        engines(1).remove(0),
        log.clone(),
        Durability::Grouped,
    ));
    thread::scope(|scope| {
        let driver = log.clone();
        scope.spawn(move || driver.drive());
        // Tasks await their tickets, which needs a driver that has begun.
        let first = store.put(&batch(0, 0), Durability::Grouped).unwrap();
        let Durable::After(first) = first.durable else {
            panic!()
        };
        while !first.is_driven() {
            thread::yield_now();
        }
        let executor = executor();
        let (runtime, caller) = (executor.runtime(), log.clone());
        let calling = runtime.clone();
        runtime.spawn("caller", async move { caller.call_driver(&calling).await });
        let writers = runtime.clone();
        // On the thread of the tasks, where all those that it starts are ready at once.
        let all = runtime.spawn("all", async move {
            for round in 0..ROUNDS {
                let written: Vec<_> = (0..10)
                    .map(|writer| {
                        let store = store.clone();
                        writers.spawn("writer", async move {
                            let batch = batch(writer, round);
                            let receipt = store.put(&batch, Durability::Grouped).unwrap();
                            let Durable::After(ticket) = receipt.durable else {
                                panic!()
                            };
                            ticket.await.unwrap();
                        })
                    })
                    .collect();
                for writer in written {
                    writer.await.unwrap();
                }
                // What comes before the driver sleeps again is its to take at once.
                writers.sleep(Duration::from_millis(2)).await;
            }
        });
        executor.block_on(all).unwrap();
        log.stop();
    });
    let status = log.status();
    assert_eq!(status.batches, 1 + 10 * ROUNDS as u64);
    // One for each round, or two where the driver was slow to fall asleep.
    assert!(status.groups <= 1 + ROUNDS as u64 * 3 / 2, "{status:?}");
}

#[test]
fn all_kinds_of_writers_get_every_answer_while_a_driver_starts_and_stops() {
    for round in 0..20 {
        let directory = tempfile::tempdir().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let log = CommitLog::create(disk, directory.path(), 1, SETTINGS).unwrap();
        let engines = engines(4);
        let stores: Vec<Committed> = engines
            .iter()
            .map(|engine| Committed::new(engine.clone(), log.clone(), Durability::Grouped))
            .collect();
        let acknowledged = Mutex::new(BTreeMap::<usize, Vec<Batch>>::new());
        let done = AtomicUsize::new(0);
        thread::scope(|scope| {
            start_driver(scope, &log, round % 2 == 0);
            for writer in 0..8 {
                let (stores, acknowledged, done) = (&stores, &acknowledged, &done);
                scope.spawn(move || {
                    for number in 0..25 {
                        let batch = batch(writer, number);
                        let receipt = stores[writer % 4].put(&batch, Durability::Grouped).unwrap();
                        let Durable::After(ticket) = receipt.durable else {
                            panic!()
                        };
                        let outcome = if writer % 2 == 0 {
                            ticket.wait()
                        } else {
                            block_on(ticket.clone())
                        };
                        let outcome = outcome.or_else(|error| {
                            assert!(matches!(
                                error.kind(),
                                ErrorKind::Misuse | ErrorKind::Closed
                            ));
                            ticket.wait()
                        });
                        outcome.unwrap();
                        acknowledged.lock().entry(writer).or_default().push(batch);
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            while done.load(Ordering::Relaxed) < 10 * round {
                let _step = log.upkeep_step().unwrap();
            }
            log.stop();
        });
        let status = log.status();
        assert!(status.batches == 200, "{status:?}");
        drop(stores);
        let reopened: Vec<Arc<HistoryEngine>> = engines
            .iter()
            .map(|it| HistoryEngine::open(&it.crash(0), &MemoryDisk::new()))
            .collect();
        let backends: Vec<Arc<dyn Backend>> = reopened
            .iter()
            .map(|it| it.clone() as Arc<dyn Backend>)
            .collect();
        recover(&RealDisk, Path::new(directory.path()), &backends).unwrap();
        for (before, after) in engines.iter().zip(&reopened) {
            assert_eq!(before.batches(), after.batches());
        }
    }
}

#[test]
fn awaiting_tasks_are_answered_when_the_driver_is_stopped_at_any_moment() {
    for round in 0..400 {
        let log =
            CommitLog::create(Arc::new(MemoryDisk::new()), Path::new("log"), 1, SETTINGS).unwrap();
        let engine = engines(1).remove(0);
        let store = Committed::new(engine, log.clone(), Durability::Grouped);
        thread::scope(|scope| {
            start_driver(scope, &log, round % 2 == 0);
            for writer in 0..3 {
                let store = &store;
                scope.spawn(move || {
                    for number in 0..6 {
                        let receipt = store
                            .put(&batch(writer, number), Durability::Grouped)
                            .unwrap();
                        if let Durable::After(ticket) = receipt.durable {
                            let _answered = block_on(ticket);
                        }
                    }
                });
            }
            thread::yield_now();
            log.stop();
        });
    }
}

#[test]
fn puts_that_nobody_waits_for_do_not_pile_up() {
    let log = CommitLog::create(
        Arc::new(MemoryDisk::new()),
        Path::new("log"),
        1,
        CommitLogSettings {
            segment_bytes: 64 << 20,
            bytes_max: 1 << 30,
        },
    )
    .unwrap();
    let engine = engines(1).remove(0);
    let store = Committed::new(engine, log.clone(), Durability::Grouped);
    let body = Bytes::from(vec![1; 1 << 20]);
    for number in 0..100_u8 {
        let key = StorageKey::from_encoded(vec![number]);
        let batch = Batch::of(Write::put(
            key,
            Fields::default(),
            Bytes::new(),
            body.clone(),
        ));
        let _receipt = store.put(&batch, Durability::Buffered).unwrap();
        assert!(log.queued_bytes() <= 66 << 20, "{}", log.queued_bytes());
    }
    assert!(log.queued_bytes() > 1 << 20);
    assert!(log.status().batches >= 30, "{:?}", log.status());
}

#[test]
fn writers_without_a_driver_commit_for_each_other() {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let directory = tempfile::tempdir().unwrap();
    let log = CommitLog::create(disk, directory.path(), 1, SETTINGS).unwrap();
    let engine = engines(1).remove(0);
    let store = Committed::new(engine, log.clone(), Durability::Grouped);
    thread::scope(|scope| {
        for writer in 0..8 {
            let store = &store;
            scope.spawn(move || {
                for number in 0..50 {
                    let receipt = store.put(&batch(writer, number), Durability::Grouped);
                    receipt.unwrap().wait().unwrap();
                }
            });
        }
    });
    assert_eq!(log.status().batches, 400);
}
