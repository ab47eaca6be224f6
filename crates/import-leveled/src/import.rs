//! The import of leveled stores: its options, and the format of journals' records.

use std::sync::Arc;

use kvorum_disk::DiskError;
use kvorum_import::{
    Batch, Counts, FoundSource, ImportError, IndexPlace, Intake, NumberedFiles, Progress,
    RecordFile, RecordFormat, SharedOptions, Summary, System, import_records,
};

use crate::choices::Choices;
use crate::groups::{self, KeyGroup};
use crate::index::{self, ENTRY_BYTES};
use crate::reading::ObjectReader;
use crate::source::Source;
use crate::survey;

/// The estimated bytes of a record in a journal.
const BYTES_A_RECORD: u64 = 256;

/// Imports, or resumes an interrupted import.
///
/// # Errors
/// [`ImportError`]; except after damage to its own files, the same call resumes the import.
pub async fn import(
    system: System,
    options: SharedOptions,
    progress: Arc<Progress>,
) -> Result<Summary, ImportError> {
    let shared = options.clone();
    import_records(system, Leveled { options }, shared, progress).await
}

/// Checks, without writing, that the source can be imported; for callers that have to start a
/// server.
///
/// # Errors
/// [`ImportError`], with which [`import()`] would fail at its beginning.
pub fn check_source(system: &System, options: &SharedOptions) -> Result<(), ImportError> {
    Source::find(system, options)?;
    Ok(())
}

/// leveled, for the import.
struct Leveled {
    options: SharedOptions,
}

impl RecordFormat for Leveled {
    type Source = Source;
    type Choices = Choices;
    type Group = KeyGroup;
    type Reader = ObjectReader;

    const ENTRY_BYTES: u64 = ENTRY_BYTES as u64;

    fn find(&self, system: &System) -> Result<FoundSource<Source>, ImportError> {
        Source::find(system, &self.options)
    }

    fn choices(&self, now_secs: u64) -> Choices {
        Choices {
            began_secs: now_secs,
        }
    }

    fn files(source: &Source) -> Vec<RecordFile> {
        let files = source.files();
        files.map(|(store, file)| file.record_file(store)).collect()
    }

    fn records_about(source: &Source) -> u64 {
        let bytes: u64 = source.files().map(|(_, file)| file.len).sum();
        bytes / BYTES_A_RECORD
    }

    fn note_source(source: &Source, batch: &mut Batch) {
        source.note_forgotten(batch);
    }

    fn survey(
        system: &System,
        source: &Source,
        _: &Choices,
        number: usize,
        intake: &mut Intake<'_>,
    ) -> Result<(), DiskError> {
        match source.files().nth(number) {
            Some(file) => survey::take_file(system, file, number, intake),
            None => Ok(()),
        }
    }

    fn load(place: &IndexPlace<'_>, _: &Choices) -> Result<(Vec<KeyGroup>, Counts), ImportError> {
        let entries = index::read(place)?;
        let mut counts = Counts::default();
        let groups = groups::reduce(entries, place.store_of, &mut counts);
        Ok((groups, counts))
    }

    fn reader(
        system: &System,
        files: Vec<RecordFile>,
        choices: &Choices,
        leave_out_tombstones: bool,
    ) -> ObjectReader {
        let files = NumberedFiles::new(system.disk.clone(), files);
        ObjectReader::new(files, choices.began_secs, leave_out_tombstones)
    }
}
