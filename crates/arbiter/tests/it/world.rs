//! The model: a device with a bandwidth and a latency that rises with load, stores with upkeep for
//! their puts, and a driver that carries out the arbiter's decisions, one at a time.

use std::collections::BTreeMap;
use std::time::Duration;

use kvorum_arbiter::{
    Answer, Arbiter, Budgets, Decision, Ended, Event, Latency, Looked, Order, Owner, StepResult,
};
use kvorum_backend::{StepOutcome, Task, TaskKind, Urgency};
use kvorum_runtime::{Moment, Randomness, SeededRandomness};

/// The interval at which puts are taken together, to make the model fast.
const TAKEN_IN_EVERY: Duration = Duration::from_millis(10);

/// The behaviour of the world.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) stores: u16,
    /// Bytes that the device reads and writes in a second, in all.
    pub(crate) bytes_per_second: f64,
    /// Background bytes for each byte put.
    pub(crate) amplification: f64,
    /// Bytes put to a store before new upkeep arises at once, as when a segment becomes full.
    pub(crate) lump_bytes: f64,
    /// The backlog above which a store's upkeep presses.
    pub(crate) pressing_bytes: u64,
    /// The largest random excess of a step's cost over its budget, as a part of the budget.
    pub(crate) overshoot: f64,
    /// Requests take this long on an unloaded device.
    pub(crate) latency: Duration,
    pub(crate) budgets: Budgets,
    pub(crate) seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            stores: 64,
            bytes_per_second: 400e6,
            amplification: 3.0,
            lump_bytes: 4e6,
            pressing_bytes: 1 << 30,
            overshoot: 0.3,
            latency: Duration::from_micros(300),
            budgets: Budgets::default(),
            seed: 1,
        }
    }
}

/// A store.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    /// Bytes of upkeep by kind.
    pub(crate) backlog: BTreeMap<TaskKind, u64>,
    pub(crate) urgency: BTreeMap<TaskKind, Urgency>,
    pub(crate) put_bytes: f64,
    lump: f64,
    pub(crate) unsynced: bool,
    pub(crate) wants_sync: bool,
    /// Bytes of steps done.
    pub(crate) served: u64,
    pub(crate) asked: u64,
    pub(crate) synced: u64,
    pub(crate) is_broken: bool,
    pub(crate) steps: u64,
    pub(crate) last_step: Moment,
}

/// The whole world, and its records.
pub(crate) struct World {
    pub(crate) settings: Settings,
    pub(crate) arbiter: Arbiter,
    pub(crate) stores: Vec<Store>,
    pub(crate) now: Moment,
    /// Bytes put per second, by store.
    pub(crate) ingest: Vec<f64>,
    /// Requests per second, for latency samples; none when zero.
    pub(crate) requests: f64,
    randomness: SeededRandomness,
    ingested_at: Moment,
    /// Background bytes since the last look.
    background: f64,
    looked_at: Moment,
    pub(crate) background_total: f64,
    pub(crate) put_total: f64,
    /// The largest backlog that was seen.
    pub(crate) backlog_max: u64,
    pub(crate) decisions: u64,
    pub(crate) asks: u64,
    pub(crate) looks: u64,
    pub(crate) steps: Vec<(Moment, Order, Duration)>,
    pub(crate) rounds: Vec<usize>,
    pub(crate) latencies: Vec<Duration>,
    /// Writers wait for as long as the arbiter advises: their ingest falls accordingly.
    pub(crate) honours_delay: bool,
}

impl World {
    pub(crate) fn new(settings: Settings) -> Self {
        let count = usize::from(settings.stores);
        Self {
            arbiter: Arbiter::new(settings.budgets.clone()),
            stores: vec![Store::default(); count],
            now: Moment::default(),
            ingest: vec![0.0; count],
            requests: 0.0,
            randomness: SeededRandomness::new(settings.seed),
            ingested_at: Moment::default(),
            background: 0.0,
            looked_at: Moment::default(),
            background_total: 0.0,
            put_total: 0.0,
            backlog_max: 0,
            decisions: 0,
            asks: 0,
            looks: 0,
            steps: Vec::new(),
            rounds: Vec::new(),
            latencies: Vec::new(),
            honours_delay: false,
            settings,
        }
    }

