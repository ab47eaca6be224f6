//! An open file of the faulty disk.

use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::rule::{Call, Fault};
use super::shared::Shared;
use crate::memory::MemoryFile;
use crate::{DiskError, DiskFile, ErrorKind, Operation, Reading, Result};

/// The file below, with its own type if that is known.
pub(super) enum Below {
    Any(Arc<dyn DiskFile>),
    Memory(MemoryFile),
}

impl Below {
    fn file(&self) -> &dyn DiskFile {
        match self {
            Self::Any(file) => file.as_ref(),
            Self::Memory(file) => file,
        }
    }
}

pub(super) struct FaultyFile {
    pub(super) shared: Arc<Shared>,
    pub(super) below: Below,
    /// Shared by all handles opened before a sync of the file failed.
    pub(super) suspect: Arc<AtomicBool>,
}

impl FaultyFile {
    fn call(&self, operation: Operation) -> Call<'_> {
        Call::new(operation, self.path())
    }

    fn check_sound(&self, operation: Operation) -> Result<()> {
        if self.suspect.load(Ordering::Acquire) {
            return Err(DiskError::bare(operation, self.path(), ErrorKind::Suspect));
        }
        Ok(())
    }

    fn change(&self, call: &Call<'_>, act: impl FnOnce() -> Result<()>) -> Result<()> {
        self.shared.run(call, |_| {
            self.check_sound(call.operation)?;
            act()
        })
    }
}

impl DiskFile for FaultyFile {
    fn path(&self) -> &Path {
        self.below.file().path()
    }

    fn len(&self) -> Result<u64> {
        self.shared
            .run(&self.call(Operation::Info), |_| self.below.file().len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64, reading: Reading) -> Result<usize> {
        let mut call = self.call(Operation::Read).at(offset, buffer.len());
        call.is_cached_read = reading == Reading::CachedOnly;
        self.shared.run(&call, |fault| {
            let wanted = match fault {
                Some(Fault::ShortRead { bytes }) => bytes.min(buffer.len()),
                _ => buffer.len(),
            };
            let read = self
                .below
                .file()
                .read_at(&mut buffer[..wanted], offset, reading)?;
            if let Some(Fault::FlippedBit { bit }) = fault
                && read > 0
            {
                buffer[bit / 8 % read] ^= 1 << (bit % 8);
            }
            Ok(read)
        })
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.write_parts_at(&[IoSlice::new(bytes)], offset)
    }

    fn write_parts_at(&self, parts: &[IoSlice<'_>], offset: u64) -> Result<()> {
        let len = parts.iter().map(|part| part.len()).sum();
        self.shared
            .run(&self.call(Operation::Write).at(offset, len), |fault| {
                self.check_sound(Operation::Write)?;
                let Some(Fault::TornWrite { bytes }) = fault else {
                    return self.below.file().write_parts_at(parts, offset);
                };
                let torn: Vec<u8> = parts
                    .iter()
                    .flat_map(|part| part.iter().copied())
                    .take(bytes)
                    .collect();
                self.below.file().write_at(&torn, offset)?;
                let detail = format!("injected after {} bytes", torn.len());
                Err(
                    DiskError::new(Operation::Write, self.path(), ErrorKind::Device, detail)
                        .at(offset),
                )
            })
    }

    fn sync(&self) -> Result<()> {
        if self.suspect.load(Ordering::Acquire) {
            return self.change(&self.call(Operation::Sync), || Ok(()));
        }
        let synced = self.shared.run(&self.call(Operation::Sync), |fault| {
            self.check_sound(Operation::Sync)?;
            match fault {
                Some(Fault::Forgotten) => Ok(()),
                _ => self.below.file().sync(),
            }
        });
        if synced.is_err() {
            self.suspect.store(true, Ordering::Release);
            self.shared.forget(self.path(), &self.suspect);
            if let Below::Memory(file) = &self.below {
                file.forget_unsynced();
            }
        }
        synced
    }

    fn truncate(&self, len: u64) -> Result<()> {
        let call = self.call(Operation::Truncate).at(len, 0);
        self.change(&call, || self.below.file().truncate(len))
    }

    fn allocate(&self, len: u64) -> Result<()> {
        let call = self.call(Operation::Allocate).at(len, 0);
        self.change(&call, || self.below.file().allocate(len))
    }
}
