//! Issues the dots of one vnode.

use std::sync::atomic::{AtomicBool, Ordering};

use kvorum_backend::StoreId;
use kvorum_object::{ActorId, Clock, Dot};
use parking_lot::Mutex;

/// Issues the dots of one vnode, from memory alone.
pub struct DotSource {
    state: Mutex<SourceState>,
    /// False while the file still has a lease for the partition: nothing may be written before it is
    /// void, or a crash would make it look unused.
    is_ready: AtomicBool,
}

#[derive(Clone, Copy)]
struct SourceState {
    store: StoreId,
    actor: ActorId,
    next: u64,
}

/// Somebody has seen dots of the present actor that the source does not know it issued, or the store
/// was erased since: the actor must not be used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overtaken;

impl DotSource {
    pub(crate) fn new(store: StoreId, actor: ActorId, next: u64, is_ready: bool) -> Self {
        Self {
            state: Mutex::new(SourceState { store, actor, next }),
            is_ready: AtomicBool::new(is_ready),
        }
    }

    /// The next dot of the vnode, unless one of the clocks has seen it or a later one. No other call
    /// ever returns the same.
    pub(crate) fn next_beyond(&self, store: StoreId, seen: &[&Clock]) -> Result<Dot, Overtaken> {
        let mut state = self.state.lock();
        if state.store != store || seen.iter().any(|clock| state.is_overtaken_by(clock)) {
            return Err(Overtaken);
        }
        let dot = Dot {
            actor: state.actor,
            counter: state.next,
        };
        state.next += 1;
        Ok(dot)
    }

    /// True when a clock names a dot of this vnode's actor that the vnode never issued: its own past
    /// was lost, and the actor must not be used again.
    pub fn is_overtaken_by(&self, clock: &Clock) -> bool {
        self.state.lock().is_overtaken_by(clock)
    }

    /// The actor in use.
    pub fn actor(&self) -> ActorId {
        self.state.lock().actor
    }

    /// The last counter issued, or the one before the first.
    pub fn counter(&self) -> u64 {
        self.state.lock().next - 1
    }

    /// True when the vnode may write; see [`crate::LeaseTable::renew`].
    pub(crate) fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Acquire)
    }

    pub(crate) fn make_ready(&self) {
        self.is_ready.store(true, Ordering::Release);
    }

    /// Goes on under another actor.
    pub(crate) fn change_actor(&self, store: StoreId, actor: ActorId) {
        let next = 1;
        *self.state.lock() = SourceState { store, actor, next };
    }

    /// Store, actor and the next counter, for a lease.
    pub(crate) fn position(&self) -> (StoreId, ActorId, u64) {
        let state = self.state.lock();
        (state.store, state.actor, state.next)
    }
}

impl SourceState {
    fn is_overtaken_by(&self, clock: &Clock) -> bool {
        clock.get(self.actor) >= self.next
    }
}
