//! Vnodes of other nodes that were not open when they were asked: for a moment others stand in for them.
//!
//! A node that starts answers for the vnodes that it has opened, and so is up. What it says of the
//! others is remembered for as long as a request may take; then one request asks again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kvorum_ring::{NodeId, Partition};
use kvorum_runtime::Moment;
use parking_lot::Mutex;

/// How long a vnode is passed over before it is asked again.
const REMEMBERED: Duration = Duration::from_secs(1);

/// See the module's description.
#[derive(Default)]
pub(crate) struct Unopened {
    /// So that requests need no lock where there is nothing to be found.
    is_any: AtomicBool,
    until: Mutex<BTreeMap<(NodeId, Partition), Moment>>,
}

impl Unopened {
    pub(crate) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Relaxed)
    }

    /// Remembers a vnode; true when it was not known.
    pub(crate) fn note(&self, node: NodeId, partition: Partition, now: Moment) -> bool {
        let mut all = self.until.lock();
        let before = all.insert((node, partition), now.plus(REMEMBERED));
        self.is_any.store(true, Ordering::Relaxed);
        before.is_none_or(|until| until <= now)
    }

    pub(crate) fn has(&self, node: NodeId, partition: Partition, now: Moment) -> bool {
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
        let unopened = Unopened::default();
        let size = RingSize::new(8).unwrap();
        let [one, two] = [1, 2].map(|number| size.partition(number).unwrap());
        let (node, now) = (NodeId::from_bytes([7; 16]), Moment::default());
        assert!(!unopened.is_any());
        assert!(unopened.note(node, one, now));
        assert!(!unopened.note(node, one, now));
        assert!(unopened.is_any());
        assert!(unopened.has(node, one, now));
        assert!(!unopened.has(node, two, now));
        let later = now.plus(REMEMBERED);
        assert!(!unopened.has(node, one, later));
        assert!(!unopened.is_any());
        assert!(unopened.note(node, one, later));
    }
}
