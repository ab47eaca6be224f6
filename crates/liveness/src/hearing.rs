//! Members that answer this node. Every member is asked repeatedly; one that leaves several
//! questions in a row unanswered is silent. No clock, no socket.
//!
//! The detector by itself is slow to detect a split network: it probes one member at a time, and
//! gives others time to report it as up. A request cannot wait so long, and needs an answer to this
//! node. Questions are counted and not time: otherwise a node that was suspended would count all
//! others as silent.

use std::collections::{BTreeMap, BTreeSet};

use kvorum_ring::NodeId;

/// Number of questions in a row that each member has not answered.
pub(crate) struct Hearing {
    this_node: NodeId,
    unanswered: BTreeMap<NodeId, u32>,
    unanswered_max: u32,
}

impl Hearing {
    pub(crate) fn new(this_node: NodeId, unanswered_max: u32) -> Self {
        Self {
            this_node,
            unanswered: BTreeMap::new(),
            unanswered_max,
        }
    }

    /// Sets the members. A new one has not been asked yet.
    pub(crate) fn follow_members(&mut self, members: &BTreeSet<NodeId>) {
        self.unanswered.retain(|node, _| members.contains(node));
        for node in members.iter().filter(|node| **node != self.this_node) {
            self.unanswered.entry(*node).or_default();
        }
    }

    /// The members to ask now. Each counts as not having answered yet.
    pub(crate) fn ask(&mut self) -> Vec<NodeId> {
        for unanswered in self.unanswered.values_mut() {
            *unanswered = unanswered.saturating_add(1);
        }
        self.unanswered.keys().copied().collect()
    }

    pub(crate) fn answered(&mut self, node: NodeId) {
        if let Some(unanswered) = self.unanswered.get_mut(&node) {
            *unanswered = 0;
        }
    }

    /// True for a member that does not answer. The last question does not count, since it has just
    /// been asked.
    pub(crate) fn is_silent(&self, node: NodeId) -> bool {
        let unanswered = self.unanswered.get(&node);
        unanswered.is_some_and(|count| *count > self.unanswered_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u8) -> NodeId {
        NodeId::from_bytes([number; 16])
    }

    fn hearing() -> Hearing {
        let mut hearing = Hearing::new(node(1), 3);
        hearing.follow_members(&BTreeSet::from([node(1), node(2), node(3)]));
        hearing
    }

    #[test]
    fn who_leaves_questions_unanswered_is_silent_until_it_answers() {
        let mut hearing = hearing();
        for _ in 0..3 {
            assert_eq!(hearing.ask(), [node(2), node(3)]);
            hearing.answered(node(3));
            assert!(!hearing.is_silent(node(2)));
        }
        hearing.ask();
        assert!(hearing.is_silent(node(2)));
        assert!(!hearing.is_silent(node(3)));
        hearing.answered(node(2));
        assert!(!hearing.is_silent(node(2)));
    }

    #[test]
    fn no_node_is_silent_to_itself_or_before_it_was_asked() {
        let mut hearing = hearing();
        for _ in 0..10 {
            hearing.ask();
        }
        hearing.follow_members(&BTreeSet::from([node(1), node(2), node(4)]));
        assert!(hearing.is_silent(node(2)));
        let others = [node(1), node(3), node(4)];
        assert!(!others.into_iter().any(|node| hearing.is_silent(node)));
        hearing.answered(node(3));
        assert_eq!(hearing.ask(), [node(2), node(4)]);
    }
}
