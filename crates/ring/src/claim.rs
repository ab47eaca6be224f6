//! Claim: the choice of each partition's owner.
//!
//! There are two ways to a ring. *Growing* keeps the previous ring and moves only the partitions
//! that balance demands; then a few swaps make it as distinct as a fresh layout. *Laying out*
//! improves a few good starting arrangements, takes the best, and gives its places to the nodes
//! that already own most of them. A layout is taken only if growing did not reach its distances, or
//! moves more. Moving data costs hours, but two replicas on one node are a risk for as long as the
//! ring stays.
//!
//! Invariants of every result (tested as properties):
//! - the order of the claimants does not matter, and the same input gives the same ring;
//! - every claimant has the share of its weight, rounded up or down, but no more partitions than
//!   fit on the circle n apart; so claimants of equal weight differ by one partition at most;
//! - n consecutive partitions are on distinct nodes if any arrangement of such shares allows it,
//!   and then as many as possible are in distinct locations. In all small rings this is the best of
//!   all arrangements (tried one by one). The search may miss the last step in rings of 1024
//!   partitions and more, and if locations almost fill the ring l apart;
//! - after an update, shares and distances are as in a fresh ring, and a second claim moves
//!   nothing;
//! - if the requested distance is impossible, a ring that grew has at most about twice the pairs of a fresh
//!   layout;
//! - a join without locations moves the minimum for balance, if there are more than n nodes; a
//!   leave moves at most twice the minimum plus two, if there are at least 2n nodes. With hardly
//!   more than n nodes, or locations whose shares just fit, only a repeating ring is possible, and
//!   a change moves most of it. This is intended. An operator who prefers two replicas in one
//!   location to transfers gives those nodes the same location.

use std::collections::BTreeMap;

use crate::node_id::NodeId;
use crate::partition::RingSize;
use crate::ring::{Epoch, Ring};
use crate::search::{Goal, given_back, relaxed};
use crate::share::{Claims, Member};
use crate::spread::{Crowding, Rules, UNOWNED};

/// A node that claims partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimant {
    /// The node.
    pub node: NodeId,
    /// Its share of the ring relative to the others'; 0 for a node that is leaving.
    pub weight: u32,
    /// Rack, room or zone; replicas are kept in distinct locations. A node without one is its own
    /// location.
    pub location: Option<String>,
}

impl Claimant {
    /// A node with weight 1 and no location.
    pub fn new(node: NodeId) -> Self {
        Self {
            node,
            weight: 1,
            location: None,
        }
    }
}

/// The reason why there is no ring for these claimants.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// No claimant has a weight above 0.
    #[error("no node wants partitions")]
    NoClaimants,
    /// A node is in the list twice.
    #[error("node {node} claims twice")]
    Duplicate {
        /// The node.
        node: NodeId,
    },
    /// A claim never splits or joins partitions.
    #[error("ring of {got} partitions cannot become one of {expected}")]
    SizeChange {
        /// The size asked for.
        expected: RingSize,
        /// The previous ring's size.
        got: RingSize,
    },
}

/// The ring of `size` for these claimants, with `n` consecutive replicas on distinct nodes (and
/// locations) if feasible. Moves as little of the `previous` ring as this allows.
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
    let fresh = Plan::new(size, claimants, n, None)?;
    let laid_out = fresh.lay_out();
    let Some(previous) = previous else {
        return Ok(fresh.ring(&laid_out, None));
    };
    let goal = fresh.goal(&laid_out);
    let plan = Plan::new(size, claimants, n, Some(previous))?;
    let grown = plan.grow(&goal);
    let laid_out = plan.keep_most(laid_out, &goal);
    let moves_fewer = plan.moves(&grown) <= plan.moves(&laid_out);
    let owners = if goal.is_met(&plan.rules, &grown) && moves_fewer {
        grown
    } else {
        laid_out
    };
    Ok(plan.ring(&owners, Some(previous)))
}

/// If a fresh layout is crowded, a growing ring may be twice as crowded, plus one pair in one
/// location (at the largest distance) for this many partitions. Less crowding would move most of
/// the ring.
const SLACK: Crowding = 4;

