//! The data directory: its lock, its format, and where everything in it is.
//!
//! ```text
//! platform_data_dir/
//!   LOCK           held by the running node; names its process
//!   format         the version of this layout, as checked text
//!   engine         the backend of its stores, the number of waiting hints, and the node's
//!                  directories, as checked text
//!   admin.socket   the admin interface, for the directory's owner only
//!   ring/          this node's card, its log of the cluster, the record of its stores
//!                  (their place is ring.state_dir); of an earlier version, cluster and
//!                  cluster.previous
//!   agreed_log-N.end  the durable end of log number N in ring/, so that an older or missing log is
//!                  noticed
//!   hints/         hints for other nodes; in hints/lost, stores of hints that could not be opened
//!   dot_leases     the actors that vnodes may keep after a clean stop
//!   hash_trees/N   the trees of hashes of partition N, for the next start
//!   round_notes/N  the marks of partition N for the removal of tombstones
//!   value_log/     entries of all stores that leave them there, from their acknowledgement on
//!   value_logs     the value log that is here, and those that were given up
//!   accept_lost_value_log
//!                  made by an operator: the next start continues without a lost value log
//!   accept_lost_stores
//!                  the same for stores of partitions
//!   backup         the backup from which this directory was restored, until its start
//!   place          the time of birth of this file, which reveals a copy of the directory; another one
//!                  is in ring/
//!   others         the number of other members when the node ran last
//!   backups        the directories of backups, for `kvorum admin maintenance`
//!   bitcask/N/     the store of partition N (its place is bitcask.data_root)
//!   leveldb/N/     the same with that backend (its place is leveldb.data_root)
//!   leveled/N/     the same with that backend (its place is leveled.data_root)
//!   hanoidb/N/     the same with that backend (its place is hanoidb.data_root)
//!   innostore/N/   the same with that backend (its place is innostore.data_home_dir)
//!   multi/N/NAME/  the store of partition N in the backend NAME, with several backends
//!   taking_over    stores of one backend that become parts of stores of several, until that is done
//!   bitcask_stores, leveldb_stores, leveled_stores, hanoidb_stores, innostore_stores
//!                  the places of these stores, if elsewhere, as text
//! ```

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use kvorum_cluster::checked_text::{decode, encode};
use kvorum_disk::{Disk, DiskLock, ErrorKind, replace_file};
use kvorum_settings::{Settings, StorageBackend};

use crate::engine_names::{self, BUILT_IN};
use crate::store_roots::StoreRoots;

/// Held by the running node; names its process.
const LOCK_FILE: &str = "LOCK";

/// The newest layout of this version: with a value log that is the journal of leveled.
const FORMAT: u32 = 4;
/// The layout with a value log in which leveldb has entries too.
const FORMAT_OF_LEVELDB_LOG: u32 = 3;
/// The layout with a value log of bitcask alone.
const FORMAT_OF_BITCASK_LOG: u32 = 2;
/// The layout without a value log.
const FORMAT_OF_NEW: u32 = 1;
/// The file with the number of the layout.
pub(crate) const FORMAT_NAME: &str = "format";
const FORMAT_TITLE: &str = "kvorum format of a data directory";
const FORMAT_BYTES_MAX: u64 = 4096;

pub(crate) const ENGINE_FILE: &str = "engine";
const ENGINE_TITLE: &str = "kvorum engine of a data directory";
const ENGINE_BYTES_MAX: u64 = 64 << 10;

const HINTS_NAME: &str = "hints";
pub(crate) const VALUE_LOG_NAME: &str = "value_log";

/// The engine of the stores in a data directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EngineLeft {
    /// Its name, as in `storage_backend`.
    pub(crate) engine: String,
    /// Number of objects kept for other nodes; unknown after a kill.
    pub(crate) hints: Option<u64>,
    /// Directories that the node had when this was written: within the data directory, or absolute.
    /// Earlier versions wrote none.
    pub(crate) parts: Vec<PathBuf>,
}

impl EngineLeft {
    fn body(&self) -> String {
        let hints = self
            .hints
            .map_or("unknown".to_owned(), |hints| hints.to_string());
        let mut body = format!("engine {}\nhints {hints}\n", self.engine);
        for part in &self.parts {
            body.push_str(PART_WORD);
            body.push_str(&part.to_string_lossy());
            body.push('\n');
        }
        body
    }

