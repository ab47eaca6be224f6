//! A segment's records and end, as the opening of a store finds them.

use std::path::Path;
use std::sync::Arc;

use kvorum_backend::Result;
use kvorum_disk::Disk;
use kvorum_segment::{FILE_HEADER_BYTES, ResumeAt, ScanEnd, SegmentWriter, Tail as ScanTail};
use kvorum_storage_errors::IntoBackend;

use crate::key_table::KeyEntry;
use crate::segment::{Segment, segment_id};
use crate::segment_stats::SegmentStats;
use crate::tail::{Newest, Tail};

/// A segment being read.
pub(crate) struct Found {
    pub(crate) segment: Arc<Segment>,
    pub(crate) stats: SegmentStats,
    pub(crate) is_sealed: bool,
    /// All of its records were certainly durable.
    pub(crate) is_proven: bool,
    pub(crate) end: ScanEnd,
    /// The entries behind the checkpoint, of an unsealed segment; entries of sealed segments are
    /// gathered at once.
    pub(crate) entries: Vec<Newest>,
    /// The first sequence behind the checkpoint; 0 for none.
    pub(crate) first_sequence: u64,
    pub(crate) tail_bytes: u64,
}

impl Found {
    /// Counts a record and gathers its entry.
    pub(crate) fn take(&mut self, record: &kvorum_segment::StoredRecord, tail: &mut Tail) {
        let sequence = record.head.sequence;
        if self.first_sequence == 0 {
            self.first_sequence = sequence;
        }
        let Some(entry) = KeyEntry::of(&record.head) else {
            self.stats.count_sequence(sequence);
            return;
        };
        self.stats.count_entry(&entry);
        let newest = tail.newest_of(&entry, &self.segment);
        if self.is_sealed {
            tail.add(newest);
        } else {
            self.entries.push(newest);
        }
    }

    /// Notes the end of the segment.
    pub(crate) fn close(&mut self) {
        let before = self.stats.data_end;
        self.stats.data_end = self.end.clean_to.max(FILE_HEADER_BYTES);
        self.tail_bytes = self.stats.data_end.saturating_sub(before);
        if let ScanTail::Sealed(seal) = self.end.tail
            && self.is_sealed
        {
            // Damaged records count too: without them, a removal could be dropped.
            self.stats.records = self.stats.records.max(seal.records);
            self.stats.sequence_min = seal.sequence_min;
            self.stats.sequence_max = seal.sequence_max;
        }
    }

    /// Opens an unsealed segment for writing, behind its last whole record.
    pub(crate) fn resume(
        &self,
        disk: &dyn Disk,
        path: &Path,
        rewrite_from: Option<u64>,
    ) -> Result<SegmentWriter> {
        let at = ResumeAt {
            end: self.stats.data_end,
            records: self.stats.records,
            sequence_min: self.stats.sequence_min,
            sequence_max: self.stats.sequence_max,
        };
        let id = self.segment.reader.id();
        let id = segment_id(id.log_id, self.segment.number, self.segment.is_merged);
        SegmentWriter::resume(disk, path, id, at, rewrite_from).into_backend()
    }
}
