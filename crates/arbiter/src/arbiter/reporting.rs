//! The arbiter as operators see it.

use std::collections::BTreeMap;
use std::time::Duration;

use kvorum_backend::TaskKind;
use kvorum_runtime::Moment;

use super::Arbiter;
use crate::average::whole;
use crate::backoff::TaskId;
use crate::order::Owner;
use crate::report::{DueTask, Report};

impl Arbiter {
    /// The present state.
    pub fn report(&self, now: Moment) -> Report {
        let backlogs = self.backlogs(now);
        let allowed = self.pace.allowed();
        let running = self.running.values();
        let stores = || self.accounts.iter();
        let rates = stores().map(|(owner, it)| (*owner, whole(it.ingest.per_second(now))));
        let by_owner = stores().map(|(owner, it)| (*owner, it.backlog_bytes()));
        Report {
            running: running
                .map(|(order, since)| (order.clone(), now.since(*since)))
                .collect(),
            due: self.due(now),
            backlog_by_owner: by_owner.filter(|(_, bytes)| *bytes > 0).collect(),
            backlog_by_kind: self.backlog_by_kind(),
            backlog_bytes: backlogs.sum(),
            pressing_bytes: backlogs.pressing,
            paid_in: self.paid_in(backlogs.sum(), now),
            done_rate: whole(self.pace.done(now)),
            needed_rate: whole(self.pace.needed()),
            transfer_rate: whole(self.pace.transferred(now)),
            transfer_allowed_rate: {
                let allowed = self.pace.transfers_allowed();
                allowed.is_finite().then(|| whole(allowed))
            },
            allowed_rate: allowed.is_finite().then(|| whole(allowed)),
            speed: whole(self.speeds.bytes_per_second()),
            ingest_rate: whole(self.pace.ingest(now)),
            ingest_by_owner: rates.filter(|(_, rate)| *rate > 0).collect(),
            amplification: self.pace.factor(now),
            free_share: self.foreground.share(),
            foreground: self.foreground.last(),
            fullness: self.fullness,
            put_delay: self.put_delay(),
            steps: self.steps.clone(),
            longest_step: self.longest_step,
            cpu_cores: self.pace.cpu(now),
            memory_bytes: self.memory_bytes() + self.memory.caches + self.memory.beside_stores(),
            memory: self.memory,
            memory_orders: self.memory_orders,
            refuses_puts: self.refuses_puts(),
            open_files: self.open_files,
            disk: self.disk,
        }
    }

    fn due(&self, now: Moment) -> Vec<DueTask> {
        let mut all = Vec::new();
        for (owner, account) in &self.accounts {
            for ranked in account.sync.iter().chain(&account.tasks) {
                let held = account.backoff.held_until(TaskId::of(&ranked.task), now);
                all.push(DueTask {
                    owner: *owner,
                    task: ranked.task.clone(),
                    held_for: held.map(|until| until.since(now)),
                });
            }
        }
        all
    }

    fn backlog_by_kind(&self) -> BTreeMap<TaskKind, u64> {
        let mut by_kind = BTreeMap::new();
        for (owner, account) in &self.accounts {
            let of_unlisted = match owner {
                Owner::ValueLog => TaskKind::Collect,
                Owner::Store(_) => TaskKind::Merge,
            };
            for ranked in &account.tasks {
                *by_kind.entry(ranked.task.kind).or_default() += ranked.task.cost_bytes;
            }
            let first = account.tasks.first();
            let first = first.map_or(of_unlisted, |it| it.task.kind);
            if account.unlisted_bytes() > 0 {
                *by_kind.entry(first).or_default() += account.unlisted_bytes();
            }
        }
        by_kind
    }

    fn paid_in(&self, backlog_bytes: u64, now: Moment) -> Option<Duration> {
        if backlog_bytes == 0 {
            return Some(Duration::ZERO);
        }
        // The recent rate of steps; before the first, the allowed one.
        let done = self.pace.done(now);
        let paying = if done > 1.0 { done } else { self.pace.needed() };
        let shrinking = paying - self.pace.arising(now);
        let needed = backlog_bytes as f64 / shrinking;
        (shrinking > 0.0)
            .then(|| Duration::try_from_secs_f64(needed).ok())
            .flatten()
    }
}
