//! The identity of a store and what must outlive its other files, kept twice.
//!
//! Without it no record could be checked and no fingerprint made, so it is written to two files, one
//! after the other. Each holds all of it; the first write is the moment of change, and an opening
//! that finds them different finishes the second.

use std::path::Path;

use kvorum_backend::{
    BackendError, ErrorKind, LostRange, Result, Written, settle_two_copies, write_two_copies,
};
use kvorum_disk::{Disk, read_file};
use kvorum_encoding::{ByteReader, Truncated, checksum, checksum_append, mask_checksum};
use kvorum_segment::list_segments;

use crate::error::IntoBackend;
use crate::lost::LostLog;

pub(crate) const NAMES: [&str; 2] = ["store-0", "store-1"];
pub(crate) const MAGIC: [u8; 8] = *b"KVbitcsk";
/// Version 1 had no log.
const VERSION: u8 = 2;
/// Room for far more retired segments than there can be between two checkpoints.
pub(crate) const BYTES_MAX: u64 = 64 << 20;

/// What a store knows of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Meta {
    /// Counts the writes of this file.
    pub(crate) generation: u64,
    /// The identity of the contents, which is also the id of the log.
    pub(crate) identity: u64,
    /// The identity before the last erasure; files that have it are leftovers.
    pub(crate) erased: u64,
    /// The secret under which fingerprints are made.
    pub(crate) secret: (u64, u64),
    /// A sequence at or above every one whose records were all removed, as long as the checkpoints since
    /// it was written are there.
    pub(crate) sequence: u64,
    /// No segment at or above this number was ever created before the others were listed.
    pub(crate) next_segment: u32,
    /// Segments that were removed since the last checkpoint; one that is still there is a leftover.
    pub(crate) retired: Vec<u32>,
    /// The node's log that holds entries of the store; 0 for none.
    pub(crate) shared_log: u64,
}

impl Meta {
    /// Encodes it:
    ///
    /// ```text
    /// offset  size  field
    ///      0     8  magic "KVbitcsk"
    ///      8     1  format version: 1, or 2 with a log
    ///      9     3  zero
    ///     12     4  masked CRC-32C of bytes 0..12 and 16 to the end
    ///     16     8  generation
    ///     24     8  identity
    ///     32     8  identity before the last erasure
    ///     40    16  secret of fingerprints
    ///     56     8  sequence
    ///     64     4  next segment
    ///     68     4  number of retired segments (r)
    ///     72   4*r  retired segments
    /// 72+4*r     8  id of the node's log, in version 2 only
    /// ```
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(72 + 4 * self.retired.len());
        out.extend_from_slice(&MAGIC);
        let version = if self.shared_log == 0 { 1 } else { VERSION };
        out.extend_from_slice(&[version, 0, 0, 0]);
        out.extend_from_slice(&[0; 4]);
        for number in [
            self.generation,
            self.identity,
            self.erased,
            self.secret.0,
            self.secret.1,
            self.sequence,
        ] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.next_segment.to_le_bytes());
        let retired = u32::try_from(self.retired.len()).unwrap_or(u32::MAX);
        out.extend_from_slice(&retired.to_le_bytes());
        for number in &self.retired {
            out.extend_from_slice(&number.to_le_bytes());
        }
        if self.shared_log != 0 {
            out.extend_from_slice(&self.shared_log.to_le_bytes());
        }
        let check = mask_checksum(checksum_append(checksum(&out[..12]), &out[16..]));
        out[12..16].copy_from_slice(&check.to_le_bytes());
        out
    }

    /// `Ok(None)` for damaged bytes.
    fn decode(bytes: &[u8], path: &Path) -> Result<Option<Self>> {
        let Ok((version, stored)) = read_prefix(bytes) else {
            return Ok(None);
        };
        let check = checksum_append(checksum(&bytes[..12]), &bytes[16..]);
        if mask_checksum(check) != stored {
            return Ok(None);
        }
        if version > VERSION {
            return Err(newer_format(path, version, VERSION));
        }
        Ok(Self::decode_fields(&bytes[16..], version).ok())
    }

    fn decode_fields(bytes: &[u8], version: u8) -> std::result::Result<Self, Truncated> {
        let mut reader = ByteReader::new(bytes);
        let mut meta = Self {
            generation: reader.u64()?,
            identity: reader.u64()?,
            erased: reader.u64()?,
            secret: (reader.u64()?, reader.u64()?),
            sequence: reader.u64()?,
            next_segment: reader.u32()?,
            retired: Vec::new(),
            shared_log: 0,
        };
        let retired = reader.u32()? as usize;
        let listed = reader.take(retired.saturating_mul(4))?;
        let numbers = listed.chunks_exact(4).filter_map(|it| it.try_into().ok());
        meta.retired = numbers.map(u32::from_le_bytes).collect();
        if version > 1 {
            meta.shared_log = reader.u64()?;
        }
        Ok(meta)
    }
}