    /// Reads the file as this version writes it, or as earlier ones did without a checksum. A file
    /// without a checksum is valid only if each of its words is.
    fn parse(bytes: &[u8]) -> Option<Self> {
        if let Some((_, body)) = decode(ENGINE_TITLE, bytes) {
            return Self::parse_body(&body);
        }
        let left = Self::parse_body(std::str::from_utf8(bytes).ok()?)?;
        let is_earlier = left.parts.is_empty() && left.body().as_bytes() == bytes;
        is_earlier.then_some(left)
    }

    fn parse_body(body: &str) -> Option<Self> {
        let mut lines = body.lines();
        let engine = lines.next()?.strip_prefix("engine ")?.to_owned();
        let hints = match lines.next()?.strip_prefix("hints ")? {
            "unknown" => None,
            count => Some(count.parse().ok()?),
        };
        let parts = lines.map(|line| line.strip_prefix(PART_WORD).map(PathBuf::from));
        let parts = parts.collect::<Option<_>>()?;
        BUILT_IN.contains(&&*engine).then_some(Self {
            engine,
            hints,
            parts,
        })
    }
}

/// Begins the line of a directory.
const PART_WORD: &str = "part ";

/// The content of the file `engine`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EngineFile {
    /// There is no file: the directory is new, of an early version or a restored backup, or the
    /// file was lost.
    Missing,
    /// The file is damaged.
    Damaged,
    /// The file is whole.
    Whole(EngineLeft),
}

