//! Choice of the next owner: by rank, within a rank the value log, then the store served least, and
//! at intervals the owner that has waited longest.
//!
//! The log goes first because its backlog comes from the puts to all stores: with the share of one
//! store it would fall behind until it became urgent. The stores still get a quarter of the bytes.
//!
//! This is deficit round robin without the rounds: the owner that was served fewer bytes than the
//! others of its rank goes next, so that later turns make up for a step that costs more than
//! expected.

use std::collections::BTreeMap;

use kvorum_backend::Task;
use kvorum_runtime::Moment;

use crate::account::{Account, RankedTask};
use crate::order::Owner;
use crate::rank::Rank;

/// One of this many bytes is for waiting owners of any rank.
const WAITERS_PART: u64 = 16;
/// One of this many bytes is for stores, in a rank in which the log has work too.
const STORES_PART: u64 = 4;
/// The limit of saved bytes, for waiting owners and for stores beside the log.
const SAVED_MAX: u64 = 16 << 20;

/// The queues, one for each rank.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    /// The service of the last served store before that step, by rank.
    floors: [u64; Rank::COUNT],
    /// Bytes due to stores because the log went before them.
    stores_bytes: u64,
    /// Bytes due to waiting owners.
    waiters_bytes: u64,
}

/// The chosen owner.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    pub(crate) owner: Owner,
    pub(crate) task: Task,
    pub(crate) rank: Rank,
    /// True for the turn of the owner that has waited longest.
    pub(crate) is_waiter: bool,
}

impl Selection {
    pub(crate) fn new() -> Self {
        Self {
            floors: [0; Rank::COUNT],
            stores_bytes: 0,
            waiters_bytes: 0,
        }
    }

    pub(crate) fn floors(&self) -> &[u64; Rank::COUNT] {
        &self.floors
    }

    /// The next task to do. `budget_of` returns the cost of a step of a task; `waits` is true for
    /// tasks that have to wait for the end of another, and `may_begin` for ranks in which waiting
    /// tasks may begin.
    pub(crate) fn choose(
        &self,
        accounts: &BTreeMap<Owner, Account>,
        budget_of: impl Fn(&Task) -> u64,
        waits: impl Fn(Owner, &RankedTask) -> bool,
        may_begin: impl Fn(Rank) -> bool,
        now: Moment,
    ) -> Option<Chosen> {
        let (owner, first) = accounts
            .iter()
            .filter(|(_, account)| !account.is_busy)
            .filter_map(|(owner, account)| {
                let next = account.next(now, |ranked| !waits(*owner, ranked))?;
                Some((*owner, account, next))
            })
            .min_by_key(|(owner, account, ranked)| {
                let served = match owner {
                    Owner::ValueLog if self.stores_bytes < budget_of(&ranked.task) => 0,
                    Owner::ValueLog => u64::MAX,
                    Owner::Store(_) => account.served[ranked.rank.place()],
                };
                // The log goes before stores that were served equally or not yet.
                (ranked.rank, served, *owner)
            })
            .map(|(owner, _, ranked)| (owner, ranked))?;
        let waiter = longest_waiting(accounts, first.rank, waits, may_begin, now)
            .filter(|_| self.waiters_bytes > 0)
            .filter(|(_, ranked)| self.waiters_bytes >= budget_of(&ranked.task));
        let (owner, ranked, is_waiter) = match waiter {
            Some((owner, ranked)) => (owner, ranked, true),
            None => (owner, first, false),
        };
        Some(Chosen {
            owner,
            task: ranked.task.clone(),
            rank: ranked.rank,
            is_waiter,
        })
    }

    /// Notes that a step of the chosen task begins.
    pub(crate) fn begins(&mut self, chosen: &Chosen, account: &Account, declared_bytes: u64) {
        if chosen.is_waiter {
            self.waiters_bytes = self.waiters_bytes.saturating_sub(declared_bytes);
            return;
        }
        if chosen.owner == Owner::ValueLog {
            let due = self.stores_bytes + declared_bytes / (STORES_PART - 1);
            self.stores_bytes = due.min(SAVED_MAX);
        } else {
            let place = chosen.rank.place();
            self.floors[place] = self.floors[place].max(account.served[place]);
            self.stores_bytes = self.stores_bytes.saturating_sub(declared_bytes);
        }
        let due = self.waiters_bytes + (declared_bytes / WAITERS_PART).max(1);
        self.waiters_bytes = due.min(SAVED_MAX);
    }
}

/// The owner that has waited longest in the later ranks.
fn longest_waiting(
    accounts: &BTreeMap<Owner, Account>,
    first: Rank,
    waits: impl Fn(Owner, &RankedTask) -> bool,
    may_begin: impl Fn(Rank) -> bool,
    now: Moment,
) -> Option<(Owner, &RankedTask)> {
    let free = accounts.iter().filter(|(_, account)| !account.is_busy);
    let behind = free.flat_map(|(owner, account)| {
        let tasks = account.tasks.iter().filter(move |it| it.rank > first);
        tasks
            .filter(move |it| account.is_free(it, now))
            .map(|it| (*owner, it))
    });
    let behind = behind.filter(|(owner, ranked)| may_begin(ranked.rank) && !waits(*owner, ranked));
    behind.min_by_key(|(owner, ranked)| (ranked.since, *owner))
}
