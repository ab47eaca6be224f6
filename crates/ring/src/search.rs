//! The search that removes crowding from an arrangement, and then needless moves.
//!
//! It makes one change at a time: two places swap their owners, or a place is passed to a member
//! that may have one more. Every member keeps its share. The draws are the same every time, so that
//! equal input gives the same ring on every node.

use crate::share::Member;
use crate::spread::{Crowding, Rules, UNOWNED};

/// Changes without progress before the search gives up, in addition to one for every four
/// partitions.
const PATIENCE: usize = 256;
/// The most changes of a search, as a multiple of the changes that it may make without progress.
const PATIENCES: usize = 8;
/// Partners that are tried for one swap: in rings up to this size, all places.
const PARTNERS: usize = 512;
/// A changed place is not changed again for up to this many changes, so that changes do not undo
/// each other.
const REST: usize = 8;

/// The most searches of a small ring, each with different draws.
const ATTEMPTS_MAX: usize = 12;
/// The most consecutive searches without an improvement.
const VAIN_ATTEMPTS: usize = 3;
/// Bounds the places of all searches together: larger rings are searched less often.
const PLACES_OF_ALL_ATTEMPTS: usize = 2048;

/// One change of an arrangement.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// Two places swap their owners.
    Swap(usize, usize),
    /// A place goes to a member.
    Pass(usize, Member),
}

/// The effect of a change: on the crowding, then on the number of moves.
type Effect = (i64, i64);

/// An arrangement that is being changed.
pub(crate) struct Search<'a> {
    rules: &'a Rules,
    owners: Vec<Member>,
    owned: Vec<usize>,
    /// The crowding that each place is part of.
    crowding_at: Vec<Crowding>,
    crowding: Crowding,
    draws: u64,
}

/// The goal of a search for an arrangement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Goal {
    /// The most crowding.
    pub(crate) crowding: Crowding,
    /// The least distance of partitions on one node, and of partitions in one location.
    pub(crate) spacing: (usize, usize),
}

impl Goal {
    /// Nothing is crowded.
    pub(crate) const BEST: Self = Self {
        crowding: 0,
        spacing: (0, 0),
    };

    /// True if an arrangement reaches the goal.
    pub(crate) fn is_met(&self, rules: &Rules, owners: &[Member]) -> bool {
        rules.crowding(owners) <= self.crowding && self.has_spacing(rules, owners)
    }

    fn has_spacing(&self, rules: &Rules, owners: &[Member]) -> bool {
        self.spacing == (0, 0) || rules.spacing(owners) >= self.spacing
    }
}

/// The first arrangement found that meets the goal, or else the least crowded one.
pub(crate) fn relaxed(rules: &Rules, owners: &[Member], goal: &Goal) -> Vec<Member> {
    let attempts = (PLACES_OF_ALL_ATTEMPTS / owners.len().max(1)).clamp(1, ATTEMPTS_MAX);
    let mut best = Search::new(rules, owners.to_vec());
    let mut vain = 0;
    for attempt in 1..=attempts {
        // A search from the best leads further; a search from the start stays closer to it.
        let from = if attempt % 2 == 0 {
            &best.owners
        } else {
            owners
        };
        let mut search = Search::new(rules, from.to_vec());
        search.draws = u64::try_from(attempt).unwrap_or(1);
        search.relax(goal);
        if search.meets(goal) {
            return search.owners;
        }
        if search.crowding < best.crowding {
            (best, vain) = (search, 0);
        } else {
            vain += 1;
        }
        if vain == VAIN_ATTEMPTS {
            break;
        }
    }
    best.owners
}

/// The arrangement without the moves that the goal does not need.
pub(crate) fn given_back(rules: &Rules, owners: Vec<Member>, goal: &Goal) -> Vec<Member> {
    let mut search = Search::new(rules, owners);
    search.give_back(goal);
    search.owners
}

