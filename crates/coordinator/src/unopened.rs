//! Vnodes that are not open: for a moment other vnodes stand in for them.
//!
//! A starting node answers for the vnodes that it has opened, and so counts as up. Another node's
//! report that a vnode is not open is kept for a while. After that, one request asks again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kvorum_ring::{NodeId, Partition, Replica, Ring, Role};
use kvorum_runtime::Moment;
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::error::RequestError;
use crate::local_vnodes::Absence;
use crate::parts::Parts;

/// Time for which a vnode is passed over before it is asked again.
const REMEMBERED: Duration = Duration::from_secs(1);

/// See the module's description.
pub(crate) struct Unopened {
    parts: Parts,
    /// There are other nodes that can stand in.
    has_peers: bool,
    noted: Noted,
}

impl Unopened {
    pub(crate) fn new(parts: Parts, has_peers: bool) -> Self {
        Self {
            parts,
            has_peers,
            noted: Noted::default(),
        }
    }

    /// The reason why this node has no vnode of a partition.
    pub(crate) fn absent(&self, partition: Partition) -> RequestError {
        RequestError::of_replica(self.parts.vnodes.absence(partition).into())
    }

    /// Notes that a vnode is not open, so that others are asked for a moment. False when that was known.
    pub(crate) fn pass_over(&self, node: NodeId, partition: Partition) -> bool {
        let now = self.parts.runtime.now();
        self.noted.note(node, partition, now)
    }

    pub(crate) fn is_any(&self) -> bool {
        self.has_peers && (self.parts.vnodes.is_any_unopened() || self.noted.is_any())
    }

    /// The nodes among the primaries of a key whose vnodes are not open, as far as is known.
    pub(crate) fn nodes_among(&self, replicas: &[Replica]) -> SmallVec<[NodeId; 3]> {
        let now = self.parts.runtime.now();
        let is_unopened = |replica: &&Replica| {
            let (node, partition) = (replica.node, replica.partition);
            let is_here = node == self.parts.node;
            let is_absent = || self.parts.vnodes.absence(partition) != Absence::NotHere;
            replica.role == Role::Primary
                && (is_here && is_absent() || self.noted.has(node, partition, now))
        };
        let unopened = replicas.iter().filter(is_unopened);
        unopened.map(|replica| replica.node).collect()
    }

    /// True when a vnode is known not to be open, and others may be asked instead.
    pub(crate) fn has(&self, node: NodeId, partition: Partition) -> bool {
        let is_absent =
            || node == self.parts.node && self.parts.vnodes.absence(partition) != Absence::NotHere;
        let is_noted = || self.noted.has(node, partition, self.parts.runtime.now());
        self.is_any() && (is_absent() || is_noted())
    }

    /// The error of a request whose data only unopened vnodes have: as far as this node has learned
    /// they are being opened, unless its own cannot be.
    pub(crate) fn error(&self, ring: &Ring) -> RequestError {
        let partitions = ring.size().partitions();
        let own = partitions.filter(|partition| ring.reader(*partition) == self.parts.node);
        let absences = own.map(|partition| self.parts.vnodes.absence(partition));
        let (mut has_failed, mut is_opening) = (false, false);
        for absence in absences {
            has_failed |= absence == Absence::Failed;
            is_opening |= absence == Absence::Opening;
        }
        match has_failed && !is_opening {
            true => RequestError::VnodeFailed,
            false => RequestError::VnodeOpening,
        }
    }
}

/// Vnodes of other nodes, and the time for which each is passed over.
#[derive(Default)]
struct Noted {
    /// False when the table is empty: requests then need no lock.
    is_any: AtomicBool,
    until: Mutex<BTreeMap<(NodeId, Partition), Moment>>,
}

impl Noted {
    fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Relaxed)
    }

    /// Notes a vnode; true when it was not noted yet.
    fn note(&self, node: NodeId, partition: Partition, now: Moment) -> bool {
        let mut all = self.until.lock();
        let before = all.insert((node, partition), now.plus(REMEMBERED));
        self.is_any.store(true, Ordering::Relaxed);
        before.is_none_or(|until| until <= now)
    }

    fn has(&self, node: NodeId, partition: Partition, now: Moment) -> bool {
        let mut all = self.until.lock();
        all.retain(|_, until| *until > now);
        self.is_any.store(!all.is_empty(), Ordering::Relaxed);
        all.contains_key(&(node, partition))
    }
}

#[cfg(test)]
mod tests {
    use kvorum_ring::RingSize;

    use super::*;

    #[test]
    fn a_vnode_is_passed_over_for_a_moment() {
        let noted = Noted::default();
        let size = RingSize::new(8).unwrap();
        let [one, two] = [1, 2].map(|number| size.partition(number).unwrap());
        let (node, now) = (NodeId::from_bytes([7; 16]), Moment::default());
        assert!(!noted.is_any());
        assert!(noted.note(node, one, now));
        assert!(!noted.note(node, one, now));
        assert!(noted.is_any());
        assert!(noted.has(node, one, now));
        assert!(!noted.has(node, two, now));
        let later = now.plus(REMEMBERED);
        assert!(!noted.has(node, one, later));
        assert!(!noted.is_any());
        assert!(noted.note(node, one, later));
    }
}
