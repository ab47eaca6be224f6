//! The state machine: events in, decisions out.

mod reporting;
mod syncs;

use std::collections::BTreeMap;
use std::time::Duration;

use kvorum_backend::{StepBudget, Task, TaskKind};
use kvorum_runtime::Moment;

use crate::account::{Account, RankedTask};
use crate::backoff::TaskId;
use crate::budgets::Budgets;
use crate::event::{Answer, DiskRoom, Ended, Event, Looked, StepResult};
use crate::foreground::{Foreground, Meanwhile};
use crate::memory::{self, MemoryOrders, SharedMemory};
use crate::merges::Merges;
use crate::order::{Decision, Order, Owner};
use crate::pace::{Backlogs, Pace};
use crate::rank::{Rank, Scarcity};
use crate::report::Steps;
use crate::selection::{Chosen, Selection};
use crate::slowdown::put_delay;
use crate::speed::Speeds;

/// The period of the driver's looks with a backlog, and without one.
const LOOK_BUSY: Duration = Duration::from_millis(250);
const LOOK_IDLE: Duration = Duration::from_millis(500);
/// The query period of a value log with puts, whose segments may fill quickly.
const ASK_LOG: Duration = Duration::from_millis(100);
/// The query period of an owner after a step.
const ASK_WORKED: Duration = Duration::from_secs(1);
/// The shortest rest of a thread. Saved credit makes up for it.
const REST_MIN: Duration = Duration::from_micros(200);
/// The least assumed cost of a step, which is the smallest budget: the last step of a task also
/// writes ends of files, which no task declares.
const DECLARED_MIN: u64 = crate::speed::BUDGET_MIN;
/// Time of pressing work that fills the spring, in seconds.
const PRESSING_TIME_MAX: f64 = 10.0;
/// The least bytes that fill the spring.
const PRESSING_BYTES_MIN: f64 = 64e6;
/// The time in which the spring follows the backlog, in seconds, so that delays do not jump.
const SPRING_SECONDS: f64 = 2.0;
/// The used share of a budget at which it is scarce, in percent.
const SCARCE_PERCENT: u64 = 90;
/// The share of the limit of open files at which puts are refused, in percent: merges need the rest
/// to reduce the number of files.
const FILES_USED_UP_PERCENT: u64 = 98;

/// The arbiter of one node. The driver passes events and carries out decisions.
#[derive(Clone, Debug)]
pub struct Arbiter {
    budgets: Budgets,
    accounts: BTreeMap<Owner, Account>,
    selection: Selection,
    speeds: Speeds,
    pace: Pace,
    foreground: Foreground,
    running: BTreeMap<Owner, (Order, Moment)>,
    look_at: Moment,
    looked_at: Moment,
    is_looking: bool,
    /// Steps have ended since the last look.
    has_worked: bool,
    /// Upkeep or a transfer was limited by its share since the last look.
    was_held_back: bool,
    sync_after: Moment,
    /// The value log waits for stores, as its last step synced one.
    is_log_trimming: bool,
    scarcity: Scarcity,
    open_files: Option<u64>,
    memory: SharedMemory,
    memory_orders: MemoryOrders,
    are_files_used_up: bool,
    disk: Option<DiskRoom>,
    merges: Merges,
    fullness: f64,
    steps: BTreeMap<TaskKind, Steps>,
    longest_step: Duration,
}

impl Arbiter {
    /// An arbiter without known owners; it begins with a look.
    pub fn new(budgets: Budgets) -> Self {
        Self {
            speeds: Speeds::new(budgets.step_time),
            pace: Pace::new(&budgets),
            budgets,
            accounts: BTreeMap::new(),
            selection: Selection::new(),
            foreground: Foreground::new(),
            running: BTreeMap::new(),
            look_at: Moment::default(),
            looked_at: Moment::default(),
            is_looking: false,
            has_worked: false,
            was_held_back: false,
            sync_after: Moment::default(),
            is_log_trimming: false,
            scarcity: Scarcity::default(),
            open_files: None,
            memory: SharedMemory::default(),
            memory_orders: memory::orders(0, SharedMemory::default(), None, false),
            are_files_used_up: false,
            disk: None,
            merges: Merges::default(),
            fullness: 0.0,
            steps: BTreeMap::new(),
            longest_step: Duration::ZERO,
        }
    }

    /// The budgets of this arbiter.
    pub fn budgets(&self) -> &Budgets {
        &self.budgets
    }

