//! The queue: waiting records, the choice of their committer, and the wake-ups at the end of a group.
//!
//! One committer works at a time: the driver, if one runs, or a waiting thread that finds no
//! committer. No wake-up is lost: the end of a group wakes the next committer (the driver, or a
//! thread that waits for a queued group), and a thread that finds no committer becomes one.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};

use kvorum_backend::{BackendError, ErrorKind, Result, SyncTicket};
use kvorum_runtime::Runtime;
use parking_lot::{Condvar, Mutex};

use crate::files::{AtOnce, Files, GroupFailure, Written};
use crate::group::{Committing, Group, Turn};
use crate::item::Item;
use crate::promise::LogPromise;

/// The length at which a group is cut, so that one write stays bounded. Bytes.
const GROUP_BYTES_MAX: u64 = 8 << 20;
/// From this length on, puts that requested no durability have to wait for their group as well. Bytes.
const CROWDED_BYTES: u64 = 16 << 20;
/// Beyond this length, the next put waits before it does anything. Bytes.
const QUEUE_BYTES_MAX: u64 = 64 << 20;

/// A queue and the files that it goes to.
pub(crate) struct Shared {
    pub(crate) queue: Mutex<Queue>,
    pub(crate) signals: Signals,
    pub(crate) writer: Files,
}

/// Records that wait to be committed.
#[derive(Default)]
pub(crate) struct Queue {
    /// Groups that still accept records, oldest first.
    gathering: VecDeque<Gathering>,
    /// The group that is being committed.
    committing: Option<Arc<Group>>,
    /// Bytes queued, with those of the group being written.
    bytes: u64,
    has_committer: bool,
    is_driven: bool,
    /// The task that drives the log or wakes the driver, while it waits for work.
    driving_task: Option<Waker>,
    driver_sleeps: bool,
    /// A task wakes the driver ([`Shared::call_driver`]).
    has_caller: bool,
    is_stopping: bool,
    failure: Option<BackendError>,
    groups: u64,
    batches: u64,
}

/// A group that more records may join.
struct Gathering {
    group: Arc<Group>,
    records: Vec<Arc<Item>>,
    bytes: u64,
    /// The highest promise for any of its records.
    promise: LogPromise,
}

/// Signals under the queue's lock.
#[derive(Default)]
pub(crate) struct Signals {
    /// There is work to commit, or the driver has to stop.
    pub(crate) driver: Condvar,
    /// There is room in the queue again, or no committer works.
    pub(crate) room: Condvar,
}

/// A record's place in the queue.
pub(crate) struct Queued {
    pub(crate) group: Arc<Group>,
    pub(crate) place: u64,
    /// The device is slower than the puts.
    pub(crate) is_crowded: bool,
}

/// The result of queueing a record.
pub(crate) struct Pushed {
    pub(crate) ticket: SyncTicket,
    /// Callers that need not wait for the ticket should.
    pub(crate) is_crowded: bool,
}

impl Queue {
    /// Adds a record to the open group.
    pub(crate) fn push(
        &mut self,
        record: Arc<Item>,
        promise: LogPromise,
        new_group: impl FnOnce() -> Group,
    ) -> Queued {
        let bytes = record.queued_bytes();
        let is_full = |last: &Gathering| last.bytes > 0 && last.bytes + bytes > GROUP_BYTES_MAX;
        if self.gathering.back().is_none_or(is_full) {
            self.gathering.push_back(Gathering {
                group: Arc::new(new_group()),
                records: Vec::new(),
                bytes: 0,
                promise,
            });
        }
        self.bytes += bytes;
        let is_crowded = self.bytes > CROWDED_BYTES;
        let last = self.gathering.len() - 1;
        let gathering = &mut self.gathering[last];
        gathering.bytes += bytes;
        gathering.promise = gathering.promise.max(promise);
        gathering.records.push(record);
        Queued {
            group: gathering.group.clone(),
            place: gathering.records.len() as u64 - 1,
            is_crowded,
        }
    }

    /// Makes the caller the committer if there is work and no other committer. A running driver may
    /// still be asleep; a waiting thread is awake and begins at once.
    pub(crate) fn takes_turn(&mut self) -> bool {
        let is_free = !self.has_committer && !self.gathering.is_empty();
        self.has_committer |= is_free;
        is_free
    }

