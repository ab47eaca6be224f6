//! Issues the dots of one vnode, below a bound that is already on disk.

use std::sync::atomic::{AtomicBool, Ordering};

use kvorum_backend::StoreId;
use kvorum_object::{ActorId, Clock, Dot};
use parking_lot::Mutex;

use crate::lease_file::Lease;

/// How many dots a vnode may issue between two renewals: at 10,000 puts a second to one vnode, a
/// renewal every 100 seconds, and each is done when half of it is left.
pub(crate) const LEASE_DOTS: u64 = 1 << 20;

/// Issues the dots of one vnode. It never waits for a renewal in progress.
pub struct DotSource {
    state: Mutex<SourceState>,
    renewal_due: AtomicBool,
}

#[derive(Clone, Copy)]
struct SourceState {
    store: StoreId,
    actor: ActorId,
    next: u64,
    /// Counters below this are on disk as used.
    bound: u64,
}

/// The lease is used up: renew it on a thread that may block, then ask again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseUsedUp;

/// Why a source gives no dot now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoDot {
    /// The lease has to be renewed.
    LeaseUsedUp,
    /// Somebody has seen dots of the present actor that the source does not know it issued.
    Overtaken,
}

impl DotSource {
    /// A source without a lease: it gives nothing before it is granted one.
    pub(crate) fn new(store: StoreId, actor: ActorId, next: u64) -> Self {
        Self {
            state: Mutex::new(SourceState {
                store,
                actor,
                next,
                bound: next,
            }),
            renewal_due: AtomicBool::new(true),
        }
    }

    /// The next dot of the vnode; no other call ever returns the same.
    pub fn next(&self) -> Result<Dot, LeaseUsedUp> {
        self.next_beyond(&[]).map_err(|_| LeaseUsedUp)
    }

    /// The next dot, unless one of the clocks has seen it or a later one.
    pub(crate) fn next_beyond(&self, seen: &[&Clock]) -> Result<Dot, NoDot> {
        let mut state = self.state.lock();
        if seen.iter().any(|clock| state.is_overtaken_by(clock)) {
            return Err(NoDot::Overtaken);
        }
        if state.next >= state.bound {
            self.renewal_due.store(true, Ordering::Relaxed);
            return Err(NoDot::LeaseUsedUp);
        }
        let dot = Dot {
            actor: state.actor,
            counter: state.next,
        };
        state.next += 1;
        if state.bound - state.next < LEASE_DOTS / 2 {
            self.renewal_due.store(true, Ordering::Relaxed);
        }
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

    pub(crate) fn is_renewal_due(&self) -> bool {
        self.renewal_due.load(Ordering::Relaxed)
    }

    /// Goes on under another actor, of which nothing is leased yet.
    pub(crate) fn change_actor(&self, store: StoreId, actor: ActorId) {
        *self.state.lock() = SourceState {
            store,
            actor,
            next: 1,
            bound: 1,
        };
        self.renewal_due.store(true, Ordering::Relaxed);
    }

    /// What the next renewal writes for this source.
    pub(crate) fn proposed(&self) -> Lease {
        let state = self.state.lock();
        Lease {
            store: state.store,
            actor: state.actor,
            bound: state.next.saturating_add(LEASE_DOTS),
        }
    }

    /// A lease is on disk. One of an actor that was left meanwhile is void.
    pub(crate) fn grant(&self, lease: Lease) {
        let mut state = self.state.lock();
        if state.actor == lease.actor {
            state.bound = state.bound.max(lease.bound);
            self.renewal_due.store(false, Ordering::Relaxed);
        }
    }
}

impl SourceState {
    fn is_overtaken_by(&self, clock: &Clock) -> bool {
        clock.get(self.actor) >= self.next
    }
}
