//! The rules that judge an arrangement of nodes around the circle.
//!
//! Crowding is counted in pairs of partitions: fewer than n apart on one node, or fewer than l
//! apart in one location. A pair on one node weighs more than all pairs in one location together. A
//! closer pair weighs more, since more lists contain it, also lists of buckets with fewer replicas.
//! The weight of a pair on one node follows the number of lists with both, since each of these
//! lists makes a detour.

use crate::share::{Member, Share};

/// Marks a partition without an owner.
pub(crate) const UNOWNED: Member = usize::MAX;

/// The rules that judge an arrangement.
#[derive(Clone)]
pub(crate) struct Rules {
    /// Replicas fewer than this many partitions apart should be on distinct nodes.
    pub(crate) replicas: usize,
    /// Replicas fewer than this many partitions apart should be in distinct locations; 1 if no two
    /// nodes share one, since distinct nodes suffice then.
    pub(crate) locations: usize,
    /// The location of each member, by number.
    pub(crate) location_of: Vec<usize>,
    /// The share of each member.
    pub(crate) shares: Vec<Share>,
    /// The former owner of each partition, if it is still a member.
    pub(crate) before: Vec<Option<Member>>,
}

/// Pairs on one node in the upper half, pairs in one location in the lower.
pub(crate) type Crowding = u64;
const SAME_NODE: Crowding = 1 << 32;

/// A pair in one location weighs as much as eight pairs that are one step further apart (a power of
/// two). So lists of l - 1 are in distinct locations if that is possible, even at the cost of lists
/// of l.
const CLOSER_BITS: usize = 3;
/// Beyond this many steps, closer pairs weigh no more.
const CLOSER_STEPS: usize = 6;

impl Rules {
    /// The whole arrangement's crowding.
    pub(crate) fn crowding(&self, owners: &[Member]) -> Crowding {
        let twice: Crowding = (0..owners.len())
            .map(|at| self.crowding_at(owners, at, owners[at]))
            .sum();
        twice / 2
    }

    /// The crowding that `member` at place `at` is part of.
    pub(crate) fn crowding_at(&self, owners: &[Member], at: usize, member: Member) -> Crowding {
        let size = owners.len();
        let mut crowding = 0;
        for step in 1..self.reach() {
            // No ring is shorter than a list.
            let (ahead, behind) = (at + step, at + size - step);
            let ahead = if ahead < size { ahead } else { ahead - size };
            let behind = if behind < size { behind } else { behind - size };
            crowding += self.pair(step, member, owners[ahead]);
            crowding += self.pair(step, member, owners[behind]);
        }
        crowding
    }

    fn pair(&self, step: usize, member: Member, other: Member) -> Crowding {
        if other == UNOWNED {
            return 0;
        }
        let mut crowding = 0;
        if step < self.replicas && other == member {
            crowding += same_node(self.replicas - step);
        }
        if step < self.locations && self.location_of[other] == self.location_of[member] {
            crowding += same_location(self.locations - step);
        }
        crowding
    }

    /// Places fewer than this many steps apart can crowd each other.
    pub(crate) fn reach(&self) -> usize {
        self.replicas.max(self.locations)
    }

    /// 1 if the former owner of a place is another member.
    pub(crate) fn moved(&self, at: usize, member: Member) -> i64 {
        i64::from(self.before[at].is_some_and(|before| before != member))
    }

    /// The least distance of replicas on one node, and in one location, at most the requested
    /// lengths. All lists up to this length have distinct nodes, or locations.
    pub(crate) fn spacing(&self, owners: &[Member]) -> (usize, usize) {
        let pair_at = |step: usize, alike: &dyn Fn(Member, Member) -> bool| {
            let next = |at: usize| owners[(at + step) % owners.len()];
            (0..owners.len()).any(|at| alike(owners[at], next(at)))
        };
        let same_location =
            |one: Member, other: Member| self.location_of[one] == self.location_of[other];
        let nodes = (1..self.replicas).find(|step| pair_at(*step, &|one, other| one == other));
        let locations = (1..self.locations).find(|step| pair_at(*step, &same_location));
        (
            nodes.unwrap_or(self.replicas),
            locations.unwrap_or(self.locations),
        )
    }
}

/// Weight of a pair on one node, by the number of lists that have both. It grows a little faster
/// than that number, to favour wider pairs.
fn same_node(lists: usize) -> Crowding {
    let lists = Crowding::try_from(lists).unwrap_or(Crowding::MAX);
    SAME_NODE * (16 * lists + lists * (lists - 1) / 2)
}

/// Weight of a pair in one location, by the number of lists that have both.
fn same_location(lists: usize) -> Crowding {
    1 << (CLOSER_BITS * (lists - 1).min(CLOSER_STEPS))
}