fn read_prefix(bytes: &[u8]) -> std::result::Result<(u8, u32), Truncated> {
    let mut reader = ByteReader::new(bytes);
    if reader.array::<8>()? != MAGIC {
        return Err(Truncated { offset: 0 });
    }
    let version = reader.u8()?;
    let _zero = reader.take(3)?;
    Ok((version, reader.u32()?))
}

pub(crate) fn newer_format(path: &Path, got: u8, expected: u8) -> BackendError {
    BackendError::new(
        ErrorKind::NewerFormat,
        format!(
            "{} has format version {got}, expected at most {expected}",
            path.display()
        ),
    )
}

/// What an opening finds.
pub(crate) struct FoundMeta {
    /// The newest copy that is whole.
    pub(crate) meta: Option<Meta>,
    /// Names of copies that are damaged.
    pub(crate) damaged: Vec<&'static str>,
    /// True when the copies have to be written again.
    pub(crate) is_uneven: bool,
}

pub(crate) fn read(disk: &dyn Disk, directory: &Path) -> Result<FoundMeta> {
    let mut copies = Vec::new();
    let mut damaged = Vec::new();
    for name in NAMES {
        let path = directory.join(name);
        if disk.info(&path).into_backend()?.is_none() {
            continue;
        }
        let bytes = read_file(disk, &path, BYTES_MAX).into_backend()?;
        match Meta::decode(&bytes, &path)? {
            Some(meta) => copies.push(meta),
            None => damaged.push(name),
        }
    }
    let is_uneven = copies.len() < NAMES.len() || copies.first() != copies.last();
    Ok(FoundMeta {
        meta: copies.into_iter().max_by_key(|meta| meta.generation),
        damaged,
        is_uneven,
    })
}

/// Writes both copies.
pub(crate) fn write(disk: &dyn Disk, directory: &Path, meta: &Meta) -> Written {
    write_two_copies(disk, directory, NAMES, &meta.encode())
}

/// The same at an opening, which needs no space.
pub(crate) fn settle(disk: &dyn Disk, directory: &Path, meta: &Meta) -> Result<()> {
    settle_two_copies(disk, directory, NAMES, &meta.encode())
}

/// What the store knows of itself, or a new identity for a new store.
pub(crate) fn read_or_create(
    disk: &dyn Disk,
    directory: &Path,
    draw: &dyn Fn() -> u64,
    lost: &mut LostLog,
) -> Result<Meta> {
    let found = read(disk, directory)?;
    for name in found.damaged {
        let len = disk
            .info(&directory.join(name))
            .into_backend()?
            .map_or(0, |it| it.len);
        let range = LostRange {
            file: name.to_owned(),
            offset: 0,
            len,
            held: "one of two copies of the store's identity; nothing is lost".to_owned(),
        };
        lost.add(disk, range);
    }
    match found.meta {
        Some(mut meta) => {
            if found.is_uneven {
                meta.generation += 1;
                settle(disk, directory, &meta)?;
            }
            Ok(meta)
        }
        None if list_segments(disk, directory).into_backend()?.is_empty() => {
            let meta = Meta {
                generation: 1,
                identity: draw(),
                secret: (draw(), draw()),
                next_segment: 1,
                ..Meta::default()
            };
            write(disk, directory, &meta).both()?;
            Ok(meta)
        }
        None => Err(BackendError::new(
            ErrorKind::Corrupt,
            format!(
                "{} holds segments and no readable copy of the store's identity",
                directory.display()
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use kvorum_disk::{MemoryDisk, OpenMode, replace_file};

    use super::*;

    fn meta() -> Meta {
        Meta {
            generation: 3,
            identity: 4,
            erased: 5,
            secret: (6, 7),
            sequence: 8,
            next_segment: 9,
            retired: vec![1, 2],
            shared_log: 10,
        }
    }

    #[test]
    fn any_damage_to_one_copy_leaves_the_other() {
        let len = meta().encode().len();
        for at in 0..len as u64 {
            let disk = MemoryDisk::new();
            write(&disk, Path::new(""), &meta()).both().unwrap();
            let file = disk.open(Path::new(NAMES[0]), OpenMode::ReadWrite).unwrap();
            file.write_at(&[0xa5], at).unwrap();
            let found = read(&disk, Path::new("")).unwrap();
            assert_eq!(found.meta, Some(meta()), "byte {at}");
            assert!(found.is_uneven);
        }
    }

    #[test]
    fn the_newer_copy_counts() {
        let disk = MemoryDisk::new();
        write(&disk, Path::new(""), &meta()).both().unwrap();
        let newer = Meta {
            generation: 4,
            ..meta()
        };
        replace_file(&disk, Path::new(NAMES[0]), &newer.encode()).unwrap();
        let found = read(&disk, Path::new("")).unwrap();
        assert_eq!(found.meta, Some(newer));
        assert!(found.is_uneven);
    }

    #[test]
    fn a_newer_version_is_refused() {
        let mut bytes = meta().encode();
        bytes[8] = 3;
        let check = checksum_append(checksum(&bytes[..12]), &bytes[16..]);
        bytes[12..16].copy_from_slice(&mask_checksum(check).to_le_bytes());
        let error = Meta::decode(&bytes, Path::new("x")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NewerFormat);
    }
}
