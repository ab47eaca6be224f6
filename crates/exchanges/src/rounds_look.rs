//! A look at tombstones that wait, and at the rounds that have been led, for status.

use std::collections::BTreeMap;

use kvorum_anti_entropy::{Target, TargetReport};
use kvorum_cluster::ClusterState;
use kvorum_coordinator::LocalVnodes;
use kvorum_reaping::KeptBecause;
use kvorum_ring::NodeId;
use kvorum_vnode::Vnode;

use crate::report::{ListTombstones, RoundsReport};
use crate::rounding::RoundEnd;
use crate::staying::{LastKept, ListFacts};
use crate::targets::{list_of, replicas_of};

/// The rounds that this node has led.
#[derive(Clone, Default)]
pub(crate) struct RoundSums {
    raised: u64,
    ended_early: u64,
    reaped: u64,
    /// Lists whose last round ended early, or left tombstones.
    kept: BTreeMap<Target, LastKept>,
}

impl RoundSums {
    /// Counts a round that has ended; `None` for one that was stopped.
    pub(crate) fn count(&mut self, target: Target, end: Option<&RoundEnd>) {
        let is_raised = end.is_some_and(|it| it.outcome.raised.is_some());
        match is_raised {
            true => self.raised += 1,
            false => self.ended_early += 1,
        }
        let kept = match end {
            Some(end) => end.outcome.kept.map(|because| (because, end.kept_by)),
            None => Some((KeptBecause::Stopped, None)),
        };
        match kept {
            Some(kept) => self.kept.insert(target, kept),
            None => self.kept.remove(&target),
        };
        self.reaped += end.map_or(0, |it| it.outcome.reaped);
    }
}

/// The parts that are looked at.
pub(crate) struct RoundsLook<'a> {
    pub(crate) node: NodeId,
    pub(crate) state: &'a ClusterState,
    pub(crate) vnodes: &'a dyn LocalVnodes,
    pub(crate) is_up: &'a dyn Fn(NodeId) -> bool,
    pub(crate) are_rounds_led: bool,
    pub(crate) are_colocated: bool,
}

impl RoundsLook<'_> {
    /// The lists of `targets` with their tombstones.
    pub(crate) fn report(&self, targets: &[TargetReport], sums: &RoundSums) -> RoundsReport {
        let members = self.state.members().keys().copied();
        let is_down = |it: &NodeId| *it != self.node && !(self.is_up)(*it);
        let down: Vec<NodeId> = members.filter(is_down).collect();
        let list = |it: &TargetReport| self.list(it, sums.kept.get(&it.target), &down);
        RoundsReport {
            are_led: self.are_rounds_led,
            raised: sums.raised,
            ended_early: sums.ended_early,
            reaped: sums.reaped,
            waiting: self.waiting(),
            lists: targets.iter().map(list).collect(),
        }
    }

    /// A node alone removes its tombstones with each delete, and goes through no store.
    fn waiting(&self) -> u64 {
        let ring = self.state.ring();
        if ring.replicas_max() < 2 {
            return 0;
        }
        let vnodes = ring.size().partitions();
        let vnodes = vnodes.filter_map(|it| self.vnodes.vnode(it));
        vnodes.map(|it| known_tombstones(&it).0).sum()
    }

    fn list(
        &self,
        report: &TargetReport,
        last_kept: Option<&LastKept>,
        down: &[NodeId],
    ) -> ListTombstones {
        let target = report.target;
        let replicas = replicas_of(self.state, target, self.are_colocated);
        let here = replicas.iter().find(|it| it.node == self.node);
        let vnode = here.and_then(|it| self.vnodes.vnode(it.partition));
        let known = vnode.as_deref().map(known_tombstones);
        let (waiting, are_counted) = known.unwrap_or((0, false));
        let has_notes = |it: &Vnode| are_counted || it.may_have_tombstones();
        let list = list_of(target);
        let facts = ListFacts {
            may_wait: waiting > 0 || !are_counted,
            are_rounds_led: self.are_rounds_led,
            are_batches_ordered: vnode.as_deref().is_none_or(has_notes),
            are_colocated: self.are_colocated,
            may_announce: self.state.may_announce(list),
            down: down.to_vec(),
            last_kept: last_kept.copied(),
            is_compared: report.is_complete_in_epoch,
        };
        ListTombstones {
            target,
            waiting,
            are_counted,
            watermark: self.state.watermark(list).map(|it| it.round.number),
            stay: facts.stay(),
        }
    }
}

/// The tombstones that a vnode is known to have, and true if these are all. Before a pass through its store
/// they are those that were stored since the start.
fn known_tombstones(vnode: &Vnode) -> (u64, bool) {
    match vnode.tombstones_waiting() {
        Some(waiting) => (waiting, true),
        None => (vnode.tombstones_stored(), false),
    }
}

#[cfg(test)]
mod tests {
    use kvorum_reaping::{Incarnation, RoundName, RoundOutcome, Watermark};

    use super::*;

    const TARGET: Target = Target { partition: 3, n: 3 };

    fn end(is_raised: bool, kept: Option<KeptBecause>, reaped: u64) -> RoundEnd {
        let watermark = Watermark {
            round: RoundName {
                number: 1,
                nonce: 7,
            },
            epoch: 1,
            replicas: vec![Incarnation(1)],
        };
        RoundEnd {
            outcome: RoundOutcome {
                kept,
                kept_by: None,
                raised: is_raised.then_some(watermark),
                reaped,
            },
            kept_by: kept.map(|_| NodeId::from_bytes([2; 16])),
        }
    }

    #[test]
    fn each_end_of_a_round_moves_its_count_and_the_reason_of_its_list() {
        let mut sums = RoundSums::default();
        sums.count(TARGET, None);
        assert_eq!((sums.raised, sums.ended_early, sums.reaped), (0, 1, 0));
        assert_eq!(sums.kept[&TARGET], (KeptBecause::Stopped, None));
        let down = Some(KeptBecause::ReplicaDown);
        sums.count(TARGET, Some(&end(true, down, 20)));
        assert_eq!((sums.raised, sums.ended_early, sums.reaped), (1, 1, 20));
        let by = Some(NodeId::from_bytes([2; 16]));
        assert_eq!(sums.kept[&TARGET], (KeptBecause::ReplicaDown, by));
        sums.count(TARGET, Some(&end(true, None, 10)));
        assert_eq!((sums.raised, sums.ended_early, sums.reaped), (2, 1, 30));
        assert!(sums.kept.is_empty());
    }
}
