//! Background work: the thread that carries out the arbiter's decisions.
//!
//! The arbiter is pure and has neither stores nor clocks. This module is the rim: it queries stores
//! for their backlog, does and times steps, logs errors, and reports to the arbiter.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kvorum_arbiter::{
    Answer, Arbiter, Budgets, Decision, DiskRoom, Ended, Event, LATENCY_COUNT_MIN, Latency,
    LatencyReading, Looked, Order, Owner, SharedMemory, StepResult, latency_between,
};
use kvorum_backend::{
    Backend, BackendError, ErrorKind, Reading, StepOutcome, Task, TaskKind, Timestamp,
};
use kvorum_coordinator::{Coordinator, VnodeHints};
use kvorum_disk::{Headroom, Reserve};
use kvorum_member::VnodeTable;
use kvorum_runtime::{Moment, Room, Runtime};
use kvorum_settings::{DurabilityMode, Settings};
use kvorum_stats::{HistogramTotals, Stats};
use kvorum_vnode::Vnode;
use parking_lot::Mutex;

use crate::full_disk::FullDisk;
use crate::log::MaintainedLog;
use crate::machine;
use crate::memory::GivingWay;
use crate::step_log::{DoneStep, StepLog};
use crate::stop_signal::StopSignal;
use crate::unwritable::Failures;

/// Threads that share a round of syncs. Two threads share commits of the file system. Measured with
/// 64 files of 256 KiB in rounds of 16, the device was busy for 65 ms instead of 92 ms with one
/// thread, and the log's syncs took no longer. Four threads slowed the log's syncs.
const SYNC_THREADS: usize = 2;
/// The number of the hints' store among those of partitions, which are lower.
const HINTS: u16 = u16::MAX;
/// Rounds smaller than this are not worth a thread.
const SYNCS_SHARED_MIN: usize = 4;
/// The interval in which free memory is returned to the system.
const MEMORY_GIVEN_BACK_EVERY: Duration = Duration::from_secs(1);
/// The interval in which open files are counted: counting reads a directory with an entry for each
/// file.
const FILES_COUNTED_EVERY: Duration = Duration::from_secs(10);
/// The time after which a new reading begins, even with few requests.
const LATENCY_READ_MAX: Duration = Duration::from_secs(5);
/// The number of queries in each interval of a store that syncs in intervals.
const ASKS_PER_INTERVAL: u32 = 4;
const ASK_PERIOD_MIN: Duration = Duration::from_millis(20);

/// The state of the maintenance thread.
pub struct Maintenance {
    pub(crate) parts: Parts,
    stop: StopSignal,
    seen: Mutex<Seen>,
    failures: Mutex<Failures>,
    full_disk: Mutex<FullDisk>,
}

/// Figures of the last look.
#[derive(Default)]
struct Seen {
    reads: LastReading,
    writes: LastReading,
    open_files: Option<u64>,
    files_counted_at: Option<Moment>,
    memory_given_back_at: Option<Moment>,
    is_memory_scarce: bool,
    are_files_scarce: bool,
    refuses_puts: bool,
    /// The bytes that each store takes on the disk.
    disk_bytes: BTreeMap<u16, u64>,
}

/// A histogram at its last meaningful reading.
#[derive(Default)]
struct LastReading {
    reading: LatencyReading,
    at: Moment,
}

/// The parts of a node for maintenance.
pub struct Parts {
    /// The runtime, for its clock.
    pub runtime: Runtime,
    /// The stores of partitions.
    pub vnodes: Arc<VnodeTable>,
    /// The store of hints for other nodes.
    pub hints: Arc<VnodeHints>,
    /// The log of all stores, if there is one.
    pub value_log: Option<Arc<dyn MaintainedLog>>,
    /// The coordinator, which reaps tombstones.
    pub coordinator: Arc<Coordinator>,
    /// Times of requests.
    pub stats: Arc<Stats>,
    /// Shared with the coordinator, which delays puts by it.
    pub log: Arc<StepLog>,
    /// Shared with transfers between nodes, which query it before each page.
    pub arbiter: Arc<Mutex<Arbiter>>,
    /// The period in which every file is read again; `None` for never.
    pub scrub_period: Option<Duration>,
    /// Caches and write buffers.
    pub giving_way: GivingWay,
    /// Room for the memory of requests.
    pub room: Room,
    /// The free space that clients' writes may not use, if known.
    pub reserve: Option<Arc<Reserve>>,
    /// Returns free memory of the allocator to the system.
    pub give_memory_back: fn(),
}

