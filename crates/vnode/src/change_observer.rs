//! Observers of changes in a vnode, for hash trees, hooks and counts.
//!
//! A vnode shows each change once, from any cause: a client's write, another replica's object, a
//! transfer, a repair, the removal of a tombstone or of a hint. A write that is refused, fails, or
//! leaves the object as it was is not shown.

use kvorum_encoding::StorageKey;
use kvorum_object::{Head, Object};

/// One key's change from the former object to the present one.
#[derive(Debug)]
pub struct Change<'a> {
    /// The key.
    pub key: &'a StorageKey,
    /// The object before, tombstones included. `None` if there was none, if it had expired, or if its
    /// head could not be read.
    pub old: Option<&'a Head>,
    /// The object now, with its values. `None` after a removal.
    pub new: Option<&'a Object>,
}

/// Observes the changes of a vnode.
///
/// The changes of one key come one at a time, in the order in which they were made: the vnode holds the
/// key's lock meanwhile. So an observer must be quick, must not wait, and must not call the vnode.
///
/// A shown change is accepted by the store and visible to reads, but not necessarily durable: a
/// crash may undo it. Four events are not shown: the store is erased, replaced as a whole or
/// hidden, an object expires, and a put that failed takes effect all the same.
pub trait ChangeObserver: Send + Sync {
    /// A change was made.
    fn changed(&self, change: &Change<'_>);
}
