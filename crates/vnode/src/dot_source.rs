//! Issues the dots of one vnode.

use std::sync::atomic::{AtomicBool, Ordering};

use kvorum_backend::StoreId;
use kvorum_encoding::StorageKey;
use kvorum_object::{ActorId, Clock, Dot};
use parking_lot::Mutex;

/// Issues the dots of one vnode, from memory alone.
pub struct DotSource {
    state: Mutex<SourceState>,
    /// False while the file still has a lease for the partition. The lease must be void before the
    /// first write, or it would look unused after a crash.
    is_ready: AtomicBool,
}

#[derive(Clone, Copy)]
struct SourceState {
    store: StoreId,
    actor: ActorId,
    next: u64,
}

/// The lane of an entry: one of a vnode's actors.
///
/// An actor's next dot claims to have seen all of its earlier ones. So the actor's earlier writes to a key
/// must be in the entry that it writes over. A store may keep several entries for one key, one for each
/// replica's place; each is written under an actor of its own, derived from the vnode's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lane(u64);

impl Lane {
    /// The lane of the vnode's own actor.
    #[cfg(test)]
    pub(crate) const OWN: Self = Self(0);

    /// The lane named by a key's first bytes; that of the vnode's own actor if there are none.
    pub(crate) fn of(key: &StorageKey, prefix_bytes: usize) -> Self {
        let prefix = key.as_bytes().iter().take(prefix_bytes);
        // A leading one, so that no prefix is lane 0.
        let start = u64::from(prefix_bytes > 0);
        Self(prefix.fold(start, |lane, byte| (lane << 8) | u64::from(*byte)))
    }

    /// Different for every lane, and the actor itself in lane 0.
    fn actor(self, actor: ActorId) -> ActorId {
        // Odd, so that no two lanes meet: 2^64 divided by the golden ratio.
        let spread = self.0.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        ActorId((actor.0 ^ spread).max(ActorId::CONTENT.0 + 1))
    }
}

/// A clock has dots of the present actor that the source has no record of issuing, or the store was
/// erased since: the actor must not be used again.
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
    pub(crate) fn next_beyond(
        &self,
        store: StoreId,
        lane: Lane,
        seen: &[&Clock],
    ) -> Result<Dot, Overtaken> {
        let mut state = self.state.lock();
        let is_overtaken = seen.iter().any(|clock| state.is_overtaken_by(lane, clock));
        if state.store != store || is_overtaken {
            return Err(Overtaken);
        }
        let dot = Dot {
            actor: lane.actor(state.actor),
            counter: state.next,
        };
        state.next += 1;
        Ok(dot)
    }

    /// True when a clock names a dot of this vnode's actor that the vnode never issued: its own past
    /// was lost, and the actor must not be used again.
    pub(crate) fn is_overtaken_by(&self, lane: Lane, clock: &Clock) -> bool {
        self.state.lock().is_overtaken_by(lane, clock)
    }

    /// True when an object with this clock was written under the present actor, if only in part.
    pub(crate) fn has_written(&self, lane: Lane, clock: &Clock) -> bool {
        clock.get(lane.actor(self.actor())) > 0
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

    /// Continues under another actor.
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
    fn is_overtaken_by(&self, lane: Lane, clock: &Clock) -> bool {
        clock.get(lane.actor(self.actor)) >= self.next
    }
}
