//! Counters that are incremented and decremented at several replicas.
//!
//! Each actor has one entry: the sums of its own increments and decrements, and the dot of its latest update.
//! An actor's later entry contains its earlier ones, so the later replaces the earlier. In a map, a remove
//! that has seen an entry's dot removes the entry with its whole sum.

use smallvec::SmallVec;

use crate::clock::{Clock, Seen};
use crate::dot::{Actor, Dot};
use crate::dot_store::{DotStore, clock_of};
use crate::operation::OperationError;

/// The sum of one actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tally {
    /// Its latest update of the counter.
    pub dot: Dot,
    /// The sum of its increments.
    pub increments: u128,
    /// The sum of its decrements.
    pub decrements: u128,
}

/// A counter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counter(SmallVec<[Tally; 3]>);

impl Counter {
    /// A counter from the tallies of its actors; of several tallies of an actor the latest counts.
    pub fn from_tallies(tallies: impl IntoIterator<Item = Tally>) -> Self {
        let mut counter = Self::default();
        for tally in tallies {
            counter.take_in(tally);
        }
        counter
    }

    /// The tallies, by ascending actor.
    pub fn tallies(&self) -> &[Tally] {
        &self.0
    }

    /// The value, saturated at 128 bits.
    pub fn value(&self) -> i128 {
        let narrow = |sum: u128| i128::try_from(sum).unwrap_or(i128::MAX);
        self.0.iter().fold(0i128, |value, tally| {
            let net = narrow(tally.increments).saturating_sub(narrow(tally.decrements));
            value.saturating_add(net)
        })
    }

    /// Counts `by` up, or down when it is negative, as the update `dot`.
    ///
    /// # Errors
    /// [`OperationError::CounterRange`] when a sum would not fit into 128 bits; nothing is changed.
    pub fn count(&mut self, by: i128, dot: Dot) -> Result<(), OperationError> {
        let mut tally = self.tally_of(dot.actor).copied().unwrap_or(Tally {
            dot,
            increments: 0,
            decrements: 0,
        });
        let sum = if by < 0 {
            &mut tally.decrements
        } else {
            &mut tally.increments
        };
        let added = sum.checked_add(by.unsigned_abs());
        *sum = added.ok_or(OperationError::CounterRange)?;
        tally.dot = dot;
        self.take_in(tally);
        Ok(())
    }

    /// Merges another replica's counter, for counters outside of maps. Their tallies are never
    /// removed, so they are their own clock.
    pub fn merge_alone(&mut self, other: Self) {
        let (ours, theirs) = (clock_of(self), clock_of(&other));
        self.reconcile(other, &ours, &theirs);
    }

    /// The clock that the tallies cover.
    pub fn clock(&self) -> Clock {
        clock_of(self)
    }

    fn place(&self, actor: Actor) -> Result<usize, usize> {
        self.0.binary_search_by_key(&actor, |tally| tally.dot.actor)
    }

    fn tally_of(&self, actor: Actor) -> Option<&Tally> {
        self.place(actor).ok().map(|place| &self.0[place])
    }

    fn take_in(&mut self, tally: Tally) {
        match self.place(tally.dot.actor) {
            Ok(place) => self.0[place] = tally.max(self.0[place]),
            Err(place) => self.0.insert(place, tally),
        }
    }
}

impl DotStore for Counter {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn remove_seen(&mut self, context: &dyn Seen) {
        self.0.retain(|tally| !context.has_seen(tally.dot));
    }

    fn reconcile(&mut self, other: Self, ours: &dyn Seen, theirs: &dyn Seen) {
        let has =
            |counter: &Self, dot: Dot| counter.tally_of(dot.actor).map(|it| it.dot) == Some(dot);
        let news: SmallVec<[Tally; 3]> = other
            .0
            .iter()
            .filter(|tally| has(self, tally.dot) || !ours.has_seen(tally.dot))
            .copied()
            .collect();
        self.0
            .retain(|tally| has(&other, tally.dot) || !theirs.has_seen(tally.dot));
        for tally in news {
            self.take_in(tally);
        }
    }

    fn each_dot(&self, visit: &mut dyn FnMut(Dot)) {
        self.0.iter().map(|tally| tally.dot).for_each(visit);
    }
}
