//! redb's file, on the disk seam.

use std::fmt;
use std::io;
use std::sync::Arc;

use kvorum_disk::{DiskError, DiskFile, ErrorKind, Reading};
use redb::StorageBackend;

pub(crate) struct SeamStorage(pub(crate) Arc<dyn DiskFile>);

impl fmt::Debug for SeamStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SeamStorage({})", self.0.path().display())
    }
}

impl StorageBackend for SeamStorage {
    fn len(&self) -> io::Result<u64> {
        self.0.len().map_err(io_error)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let read = self.0.read_at(out, offset, Reading::MayBlock);
        if read.map_err(io_error)? < out.len() {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.truncate(len).map_err(io_error)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync().map_err(io_error)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_at(data, offset).map_err(io_error)
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the shape that map_err takes"
)]
fn io_error(error: DiskError) -> io::Error {
    let kind = match error.kind() {
        ErrorKind::NoSpace => io::ErrorKind::StorageFull,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error.to_string())
}
