//! The transfer of a survey's records from a file of the source into the index.

use std::collections::BTreeSet;
use std::path::Path;

use kvorum_disk::DiskError;
use kvorum_encoding::{Address, StorageKey};
use xxhash_rust::xxh3::xxh3_128;

use crate::counts::Counts;
use crate::error::ImportError;
use crate::findings::{Finding, Findings};
use crate::progress::Progress;
use crate::scanned::Scanned;
use crate::spread::SpreadWriter;

/// Maximum number of bucket types checked beforehand on the server.
const BUCKET_TYPES_MAX: usize = 1000;
/// Records between updates of the progress.
const RECORDS_A_TICK: u64 = 4096;

/// The sink for the records of one file.
pub struct Intake<'a> {
    pub(crate) path: &'a Path,
    pub(crate) counts: &'a mut Counts,
    pub(crate) findings: &'a mut Findings,
    pub(crate) writer: &'a mut SpreadWriter,
    pub(crate) bucket_types: &'a mut BTreeSet<String>,
    pub(crate) progress: &'a Progress,
    /// Bytes of the earlier files.
    pub(crate) bytes_before: u64,
    pub(crate) failure: Option<ImportError>,
}

impl Intake<'_> {
    /// Counts so far.
    pub fn counts(&mut self) -> &mut Counts {
        self.counts
    }

    /// Counts a record.
    pub fn record(&mut self, offset: u64, is_deletion: bool) {
        self.counts.records += 1;
        self.counts.deletion_marks += u64::from(is_deletion);
        if self.counts.records.is_multiple_of(RECORDS_A_TICK) {
            let done = self.bytes_before + offset;
            self.progress.set(done, *self.counts);
        }
    }

    /// Notes the bucket type of an object, and returns the hash that joins its entries.
    pub fn object(&mut self, address: &Address) -> u128 {
        if !address.bucket_type.is_default() && self.bucket_types.len() < BUCKET_TYPES_MAX {
            let name = String::from_utf8_lossy(address.bucket_type.as_bytes());
            if !self.bucket_types.contains(&*name) {
                self.bucket_types.insert(name.into_owned());
            }
        }
        xxh3_128(StorageKey::from_address(address).as_bytes())
    }

    /// Appends an entry to the index. A failure is reported at the end of the file.
    pub fn add(&mut self, key_hash: u128, entry: &[u8]) {
        if self.failure.is_none()
            && let Err(error) = self.writer.add(key_hash, entry)
        {
            self.failure = Some(error);
        }
    }

    /// Returns a record, and reports anything else.
    pub fn record_of<R>(&mut self, scanned: Scanned<R>) -> Option<R> {
        match scanned {
            Scanned::Record(record) => return Some(record),
            Scanned::Damage { offset, len } => {
                let reason = "damaged; the data here is lost";
                self.unreadable(offset, Some(len), reason.to_owned());
            }
            Scanned::GivenUp { offset, len } => {
                let reason = "damaged, and too much like records to be searched for the next one";
                self.unreadable(offset, Some(len), reason.to_owned());
            }
            Scanned::TornTail { offset, len } => {
                self.counts.torn_tails += 1;
                let reason = "the file ends within a record, as after a crash";
                self.note(offset, Some(len), reason.to_owned());
            }
        }
        None
    }

    /// Notes an unreadable or unknown part, which is a loss.
    pub fn unreadable(&mut self, offset: u64, len: Option<u64>, reason: String) {
        self.counts.unreadable += 1;
        self.note(offset, len, reason);
    }

    /// Notes a finding that is not a loss.
    pub fn note(&mut self, offset: u64, len: Option<u64>, reason: String) {
        let finding = Finding {
            file: self.path.to_owned(),
            offset,
            len,
            object: None,
            reason,
        };
        if let Err(error) = self.findings.add(finding) {
            self.failure.get_or_insert(error);
        }
    }

    /// Reports a read error of the source. Returns an error of the import's own files.
    pub(crate) fn conclude(mut self, taken: Result<(), DiskError>) -> Result<(), ImportError> {
        if let Err(error) = taken {
            self.unreadable(0, None, format!("the rest of the file: {error}"));
        }
        self.failure.map_or(Ok(()), Err)
    }
}
