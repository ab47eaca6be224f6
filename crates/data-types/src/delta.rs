//! The changes of one update, for replicas that have nearly the same value already.
//!
//! A clock has one number for each actor, so a replica can apply an update only after the same actor's
//! earlier updates of the key. It can remove replaced parts only if it has seen them, or they would come
//! back. [`Delta::needs`] covers both. A replica that has seen less needs the whole value.

use std::collections::BTreeMap;

use crate::clock::Clock;
use crate::deferred::Deferred;
use crate::dot::Dot;
use crate::dot_store::Dots;

/// The change that one update made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delta<K, E> {
    /// The update.
    pub dot: Dot,
    /// The clock that a replica must have seen to apply the change.
    pub needs: Clock,
    /// The parts at the root that the update changes.
    pub parts: BTreeMap<K, Touched<E>>,
    /// The update's removes that had a context. Another replica may hold targets that the updating
    /// replica does not hold.
    pub removes: Deferred,
}

/// A part that an update changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touched<E> {
    /// The dots that the part had before the update.
    pub replaced: Dots,
    /// The part after the update; `None` when it was removed.
    pub part: Option<E>,
}

/// A delta reached a replica that has not seen the writes before it: the whole value is needed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the update builds on updates that this replica has not seen")]
pub struct Gap {
    /// The clock that has to be seen first.
    pub needs: Clock,
}