impl<'a> Search<'a> {
    fn new(rules: &'a Rules, owners: Vec<Member>) -> Self {
        let mut owned = vec![0; rules.shares.len()];
        for owner in owners.iter().filter(|owner| **owner != UNOWNED) {
            owned[*owner] += 1;
        }
        let crowding_at = (0..owners.len())
            .map(|at| rules.crowding_at(&owners, at, owners[at]))
            .collect();
        Self {
            rules,
            crowding: rules.crowding(&owners),
            owners,
            owned,
            crowding_at,
            draws: 1,
        }
    }

    /// Makes changes until the goal is met or no change helps; never leaves the arrangement more
    /// crowded.
    fn relax(&mut self, goal: &Goal) {
        let patience = PATIENCE + self.owners.len() / 4;
        let (mut left, mut total) = (patience, patience * PATIENCES);
        let mut best = (self.crowding, self.owners.clone());
        let mut rested_at = vec![0usize; self.owners.len()];
        while !self.meets(goal) && left > 0 && total > 0 {
            (left, total) = (left - 1, total - 1);
            let Some(at) = self.crowded_place() else {
                break;
            };
            let rests = |place: usize| rested_at[place] > total;
            let Some((change, effect)) = self.best_change(at, &rests) else {
                continue;
            };
            let rest = 1 + self.draw(REST);
            self.make(change);
            self.crowding = self.crowding.saturating_add_signed(effect.0);
            for place in change.places().into_iter().flatten() {
                rested_at[place] = total.saturating_sub(rest);
            }
            if self.crowding < best.0 {
                left = patience;
                best = (self.crowding, self.owners.clone());
            }
        }
        if best.0 < self.crowding && !self.meets(goal) {
            *self = Self::new(self.rules, best.1);
        }
    }

    fn meets(&self, goal: &Goal) -> bool {
        self.crowding <= goal.crowding && goal.has_spacing(self.rules, &self.owners)
    }

    /// A random place that is part of the crowding; half the time, a place with at least half of
    /// the most crowding.
    fn crowded_place(&mut self) -> Option<usize> {
        let (size, from) = (self.owners.len(), self.draw(self.owners.len()));
        let most = self
            .crowding_at
            .iter()
            .copied()
            .max()
            .filter(|most| *most > 0)?;
        let least = if self.draw(2) == 0 {
            1
        } else {
            most.div_ceil(2)
        };
        (0..size)
            .map(|step| (from + step) % size)
            .find(|at| self.crowding_at[*at] >= least)
    }

    /// The change of place `at` that crowds least and then moves least. It may keep or even raise
    /// the crowding: otherwise the search would end in the first local minimum.
    fn best_change(
        &mut self,
        at: usize,
        rests: &impl Fn(usize) -> bool,
    ) -> Option<(Change, Effect)> {
        let (size, turn) = (self.owners.len(), self.draw(self.owners.len()));
        let partners = (0..size.min(PARTNERS)).map(|step| (turn + step) % size);
        let swaps = partners
            .filter(|with| !rests(*with))
            .map(|with| Change::Swap(at, with));
        let members = self.owned.len();
        let turn = self.draw(members);
        let passes = (0..members).map(|step| Change::Pass(at, (turn + step) % members));
        let mut best: Option<(Change, Effect)> = None;
        for change in passes.chain(swaps) {
            if !self.is_allowed(change) {
                continue;
            }
            let effect = self.effect(change);
            if best.is_none_or(|(_, least)| effect < least) {
                best = Some((change, effect));
            }
        }
        best
    }

    fn is_allowed(&self, change: Change) -> bool {
        match change {
            Change::Swap(at, with) => self.owners[at] != self.owners[with],
            Change::Pass(at, to) => {
                let from = self.owners[at];
                from != to
                    && self.owned[from] > self.rules.shares[from].least
                    && self.owned[to] < self.rules.shares[to].most
            }
        }
    }

    fn effect(&mut self, change: Change) -> Effect {
        let places = || change.places().into_iter().flatten();
        let crowded_before: Crowding = places().map(|at| self.crowding_at[at]).sum();
        let moved_before = self.moved(change);
        let first_owner = self.owners[change.first()];
        self.apply(change);
        // A pair of the two places with each other counts twice both before and after, so it
        // cancels out.
        let now = |at: usize| self.rules.crowding_at(&self.owners, at, self.owners[at]);
        let crowded: Crowding = places().map(now).sum();
        let moved = self.moved(change);
        self.apply(change.undone(first_owner));
        (
            crowded.cast_signed() - crowded_before.cast_signed(),
            moved - moved_before,
        )
    }

