//! The first half of an import: adds the records of a data file to the index, from a usable hint
//! file or from the data file itself.

use bytes::Bytes;
use kvorum_disk::{DiskError, OpenMode};
use kvorum_import::{FileWindow, Intake, Scanned, System};

use crate::choices::Choices;
use crate::data_file::{self, ScannedRecord};
use crate::hint_file;
use crate::index::IndexEntry;
use crate::record::ValueKind;
use crate::riak_key::decode_key;
use crate::source::FilePlace;

/// Takes the records of file `number`. Blocks.
pub(crate) fn take_file(
    system: &System,
    place: FilePlace<'_>,
    number: usize,
    choices: &Choices,
    intake: &mut Intake<'_>,
) -> Result<(), DiskError> {
    let data = system.disk.open(&place.data_path(), OpenMode::Read)?;
    let mut window = FileWindow::new(data, place.file.data_len);
    let mut survey = FileSurvey {
        place,
        number: u32::try_from(number).unwrap_or(u32::MAX),
        intake,
    };
    let covered = match place.file.hint_len {
        Some(len) if !choices.ignore_hints => survey.take_hints(system, len),
        _ => 0,
    };
    data_file::scan(&mut window, covered, &mut |scanned| survey.take(scanned))
}

struct FileSurvey<'a, 'b> {
    place: FilePlace<'a>,
    number: u32,
    intake: &'a mut Intake<'b>,
}

impl FileSurvey<'_, '_> {
    /// Takes the entries of the hint file, and returns the length of the part of the data file that
    /// they cover. An unreadable hint file is ignored.
    fn take_hints(&mut self, system: &System, len: u64) -> u64 {
        let path = self.place.hint_path();
        let outcome = system.disk.open(&path, OpenMode::Read).and_then(|file| {
            let mut window = FileWindow::new(file, len);
            match hint_file::verify(&mut window, self.place.file.data_len)? {
                Ok(covered) => Ok(Some((covered, window))),
                Err(_doubt) => Ok(None),
            }
        });
        let Ok(Some((covered, mut window))) = outcome else {
            self.intake.counts().hints_doubted += 1;
            return 0;
        };
        let walked = hint_file::walk(&mut window, &mut |_, entry, key| {
            let indexed = IndexEntry {
                key_hash: 0,
                offset: entry.offset,
                value_digest: 0,
                file: self.number,
                is_tombstone: entry.is_tombstone,
                total_len: entry.total_len,
                timestamp: entry.timestamp,
            };
            self.take_record(indexed, key);
        });
        // The check has just read the file. Adding a record twice does no harm.
        if !matches!(walked, Ok(Ok(()))) {
            self.intake.counts().hints_doubted += 1;
            return 0;
        }
        self.intake.counts().hints_used += 1;
        covered
    }

    fn take(&mut self, scanned: Scanned<ScannedRecord<'_>>) {
        let Some(record) = self.intake.record_of(scanned) else {
            return;
        };
        if record.kind == ValueKind::LooksDeleted {
            self.intake.counts().look_deleted += 1;
            let reason =
                "a value that begins as a deletion mark does; bitcask hides it, it is imported";
            self.intake.note(record.offset, None, reason.to_owned());
        }
        let indexed = IndexEntry {
            key_hash: 0,
            offset: record.offset,
            value_digest: record.value_digest,
            file: self.number,
            is_tombstone: record.kind == ValueKind::Tombstone,
            total_len: u32::try_from(record.header.total_len()).unwrap_or(u32::MAX),
            timestamp: record.header.timestamp,
        };
        self.take_record(indexed, record.key);
    }

    fn take_record(&mut self, mut entry: IndexEntry, key: &[u8]) {
        self.intake.record(entry.offset, entry.is_tombstone);
        match decode_key(&Bytes::copy_from_slice(key)) {
            Ok(address) => {
                entry.key_hash = self.intake.object(&address);
                self.intake.add(entry.key_hash, &entry.encode());
            }
            Err(error) => {
                let len = u64::from(entry.total_len);
                let reason = format!("key: {error}");
                self.intake.unreadable(entry.offset, Some(len), reason);
            }
        }
    }
}
