//! An arrangement of nodes around the circle, and the search that takes crowding out of it.
//!
//! Crowding is counted in pairs: two partitions fewer than n apart on one node, or fewer than l
//! apart in one location. A pair on one node weighs more than all pairs in one location together.
//! The search swaps owners of two partitions, so that it never changes how many a node has.

/// A node by its place in the list of claimants.
pub(crate) type Member = usize;

/// What the arrangement is judged by.
pub(crate) struct Rules {
    /// Replicas fewer than this many partitions apart should be on distinct nodes.
    pub(crate) replicas: usize,
    /// Replicas fewer than this many partitions apart should be in distinct locations.
    pub(crate) locations: usize,
    /// The location of each member, by number.
    pub(crate) location_of: Vec<usize>,
    /// The owner of each partition before, where it still is a member.
    pub(crate) before: Vec<Option<Member>>,
}

/// Pairs on one node in the upper half, pairs in one location in the lower.
pub(crate) type Crowding = u64;
const SAME_NODE: Crowding = 1 << 32;
const SAME_LOCATION: Crowding = 1;

/// Swaps without progress before the search gives up, beyond one for every four partitions.
const PATIENCE: usize = 256;

impl Rules {
    /// The whole arrangement's crowding.
    pub(crate) fn crowding(&self, owners: &[Member]) -> Crowding {
        let forward = |at: usize| {
            self.pairs(owners, at, owners[at], |at, step| {
                (at + step) % owners.len()
            })
        };
        (0..owners.len()).map(forward).sum()
    }

    /// The crowding that `member` at place `at` is part of.
    pub(crate) fn crowding_at(&self, owners: &[Member], at: usize, member: Member) -> Crowding {
        let size = owners.len();
        self.pairs(owners, at, member, |at, step| (at + step) % size)
            + self.pairs(owners, at, member, |at, step| (at + size - step) % size)
    }

    fn pairs(
        &self,
        owners: &[Member],
        at: usize,
        member: Member,
        neighbour: impl Fn(usize, usize) -> usize,
    ) -> Crowding {
        let mut crowding = 0;
        for step in 1..self.replicas.max(self.locations) {
            let other = owners[neighbour(at, step)];
            if other == UNOWNED {
                continue;
            }
            if step < self.replicas && other == member {
                crowding += SAME_NODE;
            }
            if step < self.locations && self.location_of[other] == self.location_of[member] {
                crowding += SAME_LOCATION;
            }
        }
        crowding
    }

    fn moved(&self, at: usize, member: Member) -> i64 {
        i64::from(self.before[at].is_some_and(|before| before != member))
    }

    /// Swaps owners until nothing is crowded or no swap helps; never leaves it more crowded.
    pub(crate) fn relax(&self, owners: &mut [Member]) {
        let mut walk = Walk {
            best: owners.to_vec(),
            best_crowding: self.crowding(owners),
            draws: 1,
        };
        let mut crowding = walk.best_crowding;
        let patience = PATIENCE + owners.len() / 4;
        let mut left = patience;
        while walk.best_crowding > 0 && left > 0 {
            left -= 1;
            let is_crowded = |at: &usize| self.crowding_at(owners, *at, owners[*at]) > 0;
            let crowded: Vec<usize> = (0..owners.len()).filter(is_crowded).collect();
            let at = crowded[walk.draw(crowded.len())];
            let Some((with, change)) = self.best_partner(owners, at, &mut walk) else {
                continue;
            };
            owners.swap(at, with);
            crowding = crowding.saturating_add_signed(change);
            if crowding < walk.best_crowding {
                left = patience;
                walk.best_crowding = crowding;
                walk.best.copy_from_slice(owners);
            }
        }
        owners.copy_from_slice(&walk.best);
    }

    /// The swap for place `at` that crowds least and then moves least. It may leave things as
    /// crowded as they are, or even worse for a moment: standing still would end the search in the
    /// first dead end.
    fn best_partner(
        &self,
        owners: &mut [Member],
        at: usize,
        walk: &mut Walk,
    ) -> Option<(usize, i64)> {
        let turn = walk.draw(owners.len());
        let mut best: Option<((i64, i64), usize)> = None;
        for step in 0..owners.len() {
            let with = (turn + step) % owners.len();
            if owners[with] == owners[at] {
                continue;
            }
            let change = self.change_by_swap(owners, at, with);
            if best.is_none_or(|(least, _)| change < least) {
                best = Some((change, with));
            }
        }
        best.map(|((crowding, _), with)| (with, crowding))
    }

    /// What swapping changes: the crowding around both places, and the moves.
    fn change_by_swap(&self, owners: &mut [Member], at: usize, with: usize) -> (i64, i64) {
        let around = |owners: &[Member]| {
            let crowding = self.crowding_at(owners, at, owners[at])
                + self.crowding_at(owners, with, owners[with]);
            let moves = self.moved(at, owners[at]) + self.moved(with, owners[with]);
            (i64::try_from(crowding).unwrap_or(i64::MAX), moves)
        };
        // A pair of the two with each other is counted twice before and after, and is the same pair.
        let (crowding_before, moves_before) = around(owners);
        owners.swap(at, with);
        let (crowding_after, moves_after) = around(owners);
        owners.swap(at, with);
        (crowding_after - crowding_before, moves_after - moves_before)
    }
}

/// Marks a partition that nobody owns yet.
pub(crate) const UNOWNED: Member = usize::MAX;

/// The state of one search: the best arrangement seen, and draws that are the same every time.
struct Walk {
    best: Vec<Member>,
    best_crowding: Crowding,
    draws: u64,
}

impl Walk {
    /// A number below `bound`, from a fixed sequence (xorshift): varied, yet equal on every node.
    fn draw(&mut self, bound: usize) -> usize {
        self.draws ^= self.draws << 13;
        self.draws ^= self.draws >> 7;
        self.draws ^= self.draws << 17;
        let bound = u64::try_from(bound.max(1)).unwrap_or(u64::MAX);
        usize::try_from(self.draws % bound).unwrap_or(0)
    }
}
