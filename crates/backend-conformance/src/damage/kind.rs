//! Kinds of damage to the files of a store, as data.

use std::path::{Path, PathBuf};

use kvorum_disk::{Disk, EntryKind, MemoryDisk, OpenMode, Reading, Result};

/// More than the length of any file of a script.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// A file's path and its bytes.
pub(super) type Files = Vec<(PathBuf, Vec<u8>)>;

/// Damage to one file, or to all files below a directory.
#[derive(Clone, Debug)]
pub(super) enum Damage {
    /// These bits of the byte at the offset are inverted.
    Flip { offset: u64, bits: u8 },
    /// The file ends here.
    Cut { len: u64 },
    /// `len` zeros from the offset on, or zeros up to the end of a shorter file.
    Zeros { offset: u64, len: usize },
    /// Bytes that were never written follow the end.
    Appended { bytes: Vec<u8> },
    /// The content of another file, or of this one at an earlier time.
    Replaced { by: &'static str, bytes: Vec<u8> },
    /// The file, or the directory with all of its files, is missing.
    Removed,
    /// The directory holds these files instead of its own.
    Exchanged { by: &'static str, files: Files },
}

impl Damage {
    pub(super) fn brief(&self) -> String {
        match self {
            Self::Replaced { by, .. } | Self::Exchanged { by, .. } => format!("replaced by {by}"),
            damage => format!("{damage:?}"),
        }
    }

    /// Applies the damage durably.
    pub(super) fn apply(&self, disk: &MemoryDisk, path: &Path) -> Result<()> {
        match self {
            Self::Removed => return remove(disk, path),
            Self::Exchanged { files, .. } => return exchange(disk, path, files),
            _ => {}
        }
        let file = disk.open(path, OpenMode::ReadWrite)?;
        match self {
            Self::Removed | Self::Exchanged { .. } => {}
            Self::Flip { offset, bits } => {
                let mut byte = [0];
                file.read_at(&mut byte, *offset, Reading::MayBlock)?;
                file.write_at(&[byte[0] ^ bits], *offset)?;
            }
            Self::Cut { len } => file.truncate(*len)?,
            Self::Zeros { offset, len } => {
                let rest = usize::try_from(file.len()? - offset).unwrap_or(usize::MAX);
                file.write_at(&vec![0; rest.min(*len)], *offset)?;
            }
            Self::Appended { bytes } => file.write_at(bytes, file.len()?)?,
            Self::Replaced { bytes, .. } => {
                file.truncate(0)?;
                file.write_at(bytes, 0)?;
            }
        }
        file.sync()
    }
}

/// Adds the files below a directory, with their bytes.
pub(super) fn collect_files(disk: &MemoryDisk, directory: &Path, files: &mut Files) -> Result<()> {
    if disk.info(directory)?.is_none() {
        return Ok(());
    }
    for entry in disk.list(directory)? {
        let path = directory.join(&entry.name);
        match entry.kind {
            EntryKind::Directory => collect_files(disk, &path, files)?,
            EntryKind::File => {
                let bytes = kvorum_disk::read_file(disk, &path, FILE_BYTES_MAX)?;
                files.push((path, bytes));
            }
        }
    }
    Ok(())
}

fn remove(disk: &MemoryDisk, path: &Path) -> Result<()> {
    if let Ok(entries) = disk.list(path) {
        for entry in entries {
            remove(disk, &path.join(&entry.name))?;
        }
        disk.remove_directory(path)?;
    } else {
        disk.remove_file(path)?;
    }
    disk.sync_directory(path.parent().unwrap_or(Path::new("")))
}

fn exchange(disk: &MemoryDisk, directory: &Path, files: &Files) -> Result<()> {
    remove(disk, directory)?;
    disk.create_directory(directory)?;
    for (path, bytes) in files {
        let parent = path.parent().unwrap_or(directory);
        if disk.info(parent)?.is_none() {
            disk.create_directory(parent)?;
        }
        let file = disk.open(path, OpenMode::CreateNew)?;
        file.write_at(bytes, 0)?;
        file.sync()?;
        disk.sync_directory(parent)?;
    }
    disk.sync_directory(directory.parent().unwrap_or(Path::new("")))
}
