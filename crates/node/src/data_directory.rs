//! The data directory: its lock, its format, and where everything in it is.
//!
//! ```text
//! platform_data_dir/
//!   LOCK           held by the running node; names its process
//!   format         the version of this layout, as text
//!   engine         which backend its stores are of, and whether hints wait in it, as text
//!   admin.socket   the admin interface, for the directory's owner only
//!   ring/          this node's card, its log of the cluster, the record of its stores
//!                  (their place is ring.state_dir); of an earlier version, cluster and
//!                  cluster.previous
//!   hints/         what is kept for other nodes
//!   dot_leases     the actors that vnodes may go on with after a clean stop
//!   commit_log/    of an earlier version: what was durable and not yet synced by the engines
//!   value_log/     entries of all stores that leave them there, from their acknowledgement on
//!   backup         what this directory was restored from, until it is started
//!   place          when this file was born, by which a copy of the directory is known; another one is
//!                  in ring/
//!   others         how many other members the cluster had when the node ran last
//!   backups        where backups were made, for `kvorum admin maintenance`
//!   bitcask/N/     the store of partition N (its place is bitcask.data_root)
//!   leveldb/N/     the same with that backend (its place is leveldb.data_root)
//!   leveldb_stores where these are instead, with leveldb.tiered, as text
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use kvorum_disk::{Disk, DiskLock, ErrorKind};
use kvorum_settings::StorageBackend;

/// The newest layout that this version knows: with a value log in which leveldb has entries, too.
const FORMAT: u32 = 3;
/// With one of bitcask alone.
const FORMAT_OF_BITCASK_LOG: u32 = 2;
/// Without one.
const FORMAT_OF_NEW: u32 = 1;
/// The file that says so.
pub(crate) const FORMAT_NAME: &str = "format";
const FORMAT_BYTES_MAX: u64 = 64;

const ENGINE_FILE: &str = "engine";
const ENGINE_BYTES_MAX: u64 = 256;

/// Whose stores are in a data directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EngineLeft {
    /// As `storage_backend` names it.
    pub(crate) engine: String,
    /// Objects that it keeps for other nodes; unknown when it was not stopped.
    pub(crate) hints: Option<u64>,
}

impl EngineLeft {
    fn text(&self) -> String {
        let hints = self
            .hints
            .map_or("unknown".to_owned(), |hints| hints.to_string());
        format!("engine {}\nhints {hints}\n", self.engine)
    }

