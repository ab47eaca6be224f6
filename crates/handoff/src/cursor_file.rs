//! The progress of a transfer, kept for the time after a restart: a small file for each.
//!
//! A lost file costs only time: a transfer without it starts again. A file is accepted only if it is
//! whole, and was written for the same transfer, the same legs and the same contents of the store.

use std::path::{Path, PathBuf};

use kvorum_backend::StoreId;
use kvorum_disk::{Disk, DiskError, ErrorKind, read_file, replace_file};
use kvorum_encoding::{ByteReader, StorageKey, Truncated, checksum, put_varint};
use kvorum_ring::{Epoch, Partition};

use crate::progress::{LegProgress, Progress};
use crate::transfer_id::{TransferId, TransferKind};

const MAGIC: &[u8; 8] = b"KvTrans\n";
const VERSION: u8 = 1;
const CHECKSUM_BYTES: usize = 4;
/// Two keys for each of the legs that the largest n_val of a sensible bucket makes fit many times.
const FILE_BYTES_MAX: u64 = 64 << 20;
const PREFIX: &str = "transfer.";

/// The content of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) id: TransferId,
    /// The contents that it was written into.
    pub(crate) store: StoreId,
    pub(crate) progress: Progress,
}

/// The files of one node.
#[derive(Clone)]
pub(crate) struct CursorFiles {
    pub(crate) disk: std::sync::Arc<dyn Disk>,
    pub(crate) directory: PathBuf,
}

impl CursorFiles {
    pub(crate) fn keep(&self, kept: &Kept) -> Result<(), DiskError> {
        replace_file(&*self.disk, &self.path(kept.id), &encode(kept))
    }

    /// The file of a transfer, if it can be read.
    pub(crate) fn load(&self, id: TransferId) -> Option<Kept> {
        self.read(&self.path(id)).filter(|kept| kept.id == id)
    }

    pub(crate) fn forget(&self, id: TransferId) -> Result<(), DiskError> {
        match self.disk.remove_file(&self.path(id)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            // A crash may bring it back: then it is removed again.
            removed => removed,
        }
    }

    /// All transfers of which something is kept.
    pub(crate) fn all(&self) -> Result<Vec<TransferId>, DiskError> {
        let entries = self.disk.list(&self.directory)?;
        let named = entries.iter().filter(|it| it.name.starts_with(PREFIX));
        let kept = named.filter_map(|it| self.read(&self.directory.join(&it.name)));
        Ok(kept.map(|kept| kept.id).collect())
    }

    fn read(&self, path: &Path) -> Option<Kept> {
        let bytes = match read_file(&*self.disk, path, FILE_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!(event = "transfer_cursor_unreadable", error = %error);
                return None;
            }
        };
        let kept = decode(&bytes);
        if kept.is_none() {
            tracing::warn!(event = "transfer_cursor_damaged", file = %path.display());
        }
        kept
    }

    fn path(&self, id: TransferId) -> PathBuf {
        self.directory.join(format!("{PREFIX}{id}"))
    }
}

/// The bytes of a file.
///
/// ```text
/// magic      8 bytes  "KvTrans\n"
/// version    u8       1
/// kind       u8       1 ownership, 2 growth, 3 repair
/// partition  u16
/// epoch      u64
/// store      u64
/// legs       varint count, then for each
///              source   u16
///              is_done  u8
///              through  u8 0 none, 1 then varint length, bytes
/// checksum   u32      of all before
/// ```
fn encode(kept: &Kept) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.push(VERSION);
    out.push(kept.id.kind.code());
    out.extend_from_slice(&kept.id.partition.number().to_le_bytes());
    out.extend_from_slice(&kept.id.epoch.get().to_le_bytes());
    out.extend_from_slice(&kept.store.0.to_le_bytes());
    put_varint(&mut out, kept.progress.legs.len() as u64);
    for leg in &kept.progress.legs {
        out.extend_from_slice(&leg.source.number().to_le_bytes());
        out.push(u8::from(leg.is_done));
        out.push(u8::from(leg.through.is_some()));
        if let Some(key) = &leg.through {
            put_varint(&mut out, key.as_bytes().len() as u64);
            out.extend_from_slice(key.as_bytes());
        }
    }
    let sum = checksum(&out);
    out.extend_from_slice(&sum.to_le_bytes());
    out
}

