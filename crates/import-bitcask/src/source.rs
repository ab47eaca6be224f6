//! The source of an import: partitions, and their files in the order of writing.

use std::path::{Path, PathBuf};

use kvorum_disk::{DirectoryEntry, Disk, EntryKind};
use kvorum_import::{
    FoundSource, ImportError, Judgement, PassedOver, RecordFile, SharedOptions, StoreKind, System,
    find_stores, is_partition_name,
};
use serde::{Deserialize, Serialize};

const DATA_SUFFIX: &str = ".bitcask.data";
const HINT_SUFFIX: &str = ".bitcask.hint";
const LOCKS: [&str; 2] = ["bitcask.write.lock", "bitcask.merge.lock"];
const LOCK_BYTES_MAX: u64 = 8192;
/// The infix in the names of data and hint files.
const FILE_INFIX: &str = ".bitcask.";
/// The file with the version of the backend, which Riak writes into every partition.
const VERSION_FILE: &str = "version.txt";
const ALL_MARKED: &str = "all its data files are executable, which is Riak's mark for files to be \
                          deleted";
/// Files marked for deletion are executable for others, or, by old releases, setuid.
const DELETION_MODE_BITS: u32 = 0o4001;

/// The directories of an import.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Source {
    /// One store for each directory with data files.
    pub(crate) stores: Vec<Store>,
}

/// One bitcask: a partition of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Store {
    pub(crate) path: PathBuf,
    /// Files by ascending id, the order of writing.
    pub(crate) files: Vec<SourceFile>,
}

/// A data file, and its hint file if it has one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SourceFile {
    pub(crate) id: u64,
    pub(crate) data_len: u64,
    pub(crate) hint_len: Option<u64>,
}

impl Source {
    /// Finds the stores in and below the named directories.
    pub(crate) fn find(
        system: &System,
        options: &SharedOptions,
    ) -> Result<FoundSource<Self>, ImportError> {
        let mut stores = Vec::new();
        let mut all_marked = Vec::new();
        let (mut marked_for_deletion, mut passed_over) = (Vec::new(), Vec::new());
        for root in &options.directories {
            let mut found = find_stores(&*system.disk, root, &Bitcask)?;
            passed_over.append(&mut found.passed_over);
            for store in found.stores {
                match open_store(system, &store.path, &mut marked_for_deletion)? {
                    Some(store) => stores.push(store),
                    None => all_marked.push(store.path),
                }
            }
        }
        if let Some(path) = all_marked.first()
            && stores.is_empty()
        {
            let path = path.clone();
            return Err(ImportError::AllMarkedForDeletion { path });
        }
        let passed = all_marked.into_iter().map(|path| PassedOver {
            path,
            reason: ALL_MARKED.to_owned(),
        });
        passed_over.extend(passed);
        stores.sort_by(|a: &Store, b| a.path.cmp(&b.path));
        stores.dedup_by(|a, b| a.path == b.path);
        if !options.ignore_locks {
            for store in &stores {
                check_locks(system, &store.path)?;
            }
        }
        Ok(FoundSource {
            source: Self { stores },
            marked_for_deletion,
            passed_over,
        })
    }

    /// All files in order, each with its store; a file's number is its position here.
    pub(crate) fn files(&self) -> Vec<FilePlace<'_>> {
        let stores = self.stores.iter().enumerate();
        let files = stores.flat_map(|(store_number, store)| {
            let files = store.files.iter();
            files.map(move |file| FilePlace {
                store_number,
                store,
                file,
            })
        });
        files.collect()
    }
}

/// A data file and its store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FilePlace<'a> {
    pub(crate) store_number: usize,
    pub(crate) store: &'a Store,
    pub(crate) file: &'a SourceFile,
}

impl FilePlace<'_> {
    pub(crate) fn record_file(&self) -> RecordFile {
        RecordFile {
            store: self.store_number,
            path: self.data_path(),
            len: self.file.data_len,
        }
    }

    pub(crate) fn data_path(&self) -> PathBuf {
        let name = format!("{}{DATA_SUFFIX}", self.file.id);
        self.store.path.join(name)
    }

    pub(crate) fn hint_path(&self) -> PathBuf {
        let name = format!("{}{HINT_SUFFIX}", self.file.id);
        self.store.path.join(name)
    }
}

/// Bitcask, for the search.
struct Bitcask;

impl StoreKind for Bitcask {
    fn what(&self) -> &'static str {
        "bitcask data files"
    }

    fn usual_root(&self) -> &'static str {
        "bitcask"
    }

    fn judge(&self, path: &Path, entries: &[DirectoryEntry]) -> Result<Judgement, ImportError> {
        let name = path.file_name().and_then(|name| name.to_str());
        let is_partition = name.is_some_and(is_partition_name);
        let mut files = entries
            .iter()
            .filter(|entry| entry.kind == EntryKind::File)
            .map(|entry| &*entry.name);
        Ok(if files.clone().any(|name| id_of(name).is_some()) {
            Judgement::Store
        } else if files.any(|name| {
            let is_version = name == VERSION_FILE && is_partition;
            is_version || name.contains(FILE_INFIX) || LOCKS.contains(&name)
        }) {
            Judgement::Bare("a bitcask without data files")
        } else {
            Judgement::Other
        })
    }
}

/// `None` for a store whose data files are all marked for deletion.
fn open_store(
    system: &System,
    directory: &Path,
    marked: &mut Vec<PathBuf>,
) -> Result<Option<Store>, ImportError> {
    let mut files = Vec::new();
    let mut marked_here = Vec::new();
    for entry in system.disk.list(directory)? {
        let Some(id) = id_of(&entry.name) else {
            continue;
        };
        let path = directory.join(&entry.name);
        let mode = (system.file_mode)(&path).unwrap_or(0);
        if mode & DELETION_MODE_BITS != 0 {
            marked_here.push(path);
            continue;
        }
        let hint = directory.join(format!("{id}{HINT_SUFFIX}"));
        files.push(SourceFile {
            id,
            data_len: len_of(&*system.disk, &path)?.unwrap_or(0),
            hint_len: len_of(&*system.disk, &hint)?,
        });
    }
    if files.is_empty() {
        return Ok(None);
    }
    marked.append(&mut marked_here);
    files.sort_by_key(|file| file.id);
    let path = directory.to_owned();
    Ok(Some(Store { path, files }))
}

/// The number in a data file's name, in bitcask's form.
fn id_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(DATA_SUFFIX)?;
    let id: u64 = digits.parse().ok()?;
    (id.to_string() == digits).then_some(id)
}

fn len_of(disk: &dyn Disk, path: &Path) -> Result<Option<u64>, ImportError> {
    Ok(disk.info(path)?.map(|info| info.len))
}

/// A lock file has the number of the process that took it, a space, and the file that the process
/// writes.
fn check_locks(system: &System, store: &Path) -> Result<(), ImportError> {
    for name in LOCKS {
        let lock = store.join(name);
        if system.disk.info(&lock)?.is_none() {
            continue;
        }
        let text = kvorum_disk::read_file(&*system.disk, &lock, LOCK_BYTES_MAX)?;
        let text = String::from_utf8_lossy(&text);
        let process = text
            .split_whitespace()
            .next()
            .and_then(|pid| pid.parse().ok());
        if let Some(process) = process.filter(|process| (system.is_running)(*process)) {
            return Err(ImportError::InUse { lock, process });
        }
    }
    Ok(())
}
