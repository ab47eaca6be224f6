//! Files of the source, of which only so many are open at once.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use kvorum_disk::{Disk, DiskFile, OpenMode, Reading};

/// Files kept open.
const OPEN_FILES_MAX: usize = 256;

/// Open files, by their paths.
pub struct OpenFiles {
    disk: Arc<dyn Disk>,
    open: BTreeMap<PathBuf, Arc<dyn DiskFile>>,
    opened: VecDeque<PathBuf>,
}

impl OpenFiles {
    /// None yet.
    pub fn new(disk: Arc<dyn Disk>) -> Self {
        Self {
            disk,
            open: BTreeMap::new(),
            opened: VecDeque::new(),
        }
    }

    /// The bytes from `offset`, fewer at the file's end.
    ///
    /// # Errors
    /// The reason why they cannot be had.
    pub fn read(&mut self, path: &Path, offset: u64, len: usize) -> Result<Bytes, String> {
        let file = self.file(path)?;
        let mut bytes = vec![0; len];
        let read = file.read_at(&mut bytes, offset, Reading::MayBlock);
        bytes.truncate(read.map_err(|error| error.to_string())?);
        Ok(bytes.into())
    }

    /// The length of a file, in bytes.
    ///
    /// # Errors
    /// The reason why it cannot be had.
    pub fn len(&mut self, path: &Path) -> Result<u64, String> {
        let file = self.file(path)?;
        file.len().map_err(|error| error.to_string())
    }

    fn file(&mut self, path: &Path) -> Result<Arc<dyn DiskFile>, String> {
        if let Some(file) = self.open.get(path) {
            return Ok(file.clone());
        }
        let opened = self.disk.open(path, OpenMode::Read);
        let file = opened.map_err(|error| error.to_string())?;
        if self.opened.len() >= OPEN_FILES_MAX
            && let Some(oldest) = self.opened.pop_front()
        {
            self.open.remove(&oldest);
        }
        self.opened.push_back(path.to_owned());
        self.open.insert(path.to_owned(), file.clone());
        Ok(file)
    }
}
