//! Secondary index entries of whole objects, and what a write changes in them.

use std::cmp::Ordering;

use bytes::Bytes;

use crate::Metadata;

/// One entry: a field, whose name ends in `_bin` or `_int`, and a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IndexEntry {
    /// The field's name with its type suffix.
    pub field: Bytes,
    /// The value; integers as decimal text.
    pub value: Bytes,
}

/// The union of the entries of all siblings, sorted and without repetitions.
///
/// Tombstones count for what they carry, which is nothing.
pub(crate) fn union<'a>(siblings: impl Iterator<Item = &'a Metadata>) -> Vec<IndexEntry> {
    let mut entries: Vec<_> = siblings
        .flat_map(|metadata| metadata.indexes.iter().cloned())
        .collect();
    entries.sort_unstable();
    entries.dedup();
    entries
}

/// What has to be written to an index when one version of an object follows another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexDiff {
    /// Entries that the new version has and the old one had not.
    pub add: Vec<IndexEntry>,
    /// Entries that the old version had and the new one has not.
    pub remove: Vec<IndexEntry>,
}

impl IndexDiff {
    /// Compares the entries of two versions, each sorted and without repetitions, as
    /// [`crate::Object::index_entries`] and [`crate::Head::index_entries`] give them.
    pub fn between(old: Vec<IndexEntry>, new: Vec<IndexEntry>) -> Self {
        let mut diff = Self::default();
        let (mut old, mut new) = (old.into_iter().peekable(), new.into_iter().peekable());
        while let (Some(before), Some(after)) = (old.peek(), new.peek()) {
            match before.cmp(after) {
                Ordering::Less => diff.remove.extend(old.next()),
                Ordering::Greater => diff.add.extend(new.next()),
                Ordering::Equal => {
                    old.next();
                    new.next();
                }
            }
        }
        diff.remove.extend(old);
        diff.add.extend(new);
        diff
    }

    /// True when the index stays as it is.
    pub fn is_empty(&self) -> bool {
        self.add.is_empty() && self.remove.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(texts: &[&'static str]) -> Vec<IndexEntry> {
        let entry = |text: &&'static str| IndexEntry {
            field: Bytes::from_static(b"f_bin"),
            value: Bytes::from_static(text.as_bytes()),
        };
        texts.iter().map(entry).collect()
    }

    fn metadata(texts: &[&'static str]) -> Metadata {
        Metadata {
            indexes: entries(texts),
            ..Metadata::default()
        }
    }

    #[test]
    fn siblings_add_up_to_one_set() {
        let siblings = [metadata(&["c", "a"]), metadata(&["b", "a"])];
        assert_eq!(union(siblings.iter()), entries(&["a", "b", "c"]));
    }

    #[test]
    fn the_difference_names_what_came_and_what_went() {
        let diff = IndexDiff::between(entries(&["a", "b", "d"]), entries(&["b", "c", "e"]));
        assert_eq!(diff.add, entries(&["c", "e"]));
        assert_eq!(diff.remove, entries(&["a", "d"]));
        assert!(IndexDiff::between(entries(&["a"]), entries(&["a"])).is_empty());
        assert_eq!(
            IndexDiff::between(entries(&["a"]), vec![]).remove,
            entries(&["a"])
        );
    }
}
