//! The log's identity, and the erased stores: a small file beside the segments.
//!
//! A segment names stores by their identities. The disk of an unopened store may be absent for now,
//! so the store's segments are kept; an erased store needs none. This file distinguishes the two.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use kvorum_backend::{Result, StoreId};
use kvorum_disk::Disk;

use crate::small_file;

pub(crate) const MAGIC: [u8; 8] = *b"KVvallog";
pub(crate) const NAME: &str = "log";

/// Contents of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Drawn at random when the log began.
    pub(crate) log_id: u64,
    /// Stores that are erased, or about to be.
    pub(crate) erased: BTreeSet<StoreId>,
}

impl Identity {
    pub(crate) fn path(directory: &Path) -> PathBuf {
        directory.join(NAME)
    }

    /// Encodes the file:
    ///
    /// ```text
    /// offset  size  field
    ///      0     8  magic "KVvallog"
    ///      8     1  format version, 1
    ///      9     3  zero
    ///     12     8  log id
    ///     20     4  erased stores (n)
    ///     24   n*8  their identities
    ///   24+n*8   4  masked CRC-32C of all before
    /// ```
    fn encode(&self) -> Vec<u8> {
        let mut out = small_file::begin(&MAGIC, self.log_id);
        small_file::push_count(&mut out, self.erased.len());
        for store in &self.erased {
            out.extend_from_slice(&store.0.to_le_bytes());
        }
        small_file::sealed(out)
    }

    fn decode(bytes: &[u8]) -> Option<std::result::Result<Self, u8>> {
        small_file::decode(bytes, &MAGIC, |log_id, reader| {
            let stores = reader.u32()? as usize;
            if reader.remaining() != 8 * stores {
                return Ok(None);
            }
            let mut erased = BTreeSet::new();
            for _ in 0..stores {
                erased.insert(StoreId(reader.u64()?));
            }
            Ok(Some(Self { log_id, erased }))
        })
    }

    /// Writes the file, and returns its length in bytes.
    pub(crate) fn write(&self, disk: &dyn Disk, directory: &Path) -> Result<u64> {
        small_file::write(disk, &Self::path(directory), &self.encode())
    }

    /// Reads the file; `None` when it is missing or damaged.
    ///
    /// # Errors
    /// Those of the disk; [`kvorum_backend::ErrorKind::NewerFormat`].
    pub(crate) fn read(disk: &dyn Disk, directory: &Path) -> Result<Option<Self>> {
        small_file::read(disk, &Self::path(directory), Self::decode)
    }
}

#[cfg(test)]
mod tests {
    use kvorum_encoding::{checksum, mask_checksum};
    use kvorum_golden::assert_bytes;

    use super::*;

    fn identity() -> Identity {
        Identity {
            log_id: 0x0102,
            erased: [StoreId(3), StoreId(4)].into(),
        }
    }

    #[test]
    fn the_bytes_are_as_drawn() {
        let bytes = identity().encode();
        let drawing = [
            ("magic \"KVvallog\"", 8),
            ("format version, 1", 1),
            ("zero", 3),
            ("log id", 8),
            ("number of erased stores", 4),
            ("identity of one", 8),
            ("identity of another", 8),
            ("masked CRC-32C of all before", 4),
        ];
        assert_bytes("identity.hex", &drawing, &bytes);
        assert_eq!(Identity::decode(&bytes), Some(Ok(identity())));
    }

    #[test]
    fn any_flip_or_cut_is_refused() {
        let good = identity().encode();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x20;
            assert_eq!(Identity::decode(&bad), None, "byte {at}");
            assert_eq!(Identity::decode(&good[..at]), None, "cut at {at}");
        }
    }

    #[test]
    fn a_newer_version_is_reported() {
        let mut bytes = identity().encode();
        bytes[8] = 2;
        let covered = bytes.len() - 4;
        let check = mask_checksum(checksum(&bytes[..covered]));
        bytes[covered..].copy_from_slice(&check.to_le_bytes());
        assert_eq!(Identity::decode(&bytes), Some(Err(2)));
    }
}
