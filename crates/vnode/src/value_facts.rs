//! Facts about the value of a data type, for figures: operations on data types compute them, and a
//! vnode's meter receives them.

use kvorum_data_types::{DataType, Kind, PagedSet};

/// Facts about the value of a data type after an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueFacts {
    /// Its type.
    pub kind: Kind,
    /// The vnodes that have changed it; zero for types that do not record them.
    pub actors: usize,
    /// The length of its stored form.
    pub bytes: usize,
}

impl ValueFacts {
    /// The facts about a value with a stored form of this length.
    pub(crate) fn of(value: &DataType, bytes: usize) -> Self {
        Self {
            kind: value.kind(),
            actors: value.actor_count(),
            bytes,
        }
    }

    /// The facts about a set in pages.
    pub(crate) fn of_paged(set: &PagedSet) -> Self {
        Self {
            kind: Kind::Set,
            actors: set.clock().len(),
            bytes: usize::try_from(set.member_bytes()).unwrap_or(usize::MAX),
        }
    }
}
