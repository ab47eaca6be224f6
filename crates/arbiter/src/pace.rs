//! Rates: the need of the backlog, the free capacity beyond it, and the ceilings.
//!
//! Steps draw on three accounts of credit that fill with time: the pace in bytes, the I/O ceiling
//! in bytes and the processor share in seconds. A step may begin while there is credit and is
//! charged its actual cost, so that an expensive one is followed by a longer rest.
//!
//! Transfers between nodes have a pace of their own: they are not a store's backlog, so they do not
//! grow with the backlog, and they have to continue while requests are slowed. They share the I/O
//! ceiling.

use std::time::Duration;

use kvorum_runtime::Moment;

use crate::account::FACTOR_MAX;
use crate::average::{Rate, seconds};
use crate::budgets::Budgets;

/// The time in which a backlog of constant size would be done. This term bounds the effect of an
/// error in the measured factor.
const PAID_WITHIN: Duration = Duration::from_secs(15 * 60);
/// The same for idle work.
const IDLE_PAID_WITHIN: Duration = Duration::from_secs(4 * 60 * 60);
/// The window of the present ingest; it is short, since a burst needs its work soon.
const PRESENT: Duration = Duration::from_secs(10);
/// The window of the measured factor; it is long, since merges are irregular.
const LONG: Duration = Duration::from_secs(10 * 60);
/// The window of the factor of the value log's backlog, which follows puts at once, byte by byte, and
/// is excess data on the disk.
const LOG_LONG: Duration = Duration::from_secs(30);
/// The time in which the value log's backlog is done. A shorter time would cause bursts. With a
/// longer one and a factor that is slightly low, the log would pass its bound, where its work is
/// urgent and unlimited.
const LOG_PAID_WITHIN: Duration = Duration::from_secs(10);
/// The limit of the log's need beyond twice the rate of new work, in bytes per second. A backlog
/// from other sources than puts (an opened merge window, a lowered bound) is like any other.
const LOG_PAID_BESIDE: f64 = 16.0 * 1024.0 * 1024.0;
/// The rate below which the factor is not yet meaningful: for stores it counts as one byte of work
/// for each byte put. Bytes per second over the window.
const FACTOR_PRIOR: f64 = 64.0 * 1024.0;
/// The least need while there is any backlog, for tasks without bytes. Bytes per second.
const NEEDED_MIN: f64 = 1024.0 * 1024.0;
/// The rate of transfers that slow requests do not reduce: a node that is added to a busy cluster
/// has to be filled at some time. Bytes per second.
pub(crate) const TRANSFERS_MIN: f64 = 4.0 * 1024.0 * 1024.0;
/// The limit of saved credit: it makes up for rests that last longer than requested.
const SAVED: Duration = Duration::from_millis(50);
/// The longest rest after a single large step, except in bytes under a ceiling.
const OVERDRAWN_MAX: Duration = Duration::from_secs(1);

/// The whole backlog, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Backlogs {
    pub(crate) pressing: u64,
    pub(crate) normal: u64,
    pub(crate) idle: u64,
    /// The value log's normal merges that are not held back: a part of `normal`.
    pub(crate) log: u64,
}

impl Backlogs {
    pub(crate) fn sum(self) -> u64 {
        self.pressing
            .saturating_add(self.normal)
            .saturating_add(self.idle)
    }
}

/// The rates and credits.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    ingest: Rate,
    ingest_long: Rate,
    arisen_long: Rate,
    log_ingest: Rate,
    log_arisen: Rate,
    done: Rate,
    cpu: Rate,
    /// Background bytes per second that the backlog needs.
    needed: f64,
    /// The allowed rate; infinite when only the ceilings limit it.
    allowed: f64,
    steps_credit: Credit,
    io_credit: Credit,
    cpu_credit: Credit,
    transfers: Rate,
    transfers_credit: Credit,
    refilled_at: Moment,
}

#[derive(Clone, Copy, Debug)]
struct Credit {
    level: f64,
    per_second: f64,
}

