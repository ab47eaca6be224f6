//! The updates of a key that have been seen.

use std::collections::{BTreeMap, BTreeSet};

use crate::dot::{Actor, Dot};

/// A set of updates, queried one at a time.
pub trait Seen {
    /// True when the update is in the set.
    fn has_seen(&self, dot: Dot) -> bool;
}

/// A version vector: the highest counter seen of each actor.
///
/// An update of an actor always arrives together with all its earlier updates of the key. So one number for
/// each actor is exact. The order of clocks as values is total and has no causal meaning.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Clock(BTreeMap<Actor, u64>);

impl Clock {
    /// The clock that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// True when nothing has been seen.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of actors.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The highest counter seen of `actor`; zero when none was.
    pub fn get(&self, actor: Actor) -> u64 {
        self.0.get(&actor).copied().unwrap_or(0)
    }

    /// True when the update has been seen.
    pub fn contains(&self, dot: Dot) -> bool {
        dot.counter <= self.get(dot.actor)
    }

    /// True when everything that `other` has seen has been seen here.
    pub fn descends(&self, other: &Self) -> bool {
        other.entries().all(|dot| self.contains(dot))
    }

    /// The highest dot of each actor, by ascending actor.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = Dot> {
        let dot = |(actor, counter): (&Actor, &u64)| Dot {
            actor: *actor,
            counter: *counter,
        };
        self.0.iter().map(dot)
    }

    /// Adds an update and, with it, all earlier ones of its actor.
    pub fn observe(&mut self, dot: Dot) {
        let counter = self.0.entry(dot.actor).or_insert(0);
        *counter = dot.counter.max(*counter);
    }

    /// Adds everything that `other` has seen.
    pub fn merge(&mut self, other: &Self) {
        for dot in other.entries() {
            self.observe(dot);
        }
    }

    /// The part of the clock with these actors.
    #[must_use]
    pub fn of_actors(&self, actors: &BTreeSet<Actor>) -> Self {
        let known = |actor: &Actor| self.0.get(actor).map(|counter| (*actor, *counter));
        Self(actors.iter().filter_map(known).collect())
    }
}

impl FromIterator<Dot> for Clock {
    fn from_iter<T: IntoIterator<Item = Dot>>(dots: T) -> Self {
        let mut clock = Self::new();
        for dot in dots {
            clock.observe(dot);
        }
        clock
    }
}

impl Seen for Clock {
    fn has_seen(&self, dot: Dot) -> bool {
        self.contains(dot)
    }
}

impl Seen for BTreeSet<Dot> {
    fn has_seen(&self, dot: Dot) -> bool {
        self.contains(&dot)
    }
}
