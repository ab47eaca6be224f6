//! The disk seam: the only place that opens a file.
//!
//! Engines, logs and cluster state reach storage through [`Disk`] and [`DiskFile`]. Three
//! implementations exist: [`RealDisk`] for production; [`MemoryDisk`], which keeps written and
//! durable data apart and can be cut at any operation; and [`FaultyDisk`], which wraps another disk
//! and fails chosen operations. A fault is injected here and nowhere above, so that no other trait
//! carries test hooks.
//!
//! Promises of a `Disk`, as sentences that `tests/it` can fail:
//!
//! 1. A successful [`DiskFile::sync`] makes every earlier write to that file, and its length,
//!    durable. It does not cover the directory entry that names the file.
//! 2. Creation, renaming, linking and removal are durable after [`Disk::sync_directory`] of the
//!    directory that holds the name, and not before.
//! 3. Until then a crash may keep any subset of them, and any subset of a file's unsynced writes,
//!    whole or torn.
//! 4. After a failed sync the file is suspect: every later write and sync of it, through any handle
//!    opened from this disk before the failure, fails with [`ErrorKind::Suspect`]. The kernel may
//!    have dropped the dirty pages and would report success of the next sync (the "fsyncgate"
//!    behaviour). A handle opened after the failure starts anew, so that the file can be read again
//!    and replaced.
//! 5. A write either returns success for all its bytes or fails; after a failure the range holds
//!    unknown bytes.
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
