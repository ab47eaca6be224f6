//! The pin of a store: all of its data go to one child, despite the routes. So an operator can test
//! another engine with one partition before all partitions move to it.
//!
//! It is kept in two copies beside the card. A partition that changes its owner keeps it: the new owner's
//! store adopts the pin before it gets the data. If the new owner lacks the child, the pin is kept without
//! effect until there is such a child. When the pin is removed, all data outside of their routes move back,
//! also those of the default route. From then on the store follows the routes as if it had never had a pin.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kvorum_backend::{
    Result, StoreCopy, begin_copy, end_copy, open_copy, put_label, take_label, write_two_copies,
};
use kvorum_disk::read_file;
use kvorum_encoding::{ByteReader, Truncated};
use parking_lot::{Mutex, RwLock};

use crate::child::{Child, ChildNumber};
use crate::opening::CardFiles;
use crate::routes::{RouteTable, Routes};

/// The files of the pin in the store's directory.
pub(crate) const PIN_NAMES: [&str; 2] = ["pin-0", "pin-1"];
pub(crate) const PIN_MAGIC: [u8; 8] = *b"KVpinto\0";
const VERSION: u8 = 1;
/// Room for the longest name, and more.
pub(crate) const BYTES_MAX: u64 = 4 << 10;

/// The state of the pin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pin {
    /// No pin.
    None,
    /// All data go to the child of this name.
    To(String),
    /// It was removed, and data outside of their routes move back.
    Back,
}

/// A pin as a store keeps it, twice.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    generation: u64,
    identity: u64,
    pin: Pin,
}

impl StoreCopy for Record {
    fn generation(&self) -> u64 {
        self.generation
    }

    fn identity(&self) -> u64 {
        self.identity
    }

    fn erased(&self) -> u64 {
        0
    }

    fn label(&self) -> &'static str {
        ""
    }
}

impl Record {
    /// Encodes it:
    ///
    /// ```text
    /// offset  size  field
    ///      0     8  magic "KVpinto" and a zero
    ///      8     1  format version: 1
    ///      9     3  zero
    ///     12     4  masked CRC-32C of bytes 0..12 and 16 to the end
    ///     16     8  generation
    ///     24     8  identity of the store
    ///     32     8  zero
    ///     40     1  0 none, 1 pinned, 2 taken back
    ///     41     1  length of the child's name (n)
    ///            n  the child that it is pinned to; empty if it is not
    /// ```
    fn encode(&self) -> Vec<u8> {
        let mut out = begin_copy(PIN_MAGIC, VERSION, self);
        let (code, name) = match &self.pin {
            Pin::None => (0, ""),
            Pin::To(name) => (1, &name[..]),
            Pin::Back => (2, ""),
        };
        out.push(code);
        put_label(&mut out, name);
        end_copy(out)
    }

    /// `Ok(None)` for damaged bytes.
    fn decode(bytes: &[u8], path: &Path) -> Result<Option<Self>> {
        let opened = open_copy(bytes, PIN_MAGIC, VERSION, path)?;
        let fields = opened.and_then(|(_, fields)| Self::decode_fields(fields).ok());
        Ok(fields.flatten())
    }

    fn decode_fields(bytes: &[u8]) -> std::result::Result<Option<Self>, Truncated> {
        let mut reader = ByteReader::new(bytes);
        let (generation, identity, _zero) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let (code, name) = (reader.u8()?, take_label(&mut reader)?);
        let pin = match code {
            0 => Pin::None,
            1 => Pin::To(name),
            2 => Pin::Back,
            _ => return Ok(None),
        };
        Ok(Some(Self {
            generation,
            identity,
            pin,
        }))
    }
}

/// Routes under a pin.
pub(crate) struct PinnedRoutes {
    routes: Arc<dyn Routes>,
    names: Vec<String>,
    /// The pin, and the number of its changes.
    kept: RwLock<(u64, Pin)>,
    /// The generation, which each operation reads.
    generation: AtomicU64,
    /// Held during a write to the disk.
    changing: Mutex<()>,
}

impl PinnedRoutes {
    /// Opens the routes with the pin of an earlier run.
    pub(crate) fn open(
        files: &CardFiles,
        identity: u64,
        children: &[Child],
        routes: Arc<dyn Routes>,
    ) -> Result<Self> {
        let kept = match read(files, identity)? {
            Some(record) => (record.generation, record.pin),
            None => (0, Pin::None),
        };
        Ok(Self {
            routes,
            names: children.iter().map(|it| it.name.clone()).collect(),
            generation: AtomicU64::new(kept.0),
            kept: RwLock::new(kept),
            changing: Mutex::new(()),
        })
    }

    pub(crate) fn pin(&self) -> Pin {
        self.kept.read().1.clone()
    }

