//! Two directories shown as one: a store finds its files in either.
//!
//! All code for a store's files uses the disk seam, and so this disk: openings, merges, scrubs,
//! backups, checks and repairs use a file's name and do not depend on its directory. Rejected: a
//! tier in every path that the tree computes, which would repeat the same rule in twenty places.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kvorum_backend::LOST_NAME;
use kvorum_disk::{
    DirectoryEntry, Disk, DiskFile, DiskLock, ErrorKind, FileInfo, OpenMode, Result, Space,
};

use crate::card::CARD_OF_FAST;

/// True when this is the name of a table or a blob file, which may be in either directory.
pub fn is_table_name(name: &str) -> bool {
    name.split_once('.').is_some_and(|(digits, suffix)| {
        let is_number = digits.len() == 10 && digits.bytes().all(|it| it.is_ascii_digit());
        is_number && matches!(suffix, "sst" | "blob" | "journal")
    })
}

/// A disk that spreads one directory over two.
///
/// Tables, blob files and files in `lost` may be in either directory. A name is in one of them, and
/// is looked up in the fast one first. Renamed or linked files stay on their side.
pub struct TieredDisk<B> {
    below: B,
    fast: PathBuf,
    slow: Option<PathBuf>,
    creates_slow: bool,
}

impl<'a, B> TieredDisk<B>
where
    B: Deref<Target = dyn Disk + 'a> + Send + Sync,
{
    /// `fast` is the directory's path as callers use it; without a slow directory, the disk below
    /// is used unchanged.
    pub(super) fn new(below: B, fast: &Path, slow: Option<PathBuf>) -> Self {
        Self {
            below,
            fast: fast.to_owned(),
            slow,
            creates_slow: false,
        }
    }

    /// The same disk, with new tables and blob files in the slow directory.
    #[must_use]
    pub fn creating_slow(&self) -> Self
    where
        B: Clone,
    {
        Self {
            below: self.below.clone(),
            fast: self.fast.clone(),
            slow: self.slow.clone(),
            creates_slow: true,
        }
    }

    /// True when there is a slow directory.
    pub fn has_slow(&self) -> bool {
        self.slow.is_some()
    }

    /// True when a file is in the slow directory.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn is_slow(&self, path: &Path) -> Result<bool> {
        Ok(self.place(path)? != path)
    }

    /// The path in the slow directory; `None` for files that only the fast one may have.
    fn counterpart(&self, path: &Path) -> Option<PathBuf> {
        let slow = self.slow.as_ref()?;
        let inside = path.strip_prefix(&self.fast).ok()?;
        let first = inside.iter().next()?.to_str()?;
        let is_either = match inside.iter().nth(1) {
            None => is_table_name(first) || first == LOST_NAME || first == CARD_OF_FAST,
            Some(_) => first == LOST_NAME,
        };
        is_either.then(|| slow.join(inside))
    }

    /// The present place of a file; its own path if the file does not exist.
    fn place(&self, path: &Path) -> Result<PathBuf> {
        if let Some(other) = self.counterpart(path)
            && self.below.info(path)?.is_none()
            && self.below.info(&other)?.is_some()
        {
            return Ok(other);
        }
        Ok(path.to_owned())
    }

    /// The path of a file's new name, on the file's side.
    fn beside(&self, place: &Path, asked: &Path, to: &Path) -> Result<PathBuf> {
        let Some(other) = self.counterpart(to).filter(|_| place != asked) else {
            return Ok(to.to_owned());
        };
        if let Some(parent) = other.parent() {
            kvorum_disk::create_directory_durably(&*self.below, parent)?;
        }
        Ok(other)
    }

    /// The slow counterpart of a directory, if it exists.
    fn directory_beside(&self, path: &Path) -> Result<Option<PathBuf>> {
        if path == self.fast {
            return Ok(self.slow.clone());
        }
        Ok(match self.counterpart(path) {
            Some(other) if self.below.info(&other)?.is_some() => Some(other),
            _ => None,
        })
    }
}

impl<'a, B> Disk for TieredDisk<B>
where
    B: Deref<Target = dyn Disk + 'a> + Send + Sync,
{
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn DiskFile>> {
        if mode == OpenMode::CreateNew {
            let is_table = path
                .file_name()
                .and_then(|it| it.to_str())
                .is_some_and(is_table_name);
            let other = self
                .counterpart(path)
                .filter(|_| self.creates_slow && is_table);
            return self.below.open(other.as_deref().unwrap_or(path), mode);
        }
        self.below.open(&self.place(path)?, mode)
    }

    fn create_directory(&self, path: &Path) -> Result<()> {
        self.below.create_directory(path)
    }

    fn list(&self, path: &Path) -> Result<Vec<DirectoryEntry>> {
        let other = self.directory_beside(path)?;
        let own = self.below.list(path);
        let mut entries = match (own, &other) {
            // Files were set aside only on the slow side.
            (Err(error), Some(_)) if error.kind() == ErrorKind::NotFound && path != self.fast => {
                Vec::new()
            }
            (own, _) => own?,
        };
        if let Some(other) = other {
            for entry in self.below.list(&other)? {
                let is_shown = self.counterpart(&path.join(&entry.name)).is_some();
                let is_there = entries.iter().any(|it| it.name == entry.name);
                if is_shown && !is_there && entry.name != CARD_OF_FAST {
                    entries.push(entry);
                }
            }
            entries.sort_by(|a, b| a.name.cmp(&b.name));
        }
        Ok(entries)
    }

    fn info(&self, path: &Path) -> Result<Option<FileInfo>> {
        match (self.below.info(path)?, self.counterpart(path)) {
            (None, Some(other)) => self.below.info(&other),
            (found, _) => Ok(found),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let place = self.place(from)?;
        let to = self.beside(&place, from, to)?;
        self.below.rename(&place, &to)
    }

    fn link(&self, existing: &Path, new: &Path) -> Result<()> {
        let place = self.place(existing)?;
        let new = self.beside(&place, existing, new)?;
        self.below.link(&place, &new)
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        self.below.remove_file(&self.place(path)?)
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        let other = self.directory_beside(path)?;
        match (self.below.remove_directory(path), &other) {
            (Err(error), Some(_)) if error.kind() == ErrorKind::NotFound => {}
            (removed, _) => removed?,
        }
        match other {
            Some(other) => self.below.remove_directory(&other),
            None => Ok(()),
        }
    }

    /// Syncs the slow directory first, so that files named in the fast one exist there.
    fn sync_directory(&self, path: &Path) -> Result<()> {
        let other = self.directory_beside(path)?;
        if let Some(other) = &other {
            self.below.sync_directory(other)?;
        }
        match self.below.sync_directory(path) {
            Err(error) if other.is_some() && error.kind() == ErrorKind::NotFound => Ok(()),
            synced => synced,
        }
    }

    fn lock(&self, path: &Path, holder: &str) -> Result<Box<dyn DiskLock>> {
        self.below.lock(path, holder)
    }

    fn space(&self, path: &Path) -> Result<Space> {
        self.below.space(&self.place(path)?)
    }
}