fn decode(bytes: &[u8]) -> Option<Kept> {
    let (content, sum) = bytes.split_at_checked(bytes.len().checked_sub(CHECKSUM_BYTES)?)?;
    if checksum(content).to_le_bytes() != sum {
        return None;
    }
    let mut reader = ByteReader::new(content.strip_prefix(MAGIC)?);
    if reader.u8().ok()? != VERSION {
        return None;
    }
    parse(&mut reader).ok()?.filter(|_| reader.is_empty())
}

fn parse(reader: &mut ByteReader<'_>) -> Result<Option<Kept>, Truncated> {
    let kind = TransferKind::from_code(reader.u8()?);
    let filled = Partition::of_number(reader.u16()?);
    let epoch = Epoch::new(reader.u64()?);
    let store = StoreId(reader.u64()?);
    let count = reader.varint()?;
    let mut legs = Vec::new();
    for _ in 0..count {
        let source = Partition::of_number(reader.u16()?);
        let is_done = reader.u8()? == 1;
        let through = match reader.u8()? {
            0 => None,
            _ => Some(StorageKey::from_encoded(reader.take_prefixed()?.to_vec())),
        };
        let Some(source) = source else {
            return Ok(None);
        };
        legs.push(LegProgress {
            source,
            through,
            is_done,
        });
    }
    let (Some(kind), Some(partition)) = (kind, filled) else {
        return Ok(None);
    };
    Ok(Some(Kept {
        id: TransferId {
            kind,
            partition,
            epoch,
        },
        store,
        progress: Progress { legs },
    }))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kvorum_disk::MemoryDisk;
    use kvorum_golden::assert_bytes;
    use kvorum_ring::RingSize;

    use super::*;

    fn kept() -> Kept {
        let part = |number| RingSize::new(16).unwrap().partition(number).unwrap();
        let leg = |number, through: Option<&str>| LegProgress {
            source: part(number),
            through: through.map(|key| StorageKey::from_encoded(key.as_bytes().to_vec())),
            is_done: through.is_none(),
        };
        Kept {
            id: TransferId {
                kind: TransferKind::Repair,
                partition: part(7),
                epoch: Epoch::new(9),
            },
            store: StoreId(5),
            progress: Progress {
                legs: vec![leg(6, None), leg(8, Some("key"))],
            },
        }
    }

    #[test]
    fn the_bytes_are_as_drawn() {
        let drawing = [
            ("magic \"KvTrans\" and a newline", 8),
            ("version, 1", 1),
            ("kind: 3 repair", 1),
            ("partition", 2),
            ("epoch", 8),
            ("store", 8),
            ("number of legs", 1),
            ("source", 2),
            ("1 it is done", 1),
            ("0 no key", 1),
            ("source", 2),
            ("0 it is not done", 1),
            ("1 a key follows", 1),
            ("length of the key", 1),
            ("key", 3),
            ("CRC-32C of all before", 4),
        ];
        assert_bytes("cursor_file.hex", &drawing, &encode(&kept()));
    }

    #[test]
    fn what_is_kept_is_found_until_it_is_forgotten() {
        let files = CursorFiles {
            disk: Arc::new(MemoryDisk::new()),
            directory: PathBuf::from("transfers"),
        };
        files.disk.create_directory(&files.directory).unwrap();
        let kept = kept();
        assert_eq!(files.load(kept.id), None);
        files.keep(&kept).unwrap();
        assert_eq!(files.all().unwrap(), [kept.id]);
        assert_eq!(files.load(kept.id), Some(kept.clone()));
        files.forget(kept.id).unwrap();
        files.forget(kept.id).unwrap();
        assert_eq!(files.load(kept.id), None);
    }

    #[test]
    fn no_changed_byte_goes_unnoticed() {
        let bytes = encode(&kept());
        assert_eq!(decode(&bytes), Some(kept()));
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x40;
            assert_eq!(decode(&changed), None, "byte {at}");
            assert_eq!(decode(&bytes[..at]), None, "{at} bytes");
        }
    }
}
