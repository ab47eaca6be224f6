//! Syncs: of the value log, and of stores in rounds.

use std::time::Duration;

use kvorum_backend::{StepBudget, StepOutcome, Task, TaskKind, Urgency};
use kvorum_runtime::Moment;

use super::Arbiter;
use crate::account::Account;
use crate::order::{Decision, Order, Owner};

/// Stores synced in one round. More of them fill the device's queue, in which the value log's own
/// syncs wait. Measured with 64 dirty files of 4 MiB and a log that syncs continuously: single
/// files with rests took 783 ms, rounds of 16 by two threads 451 ms, one round of 64 took 281 ms.
/// The log's p99 was 15, 20 and 37 ms.
const SYNCS_MAX: usize = 16;
/// The rests between rounds of syncs.
const SYNC_REST_MIN: Duration = Duration::from_millis(1);
const SYNC_REST_MAX: Duration = Duration::from_millis(50);

impl Arbiter {
    pub(super) fn sync_ended(
        &mut self,
        order: &Order,
        outcome: Option<StepOutcome>,
        took: Duration,
        now: Moment,
    ) {
        let is_log = order.owner == Owner::ValueLog;
        if is_log {
            // A step with a cost has synced a store. Other steps prepare a sync, or free files.
            self.is_log_trimming = outcome.is_some_and(|outcome| outcome.cost_bytes > 0);
            self.accounts
                .values_mut()
                .for_each(Account::log_has_stepped);
        } else if outcome.is_none()
            && let Some(account) = self.accounts.get_mut(&order.owner)
        {
            account.sync_failed();
        }
        if order.task.urgency != Urgency::Pressing && (!is_log || self.is_log_trimming) {
            let rest = now.plus(took.clamp(SYNC_REST_MIN, SYNC_REST_MAX));
            self.sync_after = self.sync_after.max(rest);
        }
    }

    /// The value log's next step, or a round of syncs; nothing while the device rests.
    pub(super) fn next_sync(&mut self, now: Moment) -> Option<Decision> {
        let is_rest_over = self.sync_after <= now;
        let log = self.accounts.get(&Owner::ValueLog);
        let log = log.filter(|log| !log.is_busy);
        let log_task = log
            .and_then(|log| log.next_sync(now))
            .map(|it| it.task.clone());
        let is_log_pressing = log_task
            .as_ref()
            .is_some_and(|task| task.urgency == Urgency::Pressing);
        if !is_rest_over && !is_log_pressing {
            return None;
        }
        // A log that is not too long syncs its stores in its own steps, one after the other.
        let round = self.round(is_log_pressing && self.is_log_trimming, now);
        if !round.is_empty() {
            return Some(Decision::Syncs(round));
        }
        // The stores are synced: the log's oldest segment is free.
        let order = self.sync_order(Owner::ValueLog, log_task?, now);
        Some(Decision::Step(order))
    }

    /// Stores that are synced together: those with a sync due, or all that a pressing log waits
    /// for.
    fn round(&mut self, is_log_waiting: bool, now: Moment) -> Vec<Order> {
        let wanting = self
            .accounts
            .iter()
            .filter(|(owner, account)| **owner != Owner::ValueLog && !account.is_busy);
        let chosen: Vec<(Owner, Task)> = wanting
            .filter_map(|(owner, account)| {
                if let Some(ranked) = account.next_sync(now) {
                    return Some((*owner, ranked.task.clone()));
                }
                let is_wanted = is_log_waiting && account.may_free_log() && account.may_sync(now);
                is_wanted.then(|| (*owner, sync_task()))
            })
            .take(SYNCS_MAX)
            .collect();
        chosen
            .into_iter()
            .map(|(owner, task)| self.sync_order(owner, task, now))
            .collect()
    }

    fn sync_order(&mut self, owner: Owner, task: Task, now: Moment) -> Order {
        if let Some(account) = self.accounts.get_mut(&owner) {
            account.is_busy = true;
            account.sync_begins();
        }
        let order = Order {
            owner,
            declared_bytes: task.cost_bytes,
            budget: StepBudget { bytes: u64::MAX },
            task,
        };
        self.running.insert(owner, (order.clone(), now));
        order
    }
}

/// A sync that a store has not reported as due.
fn sync_task() -> Task {
    Task::normal(TaskKind::Sync, 0, 0)
}
