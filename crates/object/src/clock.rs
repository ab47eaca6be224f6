//! The version vector of an object: the writes of its key that have been seen.
//!
//! A clock maps each actor to the highest counter seen from it. Counters belong to whole vnodes, so a key's
//! dots have gaps; the map still names a set of dots exactly, because the clock of an actor that writes a key
//! covers all its earlier writes of that key.
//!
//! Beside the map a clock carries the newest last-modified time among the writes that it covers.
//! Each write is stamped later than that, so that the order of timestamps never contradicts
//! causality, whatever the nodes' wall clocks. So "the newest wins" does not depend on the order in
//! which replicas receive versions. The time takes no part in comparisons of clocks.
//!
//! Clocks are not pruned. A pruned clock claims less than it has seen, which brings superseded
//! values back; actors are few, since only a vnode that lost its counter takes a new one.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

use smallvec::SmallVec;
use xxhash_rust::xxh3::Xxh3;

use crate::{ActorId, Dot, Timestamp};

/// Three replicas are the common case and stay inline.
const ENTRIES_INLINE: usize = 3;

/// The causal relation of two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Causality {
    /// Both have seen the same.
    Equal,
    /// The other has seen everything that this one has, and more.
    Before,
    /// This one has seen everything that the other has, and more.
    After,
    /// Each has seen something that the other has not.
    Concurrent,
}

/// A version vector, sorted by actor.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    /// The highest counter seen from each actor, as dots; ascending actors, counters above zero.
    entries: SmallVec<[Dot; ENTRIES_INLINE]>,
    newest: Timestamp,
}

impl Clock {
    /// The clock that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes entries that are sorted by actor and free of repetitions.
    pub(crate) fn from_sorted(entries: SmallVec<[Dot; ENTRIES_INLINE]>, newest: Timestamp) -> Self {
        debug_assert!(entries.is_sorted_by(|a, b| a.actor < b.actor));
        Self { entries, newest }
    }

    /// True when no write has been seen.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The highest counter seen from each actor, by ascending actor.
    pub fn entries(&self) -> &[Dot] {
        &self.entries
    }

    /// The newest last-modified time among the writes seen.
    pub fn newest(&self) -> Timestamp {
        self.newest
    }

    /// The highest counter seen from `actor`; zero when none was.
    pub fn get(&self, actor: ActorId) -> u64 {
        let found = self
            .entries
            .binary_search_by_key(&actor, |entry| entry.actor);
        found.map_or(0, |index| self.entries[index].counter)
    }

    /// True when the write that `dot` names has been seen.
    pub fn contains(&self, dot: Dot) -> bool {
        dot.counter <= self.get(dot.actor)
    }

    /// The relation of this clock to `other`.
    pub fn compare(&self, other: &Self) -> Causality {
        let (mut more, mut less) = (false, false);
        let (mut ours, mut theirs) = (&self.entries[..], &other.entries[..]);
        while let (Some(our), Some(their)) = (ours.first(), theirs.first()) {
            match our.actor.cmp(&their.actor) {
                Ordering::Less => {
                    more = true;
                    ours = &ours[1..];
                }
                Ordering::Greater => {
                    less = true;
                    theirs = &theirs[1..];
                }
                Ordering::Equal => {
                    more |= our.counter > their.counter;
                    less |= our.counter < their.counter;
                    ours = &ours[1..];
                    theirs = &theirs[1..];
                }
            }
        }
        match (more || !ours.is_empty(), less || !theirs.is_empty()) {
            (false, false) => Causality::Equal,
            (true, false) => Causality::After,
            (false, true) => Causality::Before,
            (true, true) => Causality::Concurrent,
        }
    }

    /// True when everything that `other` has seen has been seen here too.
    pub fn descends(&self, other: &Self) -> bool {
        matches!(self.compare(other), Causality::Equal | Causality::After)
    }

    /// True when this clock descends `other` and has seen more.
    pub fn dominates(&self, other: &Self) -> bool {
        self.compare(other) == Causality::After
    }

    /// Adds everything that `other` has seen.
    pub fn merge(&mut self, other: &Self) {
        self.newest = self.newest.max(other.newest);
        match self.compare(other) {
            Causality::Equal | Causality::After => {}
            Causality::Before => self.entries.clone_from(&other.entries),
            Causality::Concurrent => self.entries = union(&self.entries, &other.entries),
        }
    }

