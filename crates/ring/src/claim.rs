//! Claim: who should own each partition.
//!
//! Two ways lead to a ring, and the better one wins. *Growing* keeps the previous ring and moves
//! only what balance demands. *Laying out* starts from an arrangement that is known to be good and
//! gives its places to the nodes that already own most of them. Either is then relaxed by swaps. A
//! layout is taken only where growing leaves more crowding: moving data costs hours, crowding costs
//! a replica.
//!
//! What holds for every result:
//! - the order of the claimants does not matter, and the same input gives the same ring;
//! - every claimant has the share that its weight asks for, to within one partition, except that
//!   none gets more than fit on the circle n apart;
//! - claimants of equal weight differ by one partition at most;
//! - it is never more crowded than a fresh layout for the same claimants.

use std::collections::BTreeMap;

use crate::node_id::NodeId;
use crate::partition::RingSize;
use crate::ring::{Epoch, Ring};
use crate::spread::{Member, Rules, UNOWNED};

/// A node that wants partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimant {
    /// The node.
    pub node: NodeId,
    /// Its share of the ring relative to the others'; 0 for a node that is leaving.
    pub weight: u32,
    /// Rack, room or zone; replicas are kept in distinct ones. A node without is its own location.
    pub location: Option<String>,
}

impl Claimant {
    /// A node like every other: weight 1, no location.
    pub fn new(node: NodeId) -> Self {
        Self {
            node,
            weight: 1,
            location: None,
        }
    }
}

/// Why there is no ring for these claimants.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// Nobody has a weight above 0.
    #[error("no node wants partitions")]
    NoClaimants,
    /// A node stands in the list twice.
    #[error("node {node} claims twice")]
    Duplicate {
        /// The node.
        node: NodeId,
    },
    /// Partitions are never split or joined by a claim.
    #[error("ring of {got} partitions cannot become one of {expected}")]
    SizeChange {
        /// The size asked for.
        expected: RingSize,
        /// The previous ring's size.
        got: RingSize,
    },
}

/// The ring of `size` for these claimants, with `n` consecutive replicas on distinct nodes (and
/// locations) wherever feasible, moving as little as that allows from the `previous` ring.
///
/// A partition that changes hands gets the next epoch.
pub fn claim(
    size: RingSize,
    claimants: &[Claimant],
    n: u16,
    previous: Option<&Ring>,
) -> Result<Ring, ClaimError> {
    if let Some(previous) = previous.filter(|previous| previous.size() != size) {
        return Err(ClaimError::SizeChange {
            expected: size,
            got: previous.size(),
        });
    }
    let plan = Plan::new(size, claimants, n, previous)?;
    let laid_out = plan.lay_out();
    let owners = match previous {
        None => laid_out,
        Some(_) => {
            let grown = plan.grow();
            if plan.rules.crowding(&grown) <= plan.rules.crowding(&laid_out) {
                grown
            } else {
                laid_out
            }
        }
    };
    Ok(plan.ring(&owners, previous))
}

/// The claimants in order, what each is due, and the rules of the place.
struct Plan {
    size: RingSize,
    nodes: Vec<NodeId>,
    weights: Vec<u64>,
    quotas: Vec<usize>,
    rules: Rules,
}

