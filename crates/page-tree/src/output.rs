//! Pages on their way to files: each gets its place at once, and buffered pages go to the disk in
//! large writes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_backend::{BackendError, Result};
use kvorum_disk::Disk;

use crate::file::{HEADER_BYTES, PageFile};
use crate::page::{Item, PageHeader, encode_body, encode_page};
use crate::place::PagePlace;

/// Size of one write, in bytes.
const BUFFER_BYTES: usize = 256 << 10;

/// The files that pages are written to.
#[derive(Clone)]
pub struct OutputSettings {
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// The store's directory.
    pub directory: PathBuf,
    /// The identity of the store.
    pub store: u64,
    /// Counts rewrites.
    pub generation: u64,
    /// The first number that was never a file's.
    pub next_number: u64,
    /// The size at which the next file is begun.
    pub file_bytes_max: u64,
}

/// A file that a rewrite wrote.
#[derive(Clone)]
pub(crate) struct WrittenFile {
    pub(crate) file: Arc<PageFile>,
    /// The end of its last page.
    pub(crate) len: u64,
}

/// See the module.
pub(crate) struct Output {
    settings: OutputSettings,
    first_number: u64,
    growing: Option<Growing>,
    full: Vec<WrittenFile>,
}

struct Growing {
    file: Arc<PageFile>,
    /// The length on the disk.
    written: u64,
    buffer: Vec<u8>,
}

impl Growing {
    fn end(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    fn flush(&mut self) -> Result<()> {
        let handle = self.file.handle();
        handle
            .write_at(&self.buffer, self.written)
            .map_err(|error| BackendError::from(&error))?;
        self.written = self.end();
        self.buffer.clear();
        Ok(())
    }
}

impl Output {
    pub(crate) fn new(settings: OutputSettings) -> Self {
        Self {
            first_number: settings.next_number,
            settings,
            growing: None,
            full: Vec::new(),
        }
    }

    /// Appends a leaf, or a branch twice.
    pub(crate) fn append(&mut self, level: u8, lower: &[u8], items: &[Item]) -> Result<PagePlace> {
        let copies = if level > 0 { 2 } else { 1 };
        self.put(level, copies, |header| encode_page(header, lower, items))
    }

    /// Appends the page of a body.
    pub(crate) fn append_body(&mut self, key: &[u8], body: &Bytes) -> Result<PagePlace> {
        let level = crate::page::BODY_LEVEL;
        self.put(level, 1, |header| encode_body(header, key, body))
    }

    fn put(
        &mut self,
        level: u8,
        copies: usize,
        encode: impl FnOnce(&PageHeader) -> (Vec<u8>, PagePlace),
    ) -> Result<PagePlace> {
        let (store, generation) = (self.settings.store, self.settings.generation);
        let growing = self.growing()?;
        let header = PageHeader {
            store,
            generation,
            file: growing.file.number(),
            offset: growing.end(),
            level,
        };
        let (bytes, place) = encode(&header);
        for _ in 0..copies {
            growing.buffer.extend_from_slice(&bytes);
        }
        if growing.buffer.len() >= BUFFER_BYTES {
            growing.flush()?;
        }
        Ok(place)
    }

    /// The file to append to.
    fn growing(&mut self) -> Result<&mut Growing> {
        let bytes_max = self.settings.file_bytes_max;
        if let Some(mut full) = self.growing.take_if(|it| it.end() >= bytes_max) {
            full.flush()?;
            self.full.push(written(&full));
        }
        if self.growing.is_none() {
            let growing = self.begin()?;
            self.growing = Some(growing);
        }
        // Created just now if it was missing.
        self.growing.as_mut().ok_or_else(|| {
            let kind = kvorum_backend::ErrorKind::Misuse;
            BackendError::new(kind, "no file to append pages to")
        })
    }

    fn begin(&mut self) -> Result<Growing> {
        let settings = &mut self.settings;
        let number = settings.next_number;
        settings.next_number += 1;
        let file = PageFile::create(&*settings.disk, &settings.directory, settings.store, number)
            .map_err(|error| BackendError::from(&error))?;
        Ok(Growing {
            file: Arc::new(file),
            written: HEADER_BYTES as u64,
            buffer: Vec::new(),
        })
    }

    /// Numbers of the files that this output has begun.
    pub(crate) fn files_begun(&self) -> std::ops::Range<u64> {
        self.first_number..self.settings.next_number
    }

    /// Writes and syncs all files, names included.
    pub(crate) fn finish(&mut self) -> Result<BTreeMap<u64, WrittenFile>> {
        if let Some(mut last) = self.growing.take() {
            last.flush()?;
            self.full.push(written(&last));
        }
        let failed = |error: kvorum_disk::DiskError| BackendError::from(&error);
        for it in &self.full {
            it.file.handle().sync().map_err(failed)?;
        }
        if !self.full.is_empty() {
            let (disk, directory) = (&self.settings.disk, &self.settings.directory);
            disk.sync_directory(directory).map_err(failed)?;
        }
        let all = self.full.drain(..);
        Ok(all.map(|it| (it.file.number(), it)).collect())
    }
}

fn written(growing: &Growing) -> WrittenFile {
    WrittenFile {
        file: growing.file.clone(),
        len: growing.end(),
    }
}
