//! Facets: powers that some engines have. Queried, not tried.

use std::any::Any;
use std::ops::{AddAssign, Bound};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_disk::Disk;
use kvorum_encoding::StorageKey;

use crate::{Flow, FoldEnd, FoldFilter, FoldRange, Lease, Result, Timestamp, Visitor};

/// The powers of an engine, as a value. The facets of [`crate::Backend`] agree with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Capabilities {
    /// Data survives the process.
    pub persistent: bool,
    /// A head is read without reading the body, so HEAD requests are cheap.
    pub cheap_heads: bool,
    /// Keys are kept in order, so the cost of a fold depends only on the visited keys.
    pub ordered: bool,
    /// [`crate::Backend::indexes`] exists.
    pub indexes: bool,
    /// [`crate::Backend::backups`] exists.
    pub backups: bool,
    /// The store's settings let it drop single entries: by the time of their last change, or for
    /// lack of memory. A value that takes several entries would lose parts.
    pub drops_entries: bool,
}

/// A range of terms in one index of one bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexRange {
    /// The prefix that the storage keys of the bucket share.
    pub bucket_prefix: Bytes,
    /// The index.
    pub field: Bytes,
    /// The first term.
    pub from: Bound<Bytes>,
    /// The last term.
    pub to: Bound<Bytes>,
    /// The (term, key) to continue behind.
    pub after: Option<(Bytes, StorageKey)>,
}

/// The callback of an index fold for each entry: its term and the object's key.
pub type IndexVisitor<'a> = dyn FnMut(&Bytes, &StorageKey) -> Flow + 'a;

/// Changes of indexes since the store was opened, replays of logs included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexCounts {
    /// Puts, with index entries or without.
    pub writes: u64,
    /// Index entries that puts added.
    pub postings_written: u64,
    /// Removals.
    pub deletes: u64,
    /// Index entries that puts and removals deleted.
    pub postings_deleted: u64,
}

impl IndexCounts {
    /// The additions to these counts since the state `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            writes: self.writes.saturating_sub(before.writes),
            postings_written: self
                .postings_written
                .saturating_sub(before.postings_written),
            deletes: self.deletes.saturating_sub(before.deletes),
            postings_deleted: self
                .postings_deleted
                .saturating_sub(before.postings_deleted),
        }
    }
}

impl AddAssign for IndexCounts {
    fn add_assign(&mut self, other: Self) {
        self.writes += other.writes;
        self.postings_written += other.postings_written;
        self.deletes += other.deletes;
        self.postings_deleted += other.postings_deleted;
    }
}

/// Secondary indexes: entries change atomically with their object and are visited in order of
/// (term, key).
pub trait IndexFolds: Send + Sync {
    /// Visits index entries of unexpired objects, as they were when the fold began. The key in the
    /// returned [`FoldEnd`] is not a position: to continue, set [`IndexRange::after`] to the last
    /// entry that the visitor saw.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Corrupt`] if damage may have removed entries of the range: no fold omits
    /// entries without an error.
    fn fold_index(
        &self,
        range: &IndexRange,
        lease: Lease,
        now: Timestamp,
        visitor: &mut IndexVisitor<'_>,
    ) -> Result<FoldEnd>;

    /// Entries written and deleted. Expiry and eviction do not count: no client requested them.
    fn counts(&self) -> IndexCounts;
}

/// The end of a fold in the order of a journal. There is no resume point, since keys come in no
/// order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalFoldEnd {
    /// Everything was visited.
    Complete,
    /// The visitor stopped it.
    Stopped,
    /// The lease ended first.
    LeaseExpired,
}

/// The result of a fold in the order of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalFolded {
    /// Its end.
    pub end: JournalFoldEnd,
    /// Damage may have taken entries of the visited range.
    pub has_met_damage: bool,
}

/// Folds in the order of a journal, for engines that keep a journal of whole entries. They are for callers
/// that need all entries with their bodies in any order. The journal is read from its beginning to its end.
pub trait JournalFolds: Send + Sync {
    /// Visits the entries of a range as they were when the fold began, each once, bodies included.
    ///
    /// # Errors
    /// Those of [`crate::Snapshot::fold`].
    fn fold_in_journal_order(
        &self,
        range: &FoldRange,
        lease: Lease,
        filter: &FoldFilter,
        visitor: &mut Visitor<'_>,
    ) -> Result<JournalFolded>;
}

/// Files of a backup. A linked one is the store's own file under a second name: it takes no space
/// until the store drops it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackedUp {
    /// Files with a second name.
    pub linked_files: u64,
    /// Their bytes.
    pub linked_bytes: u64,
    /// Files that were copied or rewritten.
    pub copied_files: u64,
    /// Their bytes.
    pub copied_bytes: u64,
}

impl BackedUp {
    /// Gives a file a second name, and counts it. False when there is no such file.
    pub fn link(&mut self, disk: &dyn Disk, from: &Path, to: &Path) -> kvorum_disk::Result<bool> {
        let Some(info) = disk.info(from)? else {
            return Ok(false);
        };
        disk.link(from, to)?;
        self.linked_files += 1;
        self.linked_bytes += info.len;
        Ok(true)
    }

    /// Counts a file that was copied or rewritten.
    pub fn count_copy(&mut self, bytes: u64) {
        self.copied_files += 1;
        self.copied_bytes += bytes;
    }
}

impl AddAssign for BackedUp {
    fn add_assign(&mut self, other: Self) {
        self.linked_files += other.linked_files;
        self.linked_bytes += other.linked_bytes;
        self.copied_files += other.copied_files;
        self.copied_bytes += other.copied_bytes;
    }
}

/// The result of a store's backup.
#[derive(Clone, Debug, Default)]
pub struct StoreBackup {
    /// Its files.
    pub files: BackedUp,
    /// Keeps data that the copy needs outside of its directory, for a store with entries elsewhere.
    /// The caller copies the data and keeps this value until then.
    pub held: Option<Arc<dyn Any + Send + Sync>>,
}

/// Backups while serving.
pub trait Backups: Send + Sync {
    /// Makes a consistent copy in `directory`, which must not exist, on the same filesystem: files
    /// that never change get a second name there. The copy opens like a store after a crash. It has
    /// every batch that was put before the call, and the earliest or none of those put meanwhile.
    /// Puts do not wait for it, upkeep does.
    ///
    /// # Errors
    /// Those of the disk; the caller removes the files that were made.
    fn backup(&self, directory: &Path) -> Result<StoreBackup>;
}