    fn parse(text: &str) -> Option<Self> {
        let (engine, hints) = text.strip_prefix("engine ")?.split_once("\nhints ")?;
        let hints = match hints.trim_end() {
            "unknown" => None,
            count => Some(count.parse().ok()?),
        };
        let engine = engine.to_owned();
        Some(Self { engine, hints })
    }
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
        let lock_file = path.join("LOCK");
        let holder = format!("process {}\n", std::process::id());
        let lock = match disk.lock(&lock_file, &holder) {
            Ok(lock) => lock,
            Err(error) if error.kind() == ErrorKind::Locked => bail!(
                "the data directory {} is in use by another kvorum ({error}); stop that one, or \
                 set platform_data_dir",
                path.display()
            ),
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

    /// Where vnode dot leases are kept.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the value log is.
    pub(crate) fn value_log(&self) -> PathBuf {
        self.path.join("value_log")
    }

    /// True when an earlier run left a value log.
    pub(crate) fn has_value_log(&self, disk: &dyn Disk) -> anyhow::Result<bool> {
        let found = disk.info(&self.value_log());
        Ok(found.context("look for the value log")?.is_some())
    }

    /// Keeps versions that know of no value log, or of none of this engine, from opening its stores
    /// without it.
    pub(crate) fn note_value_log(
        &self,
        disk: &dyn Disk,
        engine: StorageBackend,
    ) -> anyhow::Result<()> {
        let format = match engine {
            StorageBackend::Bitcask => FORMAT_OF_BITCASK_LOG,
            StorageBackend::Leveldb => FORMAT,
            StorageBackend::Memory => FORMAT_OF_NEW,
        };
        if read_format(disk, &self.path.join(FORMAT_NAME))? < format {
            write_format(disk, &self.path, format)?;
        }
        Ok(())
    }

    /// Which engine's stores the runs before left here, if they said so.
    pub(crate) fn engine_left(&self, disk: &dyn Disk) -> anyhow::Result<Option<EngineLeft>> {
        let path = self.path.join(ENGINE_FILE);
        if disk.info(&path)?.is_none() {
            return Ok(None);
        }
        let bytes = kvorum_disk::read_file(disk, &path, ENGINE_BYTES_MAX)?;
        let text = String::from_utf8_lossy(&bytes);
        let left = EngineLeft::parse(&text);
        let left = left
            .with_context(|| format!("{} is damaged: it says {text:?}; remove it", path.display()));
        left.map(Some)
    }

    /// Notes whose stores are here, and how many hints wait: `None` while the node runs.
    pub(crate) fn note_engine(
        &self,
        disk: &dyn Disk,
        engine: &str,
        hints: Option<u64>,
    ) -> anyhow::Result<()> {
        let left = EngineLeft {
            engine: engine.to_owned(),
            hints,
        };
        // After a run that was killed it says so already, and there may be no room to say it again.
        if self
            .engine_left(disk)
            .is_ok_and(|known| known.as_ref() == Some(&left))
        {
            return Ok(());
        }
        kvorum_disk::replace_file(disk, &self.path.join(ENGINE_FILE), left.text().as_bytes())?;
        Ok(())
    }

    /// Where the commit log is.
    pub(crate) fn commit_log(&self) -> PathBuf {
        self.path.join("commit_log")
    }
}

/// Systems take paths of sockets up to this length, in bytes.
const SOCKET_PATH_BYTES_MAX: usize = 100;

/// The admin socket of the node whose data is in `data_directory`. A long path is shortened to one that is
/// relative to the working directory, if it is below that.
pub(crate) fn admin_socket(data_directory: &Path) -> PathBuf {
    let path = data_directory.join("admin.socket");
    if path.as_os_str().len() <= SOCKET_PATH_BYTES_MAX {
        return path;
    }
    let working = std::env::current_dir().ok();
    let relative = working.and_then(|working| path.strip_prefix(working).ok().map(Path::to_owned));
    relative.unwrap_or(path)
}

fn check_format(disk: &dyn Disk, directory: &Path) -> anyhow::Result<()> {
    let path = directory.join(FORMAT_NAME);
    if disk.info(&path)?.is_none() {
        return write_format(disk, directory, FORMAT_OF_NEW);
    }
    let found = read_format(disk, &path)?;
    if found > FORMAT {
        bail!(
            "the data directory {} has format {found}, which a newer version wrote; this version \
             knows formats up to {FORMAT}: run the newer version",
            directory.display()
        );
    }
    Ok(())
}

fn write_format(disk: &dyn Disk, directory: &Path, format: u32) -> anyhow::Result<()> {
    let text = format!("{format}\n");
    kvorum_disk::replace_file(disk, &directory.join(FORMAT_NAME), text.as_bytes())?;
    Ok(())
}

fn read_format(disk: &dyn Disk, path: &Path) -> anyhow::Result<u32> {
    let bytes = kvorum_disk::read_file(disk, path, FORMAT_BYTES_MAX)?;
    let text = String::from_utf8_lossy(&bytes);
    text.trim().parse().with_context(|| {
        format!(
            "{} holds {text:?} where a format number is expected",
            path.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use kvorum_disk::{Fault, FaultyDisk, MemoryDisk, Operation, Rule};

    use super::*;

    #[test]
    fn whose_stores_are_here_reads_back() {
        for hints in [None, Some(0), Some(17)] {
            let engine = "bitcask".to_owned();
            let left = EngineLeft { engine, hints };
            assert_eq!(EngineLeft::parse(&left.text()), Some(left));
        }
        assert_eq!(EngineLeft::parse("engine bitcask\n"), None);
        assert_eq!(EngineLeft::parse("engine bitcask\nhints many\n"), None);
    }

    /// An older version would open the stores without the log, and show what they had before.
    #[test]
    fn the_format_says_whose_entries_are_in_the_value_log() {
        let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
        let data = DataDirectory::open(&disk, Path::new("data")).unwrap();
        let format = || read_format(&*disk, Path::new("data/format")).unwrap();
        assert_eq!(format(), 1);
        use StorageBackend::{Bitcask, Leveldb};
        for (engine, expected) in [(Bitcask, 2), (Leveldb, 3), (Bitcask, 3)] {
            data.note_value_log(&*disk, engine).unwrap();
            assert_eq!(format(), expected);
        }
    }

    /// A node that had been killed did not come up on a full disk.
    #[test]
    fn what_is_noted_already_takes_no_room() {
        let faulty = FaultyDisk::over_memory(&MemoryDisk::new());
        let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
        let data = DataDirectory::open(&disk, Path::new("data")).unwrap();
        data.note_engine(&*disk, "bitcask", None).unwrap();
        let no_space = Fault::Error(ErrorKind::NoSpace);
        faulty.add_rule(Rule::new(no_space).on(Operation::Write));
        data.note_engine(&*disk, "bitcask", None).unwrap();
        assert!(data.note_engine(&*disk, "leveldb", None).is_err());
        assert!(data.note_engine(&*disk, "bitcask", Some(1)).is_err());
    }
}
