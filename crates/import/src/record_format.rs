//! The seam between an import by an index of records and the format of a store whose records lie in the
//! order of writing.

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

/// A format, with the options that are its own.
pub trait RecordFormat: Send + Sync + 'static {
    /// The files as they were found, kept to know whether they are what they were.
    type Source: Clone + PartialEq + Serialize + DeserializeOwned + Send + 'static;
    /// Options that one import cannot change on its way.
    type Choices: RecordChoices;
    /// A key and the places of its copies.
    type Group: Send + Sync + 'static;
    /// Reads copies.
    type Reader: GroupReader<Group = Self::Group>;

    /// The length of an entry of the index, in bytes.
    const ENTRY_BYTES: u64;

    /// Finds what there is to import.
    ///
    /// # Errors
    /// [`ImportError`], for a source that is none or that cannot be imported.
    fn find(&self, system: &System) -> Result<FoundSource<Self::Source>, ImportError>;

    /// The choices of an import that begins now, in seconds since the Unix epoch.
    fn choices(&self, now_secs: u64) -> Self::Choices;

    /// All files in order, those of one store together: the number of a file is its place here.
    fn files(source: &Self::Source) -> Vec<RecordFile>;

    /// A guess at the number of records, good enough to spread the index by.
    fn records_about(source: &Self::Source) -> u64;

    /// Notes what is to be known of the source as a whole before its files are read.
    fn note_source(_source: &Self::Source, _batch: &mut Batch) {}

    /// Finds the records of the file of this number. Blocks.
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

/// Options that one import cannot change on its way.
pub trait RecordChoices: Clone + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// True if an import with the others goes on with what this one began.
    fn is_same(&self, other: &Self) -> bool;
}

/// Reads copies of keys.
pub trait GroupReader: Send + 'static {
    /// A key and the places of its copies.
    type Group;

    /// Reads what there is of a key, into a batch.
    fn read_group(&mut self, group: &Self::Group, batch: &mut Batch);

    /// Reads groups from the first on, until a batch is full. Blocks.
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

/// A source, and what was left out on the way to it.
#[derive(Debug)]
pub struct FoundSource<S> {
    /// The source.
    pub source: S,
    /// Files that Riak had marked for deletion.
    pub marked_for_deletion: Vec<PathBuf>,
    /// Directories that hold nothing that Riak would serve.
    pub passed_over: Vec<PassedOver>,
}

/// A file with records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordFile {
    /// The number of its store among the source's.
    pub store: usize,
    /// The file.
    pub path: PathBuf,
    /// Its length, in bytes.
    pub len: u64,
}

/// One file of the index.
pub struct IndexPlace<'a> {
    /// Where it is kept.
    pub disk: &'a dyn Disk,
    /// The index's directory.
    pub directory: &'a Path,
    /// The number of the file.
    pub number: usize,
    /// Its length, in bytes.
    pub len: u64,
    /// The store of each file of the source, by the file's number.
    pub store_of: &'a [usize],
}