impl Plan {
    fn new(
        size: RingSize,
        claimants: &[Claimant],
        n: u16,
        previous: Option<&Ring>,
    ) -> Result<Self, ClaimError> {
        let mut sorted: Vec<&Claimant> = claimants.iter().collect();
        sorted.sort_by_key(|claimant| claimant.node);
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0].node == pair[1].node) {
            return Err(ClaimError::Duplicate { node: pair[0].node });
        }
        sorted.retain(|claimant| claimant.weight > 0);
        if sorted.is_empty() {
            return Err(ClaimError::NoClaimants);
        }
        let nodes: Vec<NodeId> = sorted.iter().map(|claimant| claimant.node).collect();
        let before = before(size, &nodes, previous);
        let (location_of, locations) = locations(&sorted);
        let replicas = usize::from(n.max(1)).min(nodes.len());
        let weights: Vec<u64> = sorted
            .iter()
            .map(|claimant| u64::from(claimant.weight))
            .collect();
        let quotas = quotas(usize::from(size.get()), &weights, replicas, &before);
        let rules = Rules {
            replicas,
            locations: replicas.min(locations),
            location_of,
            before,
        };
        Ok(Self {
            size,
            nodes,
            weights,
            quotas,
            rules,
        })
    }

    fn partitions(&self) -> usize {
        usize::from(self.size.get())
    }

    /// Keeps what is within quota, hands out the rest where it crowds least.
    fn grow(&self) -> Vec<Member> {
        let mut owners: Vec<Member> = self
            .rules
            .before
            .iter()
            .map(|owner| owner.unwrap_or(UNOWNED))
            .collect();
        let mut owned = vec![0; self.nodes.len()];
        for owner in owners.iter().filter(|owner| **owner != UNOWNED) {
            owned[*owner] += 1;
        }
        while let Some(taker) = self.neediest(&owned) {
            let Some(at) = self.place_for(taker, &owners, &owned) else {
                break;
            };
            if owners[at] != UNOWNED {
                owned[owners[at]] -= 1;
            }
            owners[at] = taker;
            owned[taker] += 1;
        }
        self.rules.relax(&mut owners);
        owners
    }

    fn neediest(&self, owned: &[usize]) -> Option<Member> {
        (0..self.nodes.len())
            .filter(|member| owned[*member] < self.quotas[*member])
            .min_by_key(|member| {
                (
                    std::cmp::Reverse(self.quotas[*member] - owned[*member]),
                    *member,
                )
            })
    }

    /// The partition without owner, or of one who has too many, where `taker` crowds least and most
    /// crowding leaves with the present owner.
    fn place_for(&self, taker: Member, owners: &[Member], owned: &[usize]) -> Option<usize> {
        let free =
            |at: &usize| owners[*at] == UNOWNED || owned[owners[*at]] > self.quotas[owners[*at]];
        (0..owners.len()).filter(free).min_by_key(|at| {
            let comes = self.rules.crowding_at(owners, *at, taker);
            let leaves = match owners[*at] {
                UNOWNED => 0,
                owner => self.rules.crowding_at(owners, *at, owner),
            };
            (
                comes,
                owners[*at] != UNOWNED,
                std::cmp::Reverse(leaves),
                *at,
            )
        })
    }

    /// A fresh arrangement, its places given to nodes so that most partitions stay.
    fn lay_out(&self) -> Vec<Member> {
        let equal = self.weights.windows(2).all(|pair| pair[0] == pair[1]);
        let mut owners = if equal {
            self.equal_rounds()
        } else {
            self.weighted_rounds()
        };
        self.rules.relax(&mut owners);
        self.keep_most(&mut owners);
        owners
    }

    /// Lets members that are alike (in quota and location) trade all their places, so that each gets
    /// the places of which it already owns most.
    fn keep_most(&self, owners: &mut [Member]) {
        let all_apart = self.all_apart();
        let alike = |one: Member, other: Member| {
            let same_place = self.rules.location_of[one] == self.rules.location_of[other];
            self.quotas[one] == self.quotas[other] && (same_place || all_apart)
        };
        let new_owners = self.matched(owners, alike);
        for owner in owners {
            *owner = new_owners[*owner];
        }
    }

    /// Who gets the places of each member: the pairs with most partitions in common first, then
    /// whoever is left.
    fn matched(&self, owners: &[Member], alike: impl Fn(Member, Member) -> bool) -> Vec<Member> {
        let mut shared = BTreeMap::<(Member, Member), usize>::new();
        for (places_of, had) in owners.iter().zip(&self.rules.before) {
            if let Some(had) = had.filter(|had| alike(*places_of, *had)) {
                *shared.entry((*places_of, had)).or_default() += 1;
            }
        }
        let mut by_count: Vec<((Member, Member), usize)> = shared.into_iter().collect();
        by_count.sort_by_key(|(pair, count)| (std::cmp::Reverse(*count), *pair));
        let mut matched: Vec<Option<Member>> = vec![None; self.nodes.len()];
        let mut placed = vec![false; self.nodes.len()];
        for ((places_of, member), _) in by_count {
            if matched[places_of].is_none() && !placed[member] {
                matched[places_of] = Some(member);
                placed[member] = true;
            }
        }
        let rest = matched.iter().enumerate().map(|(places_of, member)| {
            // Members that are alike form classes of one size on both sides: one is always left.
            let unplaced = || (0..placed.len()).find(|at| !placed[*at] && alike(places_of, *at));
            let member = member.or_else(unplaced).unwrap_or(places_of);
            placed[member] = true;
            member
        });
        rest.collect()
    }

    /// True when no two members share a location: then all of them are alike.
    fn all_apart(&self) -> bool {
        let mut locations = self.rules.location_of.clone();
        locations.sort_unstable();
        locations.windows(2).all(|pair| pair[0] != pair[1])
    }

    /// Members in the order of a round: locations alternate, the most populous first; those with
    /// the higher quota lead.
    fn round(&self) -> Vec<Member> {
        let mut populations = BTreeMap::<usize, usize>::new();
        let mut keyed: Vec<(usize, usize, Member)> = Vec::new();
        for member in 0..self.nodes.len() {
            let location = self.rules.location_of[member];
            let rank = populations.entry(location).or_default();
            keyed.push((*rank, location, member));
            *rank += 1;
        }
        keyed.sort_by_key(|(rank, location, member)| {
            (
                *rank,
                std::cmp::Reverse(populations[location]),
                *location,
                *member,
            )
        });
        keyed.into_iter().map(|(.., member)| member).collect()
    }

    /// Whole rounds, from which single places are dropped at even distances until the ring's size
    /// is met. A round closes upon itself around the circle, and a dropped place shortens the
    /// distances around it by one, where an incomplete last round would end in a heap.
    fn equal_rounds(&self) -> Vec<Member> {
        let round = self.round();
        let members = round.len();
        let rounds = self.partitions().div_ceil(members);
        let places = rounds * members;
        let mut to_drop: Vec<Member> = round
            .iter()
            .copied()
            .filter(|member| self.quotas[*member] < rounds)
            .collect();
        let drops = to_drop.len();
        let mut dropped = vec![false; places];
        for drop in 0..drops {
            let wanted = drop * places / drops;
            let at = (0..places)
                .map(|step| (wanted + step) % places)
                .find(|at| to_drop.contains(&round[at % members]) && !dropped[*at]);
            let Some(at) = at else { break };
            dropped[at] = true;
            to_drop.retain(|member| *member != round[at % members]);
        }
        (0..places)
            .filter(|at| !dropped[*at])
            .map(|at| round[at % members])
            .collect()
    }

    /// Each place to the member that is furthest behind its quota at that point of the circle.
    fn weighted_rounds(&self) -> Vec<Member> {
        let partitions = self.partitions();
        let round = self.round();
        let mut owned = vec![0usize; self.nodes.len()];
        (1..=partitions)
            .map(|place| {
                let behind = |member: &Member| {
                    let due = self.quotas[*member] * place;
                    i64::try_from(due).unwrap_or(i64::MAX)
                        - i64::try_from(owned[*member] * partitions).unwrap_or(i64::MAX)
                };
                let open = round
                    .iter()
                    .filter(|member| owned[**member] < self.quotas[**member]);
                let member = open
                    .copied()
                    .max_by_key(|member| (behind(member), std::cmp::Reverse(*member)));
                let member = member.unwrap_or(0);
                owned[member] += 1;
                member
            })
            .collect()
    }

    fn ring(&self, owners: &[Member], previous: Option<&Ring>) -> Ring {
        let owners: Vec<NodeId> = owners.iter().map(|member| self.nodes[*member]).collect();
        let epochs = self.size.partitions().map(|partition| match previous {
            None => Epoch::FIRST,
            Some(ring) if ring.owner(partition) == owners[partition.slot()] => {
                ring.epoch(partition)
            }
            Some(ring) => ring.epoch(partition).next(),
        });
        let epochs = epochs.collect();
        Ring::from_parts(self.size, owners, epochs)
    }
}

