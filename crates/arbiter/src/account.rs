//! The backlog of one owner, its share of service, and the time of the next query.

use std::time::Duration;

use kvorum_backend::{Task, TaskKind};
use kvorum_runtime::Moment;

use crate::average::Rate;
use crate::backoff::{Backoff, TaskId};
use crate::event::Answer;
use crate::rank::{Rank, Scarcity};

/// The query period of an owner without puts and backlog, for tasks that become due by time.
const ASK_IDLE: Duration = Duration::from_secs(10);
/// The query period of an owner with a backlog and without puts.
const ASK_WITH_BACKLOG: Duration = Duration::from_secs(5);
/// The least time between queries of an owner, which may have a new task right after a finished
/// one.
const ASK_MIN: Duration = Duration::from_millis(10);
/// Background bytes that one byte put may cause. Work beyond that has another origin (an opened
/// merge window, an expiry date): it is a backlog and no measure for the next puts.
pub(crate) const FACTOR_MAX: f64 = 32.0;
/// The time in which the weight of bytes put, as the cause of new work, falls by a factor of e.
const EXPLAINED_WITHIN: Duration = Duration::from_secs(600);
/// The window of the rate of puts.
const INGEST_WINDOW: Duration = Duration::from_secs(10);

/// A task with its place in the order.
#[derive(Clone, Debug)]
pub(crate) struct RankedTask {
    pub(crate) task: Task,
    pub(crate) rank: Rank,
    /// The time when it was first reported, or last worked on.
    pub(crate) since: Moment,
}

/// One owner.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    /// In the order of their ranks, without syncs.
    pub(crate) tasks: Vec<RankedTask>,
    pub(crate) sync: Option<RankedTask>,
    /// A step or a question is under way.
    pub(crate) is_busy: bool,
    pub(crate) ask_at: Moment,
    pub(crate) backoff: Backoff,
    /// Bytes of steps by rank; comparable between stores.
    pub(crate) served: [u64; Rank::COUNT],
    pub(crate) memory_bytes: u64,
    pub(crate) ingest: Rate,
    answered_at: Option<Moment>,
    /// Its backlog beyond its tasks, in bytes.
    unlisted_bytes: u64,
    put_bytes: Option<u64>,
    /// Bytes put since the last new work, with decreasing weight.
    put_since: f64,
    written: u64,
    written_when_answered: u64,
    written_when_synced: u64,
    /// True if it was synced since the log's last step.
    was_synced_for_log: bool,
}

/// The effects of an answer.
pub(crate) struct Change {
    /// Payload bytes put since the last answer.
    pub(crate) put_bytes: u64,
    /// New work beyond the known work that is not done. Negative when it was less than reported.
    pub(crate) arisen_bytes: f64,
}

impl Account {
    /// An owner whose first query is due at once.
    pub(crate) fn new(now: Moment, written: u64) -> Self {
        Self {
            tasks: Vec::new(),
            sync: None,
            is_busy: false,
            ask_at: now,
            backoff: Backoff::default(),
            served: [0; Rank::COUNT],
            memory_bytes: 0,
            ingest: Rate::over(INGEST_WINDOW),
            answered_at: None,
            unlisted_bytes: 0,
            put_bytes: None,
            put_since: 0.0,
            written,
            written_when_answered: written,
            // Earlier puts are assumed to be unsynced.
            written_when_synced: u64::MAX,
            was_synced_for_log: false,
        }
    }

    /// Notes the puts so far; an owner with puts is queried again soon.
    pub(crate) fn looked(&mut self, written: u64, ask_period: Duration) {
        self.written = written;
        if let Some(answered_at) = self.answered_at
            && written != self.written_when_answered
        {
            self.ask_at = self.ask_at.min(answered_at.plus(ask_period));
        }
    }

