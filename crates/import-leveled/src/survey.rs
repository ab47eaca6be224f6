//! The first half of an import: adds the records of a journal file to the index.

use bytes::Bytes;
use kvorum_disk::{DiskError, OpenMode};
use kvorum_import::{FileWindow, Intake, System};
use xxhash_rust::xxh3::xxh3_128;

use crate::index::{EntryKind, IndexEntry};
use crate::journal_file::{self, ScannedRecord};
use crate::journal_key::{JournalKey, RecordKind, Subject};
use crate::source::JournalFile;

/// Takes the records of file `number`. Blocks.
pub(crate) fn take_file(
    system: &System,
    (store, file): (usize, &JournalFile),
    number: usize,
    intake: &mut Intake<'_>,
) -> Result<(), DiskError> {
    let opened = system.disk.open(&file.path, OpenMode::Read)?;
    let mut window = FileWindow::new(opened, file.len);
    let mut survey = FileSurvey {
        store,
        number: u32::try_from(number).unwrap_or(u32::MAX),
        intake,
    };
    journal_file::scan(&mut window, file.is_completed, &mut |scanned| {
        if let Some(record) = survey.intake.record_of(scanned) {
            survey.take_record(record);
        }
    })
}

struct FileSurvey<'a, 'b> {
    store: usize,
    number: u32,
    intake: &'a mut Intake<'b>,
}

impl FileSurvey<'_, '_> {
    fn take_record(&mut self, record: ScannedRecord<'_>) {
        let total_len = u32::try_from(record.header.total_len()).unwrap_or(u32::MAX);
        let len = Some(u64::from(total_len));
        let key = JournalKey::decode(&Bytes::copy_from_slice(record.key));
        let is_deletion = |key: &JournalKey| key.kind == RecordKind::Tombstone;
        self.intake
            .record(record.offset, key.as_ref().is_ok_and(is_deletion));
        let (key, offset) = match (key, u32::try_from(record.offset)) {
            (Ok(key), Ok(offset)) => (key, offset),
            (Err(error), _) => {
                let reason = format!("key: {error}");
                return self.intake.unreadable(record.offset, len, reason);
            }
            (_, Err(_)) => {
                let reason = "beyond what a journal file can address";
                return self
                    .intake
                    .unreadable(record.offset, len, reason.to_owned());
            }
        };
        let Some((kind, key_hash)) = self.entry_of(&key) else {
            return;
        };
        let entry = IndexEntry {
            key_hash,
            sequence: key.sequence,
            value_digest: record.value_digest,
            file: self.number,
            kind,
            offset,
            total_len,
        };
        self.intake.add(key_hash, &entry.encode());
    }

    /// The kind of a record's entry, and the hash that joins the entries of its key; `None` for
    /// index changes of a key that is not Riak's.
    fn entry_of(&mut self, key: &JournalKey) -> Option<(EntryKind, u128)> {
        self.intake.counts().index_changes += u64::from(key.kind == RecordKind::IndexChanges);
        let hash = match (&key.subject, key.kind) {
            (Subject::Object(address), _) => self.intake.object(address),
            // Each batch is a key by itself.
            (Subject::Other(_), RecordKind::Batch) => {
                let place = [self.store as u64, key.sequence].map(u64::to_le_bytes);
                xxh3_128(place.as_flattened())
            }
            // Releases of Erlang write an atom differently, so equal keys may have different bytes.
            (Subject::Other(term), _) => xxh3_128(format!("{term:?}").as_bytes()),
        };
        let kind = match (&key.subject, key.kind) {
            (Subject::Object(_), RecordKind::IndexChanges) => EntryKind::IndexChanges,
            (Subject::Other(_), RecordKind::IndexChanges) => return None,
            (_, RecordKind::Tombstone) => EntryKind::Tombstone,
            (Subject::Object(_), RecordKind::Object) => EntryKind::Object,
            _ => EntryKind::Other,
        };
        Some((kind, hash))
    }
}