    /// Bytes put per second, spread evenly.
    pub(crate) fn put_evenly(&mut self, bytes_per_second: f64) {
        let each = bytes_per_second / self.stores.len() as f64;
        self.ingest.fill(each);
        self.requests = bytes_per_second / 1000.0;
    }

    /// The same rate, with half of it for the first store, a quarter for the second, and so on.
    pub(crate) fn put_skewed(&mut self, bytes_per_second: f64) {
        let mut share = bytes_per_second / 2.0;
        for ingest in &mut self.ingest {
            *ingest = share;
            share /= 2.0;
        }
        self.requests = bytes_per_second / 1000.0;
    }

    pub(crate) fn add_backlog(
        &mut self,
        store: usize,
        kind: TaskKind,
        urgency: Urgency,
        bytes: u64,
    ) {
        *self.stores[store].backlog.entry(kind).or_default() += bytes;
        self.stores[store].urgency.insert(kind, urgency);
    }

    pub(crate) fn backlog_bytes(&self) -> u64 {
        self.stores.iter().map(Store::backlog_bytes).sum()
    }

    pub(crate) fn random(&mut self) -> f64 {
        self.randomness.next_u64() as f64 / u64::MAX as f64
    }

    /// Lets this much time pass.
    pub(crate) fn run(&mut self, duration: Duration) {
        let end = self.now.plus(duration);
        while self.now < end {
            self.turn(end);
        }
    }

    fn turn(&mut self, end: Moment) {
        self.decisions += 1;
        match self.arbiter.decide(self.now) {
            Decision::Look => self.look(),
            Decision::Ask(owner) => self.ask(owner),
            Decision::Step(order) => self.work(order),
            Decision::Syncs(orders) => self.sync(orders),
            Decision::Rest(rest) => {
                let until = self.now.plus(rest).min(end);
                self.pass(until.since(self.now));
            }
        }
    }

    fn pass(&mut self, duration: Duration) {
        self.now = self.now.plus(duration);
        if self.now.since(self.ingested_at) >= TAKEN_IN_EVERY {
            self.take_in();
            self.backlog_max = self.backlog_max.max(self.backlog_bytes());
        }
    }

    /// Takes the puts since the last time.
    fn take_in(&mut self) {
        let elapsed = self.now.since(self.ingested_at).as_secs_f64();
        self.ingested_at = self.now;
        let slowed = self.slowed();
        let (lump_bytes, amplification) = (self.settings.lump_bytes, self.settings.amplification);
        for (store, ingest) in self.stores.iter_mut().zip(&self.ingest) {
            let put = ingest * elapsed * slowed;
            self.put_total += put;
            store.put_bytes += put;
            store.lump += put;
            store.unsynced |= put > 0.0;
            while store.lump >= lump_bytes {
                store.lump -= lump_bytes;
                let work = (lump_bytes * amplification) as u64;
                *store.backlog.entry(TaskKind::Merge).or_default() += work;
            }
        }
    }

    /// The accepted part of the offered puts, from a closed loop of writers that wait between puts.
    fn slowed(&self) -> f64 {
        if !self.honours_delay {
            return 1.0;
        }
        let latency = self.settings.latency.as_secs_f64();
        latency / (latency + self.arbiter.put_delay().as_secs_f64())
    }

    /// The part of the device that is left for upkeep.
    fn free(&self) -> f64 {
        let foreground: f64 = self.ingest.iter().sum::<f64>() * self.slowed();
        (self.settings.bytes_per_second - foreground).max(self.settings.bytes_per_second * 0.02)
    }

    /// 1 / (1 - load), as queues are.
    fn latency(&self) -> Duration {
        let elapsed = self.now.since(self.looked_at).as_secs_f64().max(1e-3);
        let foreground: f64 = self.ingest.iter().sum::<f64>() * self.slowed();
        let load = (foreground + self.background / elapsed) / self.settings.bytes_per_second;
        self.settings.latency.div_f64((1.0 - load).max(0.01))
    }

