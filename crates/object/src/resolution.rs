//! Resolution of concurrent versions: kept as siblings, or reduced to the newest one.
//!
//! The newest is chosen by (last modified, not deleted, dot), a total order of versions that is fixed
//! when they are written. No write is stamped earlier than the versions that it supersedes. So the
//! choice is the maximum of all versions ever merged, in any order of merging. Riak breaks ties by
//! comparing values; the dot is as good, and a head has it.

use crate::Object;
use crate::versions::Version;

/// The resolution of siblings by a bucket's properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Clients get all of them.
    KeepSiblings,
    /// The newest is kept; causality decides before time does.
    NewestWins,
    /// The newest is kept, for values that are written once: a replica stores such a version
    /// without reading its own. If it had another version after all, the one that came last stays;
    /// a merge of replicas keeps the newest of all.
    WrittenOnce,
}

impl Resolution {
    /// The resolution that a bucket's properties set.
    ///
    /// `last_write_wins` needs no resolution of its own: a write here is stamped later than all
    /// that its coordinator has stored, so the newest is the last written.
    pub fn keeping_siblings(keeps_siblings: bool) -> Self {
        if keeps_siblings {
            Self::KeepSiblings
        } else {
            Self::NewestWins
        }
    }

    /// True when only one of several concurrent versions is kept.
    pub(crate) fn keeps_one(self) -> bool {
        matches!(self, Self::NewestWins | Self::WrittenOnce)
    }
}

/// Reduces an object to the siblings that its bucket's clients may see; the clock stays as it is.
///
/// An object written under another resolution, or taken from one replica alone, may hold siblings
/// in a bucket that keeps none.
#[must_use]
pub fn resolve(mut object: Object, resolution: Resolution) -> Object {
    let siblings = object.siblings_mut();
    if resolution.keeps_one() && siblings.len() > 1 {
        siblings.sort_unstable_by_key(Version::rank);
        siblings.drain(..siblings.len() - 1);
    }
    object
}
