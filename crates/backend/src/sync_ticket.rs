//! Receipts and sync tickets: the promise of a put's durability.
//!
//! A put applies at once and is durable later: one sync serves a whole group. Meanwhile the caller
//! holds a ticket instead of a lock.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::{Result, Sequence};

/// The promise of a put before it counts as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Visible, and durable at some later time.
    Buffered,
    /// Durable once the group's sync is done: wait for the ticket.
    Grouped,
    /// The store's configured durability.
    BackendDefault,
}

/// The outcome of a put.
#[derive(Debug)]
#[must_use = "a grouped put is not durable before its ticket resolves"]
pub struct Receipt {
    /// The batch's place in the store's order.
    pub sequence: Sequence,
    /// The time when the promise of the requested [`Durability`] holds.
    pub durable: Durable,
}

/// The time when a put's promise holds.
#[derive(Debug)]
pub enum Durable {
    /// It holds now (for [`Durability::Buffered`]: there was nothing more to promise).
    Already,
    /// It holds when the ticket resolves.
    After(SyncTicket),
}

/// A point at which groups of writes become durable together.
pub trait SyncPoint: Send + Sync {
    /// Ready when everything up to `position` is durable, or can never be.
    fn poll_synced(&self, position: u64, waker: &Waker) -> Poll<Result<()>>;

    /// Waits on this thread, and does the group's sync itself if no other thread does.
    fn wait_synced(&self, position: u64) -> Result<()>;

    /// True when a driver syncs by itself, so that polling suffices. Otherwise a thread that may
    /// block has to call [`SyncPoint::wait_synced`].
    fn is_driven(&self) -> bool;
}

/// The promise that a put will be durable: a future, also with a blocking wait.
#[derive(Clone)]
pub struct SyncTicket {
    point: Arc<dyn SyncPoint>,
    position: u64,
}

impl SyncTicket {
    /// A ticket for everything up to `position`.
    pub fn new(point: Arc<dyn SyncPoint>, position: u64) -> Self {
        Self { point, position }
    }

    /// Waits on this thread.
    pub fn wait(&self) -> Result<()> {
        self.point.wait_synced(self.position)
    }

    /// True when awaiting the ticket suffices; see [`SyncPoint::is_driven`].
    pub fn is_driven(&self) -> bool {
        self.point.is_driven()
    }
}

impl Future for SyncTicket {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.point.poll_synced(self.position, context.waker())
    }
}

impl fmt::Debug for SyncTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SyncTicket({})", self.position)
    }
}

impl Receipt {
    /// Waits on this thread until the promise holds.
    pub fn wait(self) -> Result<Sequence> {
        match self.durable {
            Durable::Already => Ok(self.sequence),
            Durable::After(ticket) => ticket.wait().map(|()| self.sequence),
        }
    }
}