    /// Changes the pin, first on the disk.
    pub(crate) fn change(&self, files: &CardFiles, identity: u64, pin: Pin) -> Result<()> {
        let _turn = self.changing.lock();
        let (generation, before) = self.kept.read().clone();
        if before == pin {
            return Ok(());
        }
        let record = Record {
            generation: generation + 1,
            identity,
            pin,
        };
        let (disk, directory) = (&*files.disk, &files.directory);
        write_two_copies(disk, directory, PIN_NAMES, &record.encode()).both()?;
        self.set(record.generation, record.pin);
        Ok(())
    }

    /// Drops the pin after an erasure: its file is another store's.
    pub(crate) fn forget(&self) {
        let _turn = self.changing.lock();
        let generation = self.kept.read().0;
        self.set(generation + 1, Pin::None);
    }

    /// Sets the pin, and then the generation, so that readers of the new generation find the new pin.
    fn set(&self, generation: u64, pin: Pin) {
        *self.kept.write() = (generation, pin);
        self.generation.store(generation, Ordering::Release);
    }

    /// The number of a child; `None` if it is not configured. Such a child was a former owner's, or
    /// empty: otherwise the store would not have been opened.
    fn number_of(&self, name: &str) -> Option<ChildNumber> {
        self.names.iter().position(|it| it == name)
    }
}

impl Routes for PinnedRoutes {
    /// Neither part decreases, so each change of one part changes the sum.
    fn version(&self) -> u64 {
        self.generation.load(Ordering::Acquire) + self.routes.version()
    }

    fn table(&self) -> (u64, Arc<RouteTable>) {
        let kept = self.kept.read();
        let (version, table) = self.routes.table();
        let table = match &kept.1 {
            Pin::None => table,
            Pin::To(name) => match self.number_of(name) {
                Some(child) => Arc::new(RouteTable::pinned(child)),
                None => table,
            },
            Pin::Back => Arc::new(table.moving_all()),
        };
        (kept.0 + version, table)
    }
}

/// The newest whole record of the store with this identity.
fn read(files: &CardFiles, identity: u64) -> Result<Option<Record>> {
    let mut newest: Option<Record> = None;
    for path in paths(files) {
        if files.disk.info(&path)?.is_none() {
            continue;
        }
        let bytes = read_file(&*files.disk, &path, BYTES_MAX)?;
        let record = Record::decode(&bytes, &path)?.filter(|it| it.identity == identity);
        let generation = newest.as_ref().map_or(0, |it| it.generation);
        if let Some(record) = record.filter(|it| it.generation > generation) {
            newest = Some(record);
        }
    }
    Ok(newest)
}

/// The copies on the disk, for a backup.
pub(crate) fn kept_copies(files: &CardFiles) -> Result<Vec<(&'static str, Vec<u8>)>> {
    let mut copies = Vec::new();
    for (name, path) in PIN_NAMES.into_iter().zip(paths(files)) {
        if files.disk.info(&path)?.is_some() {
            copies.push((name, read_file(&*files.disk, &path, BYTES_MAX)?));
        }
    }
    Ok(copies)
}

fn paths(files: &CardFiles) -> [PathBuf; 2] {
    PIN_NAMES.map(|name| files.directory.join(name))
}

#[cfg(test)]
mod tests {
    use kvorum_golden::assert_bytes;

    use super::*;

    #[test]
    fn the_bytes_are_as_drawn() {
        let record = Record {
            generation: 3,
            identity: 0x0102,
            pin: Pin::To("ldb".to_owned()),
        };
        let drawing = [
            ("magic \"KVpinto\" and a zero", 8),
            ("format version, 1", 1),
            ("zero", 3),
            ("masked CRC-32C of bytes 0..12 and 16 to the end", 4),
            ("generation", 8),
            ("identity of the store", 8),
            ("zero", 8),
            ("1 pinned", 1),
            ("length of the child's name", 1),
            ("child that it is pinned to", 3),
        ];
        assert_bytes("pin.hex", &drawing, &record.encode());
    }

    #[test]
    fn it_is_read_as_written_and_no_flip_or_cut_is_believed() {
        let path = Path::new(PIN_NAMES[0]);
        for pin in [Pin::None, Pin::To("ldb".to_owned()), Pin::Back] {
            let record = Record {
                generation: 3,
                identity: 9,
                pin,
            };
            let bytes = record.encode();
            assert_eq!(Record::decode(&bytes, path), Ok(Some(record)));
            for at in 0..bytes.len() {
                let mut flipped = bytes.clone();
                flipped[at] ^= 0x10;
                assert_eq!(Record::decode(&flipped, path), Ok(None), "byte {at}");
                assert_eq!(Record::decode(&bytes[..at], path), Ok(None), "cut at {at}");
            }
        }
    }
}