impl Credit {
    fn new(per_second: f64) -> Self {
        Self {
            level: 0.0,
            per_second,
        }
    }

    /// Credit that was saved without a bound is void under one.
    fn set_per_second(&mut self, per_second: f64) {
        self.per_second = per_second;
        if per_second.is_finite() && self.level.is_infinite() {
            self.level = 0.0;
        }
    }

    fn refill(&mut self, elapsed_seconds: f64) {
        let most = self.per_second * SAVED.as_secs_f64();
        if most.is_infinite() {
            self.level = f64::INFINITY;
            return;
        }
        self.level = (self.level + self.per_second * elapsed_seconds).min(most);
    }

    fn draw(&mut self, amount: f64) {
        if self.level.is_finite() {
            self.level -= amount;
        }
    }

    fn forgive_beyond(&mut self, longest: Duration) {
        let least = -self.per_second * longest.as_secs_f64();
        if least.is_finite() {
            self.level = self.level.max(least);
        }
    }

    /// The time until there is credit.
    fn wait_seconds(&self) -> f64 {
        if self.level > 0.0 {
            0.0
        } else if self.per_second <= 0.0 {
            f64::INFINITY
        } else {
            // A level of exactly zero is no credit, so the wait is not zero.
            (-self.level / self.per_second).max(1e-6)
        }
    }
}

impl Pace {
    pub(crate) fn new(budgets: &Budgets) -> Self {
        let io_max = budgets.io_bytes_per_second_max;
        let io_max = io_max.map_or(f64::INFINITY, |bytes| bytes as f64);
        Self {
            ingest: Rate::over(PRESENT),
            ingest_long: Rate::over(LONG),
            arisen_long: Rate::over(LONG),
            log_ingest: Rate::over(LOG_LONG),
            log_arisen: Rate::over(LOG_LONG),
            done: Rate::over(PRESENT),
            cpu: Rate::over(PRESENT),
            needed: 0.0,
            allowed: f64::INFINITY,
            steps_credit: Credit::new(f64::INFINITY),
            io_credit: Credit::new(io_max),
            cpu_credit: Credit::new(budgets.cpu_per_second()),
            transfers: Rate::over(PRESENT),
            transfers_credit: Credit::new(f64::INFINITY),
            refilled_at: Moment::default(),
        }
    }

    /// Notes bytes put by clients, and the background work that they caused.
    pub(crate) fn ingested(&mut self, put_bytes: u64, arisen_bytes: f64, now: Moment) {
        self.ingest.add(put_bytes as f64, now);
        self.ingest_long.add(put_bytes as f64, now);
        self.arisen_long.add(arisen_bytes, now);
        self.log_ingest.add(put_bytes as f64, now);
    }

    /// Notes work of the value log that puts to stores caused.
    pub(crate) fn note_log_work(&mut self, arisen_bytes: f64, now: Moment) {
        self.log_arisen.add(arisen_bytes, now);
    }

    /// Sets the pace. `free` is the maximum of all workers, `share` the part of the capacity beyond
    /// the need that upkeep may use.
    pub(crate) fn set(&mut self, backlogs: Backlogs, free: f64, share: f64, now: Moment) {
        let normal = backlogs.normal.saturating_add(backlogs.pressing) as f64;
        let needed = self.arising(now)
            + normal / PAID_WITHIN.as_secs_f64()
            + self.paying_log(backlogs.log, now)
            + backlogs.idle as f64 / IDLE_PAID_WITHIN.as_secs_f64();
        self.needed = needed.max(NEEDED_MIN);
        self.allowed = if share >= 1.0 {
            f64::INFINITY
        } else {
            self.needed + share * (free - self.needed).max(0.0)
        };
        self.steps_credit.set_per_second(self.allowed);
        self.transfers_credit.set_per_second(if share >= 1.0 {
            f64::INFINITY
        } else {
            TRANSFERS_MIN + share * (free - TRANSFERS_MIN).max(0.0)
        });
    }