    /// Takes an event of the driver.
    pub fn step(&mut self, event: Event, now: Moment) {
        self.pace.refill(now);
        match event {
            Event::Looked(looked) => self.looked(&looked, now),
            Event::Answered { owner, answer } => self.answered(owner, &answer, now),
            Event::Ended { order, ended } => self.ended(&order, ended, now),
        }
    }

    /// The next action of a free worker. All but a rest count as begun.
    pub fn decide(&mut self, now: Moment) -> Decision {
        self.pace.refill(now);
        if !self.is_looking && self.look_at <= now {
            self.is_looking = true;
            return Decision::Look;
        }
        if let Some(owner) = self.next_to_ask(now) {
            return Decision::Ask(owner);
        }
        if let Some(decision) = self.next_sync(now) {
            return decision;
        }
        let chosen = self.choose(now);
        let wait = match chosen {
            None => Duration::MAX,
            Some(chosen) => {
                let wait = self.pace.wait(chosen.rank.is_pressing());
                self.was_held_back |= !wait.is_zero() || self.pace.is_held_by_requests();
                if wait.is_zero() {
                    return Decision::Step(self.begin(&chosen, now));
                }
                wait
            }
        };
        Decision::Rest(self.rest(wait, now))
    }

    /// The present delay of a put. Callers wait if that delays no other request.
    pub fn put_delay(&self) -> Duration {
        let fullness = self.fullness.max(self.memory_orders.fullness);
        put_delay(fullness, self.budgets.put_delay_max)
    }

    /// The limits of caches and write buffers, as of the last look.
    pub fn memory_orders(&self) -> MemoryOrders {
        self.memory_orders
    }

    /// True if puts must be refused, as of the last look: memory or open files are used up.
    pub fn refuses_puts(&self) -> bool {
        self.memory_orders.refuses_puts || self.are_files_used_up
    }

    /// True when free space was scarce at the last look.
    pub fn is_disk_scarce(&self) -> bool {
        self.scarcity.disk
    }

    /// True for scarce memory and for scarce open files, as of the last look.
    pub fn is_scarce(&self) -> (bool, bool) {
        (self.scarcity.memory, self.scarcity.open_files)
    }

    /// The time that a transfer between nodes has to wait before it reads or writes `bytes`. If the
    /// time is zero, the bytes count as spent.
    pub fn transfer(&mut self, bytes: u64, now: Moment) -> Duration {
        self.pace.refill(now);
        let wait = self.pace.transfer(bytes, now);
        // Requests that a transfer slows do not count as undisturbed.
        self.has_worked |= wait.is_zero();
        self.was_held_back |= !wait.is_zero();
        wait
    }

    fn looked(&mut self, looked: &Looked, now: Moment) {
        self.is_looking = false;
        self.open_files = looked.open_files;
        let written: BTreeMap<Owner, u64> = looked.written.iter().copied().collect();
        self.accounts.retain(|owner, _| written.contains_key(owner));
        for (owner, written) in written {
            let period = match owner {
                Owner::ValueLog => ASK_LOG,
                Owner::Store(_) => self.budgets.ask_period,
            };
            let account = self.accounts.entry(owner);
            account
                .or_insert_with(|| Account::new(now, written))
                .looked(written, period);
        }
        self.scarcity = Scarcity {
            memory: is_scarce(
                Some(self.memory_bytes() + looked.memory.beside_stores()),
                self.budgets.memory_bytes_max,
            ),
            open_files: is_scarce(looked.open_files, self.budgets.open_files_max),
            disk: looked.disk.is_some_and(|disk| disk.is_scarce()),
        };
        self.disk = looked.disk;
        if !self.scarcity.disk {
            let accounts = self.accounts.values_mut();
            accounts.for_each(|account| account.backoff.has_space());
        }
        let refused = self.memory_orders.refuses_puts;
        let (stores, most) = (self.memory_bytes(), self.budgets.memory_bytes_max);
        self.memory = looked.memory;
        self.memory_orders = memory::orders(stores, looked.memory, most, refused);
        let files = (looked.open_files, self.budgets.open_files_max);
        self.are_files_used_up = is_used_to(files.0, files.1, FILES_USED_UP_PERCENT);
        let meanwhile = Meanwhile {
            was_idle: !self.has_worked,
            was_held_back: self.was_held_back,
        };
        self.foreground.look(looked.reads, looked.writes, meanwhile);
        self.has_worked = false;
        self.was_held_back = false;
        self.merges.keep(|(owner, id)| {
            let account = self.accounts.get(owner);
            account.is_some_and(|it| it.has(*id))
        });
        let backlogs = self.backlogs(now);
        self.set_pace(backlogs, now);
        self.stretch_spring(backlogs, now);
        self.looked_at = now;
        let is_idle = backlogs.sum() == 0;
        self.look_at = now.plus(if is_idle { LOOK_IDLE } else { LOOK_BUSY });
        if let Some(log) = self.accounts.get_mut(&Owner::ValueLog) {
            // A log that is idle in two looks has to write a mark.
            log.ask_within(if is_idle { LOOK_IDLE } else { LOOK_BUSY });
        }
    }

