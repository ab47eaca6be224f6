//! A group: the records that one write and one sync make durable, and its waiters.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, OnceLock, PoisonError, Weak};
use std::task::{Poll, Waker};

use kvorum_backend::{BackendError, ErrorKind, Result, SyncPoint};
use parking_lot::Mutex;

/// The queue of a group, as its waiters see it.
pub(crate) trait Committing: Send + Sync {
    /// True while a driver commits groups.
    fn is_driven(&self) -> bool;

    /// An error if awaiting a ticket would never end.
    fn check_driven(&self) -> Result<()>;

    /// Writes the queued batches if another thread's sync keeps this thread waiting.
    fn write_ahead(&self);

    /// The next move of a thread that waits for this group. A thread that is about to sleep is
    /// counted ([`Group::count_sleeper`]) under the queue's lock.
    fn turn(&self, group: &Group) -> Turn;

    /// Commits the oldest group; for a thread whose turn it is.
    fn commit_next(&self);
}

/// The next move of a thread that waits for a group.
pub(crate) enum Turn {
    /// Nothing: the group has ended.
    Ended,
    /// Commit the oldest group.
    Commit,
    /// Sleep: another thread commits.
    Sleep,
}

/// The sync point of its tickets, whose positions are places in the group. An outcome is kept as
/// long as a ticket may need it.
pub(crate) struct Group {
    queue: Weak<dyn Committing>,
    outcome: OnceLock<Result<()>>,
    tasks: Mutex<Tasks>,
    bell: Bell,
    /// Threads that listen for the bell, or are about to; counted up under the queue's lock.
    sleepers: AtomicUsize,
}

/// The bell of sleeping threads: rung when the group is done or a leader is wanted.
///
/// The standard library's condition variable wakes all of them in one call. That of `parking_lot`
/// moves them to the lock, and each wakes when the one before it releases the lock. This serialises
/// work that two processors could do in parallel, and delays the next group's records.
#[derive(Default)]
struct Bell {
    rung: std::sync::Mutex<Rung>,
    signal: Condvar,
}

#[derive(Default)]
struct Rung {
    for_all: bool,
    for_leader: bool,
}

impl Bell {
    fn ring(&self, how: impl FnOnce(&mut Rung)) {
        how(&mut self.rung.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn ring_for_all(&self) {
        self.ring(|rung| rung.for_all = true);
        self.signal.notify_all();
    }

    fn ring_for_leader(&self) {
        self.ring(|rung| rung.for_leader = true);
        self.signal.notify_one();
    }

    /// Sleeps until it has rung. One listener takes the call for a leader.
    fn listen(&self) {
        let rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .signal
            .wait_while(rung, |rung| !rung.for_all && !rung.for_leader);
        let mut rung = waited.unwrap_or_else(PoisonError::into_inner);
        rung.for_leader = false;
    }
}

/// The tasks that await tickets of a group.
#[derive(Default)]
struct Tasks {
    /// One for each ticket, by its place.
    by_place: Vec<Option<Waker>>,
    /// Tasks of cloned tickets.
    others: Vec<Waker>,
}

impl Group {
    pub(crate) fn new(queue: Weak<dyn Committing>) -> Self {
        Self {
            queue,
            outcome: OnceLock::new(),
            tasks: Mutex::default(),
            bell: Bell::default(),
            sleepers: AtomicUsize::new(0),
        }
    }

    /// A group whose outcome is known from the start.
    pub(crate) fn ended(queue: Weak<dyn Committing>, outcome: Result<()>) -> Self {
        let group = Self::new(queue);
        let _first = group.outcome.set(outcome);
        group
    }

    /// Notes how the group ended, once. The caller holds the queue's lock, so a thread that is
    /// counted as a sleeper later sees the outcome.
    pub(crate) fn end(&self, outcome: Result<()>) {
        let _first = self.outcome.set(outcome);
    }

    /// Wakes the threads and tasks of an ended group. No lock is held: wakers run foreign code, and
    /// the threads need the queue's lock next.
    pub(crate) fn wake_all(&self) {
        if self.has_sleepers() {
            self.bell.ring_for_all();
        }
        let tasks = std::mem::take(&mut *self.tasks.lock());
        for waker in tasks.by_place.into_iter().flatten().chain(tasks.others) {
            waker.wake();
        }
    }

    /// True when a thread waits, and could lead.
    pub(crate) fn has_sleepers(&self) -> bool {
        self.sleepers.load(Ordering::Relaxed) > 0
    }

    /// Wakes one thread to lead. The queue's lock is held.
    pub(crate) fn call_leader(&self) {
        self.bell.ring_for_leader();
    }

    /// Counts a thread that is about to sleep. The caller holds the queue's lock, so that the end
    /// of the group and the search for a leader find this thread.
    pub(crate) fn count_sleeper(&self) {
        self.sleepers.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.outcome.get().is_some()
    }

    /// Sleeps until the group is done or a leader is wanted. The thread was counted before.
    fn sleep(&self) {
        self.bell.listen();
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

impl SyncPoint for Group {
    fn poll_synced(&self, position: u64, waker: &Waker) -> Poll<Result<()>> {
        if let Some(outcome) = self.outcome() {
            return Poll::Ready(outcome);
        }
        let Some(queue) = self.queue.upgrade() else {
            return Poll::Ready(self.outcome().unwrap_or_else(|| Err(dropped())));
        };
        if let Err(error) = queue.check_driven() {
            return Poll::Ready(self.outcome().unwrap_or(Err(error)));
        }
        let mut tasks = self.tasks.lock();
        // The outcome is set before the tasks are taken: it is visible here, or the waker is registered.
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
        self.has_ended() || self.queue.upgrade().is_some_and(|queue| queue.is_driven())
    }
}

impl Group {
    /// Waits until the group is done, and commits if no other committer works.
    pub(crate) fn wait(&self) -> Result<()> {
        if let Some(outcome) = self.outcome() {
            return outcome;
        }
        let Some(queue) = self.queue.upgrade() else {
            return self.outcome().unwrap_or_else(|| Err(dropped()));
        };
        queue.write_ahead();
        loop {
            // A thread that was woken at the end of the group needs no lock.
            if let Some(outcome) = self.outcome() {
                return outcome;
            }
            match queue.turn(self) {
                Turn::Ended => {}
                Turn::Commit => queue.commit_next(),
                Turn::Sleep => self.sleep(),
            }
        }
    }
}

fn dropped() -> BackendError {
    BackendError::new(
        ErrorKind::Closed,
        "the value log was dropped before its sync",
    )
}