    /// Fills the credits up to now.
    pub(crate) fn refill(&mut self, now: Moment) {
        let elapsed = now.since(self.refilled_at).as_secs_f64();
        self.refilled_at = self.refilled_at.max(now);
        self.steps_credit.refill(elapsed);
        self.io_credit.refill(elapsed);
        self.cpu_credit.refill(elapsed);
        self.transfers_credit.refill(elapsed);
    }

    /// The time that a transfer has to wait before its next `bytes`, as of the last refill; if the
    /// time is zero, they count as spent.
    pub(crate) fn transfer(&mut self, bytes: u64, now: Moment) -> Duration {
        let wait = self.io_credit.wait_seconds();
        let wait = wait.max(self.transfers_credit.wait_seconds());
        if wait <= 0.0 {
            self.transfers_credit.draw(bytes as f64);
            self.io_credit.draw(bytes as f64);
            self.transfers.add(bytes as f64, now);
        }
        seconds(wait, Duration::MAX)
    }

    /// Bytes per second that transfers have read and written.
    pub(crate) fn transferred(&self, now: Moment) -> f64 {
        self.transfers.per_second(now)
    }

    /// The allowed rate of transfers in bytes per second; infinite when only the ceiling bounds
    /// them.
    pub(crate) fn transfers_allowed(&self) -> f64 {
        self.transfers_credit.per_second
    }

    /// The time that the next step has to wait, as of the last refill.
    pub(crate) fn wait(&self, is_pressing: bool) -> Duration {
        let wait = if is_pressing {
            self.io_credit.wait_seconds()
        } else {
            self.io_credit
                .wait_seconds()
                .max(self.steps_credit.wait_seconds())
                .max(self.cpu_credit.wait_seconds())
        };
        seconds(wait, Duration::MAX)
    }

    /// True when work that does not press has to wait because of requests, as of the last refill.
    pub(crate) fn is_held_by_requests(&self) -> bool {
        self.steps_credit.wait_seconds() > 0.0
    }

    /// Begins a step: its expected cost is reserved.
    pub(crate) fn begins(&mut self, declared_bytes: u64) {
        self.steps_credit.draw(declared_bytes as f64);
        self.io_credit.draw(declared_bytes as f64);
    }

    /// Ends a step, whose true cost is now known.
    pub(crate) fn ended(&mut self, declared_bytes: u64, cost_bytes: u64, now: Moment) {
        let more = cost_bytes as f64 - declared_bytes as f64;
        self.steps_credit.draw(more);
        self.steps_credit.forgive_beyond(OVERDRAWN_MAX);
        self.io_credit.draw(more);
        self.done.add(cost_bytes as f64, now);
    }

    /// Notes processor time of steps and syncs.
    pub(crate) fn used_cpu(&mut self, cpu: Duration, now: Moment) {
        self.cpu_credit.draw(cpu.as_secs_f64());
        self.cpu_credit.forgive_beyond(OVERDRAWN_MAX);
        self.cpu.add(cpu.as_secs_f64(), now);
    }

    /// The need of the log's backlog beyond new work, in bytes per second.
    fn paying_log(&self, backlog_bytes: u64, now: Moment) -> f64 {
        let soon = backlog_bytes as f64 / LOG_PAID_WITHIN.as_secs_f64();
        soon.min(self.ingest.per_second(now) * self.log_factor(now) + LOG_PAID_BESIDE)
    }

    /// Background bytes per second that the present ingest causes.
    pub(crate) fn arising(&self, now: Moment) -> f64 {
        self.ingest.per_second(now) * self.factor(now)
    }

    /// Background bytes for each byte put, as measured.
    pub(crate) fn factor(&self, now: Moment) -> f64 {
        let arisen = self.arisen_long.per_second(now) + FACTOR_PRIOR;
        let ingested = self.ingest_long.per_second(now) + FACTOR_PRIOR;
        (arisen / ingested).max(0.0) + self.log_factor(now)
    }