    fn answered(&mut self, owner: Owner, answer: &Answer, now: Moment) {
        let Some(account) = self.accounts.get_mut(&owner) else {
            return;
        };
        account.is_busy = false;
        let change = account.answered(answer, self.scarcity, self.selection.floors(), now);
        match owner {
            Owner::ValueLog => {
                self.is_log_trimming &= !answer.tasks.is_empty();
                // Puts to the log are puts to stores, where they are counted.
                self.pace.note_log_work(change.arisen_bytes, now);
            }
            Owner::Store(_) => {
                self.pace
                    .ingested(change.put_bytes, change.arisen_bytes, now);
            }
        }
    }

    fn ended(&mut self, order: &Order, ended: Ended, now: Moment) {
        self.running.remove(&order.owner);
        self.pace.used_cpu(ended.cpu, now);
        self.longest_step = self.longest_step.max(ended.took);
        let kind = order.task.kind;
        let is_sync = kind == TaskKind::Sync;
        let outcome = match ended.result {
            StepResult::Done(outcome) => Some(outcome),
            StepResult::Failed | StepResult::NoSpace => None,
        };
        let goes_on = outcome.is_some_and(|outcome| !outcome.is_done);
        self.merges.ended(order, goes_on);
        let cost_bytes = outcome.map_or(0, |outcome| outcome.cost_bytes);
        let steps = self.steps.entry(kind).or_default();
        steps.count += 1;
        steps.bytes += cost_bytes;
        steps.failures += u64::from(outcome.is_none());
        if is_sync {
            self.sync_ended(order, outcome, ended.took, now);
        } else {
            steps.overruns += u64::from(order.is_overrun_by(cost_bytes));
            self.has_worked = true;
            self.pace.ended(order.declared_bytes, cost_bytes, now);
            let is_done = outcome.is_some_and(|outcome| outcome.is_done);
            self.speeds.learn(kind, cost_bytes, is_done, ended.took);
        }
        let Some(account) = self.accounts.get_mut(&order.owner) else {
            return;
        };
        account.is_busy = false;
        let id = TaskId::of(&order.task);
        match outcome {
            None => {
                match ended.result {
                    StepResult::NoSpace => account.backoff.had_no_space(id, now),
                    _ => account.backoff.failed(id, now),
                }
                account.ask_within(ASK_WORKED);
            }
            Some(outcome) => {
                account.worked(id, cost_bytes, outcome.is_done, now);
                if cost_bytes == 0 && !is_sync {
                    account.backoff.got_nowhere(id, now);
                } else {
                    account.backoff.went_well(id);
                }
                let is_log_cut = order.owner == Owner::ValueLog && !outcome.is_done;
                // The log reports after each step whether there is another.
                account.ask_within(if is_log_cut {
                    Duration::ZERO
                } else {
                    ASK_WORKED
                });
            }
        }
    }

    fn next_to_ask(&mut self, now: Moment) -> Option<Owner> {
        let due = self.accounts.iter_mut();
        let mut due = due.filter(|(_, account)| !account.is_busy && account.ask_at <= now);
        let (owner, account) = due.next()?;
        account.is_busy = true;
        Some(*owner)
    }

    fn choose(&self, now: Moment) -> Option<Chosen> {
        let budget_of = |task: &Task| self.declared_bytes(task);
        // Except for pressing work, a waiting owner is skipped while requests hold it back, so that
        // no worker rests for its turn. The processor's share skips no owner: pressing work could
        // use it up for ever.
        let is_held = self.pace.is_held_by_requests();
        let may_begin = |rank: Rank| rank.is_pressing() || !is_held;
        let sole = self.merges.last().filter(|(owner, id)| {
            let account = self.accounts.get(owner);
            self.scarcity.disk && account.is_some_and(|it| it.can_go_on(*id, now))
        });
        let room_bytes = self.room_for_merges();
        let waits = |owner: Owner, ranked: &RankedTask| {
            self.merges
                .is_to_wait(owner, &ranked.task, sole, room_bytes)
        };
        self.selection
            .choose(&self.accounts, budget_of, waits, may_begin, now)
    }