    pub(crate) fn is_full(&self) -> bool {
        self.bytes > QUEUE_BYTES_MAX
    }

    /// The last of the pending groups.
    pub(crate) fn last_group(&self) -> Option<Arc<Group>> {
        let gathering = self.gathering.back().map(|it| &it.group);
        gathering.or(self.committing.as_ref()).cloned()
    }

    /// The reason why the log accepts nothing more.
    pub(crate) fn failure(&self) -> Option<&BackendError> {
        self.failure.as_ref()
    }

    /// Groups and batches committed.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.groups, self.batches)
    }

    /// Takes all waiting groups.
    pub(crate) fn take_all(&mut self) -> Vec<Arc<Group>> {
        self.gathering.drain(..).map(|it| it.group).collect()
    }

    /// Wakes the next committer.
    pub(crate) fn call_committer(&mut self, signals: &Signals) {
        if self.has_committer {
            return;
        }
        if self.is_driven {
            let has_work = !self.gathering.is_empty() || self.is_stopping;
            let is_task_wanted = self.driver_sleeps || !self.has_caller;
            if has_work
                && is_task_wanted
                && let Some(task) = self.driving_task.take()
            {
                task.wake();
            }
            if has_work && (self.is_stopping || !self.has_caller) {
                self.wake_driver(signals);
            }
            return;
        }
        let mut groups = self.gathering.iter().map(|it| &it.group);
        if let Some(group) = groups.find(|group| group.has_sleepers()) {
            group.call_leader();
        }
    }
}

impl Queue {
    /// The oldest group, for a committer that takes it now.
    fn take_next(&mut self) -> Option<Gathering> {
        let next = self.gathering.pop_front();
        self.has_committer = next.is_some();
        self.committing = next.as_ref().map(|it| it.group.clone());
        next
    }

    fn wake_driver(&mut self, signals: &Signals) {
        if self.driver_sleeps {
            self.driver_sleeps = false;
            signals.driver.notify_one();
        }
    }
}

impl Shared {
    pub(crate) fn new(writer: Files) -> Self {
        Self {
            queue: Mutex::default(),
            signals: Signals::default(),
            writer,
        }
    }

    /// Queues the batch that `record` creates under the queue's lock.
    pub(crate) fn push(
        self: &Arc<Self>,
        promise: LogPromise,
        record: impl FnOnce() -> Result<Arc<Item>>,
    ) -> Result<Pushed> {
        let mut queue = self.queue.lock();
        if let Some(failure) = queue.failure() {
            return Err(failure.clone());
        }
        let Queued {
            group,
            place,
            is_crowded,
        } = queue.push(record()?, promise, || Group::new(self.committing()));
        if queue.is_driven {
            queue.call_committer(&self.signals);
        }
        Ok(Pushed {
            ticket: SyncTicket::new(group, place),
            is_crowded,
        })
    }

    /// The queue as waiting threads and tasks see it.
    pub(crate) fn committing(self: &Arc<Self>) -> Weak<dyn Committing> {
        Arc::<Self>::downgrade(self)
    }

    /// Ends the log: no further promise can be kept.
    pub(crate) fn fail_for_good(&self, error: &BackendError) {
        let mut queue = self.queue.lock();
        queue.failure.get_or_insert(error.clone());
        let ended = queue.take_all();
        for group in &ended {
            group.end(Err(error.clone()));
        }
        self.signals.room.notify_all();
        drop(queue);
        for group in ended {
            group.wake_all();
        }
    }

    /// Waits until all batches queued so far are committed or have failed.
    pub(crate) fn flush(&self) -> Result<()> {
        let last = self.queue.lock().last_group();
        last.map_or(Ok(()), |group| group.wait())
    }

    /// Ends [`Shared::drive`] once everything queued is committed.
    pub(crate) fn stop(&self) {
        let mut queue = self.queue.lock();
        queue.is_stopping = true;
        // The driver may not have begun yet.
        if let Some(task) = queue.driving_task.take() {
            task.wake();
        }
        queue.call_committer(&self.signals);
    }