    pub(crate) fn answered(
        &mut self,
        answer: &Answer,
        scarcity: Scarcity,
        floors: &[u64; Rank::COUNT],
        now: Moment,
    ) -> Change {
        let known_bytes = self.backlog_bytes() as f64;
        self.take_tasks(&answer.tasks, scarcity, now);
        self.join_queues(floors);
        let listed: u64 = self.tasks.iter().map(|it| it.task.cost_bytes).sum();
        self.unlisted_bytes = answer.backlog_bytes.saturating_sub(listed);
        self.backoff.keep(&answer.tasks, now);
        self.memory_bytes = answer.memory_bytes;
        let put_bytes = match self.put_bytes.replace(answer.put_bytes) {
            Some(before) => answer.put_bytes.saturating_sub(before),
            None => 0,
        };
        self.ingest.add(put_bytes as f64, now);
        let arisen_bytes = match self.answered_at.replace(now) {
            // The work is from an earlier run.
            None => 0.0,
            Some(before) => {
                let arisen = self.backlog_bytes() as f64 - known_bytes;
                self.explained(arisen, put_bytes, now.since(before))
            }
        };
        self.written_when_answered = self.written;
        let has_tasks = self.sync.is_some() || !self.tasks.is_empty();
        self.ask_at = now.plus(if has_tasks {
            ASK_WITH_BACKLOG
        } else {
            ASK_IDLE
        });
        Change {
            put_bytes,
            arisen_bytes,
        }
    }

    /// The part of the new work that puts explain.
    fn explained(&mut self, arisen_bytes: f64, put_bytes: u64, elapsed: Duration) -> f64 {
        let faded = (-elapsed.as_secs_f64() / EXPLAINED_WITHIN.as_secs_f64()).exp();
        self.put_since = self.put_since * faded + put_bytes as f64;
        if arisen_bytes <= 0.0 {
            return arisen_bytes;
        }
        let explained = arisen_bytes.min(self.put_since * FACTOR_MAX);
        self.put_since = 0.0;
        explained
    }

    fn take_tasks(&mut self, tasks: &[Task], scarcity: Scarcity, now: Moment) {
        let known: Vec<RankedTask> = self.tasks.drain(..).chain(self.sync.take()).collect();
        for task in tasks {
            let id = TaskId::of(task);
            let before = known.iter().find(|it| TaskId::of(&it.task) == id);
            let ranked = RankedTask {
                rank: Rank::of(task, scarcity),
                since: before.map_or(now, |it| it.since),
                task: task.clone(),
            };
            if task.kind == TaskKind::Sync {
                self.sync = Some(ranked);
            } else {
                self.tasks.push(ranked);
            }
        }
        self.tasks.sort_by_key(|ranked| ranked.rank);
    }

    /// Places a returning owner behind the waiting ones in its queue: it has no claim for the time
    /// without a backlog.
    fn join_queues(&mut self, floors: &[u64; Rank::COUNT]) {
        for (served, floor) in self.served.iter_mut().zip(floors) {
            *served = (*served).max(*floor);
        }
    }

    /// The first task that may begin and is not held back.
    pub(crate) fn next(
        &self,
        now: Moment,
        may: impl Fn(&RankedTask) -> bool,
    ) -> Option<&RankedTask> {
        let mut tasks = self.tasks.iter();
        tasks.find(|ranked| self.is_free(ranked, now) && may(ranked))
    }

    /// True when the account has this task, and it is not held back.
    pub(crate) fn can_go_on(&self, id: TaskId, now: Moment) -> bool {
        let mut tasks = self.tasks.iter();
        tasks.any(|ranked| TaskId::of(&ranked.task) == id && self.is_free(ranked, now))
    }

    /// True when this task is pending.
    pub(crate) fn has(&self, id: TaskId) -> bool {
        let mut tasks = self.tasks.iter();
        tasks.any(|ranked| TaskId::of(&ranked.task) == id)
    }

    /// True when a task may be worked on now.
    pub(crate) fn is_free(&self, ranked: &RankedTask, now: Moment) -> bool {
        let id = TaskId::of(&ranked.task);
        self.backoff.held_until(id, now).is_none()
    }

