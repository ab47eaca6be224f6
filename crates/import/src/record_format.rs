//! The interface between an import through an index of records and the format of a store with
//! records in the order of writing.

use std::path::{Path, PathBuf};

use kvorum_disk::{Disk, DiskError};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::counts::Counts;
use crate::error::ImportError;
use crate::intake::Intake;
use crate::item::Batch;
use crate::passed_over::PassedOver;
use crate::system::System;

/// A format, with its own options.
pub trait RecordFormat: Send + Sync + 'static {
    /// Files at the beginning of the import, kept to detect changes.
    type Source: Clone + PartialEq + Serialize + DeserializeOwned + Send + 'static;
    /// Options fixed for the duration of one import.
    type Choices: RecordChoices;
    /// A key and the places of its copies.
    type Group: Send + Sync + 'static;
    /// Reads copies.
    type Reader: GroupReader<Group = Self::Group>;

    /// The length of an entry of the index, in bytes.
    const ENTRY_BYTES: u64;

    /// Finds the source.
    ///
    /// # Errors
    /// [`ImportError`], for a source without stores or that cannot be imported.
    fn find(&self, system: &System) -> Result<FoundSource<Self::Source>, ImportError>;

    /// The choices of an import that begins at `now_secs`, in seconds since the Unix epoch.
    fn choices(&self, now_secs: u64) -> Self::Choices;

    /// All files in order, grouped by store: a file's number is its position here.
    fn files(source: &Self::Source) -> Vec<RecordFile>;

    /// The estimated number of records, which determines the size of the index.
    fn records_about(source: &Self::Source) -> u64;

    /// Notes findings about the source as a whole before its files are read.
    fn note_source(_source: &Self::Source, _batch: &mut Batch) {}

    /// Takes the records of file `number`. Blocks.
    ///
    /// # Errors
    /// The device's failure to read the source.
    fn survey(
        system: &System,
        source: &Self::Source,
        choices: &Self::Choices,
        number: usize,
        intake: &mut Intake<'_>,
    ) -> Result<(), DiskError>;

    /// Reads one file of the index and reduces its entries to groups. Blocks.
    ///
    /// # Errors
    /// A disk that fails, or an index that is damaged.
    fn load(
        place: &IndexPlace<'_>,
        choices: &Self::Choices,
    ) -> Result<(Vec<Self::Group>, Counts), ImportError>;

    /// A reader of copies.
    fn reader(
        system: &System,
        files: Vec<RecordFile>,
        choices: &Self::Choices,
        leave_out_tombstones: bool,
    ) -> Self::Reader;
}

/// Options fixed for the duration of one import.
pub trait RecordChoices: Clone + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// True if an import with `other` can resume one with these options.
    fn is_same(&self, other: &Self) -> bool;
}

/// Reads copies of keys.
pub trait GroupReader: Send + 'static {
    /// A key and the places of its copies.
    type Group;

    /// Reads the copies of a key into a batch.
    fn read_group(&mut self, group: &Self::Group, batch: &mut Batch);

    /// Reads groups in order until a batch is full. Blocks.
    fn read_batch(&mut self, groups: &[Self::Group]) -> Batch {
        let mut batch = Batch::default();
        for group in groups {
            self.read_group(group, &mut batch);
            batch.keys += 1;
            if batch.is_full() {
                break;
            }
        }
        batch
    }
}

/// A source, and the skipped files and directories.
#[derive(Debug)]
pub struct FoundSource<S> {
    /// The source.
    pub source: S,
    /// Files that Riak had marked for deletion.
    pub marked_for_deletion: Vec<PathBuf>,
    /// Directories without anything that Riak would serve.
    pub passed_over: Vec<PassedOver>,
}

/// A file with records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordFile {
    /// The number of its store in the source.
    pub store: usize,
    /// The file.
    pub path: PathBuf,
    /// Its length, in bytes.
    pub len: u64,
}

/// One file of the index.
pub struct IndexPlace<'a> {
    /// Disk of the index.
    pub disk: &'a dyn Disk,
    /// The index's directory.
    pub directory: &'a Path,
    /// The number of the file.
    pub number: usize,
    /// Its length, in bytes.
    pub len: u64,
    /// Store of each file of the source, by the file's number.
    pub store_of: &'a [usize],
}