    /// Commits groups until the log is stopped.
    pub(crate) fn drive(&self) {
        let _role = DriverRole::take(self);
        let mut queue = self.queue.lock();
        loop {
            let is_idle = queue.gathering.is_empty();
            if is_idle && queue.is_stopping && !queue.has_committer {
                // Under the same lock: no later record may wait for a driver that has ended.
                queue.is_driven = false;
                return;
            }
            if is_idle || queue.has_committer {
                queue.driver_sleeps = true;
                self.signals.driver.wait(&mut queue);
                queue.driver_sleeps = false;
                continue;
            }
            queue.has_committer = true;
            drop(queue);
            self.commit_next();
            queue = self.queue.lock();
        }
    }

    /// Commits a group once all ready tasks have queued their records, until the log is stopped. If
    /// the commit may have to wait for the device, it wakes the driver instead. A driver woken by
    /// the first record would begin at once on another processor, and the other records would wait
    /// for the next group.
    pub(crate) async fn call_driver(&self, runtime: &Runtime) {
        let _role = CallerRole::take(self);
        while poll_fn(|context| self.poll_driver_wanted(context.waker())).await {
            runtime.yield_now().await;
            if !self.commit_at_once() {
                self.queue.lock().wake_driver(&self.signals);
            }
        }
    }

    /// Commits the oldest group if that needs no wait; true when it did. Two thread switches cost
    /// more than a write of some kilobytes into the page cache.
    fn commit_at_once(&self) -> bool {
        let Some(mut files) = self.writer.at_once() else {
            return false;
        };
        let Some(gathering) = self.take_at_once(&mut files) else {
            return false;
        };
        let mut commit = self.group_commit(&gathering);
        commit.outcome = Some(files.write(&gathering.records));
        true
    }

    /// Takes the oldest group, for a write without waits.
    fn take_at_once(&self, files: &mut AtOnce<'_>) -> Option<Gathering> {
        let mut queue = self.queue.lock();
        let oldest = queue.gathering.front()?;
        let is_free = !queue.has_committer && oldest.promise == LogPromise::Written;
        match is_free && files.suits() {
            true => queue.take_next(),
            false => None,
        }
    }

    /// Ready with true when work waits without a committer, with false when the log is stopped.
    fn poll_driver_wanted(&self, waker: &Waker) -> Poll<bool> {
        let mut queue = self.queue.lock();
        if queue.is_stopping {
            return Poll::Ready(false);
        }
        if queue.driver_sleeps && !queue.has_committer && !queue.gathering.is_empty() {
            return Poll::Ready(true);
        }
        queue.driving_task = Some(waker.clone());
        Poll::Pending
    }

    /// Makes a task the driver.
    pub(crate) fn take_task_role(&self) {
        self.queue.lock().is_driven = true;
    }

    /// Ends the role of the driver.
    pub(crate) fn give_task_role_back(&self) {
        let mut queue = self.queue.lock();
        queue.is_driven = false;
        queue.driving_task = None;
        queue.call_committer(&self.signals);
        self.signals.room.notify_all();
    }

    /// Ready with true when work waits, with false when the log is stopped.
    pub(crate) fn poll_queued(&self, waker: &Waker) -> Poll<bool> {
        let mut queue = self.queue.lock();
        if !queue.gathering.is_empty() {
            return Poll::Ready(true);
        }
        if queue.is_stopping {
            return Poll::Ready(false);
        }
        queue.driving_task = Some(waker.clone());
        Poll::Pending
    }

    /// Commits the oldest group, unless another committer works.
    pub(crate) fn commit_as_task(&self) {
        let takes_turn = self.queue.lock().takes_turn();
        if takes_turn {
            self.commit_next();
        }
    }

    /// Commits the oldest group, for a caller that is the committer.
    pub(crate) fn commit_next(&self) {
        let next = self.queue.lock().take_next();
        let Some(gathering) = next else {
            return;
        };
        let mut commit = self.group_commit(&gathering);
        commit.outcome = Some(self.writer.write(&gathering.records, gathering.promise));
    }

