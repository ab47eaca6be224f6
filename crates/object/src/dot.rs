//! Identities of writes: actors, and the dots that name single writes.

use std::fmt;

/// One lifetime of one vnode's counter.
///
/// A vnode takes a fresh, random actor unless it certainly has a record of every dot issued under
/// the old one. Zero is reserved, see [`ActorId::CONTENT`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ActorId(pub u64);

impl ActorId {
    /// Not a vnode: marks the dots of values that were stored under a clock given by a client.
    ///
    /// Such a dot carries a hash of the content instead of a count. No clock ever holds this actor,
    /// so no clock covers such a dot.
    pub const CONTENT: Self = Self(0);
}

impl fmt::Debug for ActorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for ActorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The name of one write: unique over all keys and all time.
///
/// The counter counts the writes of the whole vnode, not those of one key. A counter per key would
/// start again at one after the vnode lost the key, and name two writes alike.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dot {
    /// The vnode lifetime that coordinated the write.
    pub actor: ActorId,
    /// That actor's count, from one upward; never zero.
    pub counter: u64,
}

impl Dot {
    /// The dot of a value stored under a clock that a client gave.
    pub(crate) fn of_content(hash: u64) -> Self {
        Self {
            actor: ActorId::CONTENT,
            counter: hash.max(1),
        }
    }
}

impl fmt::Debug for Dot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Dot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.actor, self.counter)
    }
}