    /// Adds one write, stamped `last_modified`.
    ///
    /// A dot of [`ActorId::CONTENT`] adds its time only: clocks do not hold that actor.
    pub fn observe(&mut self, dot: Dot, last_modified: Timestamp) {
        self.newest = self.newest.max(last_modified);
        if dot.actor == ActorId::CONTENT || dot.counter == 0 {
            return;
        }
        match self
            .entries
            .binary_search_by_key(&dot.actor, |entry| entry.actor)
        {
            Ok(index) => {
                let counter = &mut self.entries[index].counter;
                *counter = dot.counter.max(*counter);
            }
            Err(index) => self.entries.insert(index, dot),
        }
    }

    /// Raises the newest time to at least `newest`.
    pub(crate) fn raise_newest(&mut self, newest: Timestamp) {
        self.newest = self.newest.max(newest);
    }

    /// A hash of the writes that have been seen: equal for equal clocks on every machine and version.
    pub fn fingerprint(&self) -> u128 {
        let mut hash = Xxh3::new();
        for entry in &self.entries {
            hash.update(&entry.actor.0.to_le_bytes());
            hash.update(&entry.counter.to_le_bytes());
        }
        hash.digest128()
    }
}

/// Merges two sorted lists; linear, since a client may send a clock of any length.
fn union(a: &[Dot], b: &[Dot]) -> SmallVec<[Dot; ENTRIES_INLINE]> {
    let mut merged = SmallVec::with_capacity(a.len().max(b.len()));
    let (mut a, mut b) = (a, b);
    while let (Some(&left), Some(&right)) = (a.first(), b.first()) {
        merged.push(match left.actor.cmp(&right.actor) {
            Ordering::Less => left,
            Ordering::Greater => right,
            Ordering::Equal => left.max(right),
        });
        a = if left.actor <= right.actor {
            &a[1..]
        } else {
            a
        };
        b = if right.actor <= left.actor {
            &b[1..]
        } else {
            b
        };
    }
    merged.extend_from_slice(a);
    merged.extend_from_slice(b);
    merged
}

/// Clocks are equal when they have seen the same writes; `if_not_modified` and `if_modified`
/// compare by this.
impl PartialEq for Clock {
    fn eq(&self, other: &Self) -> bool {
        self.entries == other.entries
    }
}

impl Eq for Clock {}

impl Hash for Clock {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.entries.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(entries: &[(u64, u64)]) -> Clock {
        let mut clock = Clock::new();
        for (actor, counter) in entries {
            let dot = Dot {
                actor: ActorId(*actor),
                counter: *counter,
            };
            clock.observe(dot, Timestamp::from_micros(*counter));
        }
        clock
    }

    #[test]
    fn comparison_is_the_partial_order_of_what_was_seen() {
        let cases = [
            (&[][..], &[][..], Causality::Equal),
            (&[(1, 1)], &[], Causality::After),
            (&[(1, 1)], &[(1, 2)], Causality::Before),
            (&[(1, 2), (3, 1)], &[(1, 2), (2, 1)], Causality::Concurrent),
            (&[(1, 2), (3, 1)], &[(1, 2)], Causality::After),
            (&[(3, 1)], &[(1, 2), (3, 1)], Causality::Before),
            (&[(1, 3)], &[(2, 3)], Causality::Concurrent),
        ];
        for (a, b, expected) in cases {
            assert_eq!(clock(a).compare(&clock(b)), expected, "{a:?} {b:?}");
        }
    }

    #[test]
    fn merging_takes_the_highest_counter_of_each_actor_and_the_newest_time() {
        let mut merged = clock(&[(1, 5), (3, 1)]);
        merged.merge(&clock(&[(1, 4), (2, 9)]));
        assert_eq!(merged, clock(&[(1, 5), (2, 9), (3, 1)]));
        assert_eq!(merged.newest(), Timestamp::from_micros(9));
    }

    #[test]
    fn a_dot_is_contained_once_its_counter_is_reached() {
        let clock = clock(&[(1, 5)]);
        assert!(clock.contains(Dot {
            actor: ActorId(1),
            counter: 5
        }));
        assert!(!clock.contains(Dot {
            actor: ActorId(1),
            counter: 6
        }));
        assert!(!clock.contains(Dot {
            actor: ActorId(2),
            counter: 1
        }));
    }

    #[test]
    fn time_takes_no_part_in_equality() {
        let mut later = clock(&[(1, 5)]);
        later.observe(
            Dot {
                actor: ActorId(1),
                counter: 5,
            },
            Timestamp::from_micros(77),
        );
        assert_eq!(later, clock(&[(1, 5)]));
        assert_eq!(later.fingerprint(), clock(&[(1, 5)]).fingerprint());
    }
}
