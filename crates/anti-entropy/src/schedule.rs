//! The next exchange, and the results of earlier ones.
//!
//! Each target, the preference list of a partition at one n_val, is compared once in an interval.
//! Targets that were never compared come first, then targets with a hint from an exchange, then the
//! target compared longest ago. All times are microseconds of one clock.

use std::collections::BTreeMap;

use kvorum_encoding::StorageKey;

use crate::outcome::{EndedBy, Outcome};
use crate::range_hint::RangeHint;

/// A preference list whose replicas are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// The number of the partition.
    pub partition: u16,
    /// The number of replicas in its preference list.
    pub n: u8,
}

/// Bounds on number and frequency of exchanges.
#[derive(Clone, Copy, Debug)]
pub struct ScheduleSettings {
    /// Exchanges under way at once (Riak's `anti_entropy.concurrency_limit`).
    pub at_once: usize,
    /// The interval between exchanges of a target.
    pub interval_micros: u64,
    /// The most exchanges that follow one another at once while each finds differences (Riak's
    /// `tictacaae_repairloops`).
    pub loops_max: u32,
}

/// An exchange that has to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The target.
    pub target: Target,
    /// The range to compare; everything without one.
    pub hint: Option<RangeHint>,
    /// The key after which it continues, if the previous exchange was cut.
    pub after: Option<StorageKey>,
    /// Counts the exchanges of the target, except those that continue after a cut.
    pub turn: usize,
    /// Counts the orders of the node.
    pub number: u64,
}

/// The state of a target, for status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetReport {
    /// The target.
    pub target: Target,
    /// The end of the last exchange in which replicas were compared to the end.
    pub compared_at: Option<u64>,
    /// The beginning of the last complete exchange.
    pub complete_at: Option<u64>,
    /// The last complete exchange was in the present epoch.
    pub is_complete_in_epoch: bool,
    /// An exchange is under way.
    pub is_under_way: bool,
    /// Exchanges that have ended.
    pub exchanges: u64,
    /// Keys passed to repair by the last exchange.
    pub repaired_last: u32,
    /// The most keys that one exchange passed to repair.
    pub repaired_max: u32,
    /// Keys passed to repair by all exchanges.
    pub repaired: u64,
}

#[derive(Debug, Default)]
struct Record {
    /// The beginning of its last exchange, and the epoch of the ring.
    began: Option<(u64, u64)>,
    /// The number of the order under way.
    under_way: Option<u64>,
    compared_at: Option<u64>,
    /// The beginning of its last complete exchange, and the epoch.
    complete: Option<(u64, u64)>,
    hint: Option<RangeHint>,
    after: Option<StorageKey>,
    /// Consecutive exchanges that found differences.
    loops: u32,
    turn: usize,
    exchanges: u64,
    repaired_last: u32,
    repaired_max: u32,
    repaired: u64,
}

/// The schedule of a node's exchanges.
#[derive(Debug)]
pub struct Schedule {
    settings: ScheduleSettings,
    is_enabled: bool,
    epoch: u64,
    orders: u64,
    records: BTreeMap<Target, Record>,
}

impl Schedule {
    /// A schedule without targets.
    pub fn new(settings: ScheduleSettings) -> Self {
        Self {
            settings,
            is_enabled: true,
            epoch: 0,
            orders: 0,
            records: BTreeMap::new(),
        }
    }

    /// Applies changed settings.
    pub fn set_settings(&mut self, settings: ScheduleSettings) {
        self.settings = settings;
    }

    /// Sets the targets of a ring's epoch. Records of targets that stay are kept. Returns removed
    /// targets whose exchange is under way: the caller stops it.
    pub fn set_targets(
        &mut self,
        epoch: u64,
        targets: impl IntoIterator<Item = Target>,
    ) -> Vec<Target> {
        self.epoch = epoch;
        let mut former = std::mem::take(&mut self.records);
        for target in targets {
            let record = former.remove(&target).unwrap_or_default();
            self.records.insert(target, record);
        }
        let gone = former.into_iter().filter(|(_, it)| it.under_way.is_some());
        gone.map(|(target, _)| target).collect()
    }

    /// Begins no more exchanges. Returns the targets of exchanges under way, which the caller
    /// stops.
    pub fn disable(&mut self) -> Vec<Target> {
        self.is_enabled = false;
        let under_way = self.records.iter();
        let under_way = under_way.filter(|(_, it)| it.under_way.is_some());
        under_way.map(|(target, _)| *target).collect()
    }

