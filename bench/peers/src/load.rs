//! Load on one store: a closed loop for rates, an open loop for latencies.
//!
//! In the closed loop each worker does one operation after the other. In the open loop operations
//! are due at fixed times, a free thread takes the next, and latency counts from the due time: a
//! stall counts for every operation that it delays. The first second does not count: threads,
//! caches and files start in it, and would decide the 99th percentile of a short run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::contender::Contender;
use crate::workload::{Operation, Source, random, term_of};

/// The time of an open loop that does not count.
const WARM_UP: Duration = Duration::from_secs(1);

/// The rate of operations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// As many operations as the store answers.
    Closed,
    /// This many operations a second, whatever the store does.
    Open(f64),
}

/// Latencies of one kind of operation, in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Latencies {
    /// The number of operations.
    pub count: u64,
    /// The median.
    pub p50: u64,
    /// The 99th percentile.
    pub p99: u64,
    /// The 99.9th percentile.
    pub p999: u64,
    /// The longest.
    pub max: u64,
}

/// The result of a load.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Its length, in seconds.
    pub seconds: f64,
    /// Gets, and scans.
    pub gets: Latencies,
    /// Puts.
    pub puts: Latencies,
    /// Bytes of keys and values put, including the warm-up.
    pub put_bytes: u64,
    /// Gets that found nothing.
    pub misses: u64,
    /// Values that scans read.
    pub scanned: u64,
    /// Completed operations, including the warm-up.
    pub operations: u64,
    /// Operations completed in each second.
    pub per_second: Vec<u64>,
}

impl Outcome {
    /// Operations a second.
    pub fn rate(&self) -> f64 {
        let operations = self.gets.count + self.puts.count;
        operations as f64 / self.seconds
    }
}

struct Worker {
    gets: Histogram<u64>,
    puts: Histogram<u64>,
    operations: u64,
    put_bytes: u64,
    misses: u64,
    scanned: u64,
}

struct Shared<'a> {
    store: &'a Arc<dyn Contender>,
    source: &'a Source,
    pace: Pace,
    started: Instant,
    /// The time from which operations count.
    counted_from: Instant,
    ends: Instant,
    due: AtomicU64,
    per_second: Vec<AtomicU64>,
}

/// Writes the keys that the workload needs beforehand.
pub fn preload(store: &Arc<dyn Contender>, source: &Source, workers: usize) -> Result<()> {
    let next = AtomicU64::new(0);
    let work = |worker: usize| {
        let mut random = random(u32::MAX, worker);
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= source.preload_count() {
                return Ok(());
            }
            let (key, value) = source.preload(number, &mut random);
            match source.is_indexed() {
                true => store.put_indexed(&key, &value, term_of(&key))?,
                false => store.put(&key, &value)?,
            }
        }
    };
    let work = &work;
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers)
            .map(|worker| scope.spawn(move || work(worker)))
            .collect();
        for worker in workers {
            join(worker)?;
        }
        Ok(())
    })
}

/// Loads a store for a while. `run` is the seed of the workers' draws.
pub fn run(
    store: &Arc<dyn Contender>,
    source: &Source,
    pace: Pace,
    workers: usize,
    time: Duration,
    run: u32,
) -> Result<Outcome> {
    let seconds = usize::try_from(time.as_secs() + 1).unwrap_or(1);
    let started = Instant::now();
    let counted_from = match pace {
        Pace::Closed => started,
        Pace::Open(_) => started + WARM_UP,
    };
    let shared = Shared {
        store,
        source,
        pace,
        started,
        counted_from,
        ends: counted_from + time,
        due: AtomicU64::new(0),
        per_second: (0..seconds).map(|_| AtomicU64::new(0)).collect(),
    };
    let shared = &shared;
    let done: Result<Vec<Worker>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers)
            .map(|worker| scope.spawn(move || shared.work(run, worker)))
            .collect();
        workers.into_iter().map(join).collect()
    });
    shared.outcome(done?)
}

fn join<T>(worker: std::thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    match worker.join() {
        Ok(result) => result,
        Err(_) => bail!("a worker panicked"),
    }
}

