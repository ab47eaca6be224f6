//! A value whose parts can be removed, with the clock of all updates that it has seen: a set, or a map.
//!
//! The value, its clock and its deferred removes are one unit. An update changes a few parts at the
//! root; [`Delta`] carries only these parts to the other replicas.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::clock::Clock;
use crate::deferred::{Deferred, Target};
use crate::delta::{Delta, Gap, Touched};
use crate::dot::{Actor, Dot};
use crate::dot_store::{DotStore, Dots};
use crate::field::{
    Field, Scope, change_fields, change_members, forget_in_fields, forget_in_members,
};
use crate::field_name::FieldName;
use crate::operation::{FieldChange, OperationError, SetChange, Update};

/// A set from which members can be removed.
pub type Set = Causal<Bytes, Dots>;

/// A map of fields.
pub type Map = Causal<FieldName, Field>;

/// Changes of an update in a set.
pub type SetDelta = Delta<Bytes, Dots>;

/// Changes of an update in a map.
pub type MapDelta = Delta<FieldName, Field>;

/// Parts by name, and the clock of the updates that have been seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Causal<K, E> {
    pub(crate) clock: Clock,
    pub(crate) parts: BTreeMap<K, E>,
    pub(crate) deferred: Deferred,
}

impl<K, E> Default for Causal<K, E> {
    fn default() -> Self {
        Self {
            clock: Clock::new(),
            parts: BTreeMap::new(),
            deferred: Deferred::default(),
        }
    }
}

/// The difference between sets and maps.
pub trait Part: DotStore + Clone + Sized {
    /// The part's name.
    type Name: Ord + Clone;

    /// Carries out a remove that was deferred.
    fn forget(parts: &mut BTreeMap<Self::Name, Self>, target: &Target, context: &Clock);
}

impl Part for Dots {
    type Name = Bytes;

    fn forget(members: &mut BTreeMap<Bytes, Self>, target: &Target, context: &Clock) {
        if target.path.is_empty() {
            forget_in_members(members, &target.removal, context);
        }
    }
}

impl Part for Field {
    type Name = FieldName;

    fn forget(fields: &mut BTreeMap<FieldName, Self>, target: &Target, context: &Clock) {
        forget_in_fields(fields, &target.path, &target.removal, context);
    }
}

impl Set {
    /// Carries out changes, all or none, and returns the delta that the other replicas need.
    ///
    /// # Errors
    /// [`OperationError`]; nothing is changed.
    pub fn update(
        &mut self,
        changes: &[SetChange],
        update: Update<'_>,
    ) -> Result<SetDelta, OperationError> {
        let names = changes.iter().map(|change| change.member().clone());
        self.change(names.collect(), update, |members, scope| {
            change_members(members, changes, scope)
        })
    }

    /// The members, ascending.
    pub fn members(&self) -> impl ExactSizeIterator<Item = &Bytes> {
        self.parts.keys()
    }
}

impl Map {
    /// Carries out changes, all or none, and returns the delta that the other replicas need.
    ///
    /// # Errors
    /// [`OperationError`]; nothing is changed.
    pub fn update(
        &mut self,
        changes: &[FieldChange],
        update: Update<'_>,
    ) -> Result<MapDelta, OperationError> {
        let names = changes.iter().map(FieldChange::field);
        self.change(names.collect(), update, |fields, scope| {
            change_fields(fields, changes, scope)
        })
    }

    /// The fields, by name and kind.
    pub fn fields(&self) -> impl ExactSizeIterator<Item = (&FieldName, &Field)> {
        self.parts.iter()
    }
}

impl<K, E> Causal<K, E> {
    /// The dots that the value has seen.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Removes that wait for writes that this replica has not seen.
    pub fn deferred(&self) -> &Deferred {
        &self.deferred
    }
}

impl<E: Part> Causal<E::Name, E> {
    /// Merges another replica's value. Commutative, associative and idempotent.
    pub fn merge(&mut self, other: Self) {
        self.parts.reconcile(other.parts, &self.clock, &other.clock);
        self.clock.merge(&other.clock);
        self.deferred.merge(&other.deferred);
        self.settle();
    }