    /// Begins exchanges again.
    pub fn enable(&mut self) {
        self.is_enabled = true;
    }

    /// The exchange that has to begin now; it counts as under way until [`Schedule::ended`].
    pub fn next(&mut self, now: u64) -> Option<Order> {
        if !self.is_enabled || self.under_way() >= self.settings.at_once {
            return None;
        }
        let interval = self.settings.interval_micros;
        let waiting = self.records.iter_mut();
        let waiting = waiting.filter(|(_, it)| it.under_way.is_none());
        let due = waiting.filter(|(_, it)| it.due_at(interval) <= now);
        let (target, record) = due.min_by_key(|(_, it)| it.rank())?;
        self.orders += 1;
        record.began = Some((now, self.epoch));
        record.under_way = Some(self.orders);
        let hint = record.hint.take();
        let after = match hint {
            Some(_) => None,
            None => record.after.take(),
        };
        if after.is_none() {
            record.turn = record.turn.wrapping_add(1);
        }
        Some(Order {
            target: *target,
            hint,
            after,
            turn: record.turn,
            number: self.orders,
        })
    }

    /// The next due time of an exchange, if none ends meanwhile; `None` for never.
    pub fn next_due(&self) -> Option<u64> {
        if !self.is_enabled || self.under_way() >= self.settings.at_once {
            return None;
        }
        let waiting = self.records.values().filter(|it| it.under_way.is_none());
        waiting
            .map(|it| it.due_at(self.settings.interval_micros))
            .min()
    }

    /// Records the end of an exchange. An exchange that began in another epoch counts as compared,
    /// not as complete. If its target was removed meanwhile, it does not count, even if the target
    /// has come back.
    pub fn ended(&mut self, order: &Order, outcome: &Outcome, now: u64) {
        let record = self.records.get_mut(&order.target);
        let Some(record) = record.filter(|it| it.under_way == Some(order.number)) else {
            return;
        };
        record.under_way = None;
        record.exchanges += 1;
        record.repaired_last = outcome.keys_repaired;
        record.repaired_max = record.repaired_max.max(outcome.keys_repaired);
        record.repaired += u64::from(outcome.keys_repaired);
        if has_compared(outcome.ended_by) {
            record.compared_at = Some(now);
        }
        if outcome.is_complete
            && let Some((began, epoch)) = record.began
            && epoch == self.epoch
        {
            record.complete = Some((began, epoch));
        }
        let goes_on = outcome.hint.is_some() && record.loops < self.settings.loops_max;
        record.loops = match goes_on {
            true => record.loops + 1,
            false => 0,
        };
        record.hint = outcome.hint.clone().filter(|_| goes_on);
        if order.hint.is_none() {
            record.after.clone_from(&outcome.resume_after);
        }
    }

    /// The state of each target.
    pub fn report(&self) -> Vec<TargetReport> {
        let reports = self.records.iter().map(|(target, record)| TargetReport {
            target: *target,
            compared_at: record.compared_at,
            complete_at: record.complete.map(|(began, _)| began),
            is_complete_in_epoch: record.complete.is_some_and(|it| it.1 == self.epoch),
            is_under_way: record.under_way.is_some(),
            exchanges: record.exchanges,
            repaired_last: record.repaired_last,
            repaired_max: record.repaired_max,
            repaired: record.repaired,
        });
        reports.collect()
    }

    fn under_way(&self) -> usize {
        let records = self.records.values();
        records.filter(|it| it.under_way.is_some()).count()
    }
}

impl Record {
    fn due_at(&self, interval: u64) -> u64 {
        match self.began {
            Some((began, _)) if self.hint.is_none() => began.saturating_add(interval),
            _ => 0,
        }
    }

    /// The record with the least rank comes first.
    fn rank(&self) -> (bool, bool, u64) {
        let began = self.began.map_or(0, |it| it.0);
        (self.began.is_some(), self.hint.is_none(), began)
    }
}

fn has_compared(ended_by: EndedBy) -> bool {
    matches!(
        ended_by,
        EndedBy::Equal | EndedBy::InFlight | EndedBy::Repaired | EndedBy::Recounted
    )
}
