//! Changes of the keys that a fold finds: tombstones reaped, objects erased, replicas repaired.
//!
//! A tombstone is reaped by the rule of `reaper.rs`: the node is the only member, and every replica of the
//! key is a vnode of this node that holds the tombstone durably. In a cluster of several nodes a fold
//! leaves tombstones: a copy of an older value may be on its way, or wait as a hint. There, rounds remove
//! tombstones (decision 37). Riak reaps when all primaries answer, so deleted keys may come back.

use std::sync::Arc;
use std::time::Duration;

use kvorum_backend::Reading;
use kvorum_encoding::Address;
use kvorum_key_folds::EntryClass;
use kvorum_object::Clock;
use kvorum_ring::Replica;

use crate::attempts::Attempts;
use crate::comparing::Comparisons;
use crate::deleting::{is_alone, reap};
use crate::plan::Purpose;
use crate::reaper::Tombstone;
use crate::replicas::Replicas;

/// A change of each key that is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyChange {
    /// A tombstone is removed.
    Reap,
    /// An object is deleted.
    Erase,
    /// All replicas are compared, and those that are behind brought up to date.
    Repair,
}

impl KeyChange {
    /// The entries that the change applies to.
    pub fn entries(self) -> EntryClass {
        match self {
            Self::Reap => EntryClass::Tombstones,
            Self::Erase => EntryClass::Living,
            Self::Repair => EntryClass::Any,
        }
    }

    /// The word for logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reap => "reap",
            Self::Erase => "erase",
            Self::Repair => "repair",
        }
    }
}

/// The outcome of a change of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeysChanged {
    /// Keys that were found.
    pub dispatched: u64,
    /// Unchanged keys among them: a replica was unreachable or refused, or the tombstone has to
    /// stay. They can be requested again.
    pub left: u64,
}

/// Removes tombstones that folds have found.
pub(crate) struct FoundTombstones {
    pub(crate) replicas: Arc<Replicas>,
    pub(crate) attempts: Arc<Attempts>,
    pub(crate) comparisons: Arc<Comparisons>,
}

impl FoundTombstones {
    /// True when every replica has carried out the removal of a tombstone with this clock. A
    /// replica that is being filled keeps the tombstone.
    pub(crate) async fn reap(&self, address: &Address, clock: Clock, timeout: Duration) -> bool {
        let parts = &self.replicas.parts;
        // As for a write: during a move, the plan does not have all replicas.
        let plan = self
            .attempts
            .plan(address, None, Some(false), Purpose::Write);
        let Ok(plan) = plan else {
            return false;
        };
        let is_here = |replica: &Replica| replica.node == parts.node;
        let are_here = plan.is_complete() && plan.replicas.iter().all(is_here);
        if !are_here || !is_alone(&self.replicas) {
            return false;
        }
        if !self.comparisons.mend(&plan.key, timeout).await {
            return false;
        }
        let tombstone = Tombstone {
            due: parts.runtime.now(),
            key: plan.key,
            clock,
            replicas: plan.replicas,
            unsynced: Vec::new(),
        };
        let replicas = self.replicas.clone();
        let work = move || {
            is_durable(&replicas, &tombstone) && reap(&replicas, &tombstone, Reading::MayBlock)
        };
        parts.runtime.blocking(work).await
    }
}

/// Makes the tombstone durable at its replicas.
fn is_durable(replicas: &Replicas, tombstone: &Tombstone) -> bool {
    tombstone.replicas.iter().all(|replica| {
        let vnode = replicas.parts.vnodes.vnode(replica.partition);
        vnode.is_some_and(|vnode| vnode.sync().is_ok())
    })
}