    fn group_commit(&self, gathering: &Gathering) -> GroupCommit<'_> {
        GroupCommit {
            log: self,
            group: gathering.group.clone(),
            bytes: gathering.bytes,
            batches: gathering.records.len() as u64,
            outcome: None,
        }
    }

    /// Waits until the queue has room, and commits if no other committer works.
    ///
    /// # Errors
    /// The log has failed.
    pub(crate) fn wait_for_room(&self) -> Result<()> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(failure) = queue.failure() {
                return Err(failure.clone());
            }
            if !queue.is_full() {
                return Ok(());
            }
            if queue.takes_turn() {
                drop(queue);
                self.commit_next();
                queue = self.queue.lock();
            } else {
                self.signals.room.wait(&mut queue);
            }
        }
    }

    fn end_group(&self, commit: &mut GroupCommit<'_>) {
        let outcome = commit.outcome.take().unwrap_or_else(|| {
            let detail = "the thread that committed the group panicked";
            Err(GroupFailure::ForGood(BackendError::new(
                ErrorKind::Failed,
                detail,
            )))
        });
        let mut ended = vec![commit.group.clone()];
        let mut queue = self.queue.lock();
        queue.has_committer = false;
        queue.committing = None;
        queue.bytes -= commit.bytes;
        let outcome = match outcome {
            Ok(()) => {
                queue.groups += 1;
                queue.batches += commit.batches;
                Ok(())
            }
            Err(GroupFailure::ThisGroup(error)) => Err(error),
            Err(GroupFailure::ForGood(error)) => {
                queue.failure.get_or_insert(error.clone());
                queue.bytes = 0;
                ended.extend(queue.take_all());
                Err(error)
            }
        };
        for group in &ended {
            group.end(outcome.clone());
        }
        queue.call_committer(&self.signals);
        self.signals.room.notify_all();
        drop(queue);
        for group in ended {
            group.wake_all();
        }
    }
}

impl Committing for Shared {
    fn is_driven(&self) -> bool {
        self.queue.lock().is_driven
    }

    fn check_driven(&self) -> Result<()> {
        let queue = self.queue.lock();
        if queue.is_driven {
            return Ok(());
        }
        Err(if queue.is_stopping {
            BackendError::new(ErrorKind::Closed, "the value log was stopped")
        } else {
            BackendError::new(
                ErrorKind::Misuse,
                "a ticket of a value log without a driver was awaited; wait for it on a thread",
            )
        })
    }

    fn write_ahead(&self) {
        if !self.queue.lock().has_committer {
            return;
        }
        if let Err(GroupFailure::ForGood(error)) = self.writer.write_ahead() {
            self.fail_for_good(&error);
        }
    }

    fn turn(&self, group: &Group) -> Turn {
        let mut queue = self.queue.lock();
        if group.has_ended() {
            return Turn::Ended;
        }
        if queue.takes_turn() {
            return Turn::Commit;
        }
        group.count_sleeper();
        Turn::Sleep
    }

    fn commit_next(&self) {
        Self::commit_next(self);
    }
}

/// The commit of one group. However the committer ends, the group ends too.
struct GroupCommit<'a> {
    log: &'a Shared,
    group: Arc<Group>,
    bytes: u64,
    batches: u64,
    outcome: Option<Written>,
}

impl Drop for GroupCommit<'_> {
    fn drop(&mut self) {
        self.log.end_group(self);
    }
}

/// The driver's role, returned however the driver ends.
struct DriverRole<'a>(&'a Shared);

impl<'a> DriverRole<'a> {
    fn take(log: &'a Shared) -> Self {
        log.queue.lock().is_driven = true;
        Self(log)
    }
}

impl Drop for DriverRole<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        queue.is_driven = false;
        queue.call_committer(&self.0.signals);
        self.0.signals.room.notify_all();
    }
}

/// The caller's role, returned however the caller ends.
struct CallerRole<'a>(&'a Shared);

impl<'a> CallerRole<'a> {
    fn take(log: &'a Shared) -> Self {
        log.queue.lock().has_caller = true;
        Self(log)
    }
}

impl Drop for CallerRole<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        queue.has_caller = false;
        queue.driving_task = None;
        queue.call_committer(&self.0.signals);
    }
}

impl Drop for Shared {
    /// No thread waits, since it would hold the log; tasks may wait.
    fn drop(&mut self) {
        let groups = self.queue.get_mut().take_all();
        for group in &groups {
            let detail = "the value log was dropped before its sync";
            group.end(Err(BackendError::new(ErrorKind::Closed, detail)));
        }
        for group in groups {
            group.wake_all();
        }
    }
}
