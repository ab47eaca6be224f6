//! The import of leveled stores: its options, and what the records of journals are to an import.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kvorum_disk::DiskError;
use kvorum_import::{
    Batch, Counts, FoundSource, ImportError, ImportTarget, IndexPlace, Intake, OpenFiles, Progress,
    RecordFile, RecordFormat, RecordOptions, Summary, System, import_records,
};

use crate::choices::Choices;
use crate::groups::{self, KeyGroup};
use crate::index::{self, ENTRY_BYTES};
use crate::reading::ObjectReader;
use crate::source::Source;
use crate::survey;

/// Bytes of a journal that a record has about.
const BYTES_A_RECORD: u64 = 256;

/// What to import, and how.
#[derive(Clone, Debug)]
pub struct ImportOptions {
    /// Stores, or directories that have them.
    pub directories: Vec<PathBuf>,
    /// Where the import's state is kept.
    pub state_directory: PathBuf,
    /// The server, and the name by which a later run knows it as the same.
    pub target: Option<ImportTarget>,
    /// Import though a process has files of a store open.
    pub ignore_locks: bool,
    /// Do not import tombstones. Sound where all replicas of all objects are imported at once.
    pub leave_out_tombstones: bool,
    /// Connections, each with one put at a time.
    pub connections: usize,
    /// How long the server may be away or refuse.
    pub patience: Duration,
    /// Forget the state of an earlier import.
    pub restart: bool,
}

/// Imports, or goes on with an import that was interrupted.
///
/// # Errors
/// [`ImportError`]; but for damage to its own files, the same call goes on from where it stopped.
pub async fn import(
    system: System,
    options: ImportOptions,
    progress: Arc<Progress>,
) -> Result<Summary, ImportError> {
    let of_every_import = RecordOptions {
        state_directory: options.state_directory,
        target: options.target,
        leave_out_tombstones: options.leave_out_tombstones,
        connections: options.connections,
        patience: options.patience,
        restart: options.restart,
    };
    let leveled = Leveled {
        directories: options.directories,
        ignore_locks: options.ignore_locks,
    };
    import_records(system, leveled, of_every_import, progress).await
}

/// Checks that there is something to import, and writes nothing. A caller that has to start a server
/// checks first.
///
/// # Errors
/// [`ImportError`], as [`import()`] would fail at its beginning.
pub fn check_source(system: &System, options: &ImportOptions) -> Result<(), ImportError> {
    Source::find(system, &options.directories, options.ignore_locks)?;
    Ok(())
}

/// leveled, for the import.
struct Leveled {
    directories: Vec<PathBuf>,
    ignore_locks: bool,
}

impl RecordFormat for Leveled {
    type Source = Source;
    type Choices = Choices;
    type Group = KeyGroup;
    type Reader = ObjectReader;

    const ENTRY_BYTES: u64 = ENTRY_BYTES as u64;

    fn find(&self, system: &System) -> Result<FoundSource<Source>, ImportError> {
        Source::find(system, &self.directories, self.ignore_locks)
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
        let paths = files.into_iter().map(|file| file.path).collect();
        let began_secs = choices.began_secs;
        ObjectReader::new(
            OpenFiles::new(system.disk.clone()),
            paths,
            began_secs,
            leave_out_tombstones,
        )
    }
}
