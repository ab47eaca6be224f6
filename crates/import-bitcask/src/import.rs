//! The import of bitcask directories: its options, and the format of bitcask's records.

use std::sync::Arc;
use std::time::Duration;

use kvorum_disk::DiskError;
use kvorum_import::{
    Counts, FoundSource, ImportError, IndexPlace, Intake, NumberedFiles, Progress, RecordFile,
    RecordFormat, SharedOptions, Summary, System, import_records,
};

use crate::choices::Choices;
use crate::groups::{self, KeyGroup};
use crate::index::{self, ENTRY_BYTES};
use crate::reading::ObjectReader;
use crate::source::{FilePlace, Source};
use crate::survey;

/// Estimated bytes of hints for each record, and of data if there are no hints.
const HINT_BYTES_A_RECORD: u64 = 48;
const DATA_BYTES_A_RECORD: u64 = 256;

/// Source and options of an import.
#[derive(Clone, Debug)]
pub struct ImportOptions {
    /// Options common to all importers.
    pub shared: SharedOptions,
    /// Skip records that are older than this: bitcask.expiry.
    pub expiry: Option<Duration>,
    /// Scan data files despite usable hint files.
    pub ignore_hints: bool,
}

/// Imports, or resumes an interrupted import.
///
/// # Errors
/// [`ImportError`]; except after damage to its own files, the same call resumes the import.
pub async fn import(
    system: System,
    options: ImportOptions,
    progress: Arc<Progress>,
) -> Result<Summary, ImportError> {
    let shared = options.shared.clone();
    import_records(system, Bitcask { options }, shared, progress).await
}

/// Checks, without writing, that the source can be imported; for callers that have to start a
/// server.
///
/// # Errors
/// [`ImportError`], with which [`import()`] would fail at its beginning.
pub fn check_source(system: &System, options: &ImportOptions) -> Result<(), ImportError> {
    Source::find(system, &options.shared)?;
    Ok(())
}

/// Bitcask, for the import.
struct Bitcask {
    options: ImportOptions,
}

impl RecordFormat for Bitcask {
    type Source = Source;
    type Choices = Choices;
    type Group = KeyGroup;
    type Reader = ObjectReader;

    const ENTRY_BYTES: u64 = ENTRY_BYTES as u64;

    fn find(&self, system: &System) -> Result<FoundSource<Source>, ImportError> {
        Source::find(system, &self.options.shared)
    }

    fn choices(&self, now_secs: u64) -> Choices {
        let expiry_secs = self.options.expiry.map(|expiry| expiry.as_secs());
        Choices {
            expired_before: expiry_secs.map(|expiry| now_secs.saturating_sub(expiry)),
            expiry_secs,
            ignore_hints: self.options.ignore_hints,
        }
    }

    fn files(source: &Source) -> Vec<RecordFile> {
        let files = source.files();
        files.iter().map(FilePlace::record_file).collect()
    }

    fn records_about(source: &Source) -> u64 {
        let files = source.stores.iter().flat_map(|store| &store.files);
        let records = files.map(|file| match file.hint_len {
            Some(len) if len > 0 => len / HINT_BYTES_A_RECORD,
            _ => file.data_len / DATA_BYTES_A_RECORD,
        });
        records.sum()
    }

    fn survey(
        system: &System,
        source: &Source,
        choices: &Choices,
        number: usize,
        intake: &mut Intake<'_>,
    ) -> Result<(), DiskError> {
        match source.files().get(number) {
            Some(place) => survey::take_file(system, *place, number, choices, intake),
            None => Ok(()),
        }
    }

    fn load(
        place: &IndexPlace<'_>,
        choices: &Choices,
    ) -> Result<(Vec<KeyGroup>, Counts), ImportError> {
        let entries = index::read(place)?;
        let mut counts = Counts::default();
        let groups = groups::reduce(entries, place.store_of, choices.expired_before, &mut counts);
        Ok((groups, counts))
    }

    fn reader(
        system: &System,
        files: Vec<RecordFile>,
        _: &Choices,
        leave_out_tombstones: bool,
    ) -> ObjectReader {
        ObjectReader {
            files: NumberedFiles::new(system.disk.clone(), files),
            leave_out_tombstones,
        }
    }
}