    fn look(&mut self) {
        self.looks += 1;
        let elapsed = self.now.since(self.looked_at).as_secs_f64();
        let p99 = self.latency();
        let writes = Latency {
            count: (self.requests * elapsed) as u64,
            mean: p99 / 4,
            p99,
        };
        self.latencies.push(p99);
        self.background = 0.0;
        self.looked_at = self.now;
        let numbered = (0..).zip(&self.stores);
        let looked = Looked {
            written: numbered
                .map(|(slot, store)| (Owner::Store(slot), store.put_bytes as u64))
                .collect(),
            writes,
            ..Looked::default()
        };
        self.arbiter.step(Event::Looked(looked), self.now);
    }

    fn ask(&mut self, owner: Owner) {
        self.asks += 1;
        let pressing_bytes = self.settings.pressing_bytes;
        let store = self.store(owner);
        store.asked += 1;
        let answer = Answer {
            tasks: store.tasks(pressing_bytes),
            put_bytes: store.put_bytes as u64,
            backlog_bytes: store.backlog_bytes(),
            memory_bytes: 0,
        };
        self.arbiter
            .step(Event::Answered { owner, answer }, self.now);
    }

    fn work(&mut self, order: Order) {
        let over = 1.0 + self.random() * self.settings.overshoot;
        let free = self.free();
        let now = self.now;
        let store = self.store(order.owner);
        store.steps += 1;
        store.last_step = now;
        if store.is_broken {
            let result = StepResult::Failed;
            self.end(order, result, Duration::from_millis(1));
            return;
        }
        let backlog = store.backlog.entry(order.task.kind).or_default();
        let cost_bytes = ((order.budget.bytes as f64 * over) as u64).min(*backlog);
        *backlog -= cost_bytes;
        let is_done = *backlog == 0;
        store.served += cost_bytes;
        self.background += cost_bytes as f64;
        self.background_total += cost_bytes as f64;
        let took = Duration::from_secs_f64(cost_bytes as f64 / free + 20e-6);
        self.steps.push((now, order.clone(), took));
        let outcome = StepOutcome {
            cost_bytes,
            is_done,
        };
        self.end(order, StepResult::Done(outcome), took);
    }

    fn end(&mut self, order: Order, result: StepResult, took: Duration) {
        self.pass(took);
        let ended = Ended {
            result,
            took,
            cpu: took.mul_f64(0.3),
        };
        self.arbiter.step(Event::Ended { order, ended }, self.now);
    }

    fn sync(&mut self, orders: Vec<Order>) {
        self.rounds.push(orders.len());
        for order in orders {
            let store = self.store(order.owner);
            store.unsynced = false;
            store.wants_sync = false;
            store.synced += 1;
            let result = StepResult::Done(StepOutcome::nothing_left());
            self.end(order, result, Duration::from_millis(1));
        }
    }

    fn store(&mut self, owner: Owner) -> &mut Store {
        match owner {
            Owner::Store(slot) => &mut self.stores[usize::from(slot)],
            // No value log was reported.
            Owner::ValueLog => &mut self.stores[0],
        }
    }
}

impl Store {
    pub(crate) fn backlog_bytes(&self) -> u64 {
        self.backlog.values().sum()
    }

    fn tasks(&self, pressing_bytes: u64) -> Vec<Task> {
        let is_pressed = self.backlog_bytes() > pressing_bytes;
        let backlogs = self.backlog.iter().filter(|(_, bytes)| **bytes > 0);
        let task = |(kind, bytes): (&TaskKind, &u64)| Task {
            kind: *kind,
            subject: 1,
            urgency: if is_pressed {
                Urgency::Pressing
            } else {
                self.urgency.get(kind).copied().unwrap_or(Urgency::Normal)
            },
            cost_bytes: *bytes,
        };
        let sync = self.wants_sync.then_some(Task {
            kind: TaskKind::Sync,
            subject: 0,
            urgency: Urgency::Normal,
            cost_bytes: 1,
        });
        backlogs.map(task).chain(sync).collect()
    }
}