/// The part of the memory budget for requests.
const REQUESTS_PART: u64 = 8;

/// Room for the memory of requests, if there is a budget.
pub fn room_for_requests(budgets: &Budgets) -> Room {
    let bytes_max = budgets.memory_bytes_max.map(|most| most / REQUESTS_PART);
    bytes_max.map_or_else(Room::default, Room::new)
}

/// The arbiter's budgets, from the settings and from the machine's limits.
pub fn budgets(settings: &Settings) -> Budgets {
    let own = &settings.maintenance;
    let defaults = Budgets::default();
    let durabilities = settings.durabilities().into_iter();
    let intervals = durabilities.filter(|it| it.mode == DurabilityMode::Interval);
    let shortest = intervals.map(|it| it.interval).min();
    let ask_period = shortest.map_or(defaults.ask_period, |it| it / ASKS_PER_INTERVAL);
    Budgets {
        step_time: own.step_time,
        io_bytes_per_second_max: own.io_bytes_per_second_max,
        cpu_share_max_percent: own.cpu_share_max_percent,
        cores: machine::cores(),
        memory_bytes_max: own.memory_bytes_max.or_else(machine::memory_for_stores),
        open_files_max: own.open_files_max.or_else(machine::open_files_max),
        ask_period: ask_period.clamp(ASK_PERIOD_MIN, defaults.ask_period),
        ..defaults
    }
}

impl Maintenance {
    /// Nothing is done until [`Maintenance::run`].
    pub fn new(parts: Parts) -> Self {
        Self {
            parts,
            stop: StopSignal::default(),
            seen: Mutex::default(),
            failures: Mutex::default(),
            full_disk: Mutex::default(),
        }
    }

    /// Works until stopped, on a thread of its own.
    pub fn run(&self) {
        while !self.stop.is_set() {
            let rest = self.turn();
            if !rest.is_zero() {
                self.stop.rest(rest);
            }
        }
    }

    /// Ends [`Maintenance::run`] after the present step.
    pub fn stop(&self) {
        self.stop.stop();
    }

    /// The present rate for transfers into this node, in bytes per second; without a limit, the
    /// measured speed.
    pub fn transfer_rate(&self) -> u64 {
        let now = self.parts.runtime.now();
        let arbiter = self.parts.arbiter.lock();
        let report = arbiter.report(now);
        let rate = report.transfer_allowed_rate.unwrap_or(report.speed);
        rate.min(
            arbiter
                .budgets()
                .io_bytes_per_second_max
                .unwrap_or(u64::MAX),
        )
    }

    /// Stores that take no more writes.
    pub fn failures(&self) -> Failures {
        self.failures.lock().clone()
    }

    /// Does the next step; returns the time to rest.
    fn turn(&self) -> Duration {
        let decision = self.parts.arbiter.lock().decide(self.parts.runtime.now());
        match decision {
            Decision::Look => self.look(),
            Decision::Ask(owner) => self.ask(owner),
            Decision::Step(order) => self.work(order),
            Decision::Syncs(orders) => self.sync_round(&orders),
            Decision::Rest(rest) => return rest,
        }
        Duration::ZERO
    }

    fn report(&self, event: Event) {
        let mut arbiter = self.parts.arbiter.lock();
        arbiter.step(event, self.parts.runtime.now());
        self.parts.log.set_put_delay(arbiter.put_delay());
        self.parts.log.set_refuses_puts(arbiter.refuses_puts());
    }

    fn look(&self) {
        // Reaping of tombstones is not a store's task: several replicas have to agree.
        let reaping = || self.parts.coordinator.reap_due(Reading::MayBlock);
        if catch_unwind(AssertUnwindSafe(reaping)).is_err() {
            tracing::error!(event = "reaping_panicked", "report this bug");
        }
        let vnodes = self.parts.vnodes.all();
        let log = self.parts.value_log.as_deref();
        let unwritable = vnodes.iter().filter_map(|vnode| {
            let why = vnode.unwritable()?;
            Some((vnode.partition().number(), why.to_owned()))
        });
        let failure = log.and_then(MaintainedLog::failure);
        self.failures
            .lock()
            .saw(failure, unwritable, self.parts.runtime.wall_time());
        let hints = (Owner::Store(HINTS), self.parts.hints.vnode().status().puts);
        let written = vnodes
            .iter()
            .map(|vnode| (owner_of(vnode), vnode.status().puts))
            .chain([hints])
            .chain(log.map(|log| (Owner::ValueLog, log.batches())))
            .collect();
        if let (Some(reserve), None) = (&self.parts.reserve, log) {
            // The log counts the space of its stores.
            let disk_bytes = self.seen.lock().disk_bytes.values().sum();
            reserve.set_own_bytes(disk_bytes);
        }
        let looked = {
            let now = self.parts.runtime.now();
            let mut seen = self.seen.lock();
            Looked {
                written,
                reads: latency_of(self.parts.stats.read_times(), &mut seen.reads, now),
                writes: latency_of(self.parts.log.put_times().totals(), &mut seen.writes, now),
                open_files: self.count_files(&mut seen),
                memory: SharedMemory {
                    requests: self.parts.room.taken_bytes()
                        + log.map_or(0, MaintainedLog::queued_bytes),
                    hash_trees: vnodes.iter().map(|it| it.trees_memory_bytes()).sum(),
                    ..self.parts.giving_way.used()
                },
                disk: self.parts.reserve.as_deref().and_then(disk_room),
            }
        };
        self.report(Event::Looked(looked));
        let orders = self.parts.arbiter.lock().memory_orders();
        self.parts.giving_way.obey(&orders);
        self.warn_of_scarcity();
        self.log_room();
        self.give_memory_back();
    }

