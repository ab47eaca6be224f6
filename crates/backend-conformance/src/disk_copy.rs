//! Copies of a simulated disk.

use kvorum_disk::{CrashOptions, MemoryDisk};

/// Another disk with the same bytes, all of them durable.
pub(crate) fn copy_of(disk: &MemoryDisk) -> MemoryDisk {
    disk.crash_image(CrashOptions::everything())
}
