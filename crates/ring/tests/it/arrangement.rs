//! The quality of an arrangement, counted plainly: shares, distances and moves. An oracle searches
//! for a better one among all arrangements.

use std::collections::{BTreeMap, BTreeSet};

use kvorum_ring::{Claimant, NodeId, Partition, Ring};

use crate::claimants;

/// One claimant for each of these locations, which are numbers.
pub(crate) fn located(locations: &[usize]) -> Vec<Claimant> {
    let mut located = claimants(locations.len());
    for (claimant, location) in located.iter_mut().zip(locations) {
        claimant.location = Some(format!("rack{location}"));
    }
    located
}

/// Number of each claimant's partitions.
pub(crate) fn counts(ring: &Ring, claimants: &[Claimant]) -> Vec<usize> {
    let count = |claimant: &Claimant| ring.owned_by(claimant.node).count();
    claimants.iter().map(count).collect()
}

/// Number of partitions that changed hands.
pub(crate) fn moved(before: &Ring, after: &Ring) -> usize {
    let owners = before.partitions();
    owners
        .filter(|(partition, owner, _)| after.owner(*partition) != *owner)
        .count()
}

/// Least number of partitions that had to change hands for the present shares.
pub(crate) fn least(before: &Ring, after: &Ring) -> usize {
    let gained = |node: &NodeId| {
        let owned = |ring: &Ring| ring.owned_by(*node).count();
        owned(after).saturating_sub(owned(before))
    };
    after.members().iter().map(gained).sum()
}

/// The greatest length at which all lists are on distinct nodes, and in distinct locations; at most
/// `n`, and at most the number of nodes or locations.
pub(crate) fn spacing(ring: &Ring, claimants: &[Claimant], n: usize) -> (usize, usize) {
    let location = locations(claimants);
    let nodes = n.min(claimants.len());
    let locations = n.min(location.values().collect::<BTreeSet<_>>().len());
    let first_pair = |most: usize, alike: &dyn Fn(NodeId, NodeId) -> bool| {
        let pair = |step: &usize| {
            let other = |at: Partition| ring.size().after(at, u16::try_from(*step).unwrap());
            ring.partitions()
                .any(|(at, owner, _)| alike(owner, ring.owner(other(at))))
        };
        (1..most).find(pair).unwrap_or(most)
    };
    (
        first_pair(nodes, &|one, other| one == other),
        first_pair(locations, &|one, other| location[&one] == location[&other]),
    )
}

fn locations(claimants: &[Claimant]) -> BTreeMap<NodeId, String> {
    let of = |claimant: &Claimant| {
        let own = || format!("{:?}", claimant.node);
        (claimant.node, claimant.location.clone().unwrap_or_else(own))
    };
    claimants.iter().map(of).collect()
}

/// All arrangements of equal shares in which `n` consecutive partitions are on distinct nodes and `l` in
/// distinct locations.
pub(crate) struct Oracle<'a> {
    partitions: usize,
    location_of: &'a [usize],
    n: usize,
    l: usize,
    owners: Vec<usize>,
    counts: Vec<usize>,
    steps: usize,
}

/// Steps after which an oracle gives up without an answer.
const STEPS_MAX: usize = 300_000;

impl<'a> Oracle<'a> {
    /// True if there is such an arrangement; `None` when the search takes too long.
    pub(crate) fn exists(
        partitions: usize,
        location_of: &'a [usize],
        n: usize,
        l: usize,
    ) -> Option<bool> {
        let mut oracle = Oracle {
            partitions,
            location_of,
            n,
            l,
            owners: Vec::new(),
            counts: vec![0; location_of.len()],
            steps: 0,
        };
        let found = oracle.extend();
        (found || oracle.steps < STEPS_MAX).then_some(found)
    }

    fn is_near(&self, at: usize, node: usize) -> bool {
        (1..self.n.max(self.l)).any(|step| {
            let back = at.checked_sub(step);
            let around = (at + step).checked_sub(self.partitions);
            [back, around].into_iter().flatten().any(|place| {
                let other = self.owners.get(place).copied();
                other.is_some_and(|other| {
                    (step < self.n && other == node)
                        || (step < self.l && self.location_of[other] == self.location_of[node])
                })
            })
        })
    }

    fn fits(&self, at: usize, node: usize) -> bool {
        let nodes = self.location_of.len();
        let full = self.partitions.div_ceil(nodes);
        let overfull = self.counts.iter().filter(|count| **count == full).count();
        let extra = self.partitions % nodes;
        let last_to_fill = extra > 0 && self.counts[node] == full - 1 && overfull == extra;
        self.counts[node] < full && !last_to_fill && !self.is_near(at, node)
    }

    fn extend(&mut self) -> bool {
        let at = self.owners.len();
        if at == self.partitions {
            return true;
        }
        self.steps += 1;
        for node in 0..self.location_of.len() {
            // Nodes of one location are alike: the first unused one stands for all of them.
            let is_same = |other: usize| {
                self.location_of[other] == self.location_of[node] && self.counts[other] == 0
            };
            if (self.counts[node] == 0 && (0..node).any(is_same)) || !self.fits(at, node) {
                continue;
            }
            self.owners.push(node);
            self.counts[node] += 1;
            if self.extend() || self.steps >= STEPS_MAX {
                return self.owners.len() == self.partitions;
            }
            self.owners.pop();
            self.counts[node] -= 1;
        }
        false
    }
}