    /// Free space that merges may share, in bytes. If space is scarce, `sole` bounds them instead.
    fn room_for_merges(&self) -> u64 {
        match self.disk {
            Some(disk) if !disk.is_scarce() => disk.available_bytes - disk.reserve_bytes,
            _ => u64::MAX,
        }
    }

    fn begin(&mut self, chosen: &Chosen, now: Moment) -> Order {
        let account = self.accounts.get(&chosen.owner);
        let bytes = self.budget_bytes(chosen.task.kind);
        let order = Order {
            owner: chosen.owner,
            task: chosen.task.clone(),
            budget: StepBudget { bytes },
            declared_bytes: if account.is_some_and(Account::has_changed) {
                bytes
            } else {
                self.declared_bytes(&chosen.task)
            },
        };
        if let Some(account) = self.accounts.get_mut(&chosen.owner) {
            account.is_busy = true;
            self.selection.begins(chosen, account, order.declared_bytes);
        }
        self.merges.begins(&order);
        self.pace.begins(order.declared_bytes);
        self.running.insert(chosen.owner, (order.clone(), now));
        order
    }

    fn budget_bytes(&self, kind: TaskKind) -> u64 {
        let budget = self.speeds.budget(kind);
        match self.budgets.io_bytes_per_second_max {
            // Under a low ceiling small steps make an even stream.
            Some(ceiling) => budget.min((ceiling / 50).max(DECLARED_MIN)),
            None => budget,
        }
    }

    fn declared_bytes(&self, task: &Task) -> u64 {
        let budget = self.budget_bytes(task.kind);
        budget.min(task.cost_bytes).max(DECLARED_MIN)
    }

    fn set_pace(&mut self, backlogs: Backlogs, now: Moment) {
        let share = self.foreground.share();
        self.pace
            .set(backlogs, self.speeds.bytes_per_second(), share, now);
    }

    fn stretch_spring(&mut self, backlogs: Backlogs, now: Moment) {
        let bound = self.speeds.bytes_per_second() * PRESSING_TIME_MAX;
        let pressing = backlogs.pressing as f64 / bound.max(PRESSING_BYTES_MIN);
        let whole = self
            .budgets
            .backlog_bytes_max
            .map_or(0.0, |bound| backlogs.sum() as f64 / bound.max(1) as f64);
        let elapsed = now.since(self.looked_at).as_secs_f64();
        let followed = 1.0 - (-elapsed / SPRING_SECONDS).exp();
        self.fullness += (pressing.max(whole) - self.fullness) * followed;
    }

    fn backlogs(&self, now: Moment) -> Backlogs {
        let mut backlogs = Backlogs::default();
        for account in self.accounts.values() {
            for ranked in &account.tasks {
                let backlog = if ranked.rank.is_pressing() {
                    &mut backlogs.pressing
                } else if ranked.rank.is_idle() {
                    &mut backlogs.idle
                } else {
                    &mut backlogs.normal
                };
                *backlog = backlog.saturating_add(ranked.task.cost_bytes);
            }
            backlogs.normal = backlogs.normal.saturating_add(account.unlisted_bytes());
        }
        let log = self.accounts.get(&Owner::ValueLog);
        backlogs.log = log.map_or(0, |log| log.collection_bytes(now));
        backlogs
    }

    fn memory_bytes(&self) -> u64 {
        self.accounts.values().map(|it| it.memory_bytes).sum()
    }

    /// The length of a rest when the next step has to wait for `wait`.
    fn rest(&self, wait: Duration, now: Moment) -> Duration {
        let mut until = now.plus(wait.max(REST_MIN));
        if !self.is_looking {
            until = until.min(self.look_at);
        }
        for account in self.accounts.values().filter(|it| !it.is_busy) {
            until = until.min(account.ask_at);
            if account.next_sync(now).is_some() {
                until = until.min(self.sync_after.max(now.plus(REST_MIN)));
            }
        }
        // A hold ends before the next look, or the look finds it.
        until.since(now).clamp(REST_MIN, LOOK_IDLE)
    }
}

/// True for tasks that copy data before they remove the originals.
fn is_scarce(used: Option<u64>, most: Option<u64>) -> bool {
    is_used_to(used, most, SCARCE_PERCENT)
}

fn is_used_to(used: Option<u64>, most: Option<u64>, percent: u64) -> bool {
    match (used, most) {
        (Some(used), Some(most)) => used.saturating_mul(100) >= most.saturating_mul(percent),
        _ => false,
    }
}
