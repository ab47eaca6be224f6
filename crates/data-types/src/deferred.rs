//! Removes that came before their targets.
//!
//! A client that read from one replica may send its remove to another that has seen less. The part
//! that this replica has is removed at once; the remove is kept, with the client's context, until
//! the replica has seen all of the context. Removes are kept at the root of a value, also those
//! inside a map, so that removing a field does not lose the waiting removes inside it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::clock::Clock;
use crate::field_name::FieldName;

/// A removal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Removal {
    /// A member of a set.
    Member(Bytes),
    /// A field of a map.
    Field(FieldName),
    /// The enabling of a flag.
    Flag,
}

/// A removal, and the fields that lead to it from the root.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// The fields, from the outermost on; none for the root itself.
    pub path: Vec<FieldName>,
    /// The removal there.
    pub removal: Removal,
}

/// Waiting removes, by the context that they wait for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deferred(BTreeMap<Clock, BTreeSet<Target>>);

impl Deferred {
    /// True when nothing waits.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keeps a remove until `context` has been seen.
    pub fn insert(&mut self, context: Clock, target: Target) {
        self.0.entry(context).or_default().insert(target);
    }

    /// The contexts and the removes that wait for them, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Clock, &BTreeSet<Target>)> {
        self.0.iter()
    }

    /// Merges the waiting removes of another replica.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (context, targets) in other.iter() {
            let waiting = self.0.entry(context.clone()).or_default();
            waiting.extend(targets.iter().cloned());
        }
    }

    /// Drops the removes whose contexts have been seen.
    pub(crate) fn release(&mut self, clock: &Clock) {
        self.0.retain(|context, _| !clock.descends(context));
    }
}
