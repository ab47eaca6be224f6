//! Statistics of the records in one segment: the numbers of all and of live records, and expiry
//! times.

use kvorum_backend::Fields;
use kvorum_segment::{FILE_HEADER_BYTES, Seal};

use crate::expiries::Expiries;
use crate::key_table::KeyEntry;
use crate::slot::Slot;

/// Statistics of a segment's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentStats {
    /// The end of its records, in bytes.
    pub(crate) data_end: u64,
    pub(crate) records: u64,
    pub(crate) removals: u64,
    pub(crate) removal_bytes: u64,
    /// Records that the key directory points to.
    pub(crate) live_records: u64,
    pub(crate) live_bytes: u64,
    /// 0 when there are no records.
    pub(crate) sequence_min: u64,
    pub(crate) sequence_max: u64,
    /// The latest expiry of an entry, in microseconds; the maximum if one never expires.
    pub(crate) expires_by: u64,
    /// Latest modification time of its entries, in microseconds.
    pub(crate) modified_by: u64,
    /// The expiry times of entries with an expiry of their own.
    pub(crate) expiries: Expiries,
}

impl Default for SegmentStats {
    fn default() -> Self {
        Self {
            data_end: FILE_HEADER_BYTES,
            records: 0,
            removals: 0,
            removal_bytes: 0,
            live_records: 0,
            live_bytes: 0,
            sequence_min: 0,
            sequence_max: 0,
            expires_by: 0,
            modified_by: 0,
            expiries: Expiries::default(),
        }
    }
}

impl SegmentStats {
    /// Counts a record that is not live yet. `fields` are `None` for removals.
    pub(crate) fn count(&mut self, sequence: u64, stored_bytes: u64, fields: Option<&Fields>) {
        self.count_sequence(sequence);
        match fields {
            Some(fields) => self.count_times(fields, stored_bytes),
            None => {
                self.removals += 1;
                self.removal_bytes += stored_bytes;
            }
        }
    }

    /// Counts an entry of a scan or a hint.
    pub(crate) fn count_entry(&mut self, entry: &KeyEntry) {
        let stored_bytes = entry.at.len.next_multiple_of(8);
        let fields = (!entry.removal).then_some(&entry.fields);
        self.count(entry.sequence, stored_bytes, fields);
    }

    pub(crate) fn count_sequence(&mut self, sequence: u64) {
        self.sequence_min = match self.records {
            0 => sequence,
            _ => self.sequence_min.min(sequence),
        };
        self.sequence_max = self.sequence_max.max(sequence);
        self.records += 1;
    }

    fn count_times(&mut self, fields: &Fields, stored_bytes: u64) {
        let expiry = fields.expiry.map_or(u64::MAX, |expiry| expiry.0);
        self.expires_by = self.expires_by.max(expiry);
        if let Some(own) = fields.expiry {
            self.expiries.add(own.0, stored_bytes);
        }
        self.modified_by = self.modified_by.max(fields.last_modified.0);
    }

    pub(crate) fn add_live(&mut self, slot: &Slot) {
        self.live_records += 1;
        self.live_bytes += slot.stored_bytes();
    }

    pub(crate) fn remove_live(&mut self, slot: &Slot) {
        assert!(
            self.live_records > 0,
            "{slot:?} was current, and its segment had no current record"
        );
        self.live_records -= 1;
        self.live_bytes = self.live_bytes.saturating_sub(slot.stored_bytes());
    }

    /// Bytes of records.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.data_end.saturating_sub(FILE_HEADER_BYTES)
    }

    /// Entries without a slot. After an opening the count may be too high: it may include a removal
    /// that an older removal of the same segment made needless.
    pub(crate) fn garbage_entries(&self) -> u64 {
        self.records
            .saturating_sub(self.removals)
            .saturating_sub(self.live_records)
    }

    /// Bytes that a merge frees: all bytes but live records and removals.
    pub(crate) fn garbage_bytes(&self) -> u64 {
        self.data_bytes()
            .saturating_sub(self.live_bytes)
            .saturating_sub(self.removal_bytes)
    }

    /// The contents of a seal for these records.
    pub(crate) fn seal(&self) -> Seal {
        Seal {
            data_end: self.data_end,
            records: self.records,
            sequence_min: self.sequence_min,
            sequence_max: self.sequence_max,
        }
    }
}
