//! A group: the records that one write and one sync make durable, and those who wait for it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{OnceLock, Weak};
use std::task::{Poll, Waker};

use kvorum_backend::{BackendError, ErrorKind, Result, SyncPoint};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::queue::{GroupWriter, Queue, Shared};

/// The sync point of its tickets, whose positions are places in the group. An outcome lives as long
/// as a ticket that may ask for it, and no longer.
pub(crate) struct Group<W: GroupWriter> {
    log: Weak<Shared<W>>,
    outcome: OnceLock<Result<()>>,
    tasks: Mutex<Tasks>,
    /// Signalled when the group is done or a leader is wanted; goes with the queue's lock.
    signal: Condvar,
    /// Threads that wait for the signal; changed under the queue's lock.
    sleepers: AtomicUsize,
}

/// The tasks that await tickets of a group.
#[derive(Default)]
struct Tasks {
    /// One for each ticket, by its place.
    by_place: Vec<Option<Waker>>,
    /// Those of clones of tickets.
    others: Vec<Waker>,
}

impl<W: GroupWriter> Group<W> {
    pub(crate) fn new(log: Weak<Shared<W>>) -> Self {
        Self {
            log,
            outcome: OnceLock::new(),
            tasks: Mutex::default(),
            signal: Condvar::new(),
            sleepers: AtomicUsize::new(0),
        }
    }

    /// A group whose outcome is known from the start.
    pub(crate) fn ended(log: Weak<Shared<W>>, outcome: Result<()>) -> Self {
        let group = Self::new(log);
        let _first = group.outcome.set(outcome);
        group
    }

    /// Says how the group ended, once, and wakes its threads. The queue's lock is held, so no thread
    /// is between looking and falling asleep.
    pub(crate) fn end(&self, outcome: Result<()>, _queue: &MutexGuard<'_, Queue<W>>) {
        let _first = self.outcome.set(outcome);
        if self.has_sleepers() {
            self.signal.notify_all();
        }
    }

    /// Wakes the tasks of an ended group. No lock is held: wakers are others' code.
    pub(crate) fn wake_tasks(&self) {
        let tasks = std::mem::take(&mut *self.tasks.lock());
        for waker in tasks.by_place.into_iter().flatten().chain(tasks.others) {
            waker.wake();
        }
    }

    /// True when a thread waits, and could lead.
    pub(crate) fn has_sleepers(&self) -> bool {
        self.sleepers.load(Ordering::Relaxed) > 0
    }

    /// Wakes one thread, for it to lead. The queue's lock is held.
    pub(crate) fn call_leader(&self) {
        self.signal.notify_one();
    }

    /// Waits for the signal.
    fn sleep(&self, queue: &mut MutexGuard<'_, Queue<W>>) {
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        self.signal.wait(queue);
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    fn outcome(&self) -> Option<Result<()>> {
        self.outcome.get().cloned()
    }
}

impl Tasks {
    fn add(&mut self, place: usize, waker: &Waker) {
        if self.by_place.len() <= place {
            self.by_place.resize(place + 1, None);
        }
        match &mut self.by_place[place] {
            Some(known) if known.will_wake(waker) => {}
            // Another clone's task, or this one's after it moved: both are woken.
            Some(_) if self.others.iter().any(|it| it.will_wake(waker)) => {}
            Some(_) => self.others.push(waker.clone()),
            empty => *empty = Some(waker.clone()),
        }
    }
}

impl<W: GroupWriter> SyncPoint for Group<W> {
    fn poll_synced(&self, position: u64, waker: &Waker) -> Poll<Result<()>> {
        if let Some(outcome) = self.outcome() {
            return Poll::Ready(outcome);
        }
        let Some(log) = self.log.upgrade() else {
            return Poll::Ready(self.outcome().unwrap_or_else(|| Err(dropped())));
        };
        if let Err(error) = log.check_driven() {
            return Poll::Ready(self.outcome().unwrap_or(Err(error)));
        }
        let mut tasks = self.tasks.lock();
        // The outcome is set before the tasks are taken: it is seen here, or the waker is there.
        if let Some(outcome) = self.outcome() {
            return Poll::Ready(outcome);
        }
        tasks.add(usize::try_from(position).unwrap_or(usize::MAX), waker);
        Poll::Pending
    }

    fn wait_synced(&self, _position: u64) -> Result<()> {
        self.wait()
    }

    fn is_driven(&self) -> bool {
        self.outcome.get().is_some() || self.log.upgrade().is_some_and(|log| log.is_driven())
    }
}

impl<W: GroupWriter> Group<W> {
    /// Waits until the group is done, committing if nobody else does.
    pub(crate) fn wait(&self) -> Result<()> {
        if let Some(outcome) = self.outcome() {
            return outcome;
        }
        let Some(log) = self.log.upgrade() else {
            return self.outcome().unwrap_or_else(|| Err(dropped()));
        };
        let mut queue = log.queue.lock();
        loop {
            if let Some(outcome) = self.outcome() {
                return outcome;
            }
            if queue.takes_turn() {
                drop(queue);
                log.commit_next();
                queue = log.queue.lock();
            } else {
                self.sleep(&mut queue);
            }
        }
    }
}

fn dropped() -> BackendError {
    BackendError::new(
        ErrorKind::Closed,
        "the commit log was dropped before its sync",
    )
}
