//! Several repairs done by a few threads. Each thread takes the next unit of any store. A store
//! enters its next stage when the last unit of the present stage is done.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kvorum_backend_leveldb::repair::{Repair, RepairUnit};

use crate::progress::{Progress, TICK};

struct Bench {
    units: VecDeque<RepairUnit>,
    /// Units under way, or the step to the next stage.
    running: usize,
    is_ended: bool,
    error: Option<String>,
}

struct Shop<'a> {
    repairs: &'a [Repair],
    benches: Mutex<Vec<Bench>>,
    changed: Condvar,
    read_bytes: AtomicU64,
    all_bytes: AtomicU64,
    is_over: AtomicBool,
}

#[derive(Clone, Copy)]
enum Job {
    Unit(usize, RepairUnit),
    NextStage(usize),
}

/// Does all repairs. Returns the reason of each failure, and the duration of the whole.
pub(super) fn run(repairs: &[Repair], threads: usize) -> (Vec<Option<String>>, Duration) {
    let bench = |repair: &Repair| Bench {
        units: repair.units().into(),
        running: 0,
        is_ended: false,
        error: None,
    };
    let shop = Shop {
        repairs,
        benches: Mutex::new(repairs.iter().map(bench).collect()),
        changed: Condvar::new(),
        read_bytes: AtomicU64::new(0),
        all_bytes: AtomicU64::new(repairs.iter().map(Repair::stage_bytes).sum()),
        is_over: AtomicBool::new(repairs.is_empty()),
    };
    let mut progress = Progress::begin();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| shop.work());
        }
        while !shop.is_over.load(Ordering::Acquire) {
            let benches = shop.lock();
            let waited = shop.changed.wait_timeout(benches, TICK);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            let read = shop.read_bytes.load(Ordering::Relaxed);
            progress.show(read, shop.all_bytes.load(Ordering::Relaxed));
        }
    });
    let took = progress.elapsed();
    progress.end();
    let benches = shop.benches.into_inner();
    let benches = benches.unwrap_or_else(PoisonError::into_inner);
    (benches.into_iter().map(|it| it.error).collect(), took)
}

impl Shop<'_> {
    fn lock(&self) -> MutexGuard<'_, Vec<Bench>> {
        self.benches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut benches = self.lock();
        loop {
            if benches.iter().all(|it| it.is_ended) {
                self.is_over.store(true, Ordering::Release);
                self.changed.notify_all();
                return;
            }
            let Some(job) = take(&mut benches) else {
                let waited = self.changed.wait(benches);
                benches = waited.unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(benches);
            benches = self.run(job);
            self.changed.notify_all();
        }
    }

    fn run(&self, job: Job) -> MutexGuard<'_, Vec<Bench>> {
        match job {
            Job::Unit(at, unit) => {
                let done = self.repairs[at].run(unit, &|bytes| {
                    self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
                });
                let mut benches = self.lock();
                benches[at].running -= 1;
                if let Err(error) = done {
                    benches[at].give_up(error.to_string());
                }
                benches
            }
            Job::NextStage(at) => {
                let repair = &self.repairs[at];
                let outcome = repair.next_stage();
                let units = repair.units();
                let bytes = repair.stage_bytes();
                let mut benches = self.lock();
                benches[at].running -= 1;
                match outcome {
                    Ok(true) => {
                        self.all_bytes.fetch_add(bytes, Ordering::Relaxed);
                        benches[at].units = units.into();
                    }
                    Ok(false) => benches[at].is_ended = true,
                    Err(error) => benches[at].give_up(error.to_string()),
                }
                benches
            }
        }
    }
}

impl Bench {
    fn give_up(&mut self, error: String) {
        self.units.clear();
        self.is_ended = true;
        self.error.get_or_insert(error);
    }
}

/// The next job: a unit, or the next stage of a store without units under way.
fn take(benches: &mut [Bench]) -> Option<Job> {
    for (at, bench) in benches.iter_mut().enumerate() {
        if bench.is_ended {
            continue;
        }
        if let Some(unit) = bench.units.pop_front() {
            bench.running += 1;
            return Some(Job::Unit(at, unit));
        }
        if bench.running == 0 {
            bench.running = 1;
            return Some(Job::NextStage(at));
        }
    }
    None
}
