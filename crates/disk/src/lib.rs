//! The disk seam: the only place that opens a file.
//!
//! Engines, logs and cluster state reach storage through [`Disk`] and [`DiskFile`]. Three
//! implementations exist: [`RealDisk`] for production; [`MemoryDisk`], which keeps written and
//! durable data apart and can lose power at any operation; and [`FaultyDisk`], which wraps another
//! disk and fails selected operations. Faults are injected only here, so that no other trait has
//! test hooks.
//!
//! Promises of a `Disk`, as sentences that `tests/it` can fail:
//!
//! 1. A successful [`DiskFile::sync`] makes all earlier writes to the file, and its length,
//!    durable, but not the file's name in its directory.
//! 2. Creation, renaming, linking and removal are durable after [`Disk::sync_directory`] of the
//!    name's directory, and not before.
//! 3. Until then a crash may keep any subset of these changes, and any subset of a file's unsynced
//!    writes, whole or torn.
//! 4. After a failed sync the file is suspect: every later write and sync through a handle opened
//!    from this disk before the failure fails with [`ErrorKind::Suspect`]. The kernel may have
//!    dropped the dirty pages and report success at the next sync (the "fsyncgate" behaviour). A
//!    handle opened after the failure starts again, so that the file can be read and replaced.
//! 5. A write either succeeds for all its bytes or fails; after a failure the bytes of the range
//!    are unknown.
//! 6. [`Reading::CachedOnly`] never waits for a device: it fills the whole buffer (up to the end of
//!    the file) or fails with [`ErrorKind::WouldBlock`].

pub mod anatomy;
mod disk;
mod error;
mod faulty;
mod memory;
mod real;
mod reserve;

pub use disk::{
    DirectoryEntry, Disk, DiskFile, DiskLock, EntryKind, FileInfo, OpenMode, Reading, Result,
    Space, copy_file, create_directory_durably, read_file, remove_if_there, replace_file,
    temporary_name,
};
pub use error::{DiskError, ErrorKind, Operation};
pub use faulty::{Fault, FaultyDisk, LoggedOperation, Rule, RuleId};
pub use memory::{CrashOptions, DataSurvival, MemoryDisk, NameSurvival};
pub use real::RealDisk;
pub use reserve::{Headroom, PUT_FILE_BYTES_MIN, Reserve};
