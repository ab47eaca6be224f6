//! Writers that block, writers that await, a driver that comes and goes: every ticket resolves, and
//! acknowledged batches are in the log.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests stop at any failure, as tests do"
)]

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
use kvorum_backend::{
    Backend, Batch, Durability, Durable, ErrorKind, Fields, Reading, StepBudget, Write,
};
use kvorum_disk::{Disk, MemoryDisk, RealDisk};
use kvorum_encoding::StorageKey;
use kvorum_runtime::{Executor, ProductionOptions, Runtime};
use kvorum_value_log::{Tenant, ValueLog, ValueLogSettings};

use crate::tenant_engine::TenantEngine;

const SETTINGS: ValueLogSettings = ValueLogSettings {
    segment_bytes: 64 << 10,
    garbage_percent_max: 30,
};

/// A log, and this many stores over it.
fn opened(
    disk: &Arc<dyn Disk>,
    directory: &Path,
    settings: ValueLogSettings,
    count: u64,
) -> (ValueLog, Vec<Arc<TenantEngine>>) {
    let (log, _) = ValueLog::open(disk.clone(), &directory.join("log"), 1, settings).unwrap();
    let open = |number| {
        let directory = directory.join(format!("store-{number}"));
        TenantEngine::open(disk.clone(), &directory, log.clone(), move || 1 + number).unwrap()
    };
    let stores: Vec<_> = (0..count).map(open).collect();
    let tenants: Vec<Arc<dyn Tenant>> = stores.iter().map(|it| it.clone() as _).collect();
    log.admit(&tenants).unwrap();
    (log, stores)
}

fn in_memory() -> (ValueLog, Arc<TenantEngine>) {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
    let (log, mut stores) = opened(&disk, Path::new(""), SETTINGS, 1);
    (log, stores.remove(0))
}

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

/// A driver, with a task that calls it or without.
fn start_driver<'scope>(scope: &'scope thread::Scope<'scope, '_>, log: &ValueLog, is_called: bool) {
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
    let (log, store) = in_memory();
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
        // On the thread of the tasks, so that all tasks that it starts are ready at once.
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
                // Batches that arrive before the driver sleeps again are taken at once.
                writers.sleep(Duration::from_millis(2)).await;
            }
        });
        executor.block_on(all).unwrap();
        log.stop();
    });
    let status = log.status();
    assert_eq!(status.batches, 1 + 10 * ROUNDS as u64);
    // One group for each round, or two if the driver was slow to fall asleep.
    assert!(status.groups <= 1 + ROUNDS as u64 * 3 / 2, "{status:?}");
}

#[test]
fn all_kinds_of_writers_get_every_answer_while_a_driver_starts_and_stops() {
    for round in 0..20 {
        let directory = tempfile::tempdir().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let (log, stores) = opened(&disk, directory.path(), SETTINGS, 4);
        let done = AtomicUsize::new(0);
        thread::scope(|scope| {
            start_driver(scope, &log, round % 2 == 0);
            for writer in 0..8 {
                let (stores, done) = (&stores, &done);
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
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            while done.load(Ordering::Relaxed) < 10 * round {
                let _step = log.upkeep_step(StepBudget { bytes: 1 << 20 }).unwrap();
            }
            log.stop();
        });
        let status = log.status();
        assert!(status.batches == 200, "{status:?}");
        let values = |stores: &[Arc<TenantEngine>]| -> Vec<_> {
            let values = stores
                .iter()
                .map(|it| it.values(Reading::MayBlock).unwrap());
            values.collect()
        };
        let before = values(&stores);
        assert_eq!(before.iter().map(BTreeMap::len).sum::<usize>(), 200);
        drop((stores, log));
        let (_log, reopened) = opened(&disk, directory.path(), SETTINGS, 4);
        assert_eq!(values(&reopened), before);
    }
}

#[test]
fn awaiting_tasks_are_answered_when_the_driver_is_stopped_at_any_moment() {
    for round in 0..400 {
        let (log, store) = in_memory();
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
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
    let settings = ValueLogSettings {
        segment_bytes: 64 << 20,
        ..SETTINGS
    };
    let (log, stores) = opened(&disk, Path::new(""), settings, 1);
    let store = &stores[0];
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
    let (log, stores) = opened(&disk, directory.path(), SETTINGS, 1);
    let store = &stores[0];
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