    /// Returns free memory to the system: often, so that each time it is little, but not at every
    /// look, since most of it is soon used again.
    fn give_memory_back(&self) {
        let now = self.parts.runtime.now();
        let last = &mut self.seen.lock().memory_given_back_at;
        if is_time(last, MEMORY_GIVEN_BACK_EVERY, now) {
            (self.parts.give_memory_back)();
        }
    }

    fn count_files(&self, seen: &mut Seen) -> Option<u64> {
        let now = self.parts.runtime.now();
        if is_time(&mut seen.files_counted_at, FILES_COUNTED_EVERY, now) {
            seen.open_files = machine::open_files();
        }
        seen.open_files
    }

    fn warn_of_scarcity(&self) {
        let ((memory, open_files), refuses_puts) = {
            let arbiter = self.parts.arbiter.lock();
            (arbiter.is_scarce(), arbiter.refuses_puts())
        };
        let mut seen = self.seen.lock();
        if memory && !seen.is_memory_scarce {
            tracing::warn!(
                event = "memory_budget_nearly_used",
                "stores and requests hold nine tenths of maintenance.memory_bytes_max or more",
            );
        }
        if open_files && !seen.are_files_scarce {
            tracing::warn!(
                event = "open_files_nearly_used",
                "nine tenths of maintenance.open_files_max are open; raise it and ulimit -n",
            );
        }
        if refuses_puts && !seen.refuses_puts {
            tracing::error!(
                event = "puts_refused",
                "memory (maintenance.memory_bytes_max) or open files (maintenance.open_files_max, \
                 ulimit -n) are used up: puts get overload until there is room again; deletions \
                 go on; see kvorum admin maintenance",
            );
        }
        if !refuses_puts && seen.refuses_puts {
            tracing::info!(event = "puts_taken_again");
        }
        seen.refuses_puts = refuses_puts;
        seen.is_memory_scarce = memory;
        seen.are_files_scarce = open_files;
    }

    fn log_room(&self) {
        let is_scarce = self.parts.arbiter.lock().is_disk_scarce();
        if !is_scarce && self.full_disk.lock().has_room() {
            tracing::info!(event = "disk_has_room_again");
        }
    }

    fn log_full_disk(&self, order: &Order, error: &BackendError) {
        let failed = self.full_disk.lock().had_no_space(self.parts.runtime.now());
        if let Some(steps_failed) = failed {
            tracing::error!(
                event = "disk_full",
                owner = %self.label_of(order.owner, &order.task).owner,
                task = order.task.kind.name(),
                steps_failed,
                error = %error,
                "background work had no space and is tried again every few seconds; see kvorum admin \
                 maintenance",
            );
        }
    }

    fn ask(&self, owner: Owner) {
        let asked = || match owner {
            Owner::ValueLog => {
                let (log, now) = (self.parts.value_log.as_deref(), self.wall_time());
                log.map_or_else(Answer::default, |log| {
                    let mut answer = log.due(now);
                    answer
                        .tasks
                        .extend(log.scrub_due(self.parts.scrub_period, now));
                    answer
                })
            }
            Owner::Store(partition) => {
                self.store(partition).map_or_else(Answer::default, |store| {
                    let tasks = store.maintenance_due(self.wall_time());
                    let status = store.status();
                    let disk_bytes = &mut self.seen.lock().disk_bytes;
                    disk_bytes.insert(partition, status.disk_bytes);
                    Answer {
                        tasks,
                        put_bytes: status.put_bytes,
                        backlog_bytes: status.backlog_bytes,
                        memory_bytes: status.memory_bytes,
                    }
                })
            }
        };
        let answer = catch_unwind(AssertUnwindSafe(asked)).unwrap_or_else(|_| {
            tracing::error!(event = "maintenance_question_panicked", owner = %name_of(owner));
            Answer::default()
        });
        self.report(Event::Answered { owner, answer });
    }

