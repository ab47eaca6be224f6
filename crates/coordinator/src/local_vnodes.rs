//! The replicas of this node: its vnodes, and the store of its hints for other nodes.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use kvorum_backend::{FoldClock, Lease, Reading, SyncTicket, Timestamp};
use kvorum_ring::Partition;
use kvorum_runtime::Runtime;
use kvorum_vnode::{Handled, ReplicaFailure, ReplicaReply, ReplicaRequest, Vnode, fold_clock};

use crate::hints::HintStore;
use crate::trace::{Meter, PartReading};

/// The vnodes of this node.
pub trait LocalVnodes: Send + Sync {
    /// The vnode of a partition, once its store is open.
    fn vnode(&self, partition: Partition) -> Option<Arc<Vnode>>;

    /// The reason why there is no vnode of a partition. A node that opens all stores at its start
    /// has no other reason than this one.
    fn absence(&self, _partition: Partition) -> Absence {
        Absence::NotHere
    }

    /// False when [`LocalVnodes::absence`] can have no other reason. Called for every request.
    fn is_any_unopened(&self) -> bool {
        false
    }

    /// True while a store is being opened, or is about to be.
    fn is_any_opening(&self) -> bool {
        false
    }

    /// Ends when the next vnode is opened, fails or goes; `None` where stores do not open one by one.
    fn next_opening(&self) -> Option<NextOpening> {
        None
    }
}

/// See [`LocalVnodes::next_opening`].
pub type NextOpening = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The reason why a node has no vnode of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// It does not have the partition in its state of the ring.
    NotHere,
    /// The store is being opened, or will be.
    Opening,
    /// The store could not be opened.
    Failed,
}

impl From<Absence> for ReplicaFailure {
    fn from(absence: Absence) -> Self {
        match absence {
            Absence::NotHere => Self::NotServing,
            Absence::Opening => Self::NotOpen { is_failed: false },
            Absence::Failed => Self::NotOpen { is_failed: true },
        }
    }
}

/// The replica of this node that carries out a request.
#[derive(Clone)]
pub(crate) enum LocalReplica {
    Vnode(Arc<Vnode>),
    Hints(Arc<dyn HintStore>),
}

impl LocalReplica {
    pub(crate) fn handle(
        &self,
        request: &ReplicaRequest,
        now: Timestamp,
        reading: Reading,
    ) -> Handled {
        match self {
            Self::Vnode(vnode) => vnode.handle(request, now, reading),
            Self::Hints(hints) => hints.handle(request, now, reading),
        }
    }

    /// Like [`LocalReplica::handle`], where blocking is allowed.
    pub(crate) fn handle_blocking(&self, request: &ReplicaRequest, now: Timestamp) -> ReplicaReply {
        match self.handle(request, now, Reading::MayBlock) {
            Handled::Done(reply) => reply,
            Handled::WouldBlock => ReplicaReply::Failed(ReplicaFailure::Internal(
                "a read that may block said it would".into(),
            )),
        }
    }
}

/// Reads pages of vnodes on the blocking pool, under a lease that ends when `remaining` has passed.
/// Also returns the time that this waited for a thread.
pub(crate) async fn read_blocking<T: Send + 'static>(
    runtime: &Runtime,
    meter: &Arc<dyn Meter>,
    remaining: Duration,
    read: impl FnOnce(&FoldClock, Lease) -> T + Send + 'static,
) -> (T, Duration) {
    let (asked, clock, meter) = (runtime.now(), runtime.clock(), meter.clone());
    let micros = u64::try_from(remaining.as_micros()).unwrap_or(u64::MAX);
    let until = runtime.wall_time().micros().saturating_add(micros);
    let (fold_clock, lease) = (fold_clock(clock.clone()), Lease::Until(Timestamp(until)));
    let work = move || {
        let began = clock.now();
        let read = read(&fold_clock, lease);
        let ended = clock.now();
        let (queued, worked) = (began.since(asked), ended.since(began));
        meter.part_read(PartReading { queued, worked }, ended);
        (read, queued)
    };
    runtime.blocking(work).await
}

/// Waits until a received object is stored.
pub(crate) async fn synced(runtime: &Runtime, ticket: SyncTicket) -> kvorum_backend::Result<()> {
    if ticket.is_driven() {
        ticket.await
    } else {
        runtime.blocking(move || ticket.wait()).await
    }
}
