//! The source of an import: stores, and their tables and logs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kvorum_disk::{DirectoryEntry, Disk, EntryKind, OpenMode};
use kvorum_import::{
    Batch, ImportError, Judgement, PassedOver, SharedOptions, StoreKind, System, find_stores,
};
use serde::{Deserialize, Serialize};

use crate::log_file::{Logged, read_log};
use crate::losses::{KeyRange, lost, noted};
use crate::manifest::Manifest;
use crate::merge::{SortedFile, SortedForm};

const LEVEL_PREFIX: &str = "sst_";
const LOCK: &str = "LOCK";
/// LevelDB's log of its own work, which has no writes.
const INFO_LOG: &str = "LOG";
const CURRENT: &str = "CURRENT";
const CURRENT_BYTES_MAX: u64 = 4096;
const MANIFEST_PREFIX: &str = "MANIFEST-";

/// Stores at the start of an import, to detect changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Source {
    pub(crate) stores: Vec<Store>,
}

/// One store: a partition of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Store {
    pub(crate) path: PathBuf,
    /// The directory of its higher levels, if they are elsewhere.
    pub(crate) slow: Option<PathBuf>,
    /// The current manifest, if there is one.
    manifest: Option<NamedFile>,
    /// Every existing table, needed or not.
    tables: Vec<TableFile>,
    /// Every existing log.
    logs: Vec<NumberedFile>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct NamedFile {
    name: String,
    len: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct NumberedFile {
    number: u64,
    len: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct TableFile {
    number: u64,
    /// The level of its directory, if the directory belongs to a level.
    level: Option<u32>,
    path: PathBuf,
    len: u64,
}

/// A store's relevant files.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoreFiles {
    pub(crate) tables: Vec<SortedFile>,
    /// Logs and their lengths.
    pub(crate) logs: Vec<(PathBuf, u64)>,
}

impl Source {
    /// Finds the stores in and below `roots`, and the skipped directories; `slow_tiers` are empty
    /// or one for each root.
    pub(crate) fn find(
        system: &System,
        options: &SharedOptions,
        slow_tiers: &[PathBuf],
        ignore_manifests: bool,
    ) -> Result<(Self, Vec<PassedOver>), ImportError> {
        let roots = &options.directories;
        if !slow_tiers.is_empty() && slow_tiers.len() != roots.len() {
            return Err(ImportError::TierCount {
                tiers: slow_tiers.len(),
                directories: roots.len(),
            });
        }
        let disk = &*system.disk;
        let mut stores = Vec::new();
        let mut passed_over = Vec::new();
        for (number, root) in roots.iter().enumerate() {
            let mut found = find_stores(disk, root, &LevelDb { disk })?;
            passed_over.append(&mut found.passed_over);
            for store in found.stores {
                let slow = slow_tiers.get(number);
                let slow = slow.map(|slow| slow.join(&store.below_root));
                let opened = open_store(disk, &store.path, slow.as_deref(), ignore_manifests)?;
                stores.push(opened);
            }
        }
        stores.sort_by(|a: &Store, b| a.path.cmp(&b.path));
        stores.dedup_by(|a, b| a.path == b.path);
        if !options.ignore_locks {
            for store in &stores {
                let lock = store.path.join(LOCK);
                if let Some(process) = (system.lock_holder)(&lock) {
                    return Err(ImportError::InUse { lock, process });
                }
            }
        }
        Ok((Self { stores }, passed_over))
    }

    /// The relevant files of each store, according to its manifest; notes the defects of a store in
    /// `batch`.
    pub(crate) fn files(
        &self,
        disk: &dyn Disk,
        ignore_manifests: bool,
        batch: &mut Batch,
    ) -> Vec<StoreFiles> {
        let stores = self.stores.iter().enumerate();
        let files = stores.map(|(number, store)| {
            let manifest = match ignore_manifests {
                true => None,
                false => store.read_manifest(disk, batch),
            };
            store.files(number, manifest.as_ref(), batch)
        });
        files.collect()
    }
}

impl Store {
    fn read_manifest(&self, disk: &dyn Disk, batch: &mut Batch) -> Option<Manifest> {
        let named = self.manifest.as_ref()?;
        let path = self.path.join(&named.name);
        let mut manifest = Manifest::default();
        let (mut problem, mut edits) = (None, 0);
        let read = disk.open(&path, OpenMode::Read).and_then(|file| {
            read_log(&file, named.len, &mut |logged| match logged {
                Logged::Record { bytes, offset } => {
                    edits += 1;
                    if problem.is_none()
                        && let Err(error) = manifest.apply(bytes)
                    {
                        problem = Some((offset, error.to_string()));
                    }
                }
                Logged::Damage { offset, .. } => {
                    problem.get_or_insert((offset, "damaged".to_owned()));
                }
                Logged::TornTail {
                    offset,
                    is_cut: false,
                    ..
                } => {
                    problem.get_or_insert((offset, "damaged".to_owned()));
                }
                Logged::TornTail { offset, .. } => {
                    let reason = "ends within an edit, as after a crash".to_owned();
                    noted(batch, &path, offset, reason);
                }
            })
        });
        if let Err(error) = read {
            problem.get_or_insert((0, error.to_string()));
        }
        if edits == 0 {
            problem.get_or_insert((0, "it says nothing".to_owned()));
        }
        let Some((offset, reason)) = problem else {
            return Some(manifest);
        };
        let reason =
            format!("the manifest cannot be used, all tables and logs are taken: {reason}");
        let keys = KeyRange {
            behind: None,
            to: None,
        };
        lost(batch, &path, offset, None, &keys, &reason);
        None
    }

    fn files(&self, number: usize, manifest: Option<&Manifest>, batch: &mut Batch) -> StoreFiles {
        let sorted = |table: &TableFile, bounds| SortedFile {
            store: number,
            path: table.path.clone(),
            len: table.len,
            form: SortedForm::Table { bounds },
        };
        let log = |log: &NumberedFile| {
            let name = format!("{:06}.log", log.number);
            (self.path.join(name), log.len)
        };
        let Some(manifest) = manifest else {
            return StoreFiles {
                tables: self
                    .tables
                    .iter()
                    .map(|table| sorted(table, None))
                    .collect(),
                logs: self.logs.iter().map(log).collect(),
            };
        };
        let mut by_number: BTreeMap<u64, Vec<&TableFile>> = BTreeMap::new();
        for table in &self.tables {
            by_number.entry(table.number).or_default().push(table);
        }
        let mut tables = Vec::new();
        for ((level, table_number), listed) in &manifest.tables {
            let there = by_number.get(table_number).map_or(&[][..], |files| files);
            let exact = there.iter().find(|table| table.level == Some(*level));
            let bounds = (listed.smallest.clone(), listed.largest.clone());
            match exact.or(there.first()) {
                Some(table) => tables.push(sorted(table, Some(bounds))),
                None => {
                    let name = format!("{LEVEL_PREFIX}{level}/{table_number:06}.sst");
                    let path = self.path.join(name);
                    let keys = KeyRange {
                        behind: Some(&listed.smallest),
                        to: Some(&listed.largest),
                    };
                    let reason = "the table is missing; if Riak kept it in a slow tier, name that";
                    lost(batch, &path, 0, Some(listed.len), &keys, reason);
                }
            }
        }
        let logs = self
            .logs
            .iter()
            .filter(|log| manifest.needs_log(log.number));
        StoreFiles {
            tables,
            logs: logs.map(log).collect(),
        }
    }

    /// Bytes of tables and logs.
    pub(crate) fn bytes(&self) -> u64 {
        let tables = self.tables.iter().map(|table| table.len);
        tables.chain(self.logs.iter().map(|log| log.len)).sum()
    }
}

/// LevelDB, for the search.
struct LevelDb<'a> {
    disk: &'a dyn Disk,
}

