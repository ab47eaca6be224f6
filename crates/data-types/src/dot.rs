//! Names of single updates: an actor and its count.
//!
//! The numbers equal those of the object's dots. The types differ from those of crate `object`,
//! which is on the same floor; the vnode converts them.

use std::fmt;

/// One lifetime of one vnode's counter, or an actor of an imported object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Actor(pub u64);

/// The name of one update of one key.
///
/// All members that one update adds have the same dot. Counters of an actor grow from update to
/// update of a key, and have gaps, because an actor counts the writes of its whole vnode.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dot {
    /// The actor that carried the update out.
    pub actor: Actor,
    /// Its count, from one upward.
    pub counter: u64,
}

impl Dot {
    /// The dot of `actor` with this count.
    ///
    /// # Panics
    /// If the count is zero: no update has it.
    pub fn new(actor: Actor, counter: u64) -> Self {
        assert!(counter > 0, "a dot's counter begins at one");
        Self { actor, counter }
    }
}

impl fmt::Debug for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

impl fmt::Debug for Dot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}:{}", self.actor, self.counter)
    }
}
