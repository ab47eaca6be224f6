//! The data directory: its lock, its format, and where everything in it is.
//!
//! ```text
//! platform_data_dir/
//!   LOCK           held by the running node; names its process
//!   format         the version of this layout, as text
//!   admin.socket   the admin interface, for the directory's owner only
//!   ring/          this node's card, its log of the cluster, the record of its stores
//!                  (their place is ring.state_dir); of an earlier version, cluster and
//!                  cluster.previous
//!   hints/         what is kept for other nodes
//!   dot_leases     the actors that vnodes may go on with after a clean stop
//!   commit_log/    what is durable and not yet synced by the engines
//!   value_log/     entries of all stores that leave them there, from their acknowledgement on
//!   bitcask/N/     the store of partition N (its place is bitcask.data_root)
//!   leveldb/N/     the same with that backend (its place is leveldb.data_root)
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use kvorum_disk::{Disk, DiskLock, ErrorKind};

/// The newest layout that this version knows: with a value log.
const FORMAT: u32 = 2;
/// The layout without one, which older versions know.
const FORMAT_OF_NEW: u32 = 1;
const FORMAT_BYTES_MAX: u64 = 64;

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

    /// Keeps versions that know of no value log from opening stores without it.
    pub(crate) fn note_value_log(&self, disk: &dyn Disk) -> anyhow::Result<()> {
        if read_format(disk, &self.path.join("format"))? < FORMAT {
            write_format(disk, &self.path, FORMAT)?;
        }
        Ok(())
    }

    /// Where the commit log is.
    pub(crate) fn commit_log(&self) -> PathBuf {
        self.path.join("commit_log")
    }
}

/// The admin socket of the node whose data is in `data_directory`.
pub(crate) fn admin_socket(data_directory: &Path) -> PathBuf {
    data_directory.join("admin.socket")
}

fn check_format(disk: &dyn Disk, directory: &Path) -> anyhow::Result<()> {
    let path = directory.join("format");
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
    kvorum_disk::replace_file(disk, &directory.join("format"), text.as_bytes())?;
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