    fn work(&self, order: Order) {
        let ended = self.carry_out(&order);
        self.report(Event::Ended { order, ended });
    }

    /// Syncs stores, several at a time.
    fn sync_round(&self, orders: &[Order]) {
        let next = AtomicUsize::new(0);
        let work_through = || {
            while let Some(order) = orders.get(next.fetch_add(1, Ordering::Relaxed)) {
                let ended = self.carry_out(order);
                let order = order.clone();
                self.report(Event::Ended { order, ended });
            }
        };
        if orders.len() < SYNCS_SHARED_MIN {
            return work_through();
        }
        std::thread::scope(|scope| {
            for _ in 1..SYNC_THREADS {
                let builder = std::thread::Builder::new().name("maintenance".into());
                // Without a second thread, the first does all the work.
                let _started_or_not = builder.spawn_scoped(scope, work_through);
            }
            work_through();
        });
    }

    /// Does a step, times it, and reports its failure.
    fn carry_out(&self, order: &Order) -> Ended {
        let (from, cpu_before) = (self.parts.runtime.now(), machine::thread_cpu_time());
        let step = catch_unwind(AssertUnwindSafe(|| self.step_of(order)));
        let (to, cpu_after) = (self.parts.runtime.now(), machine::thread_cpu_time());
        let took = to.since(from);
        let result = match step {
            Ok(Ok(outcome)) => StepResult::Done(outcome),
            Ok(Err(error)) if error.kind() == ErrorKind::Full => {
                self.log_full_disk(order, &error);
                StepResult::NoSpace
            }
            Ok(Err(error)) => {
                tracing::error!(
                    event = "maintenance_step_failed",
                    owner = %self.label_of(order.owner, &order.task).owner,
                    task = order.task.kind.name(),
                    error = %error,
                );
                StepResult::Failed
            }
            Err(_) => {
                tracing::error!(
                    event = "maintenance_step_panicked",
                    owner = %self.label_of(order.owner, &order.task).owner,
                    task = order.task.kind.name(),
                    "report this bug",
                );
                StepResult::Failed
            }
        };
        let cost_bytes = match result {
            StepResult::Done(outcome) => outcome.cost_bytes,
            StepResult::Failed | StepResult::NoSpace => 0,
        };
        if order.is_overrun_by(cost_bytes) {
            let label = self.label_of(order.owner, &order.task);
            tracing::debug!(
                event = "maintenance_step_overran",
                owner = %label.owner,
                task = order.task.kind.name(),
                subject = label.subject,
                left_bytes = order.task.cost_bytes,
                budget_bytes = order.budget.bytes,
                declared_bytes = order.declared_bytes,
                cost_bytes,
            );
        }
        self.parts.log.note_if_long(took, || DoneStep {
            what: self.step_label(order),
            from,
            to,
            cost_bytes,
        });
        let cpu = cpu_after.saturating_sub(cpu_before);
        Ended { result, took, cpu }
    }

    fn step_of(&self, order: &Order) -> Result<StepOutcome, BackendError> {
        let partition = match (order.owner, &self.parts.value_log) {
            (Owner::ValueLog, Some(log)) if order.task.kind == TaskKind::Scrub => {
                return log.scrub_step(order.budget, self.parts.scrub_period, self.wall_time());
            }
            (Owner::ValueLog, Some(log)) => return log.step(&order.task, order.budget),
            (Owner::ValueLog, None) => return Ok(StepOutcome::nothing_left()),
            (Owner::Store(partition), _) => partition,
        };
        let Some(backend) = self.store(partition) else {
            return Ok(StepOutcome::nothing_left());
        };
        if order.task.kind == TaskKind::Sync {
            // A sync that the log waits for is not a task of the store.
            return backend.sync().map(|_| StepOutcome::nothing_left());
        }
        if order.task.kind == TaskKind::Scrub {
            return self.scrub(order, &*backend);
        }
        backend.maintenance_step(&order.task, order.budget, self.wall_time())
    }