    /// The log's part of the factor.
    fn log_factor(&self, now: Moment) -> f64 {
        let arisen = self.log_arisen.per_second(now);
        let ingested = self.log_ingest.per_second(now) + FACTOR_PRIOR;
        (arisen / ingested).min(FACTOR_MAX)
    }

    pub(crate) fn ingest(&self, now: Moment) -> f64 {
        self.ingest.per_second(now)
    }

    pub(crate) fn done(&self, now: Moment) -> f64 {
        self.done.per_second(now)
    }

    /// Processor seconds per second.
    pub(crate) fn cpu(&self, now: Moment) -> f64 {
        self.cpu.per_second(now)
    }

    pub(crate) fn needed(&self) -> f64 {
        self.needed
    }

    /// The allowed rate of steps in bytes per second; infinite when only the ceilings bound them.
    pub(crate) fn allowed(&self) -> f64 {
        self.allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::from_start(Duration::from_millis(millis))
    }

    fn backlogs(normal: u64) -> Backlogs {
        Backlogs {
            normal,
            ..Backlogs::default()
        }
    }

    /// The bytes that steps of 64 KiB process in ten seconds without a pause in work.
    fn done_in_ten_seconds(pace: &mut Pace, is_pressing: bool) -> u64 {
        let (mut now, mut done) = (at(1000), 0);
        pace.refill(now);
        while now < at(11_000) {
            let wait = pace.wait(is_pressing);
            if wait.is_zero() {
                pace.begins(64 << 10);
                pace.ended(64 << 10, 64 << 10, now);
                pace.used_cpu(Duration::from_micros(100), now);
                done += 64 << 10;
                now = now.plus(Duration::from_micros(100));
            } else {
                now = now.plus(wait);
            }
            pace.refill(now);
        }
        done
    }

    #[test]
    fn a_share_of_nothing_leaves_what_the_backlog_needs() {
        let mut pace = Pace::new(&Budgets::default());
        // 9 GB within 900 s.
        pace.set(backlogs(9_000_000_000), 500e6, 0.0, at(1000));
        let done = done_in_ten_seconds(&mut pace, false);
        assert!((99_000_000..102_000_000).contains(&done), "{done}");
    }

    #[test]
    fn ingest_times_the_measured_factor_is_needed() {
        let mut pace = Pace::new(&Budgets::default());
        for second in 0..2000 {
            pace.ingested(10_000_000, 30_000_000.0, at(second * 1000));
        }
        let now = at(2_000_000);
        assert!(
            (2.9..3.05).contains(&pace.factor(now)),
            "{}",
            pace.factor(now)
        );
        pace.set(backlogs(0), 500e6, 0.0, now);
        assert!((25e6..31e6).contains(&pace.needed()), "{}", pace.needed());
    }

    fn needed_for_log(pace: &mut Pace, log: u64, now: Moment) -> f64 {
        let backlogs = Backlogs {
            normal: log,
            log,
            ..Backlogs::default()
        };
        pace.set(backlogs, 500e6, 0.0, now);
        pace.needed()
    }

    #[test]
    fn the_logs_work_for_puts_is_learned_within_a_minute_and_done_within_seconds() {
        let mut pace = Pace::new(&Budgets::default());
        (0..600).for_each(|second| pace.ingested(10_000_000, 0.0, at(second * 1000)));
        for second in 600..660 {
            pace.ingested(10_000_000, 0.0, at(second * 1000));
            pace.note_log_work(20_000_000.0, at(second * 1000));
        }
        let now = at(660_000);
        let needed = needed_for_log(&mut pace, 0, now);
        assert!((16e6..21e6).contains(&needed), "{needed}");
        let more = needed_for_log(&mut pace, 100_000_000, now) - needed;
        assert!((9.9e6..10.5e6).contains(&more), "{more}");
    }