impl Shared<'_> {
    fn work(&self, run: u32, worker: usize) -> Result<Worker> {
        let mut random = random(run, worker);
        let mut own = Worker {
            gets: Histogram::new(3)?,
            puts: Histogram::new(3)?,
            operations: 0,
            put_bytes: 0,
            misses: 0,
            scanned: 0,
        };
        while let Some(due) = self.next_due() {
            let (operation, counter) = self.source.next(&mut random);
            let counts = due >= self.counted_from;
            match operation {
                Operation::Get(key, is_there) => {
                    let found = self.store.get(&key)?;
                    note(&mut own.gets, due, counts)?;
                    if found.is_none() {
                        own.misses += 1;
                        if is_there {
                            bail!(
                                "{} was written and is not found",
                                String::from_utf8_lossy(&key)
                            );
                        }
                    }
                }
                Operation::Scan(from, count) => {
                    let scanned = self.store.scan(&from, count)?;
                    own.scanned += scanned.context("this contender keeps no order")?;
                    note(&mut own.gets, due, counts)?;
                }
                Operation::Query(from, count) => {
                    let scanned = self.store.query(from, count)?;
                    own.scanned += scanned.context("this contender keeps no order")?;
                    note(&mut own.gets, due, counts)?;
                }
                Operation::Put(key, value) => {
                    own.put_bytes += u64::try_from(key.len() + value.len())?;
                    self.store.put(&key, &value)?;
                    note(&mut own.puts, due, counts)?;
                    if let Some(counter) = counter {
                        self.source.note_written(counter);
                    }
                }
            }
            own.operations += 1;
            self.count();
        }
        Ok(own)
    }

    /// Waits until the next operation is due, and returns the due time; `None` after the end.
    fn next_due(&self) -> Option<Instant> {
        let due = match self.pace {
            Pace::Closed => Instant::now(),
            Pace::Open(rate) => {
                let number = self.due.fetch_add(1, Ordering::Relaxed);
                let due = self.started + Duration::from_secs_f64(number as f64 / rate);
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                due
            }
        };
        (due < self.ends).then_some(due)
    }

    fn count(&self) {
        let Some(since) = Instant::now().checked_duration_since(self.counted_from) else {
            return;
        };
        let second = usize::try_from(since.as_secs()).unwrap_or(usize::MAX);
        if let Some(count) = self.per_second.get(second) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn outcome(&self, workers: Vec<Worker>) -> Result<Outcome> {
        let seconds = self.counted_from.elapsed().as_secs_f64();
        let mut gets = Histogram::<u64>::new(3)?;
        let mut puts = Histogram::<u64>::new(3)?;
        let mut outcome = Outcome {
            seconds,
            ..Outcome::default()
        };
        for worker in workers {
            gets.add(&worker.gets).context("merge latencies")?;
            puts.add(&worker.puts).context("merge latencies")?;
            outcome.operations += worker.operations;
            outcome.put_bytes += worker.put_bytes;
            outcome.misses += worker.misses;
            outcome.scanned += worker.scanned;
        }
        outcome.gets = latencies(&gets);
        outcome.puts = latencies(&puts);
        // The last second is incomplete.
        let whole = self.per_second.len() - 1;
        let counts = self.per_second[..whole].iter();
        outcome.per_second = counts.map(|count| count.load(Ordering::Relaxed)).collect();
        Ok(outcome)
    }
}

/// Records a latency if it counts. A count of zero would still change the histogram's maximum.
fn note(latencies: &mut Histogram<u64>, due: Instant, counts: bool) -> Result<()> {
    if counts {
        latencies.record(micros_since(due))?;
    }
    Ok(())
}

fn micros_since(due: Instant) -> u64 {
    u64::try_from(due.elapsed().as_micros()).unwrap_or(u64::MAX)
}

fn latencies(histogram: &Histogram<u64>) -> Latencies {
    Latencies {
        count: histogram.len(),
        p50: histogram.value_at_quantile(0.5),
        p99: histogram.value_at_quantile(0.99),
        p999: histogram.value_at_quantile(0.999),
        max: histogram.max(),
    }
}