/// The holder of a data directory's lock, as `process 4711`; `None` if nothing holds it. Does not
/// change the directory.
pub(crate) fn lock_holder(data_directory: &Path) -> std::io::Result<Option<String>> {
    let mut lock = match std::fs::File::open(data_directory.join(LOCK_FILE)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    match lock.try_lock_shared() {
        Ok(()) => Ok(None),
        Err(std::fs::TryLockError::WouldBlock) => {
            let mut holder = String::new();
            lock.read_to_string(&mut holder)?;
            Ok(Some(holder.trim().to_owned()))
        }
        Err(std::fs::TryLockError::Error(error)) => Err(error),
    }
}

/// Refuses a data directory that another process has locked.
pub(crate) fn check_unlocked(data_directory: &Path) -> anyhow::Result<()> {
    let holder = lock_holder(data_directory).with_context(|| {
        let file = data_directory.join(LOCK_FILE);
        format!("look at the lock {}", file.display())
    })?;
    match holder {
        Some(holder) => Err(in_use(data_directory, &holder)),
        None => Ok(()),
    }
}

fn in_use(data_directory: &Path, holder: &dyn std::fmt::Display) -> anyhow::Error {
    anyhow!(
        "the data directory {} is in use by another kvorum ({holder}); stop that one, or set \
         platform_data_dir",
        data_directory.display()
    )
}

/// A locked data directory.
pub(crate) struct DataDirectory {
    path: PathBuf,
    _lock: Box<dyn DiskLock>,
}

impl DataDirectory {
    /// Creates the directory if need be, locks it and checks its format.
    pub(crate) fn open(disk: &Arc<dyn Disk>, path: &Path) -> anyhow::Result<Self> {
        kvorum_disk::create_directory_durably(&**disk, path).with_context(|| {
            format!(
                "use {} as data directory; make it writable for this user, or set \
                 platform_data_dir",
                path.display()
            )
        })?;
        let lock_file = path.join(LOCK_FILE);
        let holder = format!("process {}\n", std::process::id());
        let lock = match disk.lock(&lock_file, &holder) {
            Ok(lock) => lock,
            Err(error) if error.kind() == ErrorKind::Locked => return Err(in_use(path, &error)),
            Err(error) => {
                return Err(error).with_context(|| {
                    format!(
                        "lock the data directory {}; is it writable?",
                        path.display()
                    )
                });
            }
        };
        check_format(&**disk, path)?;
        Ok(Self {
            path: path.to_owned(),
            _lock: lock,
        })
    }

    /// The directory of vnode dot leases.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The directory of the value log.
    pub(crate) fn value_log(&self) -> PathBuf {
        self.path.join(VALUE_LOG_NAME)
    }

    /// True when an earlier run left a value log.
    pub(crate) fn has_value_log(&self, disk: &dyn Disk) -> anyhow::Result<bool> {
        let found = disk.info(&self.value_log());
        Ok(found.context("look for the value log")?.is_some())
    }

    /// Creates the directory of the value log before anything is put to it, so that the file `engine` can
    /// name it, and its later loss is noticed. If the disk is full, the first put creates it.
    pub(crate) fn create_value_log(&self, disk: &dyn Disk) -> anyhow::Result<()> {
        let directory = self.value_log();
        match kvorum_disk::create_directory_durably(disk, &directory) {
            Err(error) if error.kind() == ErrorKind::NoSpace => Ok(()),
            created => created.with_context(|| format!("create {}", directory.display())),
        }
    }

    /// Writes the layout, so that versions without a value log, or without this engine in it,
    /// refuse to open the stores.
    pub(crate) fn note_value_log(
        &self,
        disk: &dyn Disk,
        engine: StorageBackend,
    ) -> anyhow::Result<()> {
        let format = match engine {
            StorageBackend::Bitcask => FORMAT_OF_BITCASK_LOG,
            StorageBackend::Leveldb | StorageBackend::Hanoidb | StorageBackend::Innostore => {
                FORMAT_OF_LEVELDB_LOG
            }
            // No earlier version can open several backends.
            StorageBackend::Leveled | StorageBackend::Multi => FORMAT,
            StorageBackend::Memory => FORMAT_OF_NEW,
        };
        if layout_of(disk, &self.path)? < format {
            write_format(disk, &self.path, format)?;
        }
        Ok(())
    }

    /// The path of the file that names the engine of the stores.
    pub(crate) fn engine_file(&self) -> PathBuf {
        self.path.join(ENGINE_FILE)
    }

    /// The engine of the stores that earlier runs left here, if they noted it.
    pub(crate) fn engine_left(&self, disk: &dyn Disk) -> anyhow::Result<EngineFile> {
        read_engine(disk, &self.path)
    }

    /// Notes the engine of the stores, and the number of waiting hints: `None` while the node runs.
    pub(crate) fn note_engine(
        &self,
        disk: &dyn Disk,
        engine: &str,
        hints: Option<u64>,
        parts: &[PathBuf],
    ) -> anyhow::Result<()> {
        let left = EngineLeft {
            engine: engine.to_owned(),
            hints,
            parts: parts.iter().map(|it| self.relative(it)).collect(),
        };
        // After a kill, the file is already right, and there may be no room to write it again.
        let known = match self.engine_left(disk) {
            Ok(EngineFile::Whole(known)) => Some(known),
            _ => None,
        };
        if known.as_ref() == Some(&left) {
            return Ok(());
        }
        let bytes = encode(ENGINE_TITLE, 1, &left.body());
        match replace_file(disk, &self.engine_file(), &bytes) {
            // The old file names the same engine, even if not yet the directories.
            Err(error) if known.is_some_and(|it| (it.engine, it.hints) == (left.engine, hints)) => {
                tracing::warn!(event = "directories_not_noted", error = %error);
                Ok(())
            }
            written => Ok(written?),
        }
    }

    /// A path for the file `engine`: relative within the data directory, which may be moved.
    fn relative(&self, path: &Path) -> PathBuf {
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or(path.to_owned());
        let (path, own) = (absolute(path), absolute(&self.path));
        path.strip_prefix(&own).map(Path::to_owned).unwrap_or(path)
    }

    /// The existing directories among those of a node with these settings.
    pub(crate) fn parts(
        &self,
        disk: &dyn Disk,
        settings: &Settings,
    ) -> anyhow::Result<Vec<PathBuf>> {
        let mut parts = vec![settings.node.ring_state_dir.clone()];
        if let Some(roots) = StoreRoots::of(settings) {
            let engine = engine_names::name_of(settings.node.storage_backend);
            parts.extend(roots.all().map(Path::to_owned));
            parts.push(self.hints(engine));
            parts.push(self.value_log());
        }
        let mut there = Vec::new();
        for part in parts {
            if disk.info(&part)?.is_some() {
                there.push(part);
            }
        }
        Ok(there)
    }

    /// The directory of an engine's store of hints.
    pub(crate) fn hints(&self, engine: &str) -> PathBuf {
        self.path.join(HINTS_NAME).join(engine)
    }
}

/// Maximum length of a socket's path on all systems, in bytes.
const SOCKET_PATH_BYTES_MAX: usize = 100;

/// The admin socket of the node whose data is in `data_directory`. A long path is made relative to
/// the working directory, if it is below that.
pub(crate) fn admin_socket(data_directory: &Path) -> PathBuf {
    let path = data_directory.join("admin.socket");
    if path.as_os_str().len() <= SOCKET_PATH_BYTES_MAX {
        return path;
    }
    let working = std::env::current_dir().ok();
    let relative = working.and_then(|working| path.strip_prefix(working).ok().map(Path::to_owned));
    relative.unwrap_or(path)
}

/// Reads the file `engine` of a data directory.
pub(crate) fn read_engine(disk: &dyn Disk, directory: &Path) -> anyhow::Result<EngineFile> {
    let path = directory.join(ENGINE_FILE);
    match kvorum_disk::read_file(disk, &path, ENGINE_BYTES_MAX) {
        Ok(bytes) => Ok(match EngineLeft::parse(&bytes) {
            Some(left) => EngineFile::Whole(left),
            None => EngineFile::Damaged,
        }),
        Err(error) => match error.kind() {
            ErrorKind::NotFound => Ok(EngineFile::Missing),
            ErrorKind::TooLarge | ErrorKind::Device => Ok(EngineFile::Damaged),
            _ => Err(error.into()),
        },
    }
}

fn check_format(disk: &dyn Disk, directory: &Path) -> anyhow::Result<()> {
    let path = directory.join(FORMAT_NAME);
    if disk.info(&path)?.is_none() {
        // If there was a node before, the newest layout stops all older versions.
        let is_new = disk.info(&directory.join(ENGINE_FILE))?.is_none();
        if !is_new {
            tracing::warn!(event = "format_missing", file = %path.display(), "it is written anew");
        }
        return write_format(disk, directory, if is_new { FORMAT_OF_NEW } else { FORMAT });
    }
    let Format { layout, is_checked } = read_format(disk, &path)?;
    if layout > FORMAT {
        bail!(
            "the data directory {} has format {layout}, which a newer version wrote; this version \
             reads formats up to {FORMAT}: run the newer version",
            directory.display()
        );
    }
    if !is_checked && let Err(error) = write_format(disk, directory, layout) {
        // The disk may be full, and a node has to start on a full disk.
        tracing::warn!(event = "format_not_written", error = %format!("{error:#}"));
    }
    Ok(())
}

fn write_format(disk: &dyn Disk, directory: &Path, layout: u32) -> anyhow::Result<()> {
    let bytes = encode(FORMAT_TITLE, 1, &format!("{LAYOUT_WORD}{layout}\n"));
    replace_file(disk, &directory.join(FORMAT_NAME), &bytes)?;
    Ok(())
}

/// Begins the line of the layout.
const LAYOUT_WORD: &str = "layout ";

/// The content of the file `format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Format {
    layout: u32,
    /// Earlier versions wrote a number without a checksum.
    is_checked: bool,
}

