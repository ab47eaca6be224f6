//! Files of the source, with a limited number open at once.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use kvorum_disk::{Disk, DiskFile, OpenMode, Reading};

use crate::item::Place;
use crate::record_format::RecordFile;

/// Files kept open.
const OPEN_FILES_MAX: usize = 256;

/// Open files, by their paths.
pub struct OpenFiles {
    disk: Arc<dyn Disk>,
    open: BTreeMap<PathBuf, Arc<dyn DiskFile>>,
    opened: VecDeque<PathBuf>,
}

impl OpenFiles {
    /// A set without open files.
    pub fn new(disk: Arc<dyn Disk>) -> Self {
        Self {
            disk,
            open: BTreeMap::new(),
            opened: VecDeque::new(),
        }
    }

    /// Bytes from `offset`, fewer at the file's end.
    ///
    /// # Errors
    /// The defect, in words.
    pub fn read(&mut self, path: &Path, offset: u64, len: usize) -> Result<Bytes, String> {
        let file = self.file(path)?;
        let mut bytes = vec![0; len];
        let read = file.read_at(&mut bytes, offset, Reading::MayBlock);
        bytes.truncate(read.map_err(|error| error.to_string())?);
        Ok(bytes.into())
    }

    /// Length of a file, in bytes.
    ///
    /// # Errors
    /// The defect, in words.
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

/// Maximum length of a record, in bytes. Riak refuses objects above 50 MB unless configured
/// otherwise.
const RECORD_BYTES_MAX: u32 = 512 << 20;

/// The files of a source, by their numbers in an index of records.
pub struct NumberedFiles {
    files: OpenFiles,
    paths: Vec<PathBuf>,
}

impl NumberedFiles {
    /// The files in the order of their numbers.
    pub fn new(disk: Arc<dyn Disk>, files: Vec<RecordFile>) -> Self {
        Self {
            files: OpenFiles::new(disk),
            paths: files.into_iter().map(|file| file.path).collect(),
        }
    }

    /// The bytes of a record, fewer at the end of its file.
    ///
    /// # Errors
    /// The defect, in words.
    pub fn read(&mut self, number: u32, offset: u64, len: u32) -> Result<Bytes, String> {
        if len > RECORD_BYTES_MAX {
            return Err(format!("record of {len} bytes is too long"));
        }
        let path = self.place(number, offset, len).file;
        self.files.read(&path, offset, len as usize)
    }

    /// Place of a record, for reports.
    pub fn place(&self, number: u32, offset: u64, len: u32) -> Place {
        let path = self.paths.get(number as usize);
        Place {
            file: path.cloned().unwrap_or_default(),
            offset,
            len: Some(len.into()),
        }
    }
}
