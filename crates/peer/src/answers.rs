//! The pending answers on a peer's connection, and the farewell to the peer.
//!
//! A stopping node sends a farewell after its last answer, and ignores requests that come
//! meanwhile. So each request was either answered, or not carried out and may go elsewhere.
//! Otherwise a stop would leave every write under way in doubt.

use std::collections::BTreeMap;
use std::sync::Arc;

use kvorum_runtime::{TaskGuard, TaskHandle};
use parking_lot::Mutex;

use crate::outbox::Outbox;
use crate::settings::PeerSettings;

/// The answers of one connection.
pub(crate) struct Answers {
    pub(crate) outbox: Arc<Outbox>,
    in_progress: Mutex<InProgress>,
}

/// Requests that are being answered, by stream.
#[derive(Default)]
struct InProgress {
    tasks: BTreeMap<u64, (TaskGuard<()>, usize)>,
    /// Total length of their messages.
    bytes: usize,
    /// Requests that are being handled now, and may have no task yet.
    taking: usize,
    is_leaving: bool,
}

/// The admission of a request.
pub(crate) enum NowTaken<'a> {
    /// The request is in progress while this is held, and afterwards if it was inserted meanwhile.
    Yes(Taking<'a>),
    /// Too much is in progress.
    NoRoom,
    /// This node is stopping.
    Leaving,
}

/// A request while it is handled.
pub(crate) struct Taking<'a>(&'a Answers);

impl Answers {
    pub(crate) fn new(outbox: Arc<Outbox>) -> Self {
        Self {
            outbox,
            in_progress: Mutex::default(),
        }
    }

    /// Admits a request of this many bytes, before it is handled.
    pub(crate) fn take(&self, bytes: usize, settings: &PeerSettings) -> NowTaken<'_> {
        let mut in_progress = self.in_progress.lock();
        if in_progress.is_leaving {
            return NowTaken::Leaving;
        }
        if !in_progress.has_room(bytes, settings) {
            return NowTaken::NoRoom;
        }
        in_progress.taking += 1;
        NowTaken::Yes(Taking(self))
    }

    /// Notes a request that is answered later, by the task that `spawn` starts.
    pub(crate) fn insert(&self, stream: u64, bytes: usize, spawn: impl FnOnce() -> TaskHandle<()>) {
        // Locked over both steps, so that the task does not end before it is inserted.
        let mut in_progress = self.in_progress.lock();
        let task = spawn().abort_on_drop();
        in_progress.bytes += bytes;
        if let Some((_, bytes)) = in_progress.tasks.insert(stream, (task, bytes)) {
            in_progress.bytes -= bytes;
        }
    }

    /// Notes that a request is answered, or has been cancelled.
    pub(crate) fn remove(&self, stream: u64) {
        let mut in_progress = self.in_progress.lock();
        if let Some((_, bytes)) = in_progress.tasks.remove(&stream) {
            in_progress.bytes -= bytes;
        }
        in_progress.take_leave_of(&self.outbox);
    }

    /// Sends a farewell after the answers of requests in progress.
    pub(crate) fn take_leave(&self) {
        let mut in_progress = self.in_progress.lock();
        in_progress.is_leaving = true;
        in_progress.take_leave_of(&self.outbox);
    }

    /// Ends everything: the connection has ended, and no answer can go out.
    pub(crate) fn end(&self) {
        self.outbox.close();
        let tasks = std::mem::take(&mut self.in_progress.lock().tasks);
        drop(tasks);
    }
}

impl InProgress {
    fn has_room(&self, bytes: usize, settings: &PeerSettings) -> bool {
        let fits = self.bytes == 0 || self.bytes + bytes <= settings.in_progress_bytes_max;
        fits && self.tasks.len() < settings.in_progress_max
    }

    fn take_leave_of(&mut self, outbox: &Outbox) {
        if self.is_leaving && self.taking == 0 && self.tasks.is_empty() {
            outbox.take_leave();
        }
    }
}

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        let mut in_progress = self.0.in_progress.lock();
        in_progress.taking -= 1;
        in_progress.take_leave_of(&self.0.outbox);
    }
}
