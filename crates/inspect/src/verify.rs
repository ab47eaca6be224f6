//! A check of a store, a partition or a whole data directory, cut into units.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use kvorum_backend_bitcask::check::{Checked, LOCK_NAME, check_store, is_store};
use kvorum_disk::anatomy::Pieces;
use kvorum_disk::{Disk, DiskLock, EntryKind, ErrorKind};
use kvorum_lsm_repair::check::{ListedFile, contents};
use kvorum_tiers::{fast_of, whole_disk};
use kvorum_value_log::anatomy::ValueLogFile;

use crate::kind::{Kind, open_pieces, recognise};
use crate::{InspectError, Result, page_store, segment_directory, table_store, value_logs};

/// The lock of a data directory.
const NODE_LOCK_NAME: &str = "LOCK";
/// Files of which a data directory has at least one, even after damage.
const NODE_FILES: [&str; 4] = ["format", "engine", "place", "value_log"];
/// The directory of a log's damaged files, which are known to be damaged.
const LOST_NAME: &str = "lost";
/// Files that were found unreadable before, unfinished files, and sockets.
const SET_ASIDE: [&str; 4] = [".unreadable", ".damaged", ".tmp", ".socket"];
/// The depth limit of directories, far more than from the data directory to a store.
const DEPTH_MAX: usize = 8;

/// Options of a directory's check.
#[derive(Clone, Copy, Debug, Default)]
pub struct VerifyOptions {
    /// The directory is in use: no lock is taken, and only finished files are read.
    pub is_live: bool,
}

/// A part of the work, independent of the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A store of the bitcask engine.
    Store(PathBuf),
    /// A store of the leveldb engine, except for its tables.
    TableStore(PathBuf),
    /// A store of the innostore engine.
    PageStore(PathBuf),
    /// A table or a blob file of one.
    Table(PathBuf, Box<ListedFile>),
    /// The segments of a log.
    Segments(PathBuf),
    /// One other file.
    File(PathBuf, Kind),
}

/// The work of a directory's check.
pub struct Plan {
    directory: PathBuf,
    options: VerifyOptions,
    /// The work, the largest parts being stores.
    pub units: Vec<Unit>,
    /// Approximate bytes to be read.
    pub bytes: u64,
    /// Files of other programs, or of an unknown engine.
    pub unknown: Vec<PathBuf>,
    /// The directories of value logs.
    value_logs: BTreeSet<PathBuf>,
    /// A slow directory of a store that was skipped, and the store's own.
    slow: Option<(PathBuf, PathBuf)>,
    locks: Vec<Box<dyn DiskLock>>,
}

