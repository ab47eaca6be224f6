//! The report for people at the end of an import.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use crate::counts::Counts;
use crate::findings::Finding;
use crate::passed_over::PassedOver;

/// Result of an import.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// True for a dry run.
    pub is_dry_run: bool,
    /// Partitions imported.
    pub partitions: usize,
    /// Files imported.
    pub files: usize,
    /// Bytes of these files.
    pub data_bytes: u64,
    /// Counts over all runs.
    pub counts: Counts,
    /// Bucket types of the objects, except the default type; the server needs them.
    pub bucket_types: Vec<String>,
    /// Files marked for deletion by Riak and skipped.
    pub marked_for_deletion: Vec<PathBuf>,
    /// Skipped directories without objects that Riak would serve.
    pub passed_over: Vec<PassedOver>,
    /// The file with one line for each finding.
    pub findings_file: PathBuf,
    /// The first findings of this run.
    pub first_findings: Vec<Finding>,
}

impl Summary {
    /// True if everything in the source has been imported.
    pub fn is_whole(&self) -> bool {
        !self.counts.has_losses()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = &self.counts;
        let (partitions, files) = (self.partitions, self.files);
        let megabytes = self.data_bytes >> 20;
        writeln!(
            f,
            "read      {megabytes} MB in {files} files of {partitions} partitions"
        )?;
        let (records, marks) = (counts.records, counts.deletion_marks);
        writeln!(f, "records   {records}, {marks} of them deletion marks")?;
        let (keys, deleted, expired) = (counts.keys, counts.keys_deleted, counts.keys_expired);
        writeln!(
            f,
            "keys      {keys}; {deleted} deleted and {expired} expired ones left out"
        )?;
        let (equal, merged) = (counts.equal_copies, counts.merged_objects);
        writeln!(
            f,
            "replicas  {equal} equal copies, {merged} objects merged from different ones"
        )?;
        let verb = if self.is_dry_run {
            "to import "
        } else {
            "imported  "
        };
        let (objects, siblings) = (counts.objects, counts.siblings);
        let megabytes = counts.value_bytes >> 20;
        writeln!(
            f,
            "{verb}{objects} objects with {siblings} siblings, {megabytes} MB of values"
        )?;
        for (count, text) in [
            (
                counts.index_changes,
                "records are index changes of replaced versions, without an object",
            ),
            (
                counts.objects_with_siblings,
                "objects have more than one sibling",
            ),
            (
                counts.objects_reduced,
                "of them are in buckets that keep only the newest sibling (allow_mult is false)",
            ),
            (counts.tombstones, "objects are tombstones"),
            (counts.tombstones_left_out, "tombstones left out"),
            (
                counts.term_values,
                "values are Erlang terms, kept in their external form",
            ),
            (
                counts.encoded_values,
                "values are in an encoding of Riak's, kept as bytes",
            ),
            (
                counts.link_types_left_out,
                "links have lost the bucket type they named",
            ),
            (
                counts.look_deleted,
                "values look like deletion marks; bitcask hides them",
            ),
            (
                counts.torn_tails,
                "files end within a record, as after a crash",
            ),
            (
                counts.objects_to_expire,
                "objects have an expiry time of their own",
            ),
            (
                counts.index_entries,
                "index entries in the source; the server makes its own from the objects",
            ),
            (
                counts.index_entries_missing,
                "index entries of objects were missing in the source",
            ),
            (
                counts.index_entries_stray,
                "index entries in the source belong to no object there",
            ),
            (
                counts.hints_doubted,
                "hint files were not used; their data files were scanned",
            ),
            (counts.unreadable, "places could NOT be read"),
            (
                counts.data_types,
                "objects are counters, sets, maps or other data types",
            ),
            (
                counts.data_types_left_out,
                "data types could not be read and were NOT imported",
            ),
            (
                counts.metadata_left_out,
                "metadata entries were NOT imported",
            ),
            (
                counts.other_keys,
                "keys do not have Riak's form and were NOT imported",
            ),
            (counts.refused, "objects were REFUSED by the server"),
        ] {
            if count > 0 {
                writeln!(f, "          {count} {text}")?;
            }
        }
        if !self.bucket_types.is_empty() {
            writeln!(f, "types     {}", self.bucket_types.join(", "))?;
        }
        for passed in &self.passed_over {
            let (path, reason) = (passed.path.display(), &passed.reason);
            writeln!(f, "passed over {path}: {reason}")?;
        }
        for path in &self.marked_for_deletion {
            writeln!(
                f,
                "left out  {}: Riak had marked it for deletion",
                path.display()
            )?;
        }
        if !self.first_findings.is_empty() {
            writeln!(f, "findings  all in {}", self.findings_file.display())?;
        }
        for finding in &self.first_findings {
            let (file, offset) = (finding.file.display(), finding.offset);
            let object = finding.object.as_deref().unwrap_or("");
            let gap = if object.is_empty() { "" } else { ": " };
            writeln!(
                f,
                "          {file} at {offset}: {object}{gap}{}",
                finding.reason
            )?;
        }
        Ok(())
    }
}
