//! Counts of an import. They are part of its state, so that a resumed import reports all runs.

use derive_more::AddAssign;
use serde::{Deserialize, Serialize};

/// Counts of one import over all its runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, AddAssign, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Data files whose hint file was used.
    pub hints_used: u64,
    /// Unusable hint files, whose data files were scanned.
    pub hints_doubted: u64,
    /// Records found, including deletion marks.
    pub records: u64,
    /// Deletion marks found.
    pub deletion_marks: u64,
    /// Records reduced to their index changes.
    pub index_changes: u64,
    /// Keys with at least one copy that is neither deleted nor expired.
    pub keys: u64,
    /// Keys whose newest record in every partition deletes them.
    pub keys_deleted: u64,
    /// Keys whose newest records have expired.
    pub keys_expired: u64,
    /// Copies equal to an earlier copy of the object.
    pub equal_copies: u64,
    /// Objects whose copies differed and were merged.
    pub merged_objects: u64,
    /// Objects put, or counted by a dry run.
    pub objects: u64,
    /// Siblings of these objects.
    pub siblings: u64,
    /// Objects with more than one sibling.
    pub objects_with_siblings: u64,
    /// Objects with siblings in buckets that keep only the newest sibling.
    pub objects_reduced: u64,
    /// Objects that were tombstones.
    pub tombstones: u64,
    /// Tombstones left out by request.
    pub tombstones_left_out: u64,
    /// Bytes of the values put.
    pub value_bytes: u64,
    /// Values that are Erlang terms, put as their external form.
    pub term_values: u64,
    /// Values in an encoding of Riak's, put as their bytes.
    pub encoded_values: u64,
    /// Metadata entries of unknown names.
    pub metadata_left_out: u64,
    /// Links that named a bucket type, which was dropped.
    pub link_types_left_out: u64,
    /// Objects with data types, put in Riak's form.
    pub data_types: u64,
    /// Objects with data types that cannot be read.
    pub data_types_left_out: u64,
    /// Objects that the server refused.
    pub refused: u64,
    /// Places that could not be read or decoded.
    pub unreadable: u64,
    /// Data files that end within a record.
    pub torn_tails: u64,
    /// Values that look like deletion marks, but are none.
    pub look_deleted: u64,
    /// Index entries found in the store, counted for each replica.
    pub index_entries: u64,
    /// Index entries of an object that its store lacks.
    pub index_entries_missing: u64,
    /// Index entries of the store without an object that has them.
    pub index_entries_stray: u64,
    /// Objects put with a time of expiry.
    pub objects_to_expire: u64,
    /// Keys of the store that are not in Riak's form.
    pub other_keys: u64,
}

impl Counts {
    /// True if parts of the source are not imported.
    pub fn has_losses(&self) -> bool {
        let left_out = self.data_types_left_out + self.metadata_left_out;
        self.refused + self.unreadable + self.other_keys + left_out > 0
    }
}