/// The layout of a data directory.
pub(crate) fn layout_of(disk: &dyn Disk, directory: &Path) -> anyhow::Result<u32> {
    Ok(read_format(disk, &directory.join(FORMAT_NAME))?.layout)
}

fn read_format(disk: &dyn Disk, path: &Path) -> anyhow::Result<Format> {
    let bytes = kvorum_disk::read_file(disk, path, FORMAT_BYTES_MAX)?;
    parse_format(&bytes).with_context(|| {
        format!(
            "the file {} is damaged: it holds {:?}, which no version writes; if no later version \
             has run here, remove the file and start again, which writes it again; if one has, \
             restore the file from a backup",
            path.display(),
            String::from_utf8_lossy(&bytes)
        )
    })
}

fn parse_format(bytes: &[u8]) -> Option<Format> {
    if let Some((_, body)) = decode(FORMAT_TITLE, bytes) {
        let layout = body.strip_prefix(LAYOUT_WORD)?.strip_suffix('\n')?;
        return Some(Format {
            layout: layout.parse().ok()?,
            is_checked: true,
        });
    }
    // Versions with later layouts always wrote a checksum.
    let known = FORMAT_OF_NEW..=FORMAT;
    let layout = known
        .into_iter()
        .find(|layout| format!("{layout}\n").as_bytes() == bytes)?;
    Some(Format {
        layout,
        is_checked: false,
    })
}

#[cfg(test)]
mod tests {
    use kvorum_disk::{Fault, FaultyDisk, MemoryDisk, Operation, Rule};

    use super::*;

    fn left(engine: &str, hints: Option<u64>) -> EngineLeft {
        EngineLeft {
            engine: engine.to_owned(),
            hints,
            parts: Vec::new(),
        }
    }

    #[test]
    fn whose_stores_are_here_reads_back_and_so_does_what_earlier_versions_wrote() {
        for hints in [None, Some(0), Some(17)] {
            let mut left = left("bitcask", hints);
            let earlier = left.body();
            assert_eq!(EngineLeft::parse(earlier.as_bytes()), Some(left.clone()));
            left.parts = vec!["ring".into(), "/elsewhere/value_log".into()];
            let bytes = encode(ENGINE_TITLE, 1, &left.body());
            assert_eq!(EngineLeft::parse(&bytes), Some(left));
        }
        for text in [
            "engine bitcask\n",
            "engine bitcask\nhints many\n",
            "engine citcask\nhints 0\n",
        ] {
            assert_eq!(EngineLeft::parse(text.as_bytes()), None, "{text}");
        }
    }

