//! The source of an import: stores, and the files of their journals.

use std::path::{Path, PathBuf};

use kvorum_disk::{DirectoryEntry, Disk, EntryKind};
use kvorum_import::{
    Batch, FoundSource, ImportError, Judgement, PassedOver, Place, RecordFile, SharedOptions,
    StoreKind, System, find_stores, is_partition_name,
};
use serde::{Deserialize, Serialize};

const JOURNAL: &str = "journal";
const LEDGER: &str = "ledger";
const JOURNAL_FILES: &str = "journal_files";
/// Directory of compaction's output, below that of the journal's files.
const COMPACTED: &str = "post_compact";
/// Directory of files that compaction has replaced, kept for a while.
const WASTE: &str = "waste";
const COMPLETED_SUFFIX: &str = ".cdb";
const ACTIVE_SUFFIX: &str = ".pnd";
/// Riak's mark in a store whose compaction drops index changes, and in the end deletions.
const RECALC_MARK: &str = "recalc.lock";

/// Stores at the start of an import, to detect changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Source {
    pub(crate) stores: Vec<Store>,
}

/// One store: a partition of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Store {
    pub(crate) path: PathBuf,
    /// Files by name; their order has no meaning, since records have numbers.
    files: Vec<JournalFile>,
    /// True if compaction drops deletions.
    forgets_deletions: bool,
}

/// A file of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JournalFile {
    pub(crate) path: PathBuf,
    pub(crate) len: u64,
    /// False for the active file, which may be incomplete.
    pub(crate) is_completed: bool,
}

impl Source {
    /// Finds the stores in and below the named directories.
    pub(crate) fn find(
        system: &System,
        options: &SharedOptions,
    ) -> Result<FoundSource<Self>, ImportError> {
        let disk = &*system.disk;
        let (mut stores, mut passed_over) = (Vec::new(), Vec::new());
        for root in &options.directories {
            let mut found = find_stores(disk, root, &Leveled { disk })?;
            passed_over.append(&mut found.passed_over);
            for store in found.stores {
                stores.push(open_store(disk, &store.path, &mut passed_over)?);
            }
        }
        stores.sort_by(|a: &Store, b| a.path.cmp(&b.path));
        stores.dedup_by(|a, b| a.path == b.path);
        let source = Self { stores };
        let paths: Vec<PathBuf> = source.files().map(|(_, file)| file.path.clone()).collect();
        if !options.ignore_locks
            && let Some((lock, process)) = (system.open_file)(&paths)
        {
            return Err(ImportError::InUse { lock, process });
        }
        Ok(FoundSource {
            source,
            marked_for_deletion: Vec::new(),
            passed_over,
        })
    }

    /// All files, each with the number of its store.
    pub(crate) fn files(&self) -> impl Iterator<Item = (usize, &JournalFile)> {
        let stores = self.stores.iter().enumerate();
        stores.flat_map(|(number, store)| store.files.iter().map(move |file| (number, file)))
    }

    /// Names the stores in which deletions may be missing.
    pub(crate) fn note_forgotten(&self, batch: &mut Batch) {
        for store in self.stores.iter().filter(|store| store.forgets_deletions) {
            let place = Place {
                file: store.path.join(RECALC_MARK),
                offset: 0,
                len: None,
            };
            let reason = "the journal was compacted with leveled_reload_recalc, which drops \
             deletions in the end: objects that were deleted long ago may be imported";
            batch.note(place, None, reason.to_owned());
        }
    }
}

impl JournalFile {
    pub(crate) fn record_file(&self, store: usize) -> RecordFile {
        RecordFile {
            store,
            path: self.path.clone(),
            len: self.len,
        }
    }
}

/// leveled, for the search.
struct Leveled<'a> {
    disk: &'a dyn Disk,
}

impl StoreKind for Leveled<'_> {
    fn what(&self) -> &'static str {
        "leveled stores"
    }

    fn usual_root(&self) -> &'static str {
        "leveled"
    }

    fn judge(&self, path: &Path, entries: &[DirectoryEntry]) -> Result<Judgement, ImportError> {
        let name = path.file_name().and_then(|name| name.to_str());
        let is_partition = name.is_some_and(is_partition_name);
        let has_ledger = entries.iter().any(|entry| entry.name == LEDGER);
        Ok(if !files_of(self.disk, path)?.is_empty() {
            Judgement::Store
        } else if is_directory(self.disk, &journal_files(path))? || has_ledger && is_partition {
            Judgement::Bare("a leveled store without a file of its journal")
        } else {
            Judgement::Other
        })
    }
}

fn open_store(
    disk: &dyn Disk,
    path: &Path,
    passed_over: &mut Vec<PassedOver>,
) -> Result<Store, ImportError> {
    let waste_path = journal_files(path).join(WASTE);
    let mut waste = Vec::new();
    collect(disk, &waste_path, &mut waste)?;
    if !waste.is_empty() {
        passed_over.push(PassedOver {
            path: waste_path,
            reason: format!("{} files that compaction has replaced", waste.len()),
        });
    }
    Ok(Store {
        path: path.to_owned(),
        files: files_of(disk, path)?,
        forgets_deletions: disk.info(&path.join(RECALC_MARK))?.is_some(),
    })
}

fn journal_files(store: &Path) -> PathBuf {
    store.join(JOURNAL).join(JOURNAL_FILES)
}

/// The files of a store's journal, including compaction's output; none for a directory without a
/// store.
fn files_of(disk: &dyn Disk, store: &Path) -> Result<Vec<JournalFile>, ImportError> {
    let directory = journal_files(store);
    let mut files = Vec::new();
    collect(disk, &directory, &mut files)?;
    collect(disk, &directory.join(COMPACTED), &mut files)?;
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// Adds the journal's files of one directory, if the directory exists.
fn collect(
    disk: &dyn Disk,
    directory: &Path,
    files: &mut Vec<JournalFile>,
) -> Result<(), ImportError> {
    if !is_directory(disk, directory)? {
        return Ok(());
    }
    for entry in disk.list(directory)? {
        let is_completed = entry.name.ends_with(COMPLETED_SUFFIX);
        if !is_completed && !entry.name.ends_with(ACTIVE_SUFFIX) {
            continue;
        }
        let path = directory.join(&entry.name);
        let Some(info) = disk.info(&path)? else {
            continue;
        };
        files.push(JournalFile {
            path,
            len: info.len,
            is_completed,
        });
    }
    Ok(())
}

fn is_directory(disk: &dyn Disk, path: &Path) -> Result<bool, ImportError> {
    let info = disk.info(path)?;
    Ok(info.is_some_and(|info| info.kind == EntryKind::Directory))
}