/// True for the data directory of a node. LevelDB stores of other programs have a file `LOCK`, too, which
/// must not be written here.
pub fn is_node_directory(disk: &dyn Disk, directory: &Path) -> Result<bool> {
    for name in NODE_FILES {
        if disk.info(&directory.join(name))?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

impl Plan {
    /// Finds the files to check, and takes the locks unless the directory is in use. A missing lock file is
    /// not created: every program that uses a directory has one.
    ///
    /// # Errors
    /// [`kvorum_disk::ErrorKind::Locked`] when another program has it open, and
    /// [`InspectError::NothingOfOurs`] when there is nothing to check.
    pub fn new(disk: &dyn Disk, directory: &Path, options: VerifyOptions) -> Result<Self> {
        let mut plan = Self {
            directory: directory.to_owned(),
            options,
            units: Vec::new(),
            bytes: 0,
            unknown: Vec::new(),
            value_logs: BTreeSet::new(),
            slow: None,
            locks: Vec::new(),
        };
        let info = disk.info(directory)?;
        if info.is_none_or(|info| info.kind != EntryKind::Directory) {
            return Err(InspectError::Missing {
                path: directory.to_owned(),
            });
        }
        plan.visit(disk, directory, 0)?;
        // Any program may have a file called `lock`, which is no evidence.
        let is_ours = |unit: &Unit| !matches!(unit, Unit::File(_, Kind::Text));
        match plan.slow.take() {
            Some((path, fast)) if plan.units.is_empty() => Err(InspectError::Slow { path, fast }),
            _ if !plan.units.iter().any(is_ours) => Err(InspectError::NothingOfOurs {
                path: directory.to_owned(),
            }),
            _ => Ok(plan),
        }
    }

    /// True while locks are held.
    pub fn is_locked(&self) -> bool {
        !self.locks.is_empty()
    }

    fn visit(&mut self, disk: &dyn Disk, directory: &Path, depth: usize) -> Result<()> {
        if is_node_directory(disk, directory)? {
            self.lock(disk, &directory.join(NODE_LOCK_NAME))?;
        }
        if let Some(fast) = fast_of(disk, directory)? {
            // It is checked with the store that it is a part of.
            self.slow.get_or_insert((directory.to_owned(), fast));
            return Ok(());
        }
        if kvorum_lsm_repair::check::has_store_files(disk, directory)? {
            self.lock(disk, &directory.join(LOCK_NAME))?;
            return self.visit_tables(disk, directory);
        }
        let of_pages = kvorum_backend_innostore::check::has_store_files(disk, directory)?;
        if of_pages || is_store(disk, directory)? {
            self.lock(disk, &directory.join(LOCK_NAME))?;
            for entry in disk.list(directory)? {
                let info = disk.info(&directory.join(entry.name))?;
                self.bytes += info.map_or(0, |info| info.len);
            }
            let path = directory.to_owned();
            self.units.push(match of_pages {
                true => Unit::PageStore(path),
                false => Unit::Store(path),
            });
            return Ok(());
        }
        let mut has_segments = false;
        for entry in disk.list(directory)? {
            let path = directory.join(&entry.name);
            if entry.kind == EntryKind::Directory {
                if entry.name != LOST_NAME && depth < DEPTH_MAX {
                    self.visit(disk, &path, depth + 1)?;
                }
                continue;
            }
            if SET_ASIDE.iter().any(|suffix| entry.name.ends_with(suffix)) {
                continue;
            }
            match recognise(disk, &path) {
                Ok(Kind::Segment) => has_segments = true,
                Ok(kind) => {
                    if matches!(kind, Kind::ValueLog(_)) {
                        self.value_logs.insert(directory.to_owned());
                    }
                    // It lists the segments that there should be.
                    has_segments |= kind == Kind::ValueLog(ValueLogFile::Dropped);
                    self.units.push(Unit::File(path.clone(), kind));
                }
                Err(InspectError::Unknown { .. }) => {
                    self.unknown.push(path);
                    continue;
                }
                Err(error) => return Err(error),
            }
            self.bytes += disk.info(&path)?.map_or(0, |info| info.len);
        }
        if has_segments {
            self.units.push(Unit::Segments(directory.to_owned()));
        }
        Ok(())
    }

    /// Takes a lock if its file exists; the holder's name is written into the file.
    fn lock(&mut self, disk: &dyn Disk, path: &Path) -> Result<()> {
        if !self.options.is_live && disk.info(path)?.is_some() {
            self.locks.push(disk.lock(path, "kvorum verify\n")?);
        }
        Ok(())
    }

    fn visit_tables(&mut self, disk: &dyn Disk, directory: &Path) -> Result<()> {
        let path = directory.to_owned();
        self.units.push(Unit::TableStore(path.clone()));
        // Without its slow directory a store cannot be checked; its unit reports the reason.
        let Ok(disk) = whole_disk(disk, directory) else {
            return Ok(());
        };
        for entry in disk.list(directory)? {
            let info = disk.info(&directory.join(entry.name))?;
            self.bytes += info.map_or(0, |info| info.len);
        }
        for file in contents(&disk, directory)?.files {
            self.units.push(Unit::Table(path.clone(), Box::new(file)));
        }
        Ok(())
    }

    /// Does one unit. `progress` gets the number of bytes read. An unreadable file is a finding
    /// like any other; in a directory in use it may just have been removed, and is a note.
    pub fn run(&self, disk: &dyn Disk, unit: &Unit, progress: &dyn Fn(u64)) -> Checked {
        self.run_readable(disk, unit, progress)
            .unwrap_or_else(|error| {
                let (Unit::Store(path)
                | Unit::TableStore(path)
                | Unit::PageStore(path)
                | Unit::Table(path, _)
                | Unit::Segments(path)
                | Unit::File(path, _)) = unit;
                let mut checked = Checked::default();
                let name = self.name_of(path);
                let is_gone =
                    matches!(&error, InspectError::Disk(it) if it.kind() == ErrorKind::NotFound);
                if self.options.is_live && is_gone {
                    checked
                        .notes
                        .push(format!("{name} changed while it was read: {error}"));
                } else {
                    checked.find(&name, 0, 0, format!("cannot be read: {error}"));
                }
                checked
            })
    }

    fn run_readable(
        &self,
        disk: &dyn Disk,
        unit: &Unit,
        progress: &dyn Fn(u64),
    ) -> Result<Checked> {
        let is_live = self.options.is_live;
        let mut checked = Checked::default();
        match unit {
            Unit::Store(directory) => {
                let find_log = |log_id| value_logs::find_for_store(disk, &self.value_logs, log_id);
                let found = check_store(disk, directory, is_live, &find_log, progress)?;
                checked.add(found, &self.name_of(directory));
            }
            Unit::TableStore(directory) => {
                let logs = &self.value_logs;
                let found = table_store::check(disk, directory, logs, is_live, progress)?;
                checked.add(found, &self.name_of(directory));
            }
            Unit::PageStore(directory) => {
                let found = page_store::check(disk, directory, progress)?;
                checked.add(found, &self.name_of(directory));
            }
            Unit::Table(directory, file) => {
                let found = table_store::check_file(disk, directory, file, is_live, progress)?;
                checked.add(found, &self.name_of(directory));
            }
            Unit::Segments(directory) => {
                let found = segment_directory::check(disk, directory, is_live, progress)?;
                checked.add(found, &self.name_of(directory));
            }
            Unit::File(path, kind) => {
                let name = self.name_of(path);
                let pieces = open_pieces(disk, path, *kind, 0)?;
                match kind {
                    Kind::AgreedLog => {
                        self.check_agreed_log(disk, path, pieces, &mut checked)?;
                    }
                    _ => {
                        for piece in pieces {
                            checked.find_in(&name, &piece?);
                        }
                    }
                }
                checked.files = 1;
                checked.bytes = disk.info(path)?.map_or(0, |info| info.len);
                progress(checked.bytes);
            }
        }
        Ok(checked)
    }

    /// Checks the agreed log: a record behind its durable end was torn by a crash; any other defect of the
    /// log or of the files beside it is damage.
    fn check_agreed_log(
        &self,
        disk: &dyn Disk,
        path: &Path,
        pieces: Pieces,
        checked: &mut Checked,
    ) -> Result<()> {
        let name = self.name_of(path);
        let durable = kvorum_agreement::check::durable_bytes(disk, path).unwrap_or(u64::MAX);
        for piece in pieces {
            let piece = piece?;
            if piece.is_damaged() && piece.offset() >= durable {
                let torn = piece.end() - piece.offset();
                checked.torn_bytes += torn;
                checked
                    .notes
                    .push(format!("{name} ends in {torn} torn bytes"));
            } else {
                checked.find_in(&name, &piece);
            }
        }
        let directory = path.parent().unwrap_or(Path::new("."));
        for finding in kvorum_agreement::check::check_directory(disk, directory, None) {
            let name = self.name_of(&finding.file);
            checked.find(&name, 0, 0, finding.what);
        }
        Ok(())
    }

    fn name_of(&self, path: &Path) -> String {
        let name = path.strip_prefix(&self.directory).unwrap_or(path);
        name.to_string_lossy().into_owned()
    }
}
