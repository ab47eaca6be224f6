//! Questions about a list of siblings, with their values or without.
//!
//! [`Object`](crate::Object) and [`Head`](crate::Head) hold the same siblings; they differ in the part
//! of a value that they keep. The questions that do not touch values are answered here for both.

use smallvec::SmallVec;

use crate::sibling::{Sibling, SiblingHead};
use crate::{Dot, Metadata, Timestamp};

/// Most objects have one sibling, which stays inline.
pub(crate) type Siblings<T> = SmallVec<[T; 1]>;

/// A sibling, with any part of its value.
pub(crate) trait Version {
    fn dot(&self) -> Dot;
    fn metadata(&self) -> &Metadata;

    /// The place of the version in the order that [`Resolution::NewestWins`](crate::Resolution) chooses by.
    fn rank(&self) -> (Timestamp, bool, Dot) {
        let metadata = self.metadata();
        (metadata.last_modified, !metadata.deleted, self.dot())
    }
}

impl Version for Sibling {
    fn dot(&self) -> Dot {
        self.dot
    }

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

impl Version for SiblingHead {
    fn dot(&self) -> Dot {
        self.dot
    }

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

/// Gives a type with the fields `clock` and `siblings` its answers. A macro, because a trait would have
/// to be imported at every use of an object.
macro_rules! answers_of_siblings {
    ($versions:ident, $sibling:ident) => {
        impl $sibling {
            /// The entity tag of this version (Riak's vtag).
            pub fn etag(&self) -> crate::Etag {
                crate::Etag::of_dot(self.dot)
            }
        }

        impl $versions {
            /// The writes of the key that have been seen.
            pub fn clock(&self) -> &crate::Clock {
                &self.clock
            }

            /// The siblings, by ascending dot; at least one.
            pub fn siblings(&self) -> &[$sibling] {
                &self.siblings
            }

            /// True when every sibling is deleted: readers find nothing, and get the clock if they ask
            /// for it.
            pub fn is_tombstone(&self) -> bool {
                crate::versions::is_tombstone(&self.siblings)
            }

            /// The newest last-modified time of the siblings.
            pub fn last_modified(&self) -> crate::Timestamp {
                let times = self.siblings.iter().map(|it| it.metadata.last_modified);
                times.max().unwrap_or_default()
            }

            /// The time of the whole object's expiry: that of its last sibling; never, if one stays for
            /// ever.
            pub fn expires_at(&self) -> Option<crate::Timestamp> {
                let mut times = self.siblings.iter().map(|it| it.metadata.expires_at);
                times.try_fold(crate::Timestamp::ZERO, |latest, time| {
                    Some(latest.max(time?))
                })
            }

            /// The entity tag: that of the only sibling, or of the clock when there are several.
            pub fn etag(&self) -> crate::Etag {
                match &self.siblings[..] {
                    [only] => only.etag(),
                    _ => crate::Etag::of_clock(&self.clock),
                }
            }

            /// The union of the siblings' secondary index entries, sorted.
            pub fn index_entries(&self) -> Vec<crate::IndexEntry> {
                let siblings = self.siblings.iter();
                crate::indexes::union(siblings.map(|sibling| &sibling.metadata.indexes[..]))
            }
        }
    };
}

pub(crate) use answers_of_siblings;

pub(crate) fn is_tombstone(siblings: &[impl Version]) -> bool {
    siblings.iter().all(|sibling| sibling.metadata().deleted)
}
