//! The reason for which the tombstones of a list stay, as an operator can act on it.
//!
//! The end of the last round is not enough: while a member is down, no exchange of its lists is complete, and
//! no round begins. So the facts of the moment come before it.

use kvorum_cluster::RoundRefusal;
use kvorum_reaping::KeptBecause;
use kvorum_ring::NodeId;

/// The reason for which tombstones of a list stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stay {
    /// This node leads no rounds.
    NotLed,
    /// This node's vnodes take no part in rounds: their batches have no order.
    Unordered,
    /// Replicas share nodes on purpose.
    Colocated,
    /// No round of the list may be announced.
    Refused(RoundRefusal),
    /// Members are down: each may have hints of older values.
    MembersDown(Vec<NodeId>),
    /// No round has begun for a reason, or the last one ended with it.
    Kept {
        /// The reason.
        because: KeptBecause,
        /// The node whose answer it was.
        by: Option<NodeId>,
    },
}

/// The facts about a list at one moment.
#[derive(Clone, Debug)]
pub(crate) struct ListFacts {
    /// True unless this node's vnode is known to have no tombstones.
    pub(crate) may_wait: bool,
    pub(crate) are_rounds_led: bool,
    pub(crate) are_batches_ordered: bool,
    pub(crate) are_colocated: bool,
    pub(crate) may_announce: Result<(), RoundRefusal>,
    /// Members that are down.
    pub(crate) down: Vec<NodeId>,
    /// The reason for which the last round ended early, or has left tombstones.
    pub(crate) last_kept: Option<LastKept>,
    /// The list has been compared completely in the present ring.
    pub(crate) is_compared: bool,
}

/// The reason of a round, and the node whose answer it was.
pub(crate) type LastKept = (KeptBecause, Option<NodeId>);

impl ListFacts {
    /// The first reason that holds.
    pub(crate) fn stay(self) -> Option<Stay> {
        if !self.may_wait {
            return None;
        }
        if !self.are_rounds_led {
            return Some(Stay::NotLed);
        }
        if !self.are_batches_ordered {
            return Some(Stay::Unordered);
        }
        if self.are_colocated {
            return Some(Stay::Colocated);
        }
        if let Err(refusal) = self.may_announce {
            return Some(Stay::Refused(refusal));
        }
        if !self.down.is_empty() {
            return Some(Stay::MembersDown(self.down));
        }
        let not_compared = (!self.is_compared).then_some((KeptBecause::NotCompared, None));
        let (because, by) = self.last_kept.or(not_compared)?;
        Some(Stay::Kept { because, by })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> ListFacts {
        ListFacts {
            may_wait: true,
            are_rounds_led: true,
            are_batches_ordered: true,
            are_colocated: false,
            may_announce: Ok(()),
            down: Vec::new(),
            last_kept: None,
            is_compared: true,
        }
    }

    #[test]
    fn a_list_whose_last_round_took_all_has_no_reason() {
        assert_eq!(facts().stay(), None);
    }

    #[test]
    fn the_first_reason_on_the_way_of_a_round_is_given() {
        let node = NodeId::from_bytes([3; 16]);
        let mut facts = ListFacts {
            is_compared: false,
            ..facts()
        };
        let kept = |because, by| Some(Stay::Kept { because, by });
        assert_eq!(facts.clone().stay(), kept(KeptBecause::NotCompared, None));
        facts.last_kept = Some((KeptBecause::HintsOutstanding, Some(node)));
        let by_node = kept(KeptBecause::HintsOutstanding, Some(node));
        assert_eq!(facts.clone().stay(), by_node);
        facts.down = vec![node];
        assert_eq!(facts.clone().stay(), Some(Stay::MembersDown(vec![node])));
        facts.may_announce = Err(RoundRefusal::InMotion);
        let refused = Some(Stay::Refused(RoundRefusal::InMotion));
        assert_eq!(facts.clone().stay(), refused);
        facts.are_colocated = true;
        assert_eq!(facts.clone().stay(), Some(Stay::Colocated));
        facts.are_batches_ordered = false;
        assert_eq!(facts.clone().stay(), Some(Stay::Unordered));
        facts.are_rounds_led = false;
        assert_eq!(facts.clone().stay(), Some(Stay::NotLed));
        facts.may_wait = false;
        assert_eq!(facts.stay(), None, "nothing waits");
    }
}