    /// Applies the changes of an update at another replica.
    ///
    /// # Errors
    /// [`Gap`] when this replica has not seen the writes that the update builds on; nothing is changed,
    /// and the other replica's whole value has to be merged.
    pub fn join(&mut self, delta: Delta<E::Name, E>) -> Result<(), Gap> {
        if !self.clock.descends(&delta.needs) {
            return Err(Gap { needs: delta.needs });
        }
        for (name, touched) in delta.parts {
            self.join_part(name, touched, delta.dot);
        }
        self.clock.observe(delta.dot);
        self.deferred.merge(&delta.removes);
        self.settle();
        Ok(())
    }

    /// The context that a client has to send with its removes: the clock of the actors with a part
    /// in the value. Other actors take no room in it.
    pub fn context(&self) -> Clock {
        let mut actors = BTreeSet::<Actor>::new();
        self.parts.each_dot(&mut |dot| {
            actors.insert(dot.actor);
        });
        self.clock.of_actors(&actors)
    }

    fn join_part(&mut self, name: E::Name, touched: Touched<E>, dot: Dot) {
        let mut seen: BTreeSet<Dot> = touched.replaced.as_slice().iter().copied().collect();
        seen.insert(dot);
        let mut ours = self.parts.remove(&name);
        let merged = match (ours.take(), touched.part) {
            (Some(mut part), Some(their_part)) => {
                part.reconcile(their_part, &self.clock, &seen);
                Some(part)
            }
            (Some(mut part), None) => {
                part.remove_seen(&seen);
                Some(part)
            }
            (None, Some(mut their_part)) => {
                their_part.remove_seen(&self.clock);
                Some(their_part)
            }
            (None, None) => None,
        };
        if let Some(part) = merged.filter(|part| !part.is_empty()) {
            self.parts.insert(name, part);
        }
    }

    /// Carries out the waiting removes whose targets have arrived.
    fn settle(&mut self) {
        for (context, targets) in self.deferred.iter() {
            for target in targets {
                E::forget(&mut self.parts, target, context);
            }
        }
        self.deferred.release(&self.clock);
    }

    /// Changes the named parts by `edit`, all or none.
    fn change(
        &mut self,
        names: BTreeSet<E::Name>,
        update: Update<'_>,
        edit: impl FnOnce(&mut BTreeMap<E::Name, E>, &mut Scope<'_>) -> Result<(), OperationError>,
    ) -> Result<Delta<E::Name, E>, OperationError> {
        let found = |name: &E::Name| Some((name.clone(), self.parts.get(name)?.clone()));
        let mut parts: BTreeMap<E::Name, E> = names.iter().filter_map(found).collect();
        let mut removes = Deferred::default();
        let mut scope = Scope {
            update,
            removes: &mut removes,
            path: Vec::new(),
        };
        edit(&mut parts, &mut scope)?;
        let delta = self.delta(names, parts, removes, update.dot);
        self.commit(&delta);
        Ok(delta)
    }

    /// The changes of an update against the stored value.
    fn delta(
        &self,
        names: BTreeSet<E::Name>,
        mut parts: BTreeMap<E::Name, E>,
        removes: Deferred,
        dot: Dot,
    ) -> Delta<E::Name, E> {
        let mut needs = Clock::new();
        if let Some(counter) = Some(self.clock.get(dot.actor)).filter(|counter| *counter > 0) {
            needs.observe(Dot::new(dot.actor, counter));
        }
        let mut touched = BTreeMap::new();
        for name in names {
            let mut replaced = Vec::new();
            if let Some(part) = self.parts.get(&name) {
                part.each_dot(&mut |dot| replaced.push(dot));
            }
            let replaced: Dots = replaced.into_iter().collect();
            replaced.each_dot(&mut |dot| needs.observe(dot));
            let part = parts.remove(&name).filter(|part| !part.is_empty());
            touched.insert(name, Touched { replaced, part });
        }
        Delta {
            dot,
            needs,
            parts: touched,
            removes,
        }
    }

    fn commit(&mut self, delta: &Delta<E::Name, E>) {
        for (name, touched) in &delta.parts {
            match &touched.part {
                Some(part) => self.parts.insert(name.clone(), part.clone()),
                None => self.parts.remove(name),
            };
        }
        self.clock.observe(delta.dot);
        self.deferred.merge(&delta.removes);
        self.settle();
    }
}