fn before(size: RingSize, nodes: &[NodeId], previous: Option<&Ring>) -> Vec<Option<Member>> {
    let member = |ring: &Ring, partition| nodes.binary_search(&ring.owner(partition)).ok();
    size.partitions()
        .map(|partition| previous.and_then(|ring| member(ring, partition)))
        .collect()
}

/// The location of each claimant by number, and how many there are.
fn locations(claimants: &[&Claimant]) -> (Vec<usize>, usize) {
    let mut numbers = BTreeMap::<&str, usize>::new();
    let mut count = 0;
    let mut location_of = Vec::with_capacity(claimants.len());
    for claimant in claimants {
        let number = match &claimant.location {
            Some(name) => *numbers.entry(name).or_insert(count),
            None => count,
        };
        count = count.max(number + 1);
        location_of.push(number);
    }
    (location_of, count)
}

/// How many partitions each member is due: its weighted share, rounded by largest remainder, and
/// where remainders are equal in favour of those that own most already (they need not move).
fn quotas(
    partitions: usize,
    weights: &[u64],
    replicas: usize,
    before: &[Option<Member>],
) -> Vec<usize> {
    let mut owned = vec![0usize; weights.len()];
    for member in before.iter().flatten() {
        owned[*member] += 1;
    }
    // More than this many cannot lie `replicas` apart on the circle.
    let spaced = partitions / replicas;
    let cap = if spaced * weights.len() >= partitions {
        spaced
    } else {
        partitions.div_ceil(replicas)
    };
    let mut quotas = vec![0usize; weights.len()];
    let mut open: Vec<Member> = (0..weights.len()).collect();
    let mut left = partitions;
    while left > 0 && !open.is_empty() {
        let total: u128 = open.iter().map(|member| u128::from(weights[*member])).sum();
        let share = |member: Member| left as u128 * u128::from(weights[member]);
        if let Some(over) = open
            .iter()
            .position(|member| share(*member) > cap as u128 * total)
        {
            let member = open.remove(over);
            quotas[member] = cap;
            left -= cap;
            continue;
        }
        let mut given = 0;
        for member in &open {
            quotas[*member] = usize::try_from(share(*member) / total).unwrap_or(cap);
            given += quotas[*member];
        }
        open.sort_by_key(|member| {
            let behind = share(*member) % total;
            (std::cmp::Reverse((behind, owned[*member])), *member)
        });
        for member in open.drain(..).take(left - given) {
            quotas[member] += 1;
        }
        left = 0;
    }
    quotas
}
