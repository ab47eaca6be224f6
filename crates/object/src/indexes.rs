//! Secondary index entries as clients give them. Their form in an index is in `index_term.rs`.

use bytes::Bytes;

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
/// Tombstones count as well, and have no entries.
pub(crate) fn union<'a>(siblings: impl Iterator<Item = &'a [IndexEntry]>) -> Vec<IndexEntry> {
    let mut entries: Vec<_> = siblings.flatten().cloned().collect();
    entries.sort_unstable();
    entries.dedup();
    entries
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

    #[test]
    fn siblings_add_up_to_one_set() {
        let siblings = [entries(&["c", "a"]), entries(&["b", "a"])];
        assert_eq!(
            union(siblings.iter().map(Vec::as_slice)),
            entries(&["a", "b", "c"])
        );
    }
}
