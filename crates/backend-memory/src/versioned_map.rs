//! An ordered map that keeps a key's earlier values while an open snapshot may read them.
//!
//! Each key has its newest version, and older versions while snapshots need them. A superseded
//! version is queued with the sequence that superseded it. It is dropped once no open snapshot is
//! below that sequence, a few versions at a time. Without open snapshots no version is ever queued.

use std::borrow::Borrow;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use kvorum_backend::Sequence;

pub(crate) struct VersionedMap<K, V> {
    chains: BTreeMap<K, Chain<V>>,
    /// Old versions, by the sequence that superseded them, ascending.
    superseded: VecDeque<(Sequence, K)>,
    /// Keys with a present value.
    len: usize,
}

struct Chain<V> {
    newest: Version<V>,
    /// Ascending, and all below the newest version.
    older: Vec<Version<V>>,
}

/// A key's value from a sequence on; `None` when it was absent.
struct Version<V> {
    sequence: Sequence,
    value: Option<V>,
}

/// A key's value before it was set.
pub(crate) struct Superseded<V> {
    pub(crate) value: V,
    /// True when a snapshot still needs it.
    pub(crate) is_pinned: bool,
}

impl<K, V> Default for VersionedMap<K, V> {
    fn default() -> Self {
        Self {
            chains: BTreeMap::new(),
            superseded: VecDeque::new(),
            len: 0,
        }
    }
}

impl<K: Ord + Clone, V: Clone> VersionedMap<K, V> {
    /// The number of keys with a present value.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The key's value after the batch `sequence`.
    pub(crate) fn at<Q: Ord + ?Sized>(&self, key: &Q, sequence: Sequence) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.chains.get(key)?.at(sequence)
    }

    /// The values of keys in a range after the batch `sequence`, in order.
    pub(crate) fn range_at<'a, Q: Ord + ?Sized + 'a>(
        &'a self,
        from: Bound<&'a Q>,
        sequence: Sequence,
    ) -> impl Iterator<Item = (&'a K, &'a V)>
    where
        K: Borrow<Q>,
    {
        self.chains
            .range::<Q, _>((from, Bound::Unbounded))
            .filter_map(move |(key, chain)| Some((key, chain.at(sequence)?)))
    }

    /// Sets a key from `sequence` on and returns its old value. The old value stays visible to
    /// snapshots if `newest_snapshot`, the highest sequence that an open snapshot sees, is not
    /// below it.
    pub(crate) fn set(
        &mut self,
        key: K,
        sequence: Sequence,
        value: Option<V>,
        newest_snapshot: Option<Sequence>,
    ) -> Option<Superseded<V>> {
        self.len += usize::from(value.is_some());
        let Some(chain) = self.chains.get_mut(&key) else {
            if value.is_some() {
                let newest = Version { sequence, value };
                let older = Vec::new();
                self.chains.insert(key, Chain { newest, older });
            }
            return None;
        };
        let is_gone = value.is_none();
        let old = std::mem::replace(&mut chain.newest, Version { sequence, value });
        let was = old.value.clone();
        self.len -= usize::from(was.is_some());
        let is_pinned =
            old.sequence < sequence && newest_snapshot.is_some_and(|newest| newest >= old.sequence);
        if is_pinned {
            chain.older.push(old);
            self.superseded.push_back((sequence, key));
        } else if is_gone && chain.older.is_empty() {
            self.chains.remove(&key);
        }
        was.map(|value| Superseded { value, is_pinned })
    }

    /// Removes the newest value of a key, for snapshots too.
    pub(crate) fn take(&mut self, key: &K) -> Option<V> {
        let chain = self.chains.get_mut(key)?;
        let taken = chain.newest.value.take()?;
        self.len -= 1;
        if chain.older.is_empty() {
            self.chains.remove(key);
        }
        Some(taken)
    }

    /// True when [`VersionedMap::drop_one_superseded`] has something to drop.
    pub(crate) fn has_superseded(&self, oldest_snapshot: Option<Sequence>) -> bool {
        self.superseded.front().is_some_and(|(superseder, _)| {
            oldest_snapshot.is_none_or(|oldest| oldest >= *superseder)
        })
    }

    /// Drops one version that no snapshot at or above `oldest_snapshot` needs. Returns its value,
    /// or `None` if the key was absent in that version, or if there was no version to drop.
    pub(crate) fn drop_one_superseded(&mut self, oldest_snapshot: Option<Sequence>) -> Option<V> {
        if !self.has_superseded(oldest_snapshot) {
            return None;
        }
        let (_, key) = self.superseded.pop_front()?;
        let chain = self.chains.get_mut(&key)?;
        if chain.older.is_empty() {
            return None;
        }
        let dropped = chain.older.remove(0);
        if chain.older.is_empty() && chain.newest.value.is_none() {
            self.chains.remove(&key);
        }
        dropped.value
    }
}

impl<V> Chain<V> {
    fn at(&self, sequence: Sequence) -> Option<&V> {
        if self.newest.sequence <= sequence {
            return self.newest.value.as_ref();
        }
        let older = self.older.iter().rev();
        let mut visible = older.filter(|version| version.sequence <= sequence);
        visible.next()?.value.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(
        map: &mut VersionedMap<u8, char>,
        sequence: u64,
        value: Option<char>,
        snapshot: Option<u64>,
    ) -> Option<bool> {
        map.set(1, Sequence(sequence), value, snapshot.map(Sequence))
            .map(|old| old.is_pinned)
    }

    #[test]
    fn an_old_version_lives_as_long_as_a_snapshot_needs_it() {
        let mut map = VersionedMap::default();
        assert_eq!(set(&mut map, 1, Some('a'), None), None);
        assert_eq!(set(&mut map, 3, Some('b'), Some(2)), Some(true));
        assert_eq!(set(&mut map, 4, Some('c'), Some(2)), Some(false));
        assert_eq!(set(&mut map, 5, None, Some(4)), Some(true));
        assert_eq!(map.len(), 0);
        let seen: Vec<_> = (0..6).map(|at| map.at(&1, Sequence(at)).copied()).collect();
        assert_eq!(
            seen,
            [None, Some('a'), Some('a'), Some('a'), Some('c'), None]
        );
        assert!(!map.has_superseded(Some(Sequence(2))));
        assert_eq!(map.drop_one_superseded(Some(Sequence(4))), Some('a'));
        assert!(!map.has_superseded(Some(Sequence(4))));
        assert_eq!(map.drop_one_superseded(None), Some('c'));
        assert!(map.chains.is_empty());
    }

    #[test]
    fn a_second_write_of_the_same_batch_leaves_no_version() {
        let mut map = VersionedMap::default();
        set(&mut map, 1, Some('a'), Some(1));
        assert_eq!(set(&mut map, 1, Some('b'), Some(1)), Some(false));
        assert!(!map.has_superseded(None));
    }
}
