//! The records of one index file that have to be read: for each key, the newest record of each
//! partition.

use kvorum_import::Counts;

use crate::index::IndexEntry;

/// A key and the places of its copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyGroup {
    /// One copy for each partition that has the key, in order of files; never empty.
    pub(crate) copies: Vec<IndexEntry>,
}

/// Reduces the entries of one index file. `store_of` gives the partition of each data file by its
/// number. Groups are ordered by the positions of their first copies on disk.
///
/// Within a partition the last record wins, by file and then by offset, since clocks may go back.
pub(crate) fn reduce(
    mut entries: Vec<IndexEntry>,
    store_of: &[usize],
    expired_before: Option<u64>,
    counts: &mut Counts,
) -> Vec<KeyGroup> {
    entries.sort_unstable_by_key(|entry| (entry.key_hash, entry.file, entry.offset));
    let mut groups = Vec::new();
    for records in entries.chunk_by(|a, b| a.key_hash == b.key_hash) {
        let store = |entry: &IndexEntry| store_of.get(entry.file as usize);
        let newest = records
            .chunk_by(|a, b| store(a) == store(b))
            .filter_map(|records| records.last());
        let is_expired = |entry: &IndexEntry| {
            expired_before.is_some_and(|limit| u64::from(entry.timestamp) < limit)
        };
        let (mut copies, mut has_expired) = (Vec::new(), false);
        for entry in newest.filter(|entry| !entry.is_tombstone) {
            match is_expired(entry) {
                true => has_expired = true,
                false => copies.push(*entry),
            }
        }
        match (copies.is_empty(), has_expired) {
            (true, true) => counts.keys_expired += 1,
            (true, false) => counts.keys_deleted += 1,
            (false, _) => {
                counts.keys += 1;
                groups.push(KeyGroup { copies });
            }
        }
    }
    groups.sort_by_key(|group| group.copies.first().map(|copy| (copy.file, copy.offset)));
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: u128, file: u32, offset: u64) -> IndexEntry {
        IndexEntry {
            key_hash: key,
            offset,
            value_digest: 1,
            file,
            is_tombstone: false,
            total_len: 50,
            timestamp: 1000,
        }
    }

    fn tombstone(key: u128, file: u32, offset: u64) -> IndexEntry {
        IndexEntry {
            is_tombstone: true,
            ..entry(key, file, offset)
        }
    }

    /// Files 0 and 1 belong to one partition, file 2 to another.
    const STORE_OF: [usize; 3] = [0, 0, 1];

    fn places(groups: &[KeyGroup]) -> Vec<Vec<(u32, u64)>> {
        let copies = |group: &KeyGroup| group.copies.iter().map(|c| (c.file, c.offset)).collect();
        groups.iter().map(copies).collect()
    }

    #[test]
    fn the_last_record_of_each_partition_wins_whatever_its_time() {
        let mut late = entry(1, 0, 300);
        late.timestamp = 9999;
        let entries = vec![entry(1, 1, 0), late, entry(1, 0, 100), entry(1, 2, 40)];
        let groups = reduce(entries, &STORE_OF, None, &mut Counts::default());
        assert_eq!(places(&groups), [[(1, 0), (2, 40)]]);
    }

    #[test]
    fn a_deletion_removes_the_key_from_its_partition_alone() {
        let mut counts = Counts::default();
        let entries = vec![
            entry(1, 0, 0),
            tombstone(1, 1, 0),
            entry(1, 2, 0),
            entry(2, 0, 50),
            tombstone(2, 0, 90),
            tombstone(3, 0, 10),
            entry(3, 1, 10),
        ];
        let groups = reduce(entries, &STORE_OF, None, &mut counts);
        assert_eq!(places(&groups), [[(1, 10)], [(2, 0)]]);
        assert_eq!((counts.keys, counts.keys_deleted), (2, 1));
    }

    #[test]
    fn expired_records_do_not_uncover_older_ones() {
        let mut counts = Counts::default();
        let mut fresh_but_overwritten = entry(1, 0, 0);
        fresh_but_overwritten.timestamp = 5000;
        let entries = vec![fresh_but_overwritten, entry(1, 1, 0)];
        let groups = reduce(entries, &STORE_OF, Some(1001), &mut counts);
        assert!(groups.is_empty());
        assert_eq!(counts.keys_expired, 1);
    }
}
