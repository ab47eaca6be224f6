//! Registers: the value is the assignment with the latest time.
//!
//! Concurrent assignments are kept side by side, each under its dot, so that a remove that has seen one
//! of them leaves the other. A further assignment replaces all that it has seen.

use bytes::Bytes;
use smallvec::SmallVec;

use crate::clock::Seen;
use crate::dot::Dot;
use crate::dot_store::DotStore;

/// One assignment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Assignment {
    /// The update.
    pub dot: Dot,
    /// The time of its making, in microseconds since the Unix epoch.
    pub micros: u64,
    /// The value.
    pub value: Bytes,
}

/// A register.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Register(SmallVec<[Assignment; 1]>);

impl Register {
    /// A register from assignments; of several with the same dot the latest counts.
    pub fn from_assignments(assignments: impl IntoIterator<Item = Assignment>) -> Self {
        let mut register = Self::default();
        for assignment in assignments {
            register.take_in(assignment);
        }
        register
    }

    /// The assignments that no other has replaced, by ascending dot.
    pub fn assignments(&self) -> &[Assignment] {
        &self.0
    }

    /// The value, and when it was assigned. A register without assignments holds an empty value.
    pub fn value(&self) -> (Bytes, u64) {
        let latest = self.0.iter().max_by_key(|it| (it.micros, &it.value));
        latest.map_or((Bytes::new(), 0), |it| (it.value.clone(), it.micros))
    }

    /// Assigns a value at `micros`, as the update `dot`. A value that another update assigned at that
    /// time or later stays, under the new dot.
    pub fn assign(&mut self, value: Bytes, micros: u64, dot: Dot) {
        let (old_value, old_micros) = self.value();
        let (value, micros) = match micros > old_micros || self.has(dot) {
            true => (value, micros),
            false => (old_value, old_micros),
        };
        self.0.clear();
        self.0.push(Assignment { dot, micros, value });
    }

    fn take_in(&mut self, assignment: Assignment) {
        match self.0.binary_search_by_key(&assignment.dot, |it| it.dot) {
            Ok(place) if self.0[place] < assignment => self.0[place] = assignment,
            Ok(_) => {}
            Err(place) => self.0.insert(place, assignment),
        }
    }

    fn has(&self, dot: Dot) -> bool {
        self.0.binary_search_by_key(&dot, |it| it.dot).is_ok()
    }
}

impl DotStore for Register {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn remove_seen(&mut self, context: &dyn Seen) {
        self.0.retain(|it| !context.has_seen(it.dot));
    }

    fn reconcile(&mut self, mut other: Self, ours: &dyn Seen, theirs: &dyn Seen) {
        let our_dots: SmallVec<[Dot; 2]> = self.0.iter().map(|it| it.dot).collect();
        self.0
            .retain(|it| other.has(it.dot) || !theirs.has_seen(it.dot));
        other
            .0
            .retain(|it| our_dots.contains(&it.dot) || !ours.has_seen(it.dot));
        for assignment in other.0 {
            self.take_in(assignment);
        }
    }

    fn each_dot(&self, visit: &mut dyn FnMut(Dot)) {
        self.0.iter().map(|it| it.dot).for_each(visit);
    }
}