    /// No request waits for the reads of a scrub: its findings are reported here.
    fn scrub(&self, order: &Order, backend: &dyn Backend) -> Result<StepOutcome, BackendError> {
        let known = backend.status().lost.len();
        let outcome = backend.maintenance_step(&order.task, order.budget, self.wall_time());
        for lost in backend.status().lost.iter().skip(known) {
            tracing::error!(
                event = "scrub_found_damage",
                owner = %name_of(order.owner),
                file = %lost.file,
                offset = lost.offset,
                len = lost.len,
                held = %lost.held,
            );
        }
        outcome
    }

    /// A task as operators see it.
    pub(crate) fn label_of(&self, owner: Owner, task: &Task) -> TaskLabel {
        let store = match owner {
            Owner::Store(partition) => self.store(partition),
            Owner::ValueLog => None,
        };
        TaskLabel::new(owner, task, store.as_deref())
    }

    /// A step as operators see it.
    fn step_label(&self, order: &Order) -> String {
        let label = self.label_of(order.owner, &order.task);
        match label.part {
            Some(_) => format!("{} of {}", label.task, label.owner),
            None => step_name(order),
        }
    }

    fn store(&self, partition: u16) -> Option<Arc<dyn Backend>> {
        if partition == HINTS {
            return Some(self.parts.hints.vnode().store_for_upkeep().clone());
        }
        let vnode = self.parts.vnodes.numbered(partition)?;
        Some(vnode.store_for_upkeep().clone())
    }

    fn wall_time(&self) -> Timestamp {
        Timestamp(self.parts.runtime.wall_time().micros())
    }
}

fn owner_of(vnode: &Vnode) -> Owner {
    Owner::Store(vnode.partition().number())
}

/// The room on the file systems of the log and of the stores, if it is known.
pub fn disk_room(reserve: &Reserve) -> Option<DiskRoom> {
    let headroom = reserve.look();
    (headroom != Headroom::UNKNOWN).then_some(DiskRoom {
        available_bytes: headroom.available,
        reserve_bytes: headroom.reserve,
    })
}

/// True when a periodic action is due; it then counts as done now.
fn is_time(last: &mut Option<Moment>, every: Duration, now: Moment) -> bool {
    let is_time = last.is_none_or(|at| now.since(at) >= every);
    if is_time {
        *last = Some(now);
    }
    is_time
}

/// The latencies since the last reading of a histogram. With few requests, the reading extends over
/// several looks.
fn latency_of(totals: HistogramTotals, last: &mut LastReading, now: Moment) -> Latency {
    let reading = LatencyReading {
        below_power: totals.below_power,
        sum_micros: totals.sum,
    };
    let latency = latency_between(&last.reading, &reading);
    if latency.count >= LATENCY_COUNT_MIN || now.since(last.at) >= LATENCY_READ_MAX {
        *last = LastReading { reading, at: now };
    }
    latency
}

/// A task as operators see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TaskLabel {
    /// Its owner, with the part if a store consists of several.
    pub(crate) owner: String,
    /// The name of that part.
    pub(crate) part: Option<String>,
    /// The word for the task.
    pub(crate) task: &'static str,
    /// The subject, by the numbers of the store or of the part.
    pub(crate) subject: u64,
}

impl TaskLabel {
    pub(crate) fn new(owner: Owner, task: &Task, store: Option<&dyn Backend>) -> Self {
        let (whole, word) = (name_of(owner), word_of(owner, task.kind));
        match store.and_then(|it| it.part_of(task)) {
            Some((part, task)) => Self {
                owner: format!("{part} of {whole}"),
                part: Some(part.to_owned()),
                task: word,
                subject: task.subject,
            },
            None => Self {
                owner: whole,
                part: None,
                task: word,
                subject: task.subject,
            },
        }
    }
}

pub(crate) fn name_of(owner: Owner) -> String {
    match owner {
        Owner::ValueLog => "the value log".to_owned(),
        Owner::Store(HINTS) => "the hints".to_owned(),
        Owner::Store(partition) => format!("partition {partition}"),
    }
}

/// The word for a task. Work on the value log's files has the kind of a sync, for its place in the
/// order.
fn word_of(owner: Owner, kind: TaskKind) -> &'static str {
    match (owner, kind) {
        (Owner::ValueLog, TaskKind::Sync) => "upkeep",
        (_, kind) => kind.word(),
    }
}

/// The name of a step for operators: its task and its owner.
pub fn step_name(order: &Order) -> String {
    let (owner, word) = (order.owner, word_of(order.owner, order.task.kind));
    format!("{word} of {}", name_of(owner))
}

#[cfg(test)]
#[path = "driver_test.rs"]
mod tests;
