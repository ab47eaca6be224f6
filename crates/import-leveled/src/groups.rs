//! The records of one index file that have to be read: for each key, the newest record of each
//! partition.

use kvorum_import::Counts;

use crate::index::{EntryKind, IndexEntry};

/// A key and its copies, one from each partition that has the key, in order of files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyGroup {
    /// Objects, or records that are not Riak's.
    pub(crate) copies: Vec<IndexEntry>,
    /// Index changes of replaced versions without their successors.
    pub(crate) replaced: Vec<IndexEntry>,
}

impl KeyGroup {
    fn first(&self) -> Option<&IndexEntry> {
        self.copies.first().or(self.replaced.first())
    }
}

/// Reduces the entries of one index file. `store_of` gives the partition of each journal file by
/// its number. Groups are ordered by the positions of their first copies on disk.
///
/// Within a partition the highest sequence number wins, in any file: compaction moves records
/// between files, and drops objects that a higher number has replaced.
pub(crate) fn reduce(
    mut entries: Vec<IndexEntry>,
    store_of: &[usize],
    counts: &mut Counts,
) -> Vec<KeyGroup> {
    let store = |entry: &IndexEntry| store_of.get(entry.file as usize);
    entries.sort_unstable_by_key(|entry| {
        let place = (entry.file, entry.offset);
        (
            entry.key_hash,
            store(entry),
            entry.sequence,
            entry.kind,
            place,
        )
    });
    let mut groups = Vec::new();
    for records in entries.chunk_by(|a, b| a.key_hash == b.key_hash) {
        let mut group = KeyGroup::default();
        for records in records.chunk_by(|a, b| store(a) == store(b)) {
            take_newest(records, &mut group);
        }
        match group.first() {
            Some(_) => groups.push(group),
            None => counts.keys_deleted += 1,
        }
    }
    groups.sort_by_key(|group| group.first().map(|copy| (copy.file, copy.offset)));
    groups
}

/// Adds the newest of one partition's records of a key, which are in ascending order of sequence
/// numbers.
fn take_newest(records: &[IndexEntry], group: &mut KeyGroup) {
    let Some(last) = records.last() else {
        return;
    };
    if last.kind == EntryKind::IndexChanges {
        group.replaced.push(*last);
    }
    let mut newest = records.iter().rev();
    let newest = newest.find(|entry| entry.kind != EntryKind::IndexChanges);
    if let Some(entry) = newest.filter(|entry| entry.kind != EntryKind::Tombstone) {
        group.copies.push(*entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kind: EntryKind, key: u128, file: u32, sequence: u64) -> IndexEntry {
        IndexEntry {
            key_hash: key,
            sequence,
            value_digest: 1,
            file,
            kind,
            offset: u32::try_from(sequence).unwrap() * 10,
            total_len: 50,
        }
    }

    fn object(key: u128, file: u32, sequence: u64) -> IndexEntry {
        entry(EntryKind::Object, key, file, sequence)
    }

    /// Files 0 and 1 belong to one partition, file 2 to another.
    const STORE_OF: [usize; 3] = [0, 0, 1];

    fn places(entries: &[IndexEntry]) -> Vec<(u32, u64)> {
        entries.iter().map(|it| (it.file, it.sequence)).collect()
    }

    #[test]
    fn the_highest_sequence_number_of_each_partition_wins_whichever_file_it_is_in() {
        let entries = vec![
            object(1, 1, 3),
            object(1, 0, 7),
            object(1, 0, 5),
            object(1, 2, 4),
        ];
        let groups = reduce(entries, &STORE_OF, &mut Counts::default());
        assert_eq!(groups.len(), 1);
        assert_eq!(places(&groups[0].copies), [(0, 7), (2, 4)]);
        assert!(groups[0].replaced.is_empty());
    }

    #[test]
    fn a_deletion_removes_the_key_from_its_partition_alone() {
        let deletion = |key, file, sequence| entry(EntryKind::Tombstone, key, file, sequence);
        let mut counts = Counts::default();
        let entries = vec![
            object(1, 1, 1),
            deletion(1, 0, 2),
            object(1, 2, 1),
            object(2, 0, 5),
            deletion(2, 1, 9),
            deletion(3, 0, 3),
            object(3, 1, 4),
        ];
        let groups = reduce(entries, &STORE_OF, &mut counts);
        let copies: Vec<_> = groups.iter().map(|group| places(&group.copies)).collect();
        assert_eq!(copies, [[(1, 4)], [(2, 1)]]);
        assert_eq!(counts.keys_deleted, 1);
    }

    #[test]
    fn index_changes_hide_no_object_and_show_that_a_newer_one_is_missing() {
        let changes = |key, file, sequence| entry(EntryKind::IndexChanges, key, file, sequence);
        let entries = vec![
            changes(1, 0, 3),
            object(1, 1, 3),
            changes(2, 0, 5),
            object(2, 1, 4),
            changes(3, 0, 6),
            changes(4, 0, 1),
            object(4, 0, 2),
        ];
        let mut counts = Counts::default();
        let groups = reduce(entries, &STORE_OF, &mut counts);
        let of = |key| {
            let of_key = |entry: &IndexEntry| entry.key_hash == key;
            let mut groups = groups.iter();
            let group = groups
                .find(|group| group.first().is_some_and(of_key))
                .unwrap();
            (places(&group.copies), places(&group.replaced))
        };
        assert_eq!(of(1), (vec![(1, 3)], vec![]));
        assert_eq!(of(2), (vec![(1, 4)], vec![(0, 5)]));
        assert_eq!(of(3), (vec![], vec![(0, 6)]));
        assert_eq!(of(4), (vec![(0, 2)], vec![]));
        assert_eq!(counts.keys_deleted, 0);
    }
}
