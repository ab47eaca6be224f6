//! What there is to import: partitions, and their files in the order in which they were written.

use std::path::{Path, PathBuf};

use kvorum_disk::{Disk, EntryKind};
use kvorum_import::{ImportError, System};
use serde::{Deserialize, Serialize};

const DATA_SUFFIX: &str = ".bitcask.data";
const HINT_SUFFIX: &str = ".bitcask.hint";
const LOCKS: [&str; 2] = ["bitcask.write.lock", "bitcask.merge.lock"];
const LOCK_BYTES_MAX: u64 = 8192;
/// A node's data directory, bitcask within it, the partitions within that.
const DEPTH_MAX: usize = 3;
/// A file to be deleted is executable for others, or in old releases runs as its owner.
const DELETION_MODE_BITS: u32 = 0o4001;

/// The directories of an import.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Source {
    /// One for each directory with data files.
    pub(crate) stores: Vec<Store>,
}

/// One bitcask: a partition of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Store {
    pub(crate) path: PathBuf,
    /// By ascending id, which is the order of writing.
    pub(crate) files: Vec<SourceFile>,
}

/// A data file, and its hint file if there is one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SourceFile {
    pub(crate) id: u64,
    pub(crate) data_len: u64,
    pub(crate) hint_len: Option<u64>,
}

impl Source {
    /// Finds the stores in and below `roots`. Returns also the data files that Riak has marked for
    /// deletion, which are left out.
    pub(crate) fn find(
        system: &System,
        roots: &[PathBuf],
        ignore_locks: bool,
    ) -> Result<(Self, Vec<PathBuf>), ImportError> {
        let mut stores = Vec::new();
        let mut marked = Vec::new();
        for root in roots {
            let before = stores.len();
            collect(system, root, DEPTH_MAX, &mut stores, &mut marked)?;
            if stores.len() == before {
                return Err(ImportError::NothingFound {
                    path: root.clone(),
                    what: "bitcask data files",
                });
            }
        }
        stores.sort_by(|a: &Store, b| a.path.cmp(&b.path));
        stores.dedup_by(|a, b| a.path == b.path);
        if !ignore_locks {
            for store in &stores {
                check_locks(system, &store.path)?;
            }
        }
        Ok((Self { stores }, marked))
    }

    /// All files in order, each with its store: the number of a file is its place here.
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

    /// What a survey has to read at most, in bytes.
    pub(crate) fn data_bytes(&self) -> u64 {
        let files = self.stores.iter().flat_map(|store| &store.files);
        files.map(|file| file.data_len).sum()
    }
}

/// A data file and where it belongs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FilePlace<'a> {
    pub(crate) store_number: usize,
    pub(crate) store: &'a Store,
    pub(crate) file: &'a SourceFile,
}

impl FilePlace<'_> {
    pub(crate) fn data_path(&self) -> PathBuf {
        let name = format!("{}{DATA_SUFFIX}", self.file.id);
        self.store.path.join(name)
    }

    pub(crate) fn hint_path(&self) -> PathBuf {
        let name = format!("{}{HINT_SUFFIX}", self.file.id);
        self.store.path.join(name)
    }
}

fn collect(
    system: &System,
    directory: &Path,
    depth: usize,
    stores: &mut Vec<Store>,
    marked: &mut Vec<PathBuf>,
) -> Result<(), ImportError> {
    let entries = system.disk.list(directory)?;
    let mut files = Vec::new();
    let mut marked_here = Vec::new();
    for entry in &entries {
        let path = directory.join(&entry.name);
        if entry.kind == EntryKind::Directory {
            if depth > 0 {
                collect(system, &path, depth - 1, stores, marked)?;
            }
        } else if let Some(id) = id_of(&entry.name) {
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
    }
    if files.is_empty() && !marked_here.is_empty() {
        let path = directory.to_owned();
        return Err(ImportError::AllMarkedForDeletion { path });
    }
    marked.append(&mut marked_here);
    if !files.is_empty() {
        files.sort_by_key(|file| file.id);
        let path = directory.to_owned();
        stores.push(Store { path, files });
    }
    Ok(())
}

/// The number in a data file's name, as bitcask writes it.
fn id_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(DATA_SUFFIX)?;
    let id: u64 = digits.parse().ok()?;
    (id.to_string() == digits).then_some(id)
}

fn len_of(disk: &dyn Disk, path: &Path) -> Result<Option<u64>, ImportError> {
    Ok(disk.info(path)?.map(|info| info.len))
}

/// A lock file holds the number of the process that took it, a space, and the file it writes.
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
