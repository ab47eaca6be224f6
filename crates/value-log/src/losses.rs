//! Batches that the log is known to have lost, by store: a small file beside the segments.
//!
//! A batch that cannot be read may have overwritten or removed any key of its store. The node notes such a
//! store as incomplete, which outlives restarts, and then has the log note the last lost batch here. Each
//! opening meets the same gap until the store's own files cover it, and must not mark the store incomplete
//! again after its repair. After a crash between the two notes the loss is reported twice.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kvorum_backend::{Result, Sequence, StoreId};
use kvorum_disk::Disk;
use parking_lot::Mutex;

use crate::small_file;

pub(crate) const MAGIC: [u8; 8] = *b"KVvallos";
const ROW_BYTES: usize = 16;
pub(crate) const NAME: &str = "lost_batches";

/// The highest batch of each store that is known to be lost.
type Rows = BTreeMap<StoreId, Sequence>;

/// The file of a log.
pub(crate) struct Losses {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    log_id: u64,
    rows: Mutex<Rows>,
}

impl Losses {
    /// Reads the file. A missing or damaged one counts as empty: losses are then reported once more.
    ///
    /// # Errors
    /// Those of the disk; [`kvorum_backend::ErrorKind::NewerFormat`].
    pub(crate) fn open(disk: Arc<dyn Disk>, directory: &Path, log_id: u64) -> Result<Self> {
        let found = small_file::read(&*disk, &path_in(directory), decode)?;
        let own = found.filter(|(of, _)| *of == log_id);
        let rows = own.map(|(_, rows)| rows).unwrap_or_default();
        Ok(Self {
            disk,
            directory: directory.to_owned(),
            log_id,
            rows: Mutex::new(rows),
        })
    }

    /// True when the loss of batches of a store up to this one was noted.
    pub(crate) fn knows(&self, store: StoreId, lost_to: Sequence) -> bool {
        let rows = self.rows.lock();
        rows.get(&store).is_some_and(|known| *known >= lost_to)
    }

    /// Notes that batches of a store up to this one are lost, durably.
    pub(crate) fn note(&self, store: StoreId, lost_to: Sequence) -> Result<()> {
        if self.knows(store, lost_to) {
            return Ok(());
        }
        self.change(|rows| _ = rows.insert(store, lost_to))
    }

    /// Removes the loss of a store whose own files extend beyond it.
    pub(crate) fn forget(&self, store: StoreId, covered: Sequence) -> Result<()> {
        let known = self.rows.lock().get(&store).copied();
        match known {
            Some(lost_to) if lost_to <= covered => self.change(|rows| _ = rows.remove(&store)),
            _ => Ok(()),
        }
    }

    fn change(&self, change: impl FnOnce(&mut Rows)) -> Result<()> {
        let mut rows = self.rows.lock();
        let mut changed = rows.clone();
        change(&mut changed);
        let bytes = encode(self.log_id, &changed);
        small_file::write(&*self.disk, &path_in(&self.directory), &bytes)?;
        *rows = changed;
        Ok(())
    }
}

fn path_in(directory: &Path) -> PathBuf {
    directory.join(NAME)
}

/// Encodes the file:
///
/// ```text
/// offset  size  field
///      0     8  magic "KVvallos"
///      8     1  format version, 1
///      9     3  zero
///     12     8  log id
///     20     4  stores (n)
///     24  n*16  for each: identity (8), highest sequence that was lost (8)
/// 24+n*16    4  masked CRC-32C of all before
/// ```
fn encode(log_id: u64, rows: &Rows) -> Vec<u8> {
    let mut out = small_file::begin(&MAGIC, log_id);
    small_file::push_count(&mut out, rows.len());
    for (store, lost_to) in rows {
        out.extend_from_slice(&store.0.to_le_bytes());
        out.extend_from_slice(&lost_to.0.to_le_bytes());
    }
    small_file::sealed(out)
}

/// Reads the log's id and the rows.
fn decode(bytes: &[u8]) -> Option<std::result::Result<(u64, Rows), u8>> {
    small_file::decode(bytes, &MAGIC, |log_id, reader| {
        let stores = reader.u32()? as usize;
        if reader.remaining() != ROW_BYTES * stores {
            return Ok(None);
        }
        let mut rows = Rows::new();
        for _ in 0..stores {
            let store = StoreId(reader.u64()?);
            rows.insert(store, Sequence(reader.u64()?));
        }
        Ok(Some((log_id, rows)))
    })
}

#[cfg(test)]
mod tests {
    use kvorum_golden::assert_bytes;

    use super::*;

    #[test]
    fn the_bytes_are_as_drawn() {
        let rows = Rows::from([
            (StoreId(0x0a0b), Sequence(300)),
            (StoreId(0x0c0d), Sequence(7)),
        ]);
        let bytes = encode(0x0102, &rows);
        let drawing = [
            ("magic \"KVvallos\"", 8),
            ("format version, 1", 1),
            ("zero", 3),
            ("log id", 8),
            ("stores", 4),
            ("identity of the first", 8),
            ("highest sequence that was lost", 8),
            ("identity of the second", 8),
            ("highest sequence that was lost", 8),
            ("masked CRC-32C of all before", 4),
        ];
        assert_bytes("losses.hex", &drawing, &bytes);
        assert_eq!(decode(&bytes), Some(Ok((0x0102, rows))));
    }
}
