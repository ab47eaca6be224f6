//! The choice of the voters: a few nodes vote, the rest listen. Pure.
//!
//! The cluster's members are part of the agreed state; the voters among them follow from it. Voters
//! stay as long as they are fit: during each change of voters the log depends on more nodes.

use std::collections::BTreeSet;

use kvorum_ring::NodeId;

/// The next change of the log's membership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MembershipStep {
    /// Send the log to this node as well.
    AddListener(NodeId),
    /// Let these nodes vote; all of them are listeners or voters already.
    SetVoters(BTreeSet<NodeId>),
    /// Stop sending the log to this node.
    RemoveListener(NodeId),
}

/// The next step from the present voters and listeners to the ones that the cluster's members
/// require; `None` when no step is left. `unfit` members, which are marked as down or leaving, do
/// not vote.
pub fn next_membership_step(
    voters: &BTreeSet<NodeId>,
    listeners: &BTreeSet<NodeId>,
    members: &BTreeSet<NodeId>,
    unfit: &BTreeSet<NodeId>,
    voters_max: usize,
) -> Option<MembershipStep> {
    let is_known = |node: &&NodeId| voters.contains(node) || listeners.contains(node);
    if let Some(node) = members.iter().find(|node| !is_known(node)) {
        return Some(MembershipStep::AddListener(*node));
    }
    let wanted = wanted_voters(voters, members, unfit, voters_max);
    if wanted != *voters {
        return Some(MembershipStep::SetVoters(wanted));
    }
    let stranger = listeners.difference(members).next();
    stranger.map(|node| MembershipStep::RemoveListener(*node))
}

/// Fit voters stay, and others are added in the order of their identities. Their number is odd: an even
/// number tolerates no more failures and needs one more vote. Two is the exception, since a single copy
/// of the log would be lost with its disk.
fn wanted_voters(
    voters: &BTreeSet<NodeId>,
    members: &BTreeSet<NodeId>,
    unfit: &BTreeSet<NodeId>,
    voters_max: usize,
) -> BTreeSet<NodeId> {
    let fit: BTreeSet<NodeId> = members.difference(unfit).copied().collect();
    if fit.is_empty() {
        // No other node is fit to vote.
        return voters.clone();
    }
    let count = match fit.len().min(voters_max.max(1)) {
        2 => 2,
        count => count - (count + 1) % 2,
    };
    let stay = fit.intersection(voters);
    let come = fit.difference(voters);
    stay.chain(come).take(count).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(numbers: impl IntoIterator<Item = u8>) -> BTreeSet<NodeId> {
        let node = |number| NodeId::from_bytes([number; 16]);
        numbers.into_iter().map(node).collect()
    }

    /// Takes all steps; returns the resulting voters and listeners.
    fn settle(
        mut voters: BTreeSet<NodeId>,
        members: &BTreeSet<NodeId>,
        unfit: &BTreeSet<NodeId>,
    ) -> (BTreeSet<NodeId>, BTreeSet<NodeId>) {
        let mut listeners = BTreeSet::new();
        for _ in 0..100 {
            match next_membership_step(&voters, &listeners, members, unfit, 5) {
                None => return (voters, listeners),
                Some(MembershipStep::AddListener(node)) => {
                    assert!(listeners.insert(node));
                }
                Some(MembershipStep::SetVoters(next)) => {
                    let known: BTreeSet<NodeId> = voters.union(&listeners).copied().collect();
                    assert!(next.is_subset(&known));
                    listeners = known.difference(&next).copied().collect();
                    voters = next;
                }
                Some(MembershipStep::RemoveListener(node)) => {
                    assert!(listeners.remove(&node));
                }
            }
        }
        panic!("it never settles");
    }

    #[test]
    fn a_few_vote_and_all_listen() {
        for (members, count) in [(1, 1), (2, 2), (3, 3), (4, 3), (5, 5), (6, 5), (40, 5)] {
            let members = nodes(1..=members);
            let (voters, listeners) = settle(nodes([1]), &members, &nodes([]));
            assert_eq!(voters.len(), count);
            let known: BTreeSet<NodeId> = voters.union(&listeners).copied().collect();
            assert_eq!(known, members);
        }
    }

    #[test]
    fn a_voter_that_is_lost_is_replaced_and_the_others_stay() {
        let members = nodes(1..=7);
        let (voters, _) = settle(nodes([1]), &members, &nodes([]));
        let (after, _) = settle(voters.clone(), &members, &nodes([2]));
        assert!(!after.contains(&NodeId::from_bytes([2; 16])));
        assert_eq!(after.len(), 5);
        assert_eq!(after.intersection(&voters).count(), 4);
    }

    #[test]
    fn who_is_no_member_neither_votes_nor_listens() {
        let (voters, listeners) = settle(nodes([1, 2, 3]), &nodes([1]), &nodes([]));
        assert_eq!((voters, listeners), (nodes([1]), nodes([])));
    }

    #[test]
    fn some_member_always_votes() {
        let (voters, _) = settle(nodes([1]), &nodes([1, 2]), &nodes([1, 2]));
        assert_eq!(voters, nodes([1]));
    }
}
