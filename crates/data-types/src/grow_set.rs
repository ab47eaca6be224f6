//! Sets from which nothing is removed: merging is union, and no clock is needed.

use std::collections::BTreeSet;

use bytes::Bytes;

/// A set that only grows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrowSet(BTreeSet<Bytes>);

impl GrowSet {
    /// Adds members.
    pub fn add(&mut self, members: impl IntoIterator<Item = Bytes>) {
        self.0.extend(members);
    }

    /// The members, ascending.
    pub fn members(&self) -> impl ExactSizeIterator<Item = &Bytes> {
        self.0.iter()
    }

    /// Merges another replica's set.
    pub fn merge(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}

impl FromIterator<Bytes> for GrowSet {
    fn from_iter<T: IntoIterator<Item = Bytes>>(members: T) -> Self {
        Self(members.into_iter().collect())
    }
}