    /// The due sync, if it is not held back.
    pub(crate) fn next_sync(&self, now: Moment) -> Option<&RankedTask> {
        self.sync
            .as_ref()
            .filter(|ranked| self.is_free(ranked, now))
    }

    /// True when it had puts since its last answer, so that its tasks may have grown.
    pub(crate) fn has_changed(&self) -> bool {
        self.written != self.written_when_answered
    }

    /// True when its syncs are not held back after failures.
    pub(crate) fn may_sync(&self, now: Moment) -> bool {
        let id = TaskId {
            kind: TaskKind::Sync,
            subject: 0,
        };
        self.backoff.held_until(id, now).is_none()
    }

    /// True when puts may exist that no sync since has covered.
    pub(crate) fn is_unsynced(&self) -> bool {
        self.written != self.written_when_synced
    }

    /// True when a sync of this owner may free a part of the log: the owner was not synced since
    /// the log's last step. With continuous puts it is synced once between two steps of the log.
    pub(crate) fn may_free_log(&self) -> bool {
        self.is_unsynced() && !self.was_synced_for_log
    }

    pub(crate) fn log_has_stepped(&mut self) {
        self.was_synced_for_log = false;
    }

    pub(crate) fn sync_begins(&mut self) {
        self.written_when_synced = self.written;
        self.was_synced_for_log = true;
    }

    pub(crate) fn sync_failed(&mut self) {
        self.written_when_synced = u64::MAX;
    }

    /// Notes the effect of a step on a task.
    pub(crate) fn worked(&mut self, id: TaskId, cost_bytes: u64, is_done: bool, now: Moment) {
        if id.kind == TaskKind::Sync {
            self.sync = None;
        }
        let found = self.tasks.iter().position(|it| TaskId::of(&it.task) == id);
        if let Some(at) = found {
            let ranked = &mut self.tasks[at];
            ranked.since = now;
            let rank = ranked.rank.place();
            ranked.task.cost_bytes = ranked.task.cost_bytes.saturating_sub(cost_bytes);
            if ranked.task.cost_bytes == 0 && !is_done {
                // More is left than was reported: the owner has to report the amount again.
                ranked.task.cost_bytes = 1;
                self.ask_at = now;
            }
            self.served[rank] = self.served[rank].saturating_add(cost_bytes);
            if is_done {
                self.tasks.remove(at);
            }
        }
        let answered_at = self.answered_at.unwrap_or_default();
        if is_done {
            self.ask_at = self.ask_at.min(answered_at.plus(ASK_MIN).max(now));
        }
    }

    /// Requests a query once a period has passed since the last one.
    pub(crate) fn ask_within(&mut self, period: Duration) {
        let answered_at = self.answered_at.unwrap_or_default();
        self.ask_at = self.ask_at.min(answered_at.plus(period));
    }

    /// Total backlog, without syncs.
    pub(crate) fn backlog_bytes(&self) -> u64 {
        let listed: u64 = self.tasks.iter().map(|it| it.task.cost_bytes).sum();
        listed.saturating_add(self.unlisted_bytes)
    }

    /// Normal collections with the unlisted bytes; none while the first collection is held back.
    pub(crate) fn collection_bytes(&self, now: Moment) -> u64 {
        let collections = self.tasks.iter().filter(|it| {
            let is_normal = !it.rank.is_pressing() && !it.rank.is_idle();
            it.task.kind == TaskKind::Collect && is_normal && self.is_free(it, now)
        });
        let listed: u64 = collections.map(|it| it.task.cost_bytes).sum();
        if listed > 0 {
            listed.saturating_add(self.unlisted_bytes)
        } else {
            0
        }
    }

    /// Its backlog beyond its tasks.
    pub(crate) fn unlisted_bytes(&self) -> u64 {
        self.unlisted_bytes
    }
}