impl StoreKind for LevelDb<'_> {
    fn what(&self) -> &'static str {
        "LevelDB stores"
    }

    fn usual_root(&self) -> &'static str {
        "leveldb"
    }

    fn judge(&self, path: &Path, entries: &[DirectoryEntry]) -> Result<Judgement, ImportError> {
        let has = |name: &str| entries.iter().any(|entry| entry.name == name);
        let is_store = entries.iter().any(|entry| {
            let name = &*entry.name;
            match entry.kind {
                EntryKind::Directory => level_of(name).is_some(),
                EntryKind::File => {
                    let is_manifest = name == CURRENT || name.starts_with(MANIFEST_PREFIX);
                    is_manifest || table_number(name).is_some()
                }
            }
        });
        let was_begun = has(LOCK) && has(INFO_LOG);
        Ok(if !(is_store || was_begun) {
            Judgement::Other
        } else if self.has_data(path, entries)? {
            Judgement::Store
        } else {
            Judgement::Bare("a LevelDB that was never finished, without any data")
        })
    }
}

impl LevelDb<'_> {
    /// True if there is data to read: a manifest, a table or a log that is not empty.
    fn has_data(&self, path: &Path, entries: &[DirectoryEntry]) -> Result<bool, ImportError> {
        for entry in entries {
            let inner = path.join(&entry.name);
            if entry.kind == EntryKind::Directory {
                let levels = level_of(&entry.name).is_some();
                if levels && self.has_data(&inner, &self.disk.list(&inner)?)? {
                    return Ok(true);
                }
                continue;
            }
            let name = &*entry.name;
            let is_data = name.starts_with(MANIFEST_PREFIX)
                || table_number(name).is_some()
                || numbered(name, ".log").is_some();
            if is_data && len_of(self.disk, &inner)? > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn open_store(
    disk: &dyn Disk,
    path: &Path,
    slow: Option<&Path>,
    ignore_manifests: bool,
) -> Result<Store, ImportError> {
    let (mut tables, mut logs, mut manifests) = (Vec::new(), Vec::new(), Vec::new());
    for entry in disk.list(path)? {
        let file = path.join(&entry.name);
        if let Some(number) = numbered(&entry.name, ".log") {
            let len = len_of(disk, &file)?;
            logs.push(NumberedFile { number, len });
        } else if let Some(digits) = entry.name.strip_prefix(MANIFEST_PREFIX) {
            manifests.push((digits.parse().unwrap_or(0u64), entry.name.clone()));
        }
    }
    let slow = match slow {
        Some(slow) if disk.info(slow)?.is_some() => Some(slow.to_owned()),
        _ => None,
    };
    for tier in [Some(path), slow.as_deref()].into_iter().flatten() {
        collect_tables(disk, tier, &mut tables)?;
    }
    logs.sort_by_key(|log| log.number);
    let named = current_manifest(disk, path)?.filter(|name| {
        let mut names = manifests.iter();
        names.any(|(_, known)| known == name)
    });
    // Without CURRENT, the newest manifest is used.
    let name = named.or_else(|| manifests.into_iter().max().map(|(_, name)| name));
    let manifest = match name {
        Some(name) => {
            let len = len_of(disk, &path.join(&name))?;
            Some(NamedFile { name, len })
        }
        None if ignore_manifests => None,
        None => {
            let path = path.to_owned();
            return Err(ImportError::NoManifest { path });
        }
    };
    Ok(Store {
        path: path.to_owned(),
        slow,
        manifest,
        tables,
        logs,
    })
}

/// The tables of one tier: in a directory for each level, or all in one directory, as in older
/// LevelDB.
fn collect_tables(
    disk: &dyn Disk,
    tier: &Path,
    tables: &mut Vec<TableFile>,
) -> Result<(), ImportError> {
    for entry in disk.list(tier)? {
        let path = tier.join(&entry.name);
        match (entry.kind, level_of(&entry.name)) {
            (EntryKind::File, _) => add_table(disk, path, &entry.name, None, tables)?,
            (EntryKind::Directory, Some(level)) => {
                for entry in disk.list(&path)? {
                    let path = path.join(&entry.name);
                    add_table(disk, path, &entry.name, Some(level), tables)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn add_table(
    disk: &dyn Disk,
    path: PathBuf,
    name: &str,
    level: Option<u32>,
    tables: &mut Vec<TableFile>,
) -> Result<(), ImportError> {
    if let Some(number) = table_number(name) {
        let len = len_of(disk, &path)?;
        tables.push(TableFile {
            number,
            level,
            path,
            len,
        });
    }
    Ok(())
}

/// The name in CURRENT, if it can be read.
fn current_manifest(disk: &dyn Disk, store: &Path) -> Result<Option<String>, ImportError> {
    let path = store.join(CURRENT);
    match disk.info(&path)? {
        Some(info) if info.len <= CURRENT_BYTES_MAX => {
            let text = kvorum_disk::read_file(disk, &path, CURRENT_BYTES_MAX)?;
            Ok(Some(String::from_utf8_lossy(&text).trim().to_owned()))
        }
        _ => Ok(None),
    }
}

fn level_of(name: &str) -> Option<u32> {
    name.strip_prefix(LEVEL_PREFIX)?.parse().ok()
}

/// The number in a table's name: `.sst` in Basho's LevelDB, `.ldb` in newer versions of Google's.
fn table_number(name: &str) -> Option<u64> {
    numbered(name, ".sst").or_else(|| numbered(name, ".ldb"))
}

fn numbered(name: &str, suffix: &str) -> Option<u64> {
    let digits = name.strip_suffix(suffix)?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok())?
}

fn len_of(disk: &dyn Disk, path: &Path) -> Result<u64, ImportError> {
    Ok(disk.info(path)?.map_or(0, |info| info.len))
}