    /// Regression: a flipped bit turned the engine's name or the layout's number into another one,
    /// and the advice was to configure that engine, or to run that version.
    #[test]
    fn no_flipped_bit_and_no_cut_of_the_small_files_says_anything_else() {
        let engine = encode(ENGINE_TITLE, 1, &left("bitcask", Some(3)).body());
        let format = encode(FORMAT_TITLE, 1, "layout 2\n");
        for bytes in [&engine, &format] {
            for at in 0..bytes.len() {
                for bit in 0..8 {
                    let mut flipped = bytes.clone();
                    flipped[at] ^= 1 << bit;
                    assert_eq!(EngineLeft::parse(&flipped), None, "{at} {bit}");
                    assert_eq!(parse_format(&flipped), None, "{at} {bit}");
                }
                assert_eq!(EngineLeft::parse(&bytes[..at]), None);
                assert_eq!(parse_format(&bytes[..at]), None);
            }
        }
        assert_eq!(EngineLeft::parse(&format), None);
        assert_eq!(parse_format(&engine), None);
        for (text, layout) in [
            ("1\n", Some(1)),
            ("3\n", Some(3)),
            ("6\n", None),
            ("2", None),
        ] {
            let parsed = parse_format(text.as_bytes()).map(|it| it.layout);
            assert_eq!(parsed, layout, "{text:?}");
        }
        let later = parse_format(&encode(FORMAT_TITLE, 1, "layout 5\n"));
        assert_eq!(later.map(|it| it.layout), Some(5));
    }

    #[test]
    fn a_damaged_format_is_named_with_what_helps_and_an_early_one_gets_a_checksum() {
        let memory = MemoryDisk::new();
        let disk: Arc<dyn Disk> = Arc::new(memory.clone());
        let (directory, file) = (Path::new("data"), Path::new("data/format"));
        let open = || DataDirectory::open(&disk, directory).map(drop);
        kvorum_disk::create_directory_durably(&*disk, directory).unwrap();
        replace_file(&*disk, file, b"2\n").unwrap();
        open().unwrap();
        assert!(read_format(&*disk, file).unwrap().is_checked);
        for damaged in [&b""[..], b"6\n", b"layout 2\n"] {
            replace_file(&*disk, file, damaged).unwrap();
            let refused = format!("{:#}", open().unwrap_err());
            assert!(refused.contains("data/format is damaged"), "{refused}");
            assert!(!refused.contains("newer version"), "{refused}");
            disk.remove_file(file).unwrap();
            open().unwrap();
        }
        replace_file(&*disk, file, &encode(FORMAT_TITLE, 1, "layout 5\n")).unwrap();
        let refused = open().unwrap_err().to_string();
        assert!(refused.contains("newer version wrote"), "{refused}");
    }

    /// An older version would open the stores without the log, and show their earlier contents.
    #[test]
    fn the_format_says_whose_entries_are_in_the_value_log() {
        let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
        let data = DataDirectory::open(&disk, Path::new("data")).unwrap();
        let format = || layout_of(&*disk, Path::new("data")).unwrap();
        assert_eq!(format(), 1);
        use StorageBackend::{Bitcask, Leveldb, Leveled};
        for (engine, expected) in [(Bitcask, 2), (Leveldb, 3), (Bitcask, 3), (Leveled, 4)] {
            data.note_value_log(&*disk, engine).unwrap();
            assert_eq!(format(), expected);
        }
    }

    /// Regression: after a kill, a node did not start on a full disk.
    #[test]
    fn what_is_noted_already_takes_no_room() {
        let faulty = FaultyDisk::over_memory(&MemoryDisk::new());
        let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
        let data = DataDirectory::open(&disk, Path::new("data")).unwrap();
        data.note_engine(&*disk, "bitcask", None, &[]).unwrap();
        let no_space = Fault::Error(ErrorKind::NoSpace);
        faulty.add_rule(Rule::new(no_space).on(Operation::Write));
        data.note_engine(&*disk, "bitcask", None, &[]).unwrap();
        assert!(data.note_engine(&*disk, "leveldb", None, &[]).is_err());
        assert!(data.note_engine(&*disk, "bitcask", Some(1), &[]).is_err());
    }
}
