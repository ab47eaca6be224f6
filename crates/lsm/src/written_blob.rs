//! New blob files, begun and finished in the same way by each job that moves bodies.

use kvorum_backend::Result;
use kvorum_sst::KnownTable;

use crate::blob::{BlobWriter, blob_path};
use crate::store::Store;

/// A blob file that is written and durable.
pub(crate) struct WrittenBlob {
    pub(crate) table: KnownTable,
    pub(crate) block_bytes: u64,
}

impl WrittenBlob {
    pub(crate) fn number(&self) -> u64 {
        self.table.id.number
    }

    /// Makes a file durable; a file that cannot be made durable is removed.
    pub(crate) fn finish(store: &Store, writer: BlobWriter) -> Result<Self> {
        let (number, block_bytes) = (writer.number(), writer.block_bytes);
        let finished = writer.finish();
        if finished.is_err() {
            store.remove_files([blob_path(&store.directory, number)]);
        }
        let table = finished.map_err(|error| store.fail_if_sync(&error))?;
        store.count_written(table.file_len);
        Ok(Self { table, block_bytes })
    }
}

/// Begins a blob file, which may replace an older one.
pub(crate) fn begin(store: &Store, older: Option<u64>, is_slow: bool) -> Result<BlobWriter> {
    let number = store.take_number();
    let (id, options) = (store.table_id(number), store.settings.blob_options());
    let file = older.unwrap_or(number);
    let disk = store.disk_of_side(is_slow);
    BlobWriter::create(disk, &store.directory, id, file, options)
}
