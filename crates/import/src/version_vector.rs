//! Riak's version vectors, and their translation.
//!
//! Riak's actors are byte strings and count the writes of one key. Each actor is hashed to one of
//! ours, and keeps its count, so that translated clocks have the relations of Riak's clocks, in
//! this import and in every later one. Actors of our own vnodes are random 64-bit numbers, like the
//! hashes; a collision is as unlikely as between two vnodes.

use std::collections::BTreeMap;

use bytes::Bytes;
use kvorum_erlang_terms::external_term::Term;
use kvorum_object::{ActorId, Clock, Dot, Timestamp};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Separates hashes of Riak's actors from other uses of the hash.
const ACTOR_SEED: u64 = 0x7269_616b_2061_6374;

/// The name of one write in Riak: the actor's count when it wrote.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RiakDot {
    /// The vnode that coordinated the write, or, in old clusters, the client.
    pub actor: Bytes,
    /// The actor's count, from one upward.
    pub counter: u64,
}

/// A Riak clock, without its timestamps, which Riak only uses for pruning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionVector {
    entries: BTreeMap<Bytes, u64>,
}

impl VersionVector {
    /// Reads `[{Actor, {Counter, Timestamp}}]`.
    pub fn from_term(term: Term) -> Option<Self> {
        let mut clock = Self::default();
        for entry in term.into_list()? {
            clock.observe(&RiakDot::from_term(&entry)?);
        }
        Some(clock)
    }

    /// Adds one write and the earlier ones of its actor.
    pub fn observe(&mut self, dot: &RiakDot) {
        let counter = self.entries.entry(dot.actor.clone()).or_default();
        *counter = dot.counter.max(*counter);
    }

    /// Adds all writes that `other` has seen.
    pub fn merge(&mut self, other: &Self) {
        for (actor, counter) in &other.entries {
            let mine = self.entries.entry(actor.clone()).or_default();
            *mine = (*mine).max(*counter);
        }
    }

    /// True when the write has been seen.
    pub fn contains(&self, dot: &RiakDot) -> bool {
        self.entries
            .get(&dot.actor)
            .is_some_and(|seen| dot.counter <= *seen)
    }

    /// True when this clock has seen all writes that `other` has seen.
    pub fn descends(&self, other: &Self) -> bool {
        let mut entries = other.entries.iter();
        entries.all(|(actor, counter)| self.entries.get(actor).copied().unwrap_or(0) >= *counter)
    }

    /// The translation into our clock, with `newest` as its newest time.
    pub fn translate(&self, newest: Timestamp) -> Clock {
        let mut clock = Clock::new();
        for (actor, counter) in &self.entries {
            let actor = ActorId(xxh3_64_with_seed(actor, ACTOR_SEED).max(1));
            let counter = *counter;
            clock.observe(Dot { actor, counter }, newest);
        }
        clock
    }
}

impl RiakDot {
    /// Reads `{Actor, {Counter, Timestamp}}`, or `{Actor, Counter}`.
    pub fn from_term(term: &Term) -> Option<Self> {
        let [actor, count] = term.as_tuple()? else {
            return None;
        };
        let counter = match count.as_tuple() {
            Some([counter, _timestamp]) => counter.as_u64()?,
            _ => count.as_u64()?,
        };
        // In the oldest clusters, clocks have atoms and integers as actors.
        let actor = match actor {
            Term::Integer(number) => Bytes::from(number.to_string()),
            other => other.to_text()?,
        };
        Some(Self { actor, counter })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(entries: &[(&'static str, u64)]) -> VersionVector {
        let mut clock = VersionVector::default();
        for (actor, counter) in entries {
            clock.observe(&RiakDot {
                actor: Bytes::from_static(actor.as_bytes()),
                counter: *counter,
            });
        }
        clock
    }

    #[test]
    fn translated_clocks_stand_to_each_other_as_the_originals_do() {
        let clocks = [
            clock(&[]),
            clock(&[("a", 1)]),
            clock(&[("a", 2)]),
            clock(&[("a", 1), ("b", 1)]),
            clock(&[("b", 3)]),
            clock(&[("a", 2), ("b", 3), ("c", 1)]),
        ];
        for a in &clocks {
            for b in &clocks {
                let (x, y) = (a.translate(Timestamp::ZERO), b.translate(Timestamp::ZERO));
                assert_eq!(a.descends(b), x.descends(&y), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn merging_knows_what_both_know() {
        let mut merged = clock(&[("a", 2), ("b", 1)]);
        merged.merge(&clock(&[("a", 1), ("c", 4)]));
        assert_eq!(merged, clock(&[("a", 2), ("b", 1), ("c", 4)]));
    }
}
