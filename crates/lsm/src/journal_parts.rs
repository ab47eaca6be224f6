//! Parts of a store's journal at one moment: the segments of the value log with records of the
//! store, and the journal files.
//!
//! A long job uses these instead of a version, which would keep files open. Records that leave a
//! journal do not come back, so an old state errs on the safe side.

use kvorum_backend::{StoreId, Tag};

use crate::store::Store;
use crate::version::Version;

/// See the module.
pub(crate) struct JournalParts {
    /// Ascending.
    in_log: Vec<u32>,
    files: Vec<CleanFile>,
    forgotten: fn(Tag) -> bool,
}

struct CleanFile {
    /// As in `JournalFile::clean_to`.
    clean_to: u64,
    segments: Vec<u32>,
}

impl JournalParts {
    /// `None` for a store without a journal. The version was loaded before.
    pub(crate) fn of(store: &Store, version: &Version) -> Option<Self> {
        store.settings.journaled?;
        let log = store.log.as_ref()?;
        // Before the files: a segment is dropped once files have its needed records.
        let in_log = log.segments_of(StoreId(store.identity()));
        let newest = store.version.load();
        let both = version.journal.iter().chain(newest.journal.iter());
        let files = both.map(|it| CleanFile {
            clean_to: it.clean_to,
            segments: it.segments.clone(),
        });
        Some(Self {
            in_log,
            files: files.collect(),
            forgotten: store.settings.forgotten,
        })
    }

    /// True for kinds of entries whose older records hold back no removal.
    pub(crate) fn forgotten(&self) -> fn(Tag) -> bool {
        self.forgotten
    }

    /// True when the journal may have a record from these segments that is older than this
    /// sequence.
    pub(crate) fn may_have(&self, first: u32, last: u32, sequence: u64) -> bool {
        let is_among = |segments: &[u32]| {
            let at = segments.partition_point(|it| *it < first);
            segments.get(at).is_some_and(|it| *it <= last)
        };
        let mut files = self.files.iter().filter(|it| it.clean_to < sequence);
        is_among(&self.in_log) || files.any(|it| is_among(&it.segments))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_may_be_in_the_log_or_in_a_file_that_is_older_than_what_hides_it() {
        let parts = JournalParts {
            in_log: vec![7, 9],
            files: vec![CleanFile {
                clean_to: 50,
                segments: vec![2, 4],
            }],
            forgotten: |_| false,
        };
        for (range, sequence, expected) in [
            ((7, 7), 99, true),
            ((8, 8), 99, false),
            ((8, 20), 99, true),
            ((2, 2), 51, true),
            ((2, 4), 50, false),
            ((3, 3), 51, false),
            ((0, 1), 51, false),
        ] {
            let (first, last) = range;
            assert_eq!(parts.may_have(first, last, sequence), expected, "{range:?}");
        }
    }
}