    fn moved(&self, change: Change) -> i64 {
        let places = change.places().into_iter().flatten();
        places.map(|at| self.rules.moved(at, self.owners[at])).sum()
    }

    fn apply(&mut self, change: Change) {
        match change {
            Change::Swap(at, with) => self.owners.swap(at, with),
            Change::Pass(at, to) => self.owners[at] = to,
        }
    }

    /// Makes a change for good.
    fn make(&mut self, change: Change) {
        if let Change::Pass(at, to) = change {
            self.owned[self.owners[at]] -= 1;
            self.owned[to] += 1;
        }
        self.apply(change);
        let (size, reach) = (self.owners.len(), self.rules.reach());
        for place in change.places().into_iter().flatten() {
            for step in 0..reach {
                for at in [(place + step) % size, (place + size - step % size) % size] {
                    let owner = self.owners[at];
                    self.crowding_at[at] = self.rules.crowding_at(&self.owners, at, owner);
                }
            }
        }
    }

    /// Reverts moves: first those whose return does not crowd, then those that the goal does not
    /// need.
    fn give_back(&mut self, goal: &Goal) {
        let spacing = goal.spacing.min(self.rules.spacing(&self.owners));
        for crowding in [0, goal.crowding] {
            let goal = Goal { crowding, spacing };
            let mut is_done = false;
            while !is_done {
                is_done = true;
                for at in 0..self.owners.len() {
                    is_done &= !self.give_back_at(at, &goal);
                }
            }
        }
    }

    /// Gives place `at` back to its earlier owner, if that saves moves and does not crowd, or not
    /// beyond the goal.
    fn give_back_at(&mut self, at: usize, goal: &Goal) -> bool {
        let had = self.rules.before[at].filter(|had| *had != self.owners[at]);
        let Some(had) = had else { return false };
        let room = goal.crowding.saturating_sub(self.crowding).cast_signed();
        let swaps = (0..self.owners.len()).map(|with| Change::Swap(at, with));
        let mut best: Option<(Effect, Change)> = None;
        for change in std::iter::once(Change::Pass(at, had)).chain(swaps) {
            let gives = match change {
                Change::Swap(_, with) => self.owners[with] == had,
                Change::Pass(..) => true,
            };
            if !gives || !self.is_allowed(change) {
                continue;
            }
            let effect = self.effect(change);
            let is_good = effect.0 <= room && effect.1 < 0;
            if is_good && best.is_none_or(|(least, _)| effect < least) {
                best = Some((effect, change));
            }
        }
        let Some((effect, change)) = best else {
            return false;
        };
        let first_owner = self.owners[at];
        self.make(change);
        if !goal.has_spacing(self.rules, &self.owners) {
            self.make(change.undone(first_owner));
            return false;
        }
        self.crowding = self.crowding.saturating_add_signed(effect.0);
        true
    }

    /// A number below `bound` from a fixed sequence (xorshift), which is equal on every node.
    fn draw(&mut self, bound: usize) -> usize {
        self.draws ^= self.draws << 13;
        self.draws ^= self.draws >> 7;
        self.draws ^= self.draws << 17;
        let bound = u64::try_from(bound.max(1)).unwrap_or(u64::MAX);
        usize::try_from(self.draws % bound).unwrap_or(0)
    }
}

impl Change {
    fn first(self) -> usize {
        match self {
            Self::Swap(at, _) | Self::Pass(at, _) => at,
        }
    }

    fn places(self) -> [Option<usize>; 2] {
        match self {
            Self::Swap(at, with) => [Some(at), Some(with)],
            Self::Pass(at, _) => [Some(at), None],
        }
    }

    /// The reverse change; the first place had this owner.
    fn undone(self, first_owner: Member) -> Self {
        match self {
            Self::Swap(..) => self,
            Self::Pass(at, _) => Self::Pass(at, first_owner),
        }
    }
}