    #[test]
    fn the_logs_work_for_other_reasons_than_puts_is_not_hurried() {
        let mut pace = Pace::new(&Budgets::default());
        pace.ingested(1_000_000, 0.0, at(1000));
        pace.note_log_work(9e9, at(1000));
        let now = at(2000);
        // 1 MB a second, and 32 for each byte at most, twice.
        let needed = needed_for_log(&mut pace, 9_000_000_000, now);
        assert!((80e6..96e6).contains(&needed), "{needed}");
        let mut idle = Pace::new(&Budgets::default());
        let needed = needed_for_log(&mut idle, 9_000_000_000, now);
        assert!((26e6..27e6).contains(&needed), "{needed}");
    }

    #[test]
    fn ceilings_hold_whatever_the_share() {
        let budgets = Budgets {
            io_bytes_per_second_max: Some(5_000_000),
            ..Budgets::default()
        };
        let done = done_in_ten_seconds(&mut Pace::new(&budgets), false);
        assert!((4_900_000 * 10..5_100_000 * 10).contains(&done), "{done}");
        // Pressing or not: a ceiling is a ceiling.
        let done = done_in_ten_seconds(&mut Pace::new(&budgets), true);
        assert!((4_900_000 * 10..5_100_000 * 10).contains(&done), "{done}");
        let budgets = Budgets {
            cpu_share_max_percent: 10,
            ..Budgets::default()
        };
        // A tenth of the ten seconds, 100 us a step.
        let done = done_in_ten_seconds(&mut Pace::new(&budgets), false) >> 16;
        assert!((9_900..10_600).contains(&done), "{done}");
        let pressed = done_in_ten_seconds(&mut Pace::new(&budgets), true) >> 16;
        assert!(pressed > 95_000, "{pressed}");
    }

    /// The bytes that a transfer moves in ten seconds, in pages of 64 KiB.
    fn transferred_in_ten_seconds(pace: &mut Pace) -> u64 {
        let (mut now, mut done) = (at(1000), 0);
        while now < at(11_000) {
            pace.refill(now);
            let wait = pace.transfer(64 << 10, now);
            if wait.is_zero() {
                done += 64 << 10;
                now = now.plus(Duration::from_micros(100));
            } else {
                now = now.plus(wait);
            }
        }
        done
    }

    #[test]
    fn transfers_go_on_slowly_while_requests_suffer_and_freely_otherwise() {
        let mut pace = Pace::new(&Budgets::default());
        assert!(transferred_in_ten_seconds(&mut pace) > 1 << 30);
        let mut pace = Pace::new(&Budgets::default());
        pace.set(backlogs(0), 100e6, 0.0, at(1000));
        let done = transferred_in_ten_seconds(&mut pace);
        assert!((39 << 20..42 << 20).contains(&done), "{done}");
        // Transfers depend on half of the free capacity, and not on the backlog.
        pace.set(backlogs(9_000_000_000), 100e6, 0.5, at(11_000));
        assert!((51e6..53e6).contains(&pace.transfers_allowed()));
    }

    #[test]
    fn transfers_and_steps_share_the_ceiling() {
        let budgets = Budgets {
            io_bytes_per_second_max: Some(5_000_000),
            ..Budgets::default()
        };
        let mut pace = Pace::new(&budgets);
        let done = transferred_in_ten_seconds(&mut pace);
        assert!((4_900_000 * 10..5_200_000 * 10).contains(&done), "{done}");
        pace.begins(50_000_000);
        assert!(pace.transfer(1, at(11_000)) > Duration::from_secs(5));
    }

    #[test]
    fn one_large_step_is_made_up_for_within_a_second() {
        let mut pace = Pace::new(&Budgets::default());
        pace.set(backlogs(900_000_000), 500e6, 0.0, at(0));
        pace.refill(at(1000));
        pace.begins(1 << 20);
        pace.ended(1 << 20, 1 << 30, at(1000));
        assert!(pace.wait(false) <= Duration::from_millis(1100));
    }
}