/// The claimants in order, and the rules, with the partitions that each is due.
struct Plan {
    size: RingSize,
    nodes: Vec<NodeId>,
    weights: Vec<u64>,
    /// Number of their locations.
    locations: usize,
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
        let partitions = usize::from(size.get());
        let replicas = usize::from(n.max(1)).min(nodes.len()).min(partitions);
        let weights: Vec<u64> = sorted
            .iter()
            .map(|claimant| u64::from(claimant.weight))
            .collect();
        let mut owned = vec![0; nodes.len()];
        for member in before.iter().flatten() {
            owned[*member] += 1;
        }
        let claims = Claims {
            partitions,
            weights: &weights,
            location_of: &location_of,
            replicas,
            owned: &owned,
        };
        let rules = Rules {
            replicas,
            locations: if locations < nodes.len() {
                replicas.min(locations)
            } else {
                1
            },
            shares: claims.shares(),
            location_of,
            before,
        };
        Ok(Self {
            size,
            nodes,
            weights,
            locations,
            rules,
        })
    }

    fn partitions(&self) -> usize {
        usize::from(self.size.get())
    }

    /// Keeps each owner's partitions up to its quota, and assigns the rest where they crowd least.
    fn grow(&self, goal: &Goal) -> Vec<Member> {
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
        let owners = relaxed(&self.rules, &owners, goal);
        given_back(&self.rules, owners, goal)
    }

    /// Number of partitions that a member is due.
    fn due(&self, member: Member) -> usize {
        self.rules.shares[member].due
    }

    fn neediest(&self, owned: &[usize]) -> Option<Member> {
        (0..self.nodes.len())
            .filter(|member| owned[*member] < self.due(*member))
            .min_by_key(|member| {
                (
                    std::cmp::Reverse(self.due(*member) - owned[*member]),
                    *member,
                )
            })
    }

    /// The partition where `taker` crowds least, among partitions that are free or whose owner has
    /// too many. Of equal ones a free partition comes first, then the partition whose present owner
    /// crowds most.
    fn place_for(&self, taker: Member, owners: &[Member], owned: &[usize]) -> Option<usize> {
        let free =
            |at: &usize| owners[*at] == UNOWNED || owned[owners[*at]] > self.due(owners[*at]);
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

    /// A fresh arrangement: the least crowded of those found from a few good starts.
    fn lay_out(&self) -> Vec<Member> {
        let equal = self.weights.windows(2).all(|pair| pair[0] == pair[1]);
        let rounds = if equal {
            self.equal_rounds()
        } else {
            self.weighted_rounds()
        };
        let relaxed = |owners: Vec<Member>| relaxed(&self.rules, &owners, &Goal::BEST);
        let by_round = relaxed(rounds);
        if self.all_apart() || self.rules.crowding(&by_round) == 0 {
            return by_round;
        }
        let by_location = relaxed(self.by_location());
        let crowding = |owners: &Vec<Member>| self.rules.crowding(owners);
        let best = match crowding(&by_location) < crowding(&by_round) {
            true => by_location,
            false => by_round,
        };
        self.with_closer_aims(best)
    }

    /// The arrangement, or one with longer lists in distinct locations everywhere. Such an
    /// arrangement may be easier to find when the longest lists do not count.
    fn with_closer_aims(&self, owners: Vec<Member>) -> Vec<Member> {
        let found = self.rules.spacing(&owners);
        for locations in (found.1 + 1..self.rules.locations).rev() {
            let closer = Rules {
                locations,
                ..self.rules.clone()
            };
            let other = relaxed(&closer, &owners, &Goal::BEST);
            if self.rules.spacing(&other) > found {
                return other;
            }
        }
        owners
    }

    /// Number of partitions that would change hands.
    fn moves(&self, owners: &[Member]) -> i64 {
        let places = owners.iter().enumerate();
        places.map(|(at, owner)| self.rules.moved(at, *owner)).sum()
    }

    /// The goal of a growing ring; a ring that misses it is laid out again.
    fn goal(&self, laid_out: &[Member]) -> Goal {
        let slack = Crowding::from(self.size.get()) / SLACK;
        let crowding = match self.rules.crowding(laid_out) {
            0 => 0,
            crowding => 2 * crowding + slack,
        };
        Goal {
            crowding,
            spacing: self.rules.spacing(laid_out),
        }
    }

    /// The same arrangement with nodes exchanged so that most partitions stay.
    ///
    /// Members that are alike (in share and location) exchange all their places, so that each gets
    /// the set of places that contains most of its own.
    fn keep_most(&self, mut owners: Vec<Member>, goal: &Goal) -> Vec<Member> {
        let all_apart = self.all_apart();
        let shares = &self.rules.shares;
        let bounds = |member: Member| (shares[member].least, shares[member].most);
        let alike = |one: Member, other: Member| {
            let same_place = self.rules.location_of[one] == self.rules.location_of[other];
            bounds(one) == bounds(other) && (same_place || all_apart)
        };
        let new_owners = self.matched(&owners, alike);
        for owner in &mut owners {
            *owner = new_owners[*owner];
        }
        given_back(&self.rules, owners, goal)
    }

    /// For each member, the member that gets its places: the pairs with most partitions in common
    /// first, then the rest.
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
            // Classes of members that are alike have equal sizes on both sides, so a member is
            // always left.
            let unplaced = || (0..placed.len()).find(|at| !placed[*at] && alike(places_of, *at));
            let member = member.or_else(unplaced).unwrap_or(places_of);
            placed[member] = true;
            member
        });
        rest.collect()
    }

    /// True when no two members share a location, so that locations make no difference.
    fn all_apart(&self) -> bool {
        self.locations == self.nodes.len()
    }

    /// Members in the order of a round: locations alternate, the most populous first.
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
    /// is met. A whole number of rounds closes the circle. A dropped place shortens the distances
    /// around it by one; an incomplete last round would shorten some by many. If there are no more
    /// nodes than replicas, each drop makes lists crowded, and drops in one round crowd the fewest.
    fn equal_rounds(&self) -> Vec<Member> {
        let round = self.round();
        let members = round.len();
        let rounds = self.partitions().div_ceil(members);
        let places = rounds * members;
        let mut to_drop: Vec<Member> = round
            .iter()
            .copied()
            .filter(|member| self.due(*member) < rounds)
            .collect();
        let drops = to_drop.len();
        let mut dropped = vec![false; places];
        for drop in 0..drops {
            let wanted = if members > self.rules.replicas {
                drop * places / drops
            } else {
                0
            };
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

    /// Gives each place to the member that is furthest behind its quota at that point of the
    /// circle.
    fn weighted_rounds(&self) -> Vec<Member> {
        let partitions = self.partitions();
        let round = self.round();
        let mut owned = vec![0usize; self.nodes.len()];
        (1..=partitions)
            .map(|place| {
                let behind = |member: &Member| {
                    let due = self.due(*member) * place;
                    i64::try_from(due).unwrap_or(i64::MAX)
                        - i64::try_from(owned[*member] * partitions).unwrap_or(i64::MAX)
                };
                let open = round
                    .iter()
                    .filter(|member| owned[**member] < self.due(**member));
                let member = open
                    .copied()
                    .max_by_key(|member| (behind(member), std::cmp::Reverse(*member)));
                let member = member.unwrap_or(0);
                owned[member] += 1;
                member
            })
            .collect()
    }

    /// Gives each place to a location, and there to a member, so that both recur evenly: among
    /// those that are due another place, the one with the nearest deadline gets it.
    fn by_location(&self) -> Vec<Member> {
        let location_of = &self.rules.location_of;
        let members = 0..self.nodes.len();
        let mut due_in = vec![0usize; members.len()];
        for member in members.clone() {
            due_in[location_of[member]] += self.due(member);
        }
        let (mut owned, mut owned_in) = (vec![0; members.len()], vec![0; members.len()]);
        let next = |place: usize| {
            let open = members
                .clone()
                .filter(|member| owned[*member] < self.due(*member));
            let member = open.min_by_key(|member| {
                let location = location_of[*member];
                (
                    self.turn(due_in[location], owned_in[location], place),
                    location,
                    self.turn(self.due(*member), owned[*member], place),
                    *member,
                )
            });
            let member = member.unwrap_or(0);
            owned[member] += 1;
            owned_in[location_of[member]] += 1;
            member
        };
        (0..self.partitions()).map(next).collect()
    }

    /// Rank of a member or location for the next place, when it owns this many of its due
    /// partitions. First come those that are due a place now, then nearer deadlines, then those
    /// that are due more.
    fn turn(
        &self,
        due: usize,
        owned: usize,
        place: usize,
    ) -> (bool, usize, std::cmp::Reverse<usize>) {
        let due = due.max(1);
        let is_early = owned * self.partitions() >= due * (place + 1);
        let deadline = ((owned + 1) * self.partitions()).div_ceil(due);
        (is_early, deadline, std::cmp::Reverse(due))
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
