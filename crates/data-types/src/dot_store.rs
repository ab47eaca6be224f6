//! Stores of dots: all parts of a value that can be removed, and the rule by which they merge.
//!
//! The rule is that of observed removes. A part that both sides have stays. A part that one side
//! has stays unless the other has seen its dot: then the other has removed it. Everything that can
//! be removed is built from that rule alone, so that merges of whole values are commutative,
//! associative and idempotent.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use crate::clock::{Clock, Seen};
use crate::dot::Dot;

/// A part of a value that holds dots.
pub trait DotStore {
    /// True when no dot is held: the part is not in the value.
    fn is_empty(&self) -> bool;

    /// Removes the parts that `context` has seen.
    fn remove_seen(&mut self, context: &dyn Seen);

    /// Merges the other side's part. `ours` and `theirs` are the clocks that the two sides have seen.
    fn reconcile(&mut self, other: Self, ours: &dyn Seen, theirs: &dyn Seen);

    /// Shows every dot that is held.
    fn each_dot(&self, visit: &mut dyn FnMut(Dot));
}

/// A few dots, ascending, each once: the dots of a set's member or of a map's field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dots(SmallVec<[Dot; 1]>);

impl Dots {
    /// One dot.
    pub fn of(dot: Dot) -> Self {
        Self(SmallVec::from_buf([dot]))
    }

    /// The dots, ascending.
    pub fn as_slice(&self) -> &[Dot] {
        &self.0
    }

    /// Adds a dot.
    pub fn insert(&mut self, dot: Dot) {
        if let Err(place) = self.0.binary_search(&dot) {
            self.0.insert(place, dot);
        }
    }
}

impl FromIterator<Dot> for Dots {
    fn from_iter<T: IntoIterator<Item = Dot>>(dots: T) -> Self {
        let mut sorted: SmallVec<[Dot; 1]> = dots.into_iter().collect();
        sorted.sort_unstable();
        sorted.dedup();
        Self(sorted)
    }
}

impl DotStore for Dots {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn remove_seen(&mut self, context: &dyn Seen) {
        self.0.retain(|dot| !context.has_seen(*dot));
    }

    fn reconcile(&mut self, other: Self, ours: &dyn Seen, theirs: &dyn Seen) {
        let is_shared = |dot: &Dot| other.0.binary_search(dot).is_ok();
        let news: SmallVec<[Dot; 1]> = other
            .0
            .iter()
            .filter(|dot| !ours.has_seen(**dot))
            .copied()
            .collect();
        self.0
            .retain(|dot| is_shared(dot) || !theirs.has_seen(*dot));
        for dot in news {
            self.insert(dot);
        }
    }

    fn each_dot(&self, visit: &mut dyn FnMut(Dot)) {
        self.0.iter().copied().for_each(visit);
    }
}

impl<K: Ord, S: DotStore> DotStore for BTreeMap<K, S> {
    fn is_empty(&self) -> bool {
        BTreeMap::is_empty(self)
    }

    fn remove_seen(&mut self, context: &dyn Seen) {
        self.retain(|_, part| {
            part.remove_seen(context);
            !part.is_empty()
        });
    }

    fn reconcile(&mut self, mut other: Self, ours: &dyn Seen, theirs: &dyn Seen) {
        self.retain(|key, part| {
            match other.remove(key) {
                Some(their_part) => part.reconcile(their_part, ours, theirs),
                None => part.remove_seen(theirs),
            }
            !part.is_empty()
        });
        for (key, mut part) in other {
            part.remove_seen(ours);
            if !part.is_empty() {
                self.insert(key, part);
            }
        }
    }

    fn each_dot(&self, visit: &mut dyn FnMut(Dot)) {
        for part in self.values() {
            part.each_dot(visit);
        }
    }
}

/// All dots of a part as the clock that covers them.
pub(crate) fn clock_of(part: &impl DotStore) -> Clock {
    let mut clock = Clock::new();
    part.each_dot(&mut |dot| clock.observe(dot));
    clock
}
