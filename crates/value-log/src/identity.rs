//! The log's identity, and the stores that were erased: a small file beside the segments.
//!
//! A segment names stores by their identities. One that is not open may be on a disk that is not
//! there today, and waits; or it was erased, and nobody waits for it. This file tells the two apart.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use kvorum_backend::{BackendError, ErrorKind, Result, StoreId};
use kvorum_disk::{Disk, read_file, replace_file};
use kvorum_encoding::{ByteReader, Truncated};

use crate::checked::{CHECKSUM_BYTES, covered, push_checksum};
use crate::error::from_disk;

pub(crate) const MAGIC: [u8; 8] = *b"KVvallog";
const VERSION: u8 = 1;
const FIXED_BYTES: usize = 24;
/// Two million stores. Bytes.
pub(crate) const FILE_BYTES_MAX: u64 = 16 << 20;
pub(crate) const NAME: &str = "log";

/// What the file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Drawn when the log began.
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
        let mut out = Vec::with_capacity(FIXED_BYTES + 8 * self.erased.len() + CHECKSUM_BYTES);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[VERSION, 0, 0, 0]);
        out.extend_from_slice(&self.log_id.to_le_bytes());
        let erased = u32::try_from(self.erased.len()).unwrap_or(u32::MAX);
        out.extend_from_slice(&erased.to_le_bytes());
        for store in &self.erased {
            out.extend_from_slice(&store.0.to_le_bytes());
        }
        push_checksum(&mut out);
        out
    }

    /// The inner value is the version of a file that is newer than this program.
    fn decode(bytes: &[u8]) -> Option<std::result::Result<Self, u8>> {
        decode_covered(covered(bytes)?).ok().flatten()
    }

    /// Writes the file, and returns its length in bytes.
    pub(crate) fn write(&self, disk: &dyn Disk, directory: &Path) -> Result<u64> {
        let bytes = self.encode();
        replace_file(disk, &Self::path(directory), &bytes).map_err(|error| from_disk(&error))?;
        Ok(bytes.len() as u64)
    }

    /// Reads the file; `None` when it is missing or damaged.
    ///
    /// # Errors
    /// Those of the disk; [`ErrorKind::NewerFormat`].
    pub(crate) fn read(disk: &dyn Disk, directory: &Path) -> Result<Option<Self>> {
        let path = Self::path(directory);
        let read = || match read_file(disk, &path, FILE_BYTES_MAX) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if is_no_file_of_ours(error.kind()) => Ok(None),
            Err(error) => Err(from_disk(&error)),
        };
        let Some(bytes) = read()? else {
            return Ok(None);
        };
        let decoded = match Self::decode(&bytes) {
            // A device may err once: what looks damaged is read again.
            None => read()?.and_then(|bytes| Self::decode(&bytes)),
            decoded => decoded,
        };
        match decoded {
            Some(Ok(identity)) => Ok(Some(identity)),
            Some(Err(version)) => {
                let path = path.display();
                let detail = format!("{path} has version {version}, known is {VERSION}");
                Err(BackendError::new(ErrorKind::NewerFormat, detail))
            }
            None => Ok(None),
        }
    }
}

pub(crate) fn is_no_file_of_ours(kind: kvorum_disk::ErrorKind) -> bool {
    use kvorum_disk::ErrorKind::{NotFound, TooLarge};
    matches!(kind, NotFound | TooLarge)
}

fn decode_covered(
    covered: &[u8],
) -> std::result::Result<Option<std::result::Result<Identity, u8>>, Truncated> {
    let mut reader = ByteReader::new(covered);
    let magic = reader.array::<8>()?;
    let version = reader.u8()?;
    if magic != MAGIC {
        return Ok(None);
    }
    if version > VERSION {
        return Ok(Some(Err(version)));
    }
    let _zero = reader.array::<3>()?;
    let log_id = reader.u64()?;
    let stores = reader.u32()? as usize;
    if reader.remaining() != 8 * stores {
        return Ok(None);
    }
    let mut erased = BTreeSet::new();
    for _ in 0..stores {
        erased.insert(StoreId(reader.u64()?));
    }
    Ok(Some(Ok(Identity { log_id, erased })))
}

#[cfg(test)]
mod tests {
    use kvorum_encoding::{checksum, mask_checksum};

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
        assert_eq!(&bytes[..12], b"KVvallog\x01\0\0\0");
        assert_eq!(&bytes[12..24], &[2, 1, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(bytes.len(), 44);
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
    fn a_newer_version_is_told() {
        let mut bytes = identity().encode();
        bytes[8] = 2;
        let covered = bytes.len() - CHECKSUM_BYTES;
        let check = mask_checksum(checksum(&bytes[..covered]));
        bytes[covered..].copy_from_slice(&check.to_le_bytes());
        assert_eq!(Identity::decode(&bytes), Some(Err(2)));
    }
}
